//! A text beside other parts of a row, as the mean over its positions.

use burn::tensor::Tensor;
use feedline_schemas::config::ModelConfig;

use super::blocks::{BlockStyle, DEVIATION, TransformerBlock, size};
use crate::model::{
    interface::TokenInput,
    layers::{Builder, Dropout, Embedding, Gain, LayerNorm, Pass, Segment},
};

/// Embedded ids, in which blocks may look back at the ids before, and their mean without the padding.
#[derive(Clone, Debug)]
pub(super) struct Pooled {
    tokens: Embedding,
    dropout: Dropout,
    attention: Option<Attended>,
    width: usize,
}

/// Layer that makes a position depend on those before it.
#[derive(Clone, Debug)]
struct Attended {
    positions: Embedding,
    blocks: Vec<(Segment, TransformerBlock)>,
    norm: LayerNorm,
}

impl Pooled {
    /// For `length` ids below `vocabulary`: the mean of their vectors.
    pub(super) fn embedding(
        b: &mut Builder,
        config: &ModelConfig,
        [length, vocabulary]: [usize; 2],
    ) -> Self {
        let width = size(config.width);
        // The mean of many small vectors would be too small to begin with.
        let tokens = Embedding::new(b, "tokens", [vocabulary, width], length, Gain::Normal(1.0));
        Self {
            tokens,
            dropout: Dropout::new(b, config.dropout),
            attention: None,
            width,
        }
    }

    /// The same of what `config.layers` blocks make of them.
    pub(super) fn transformer(
        b: &mut Builder,
        config: &ModelConfig,
        [length, vocabulary]: [usize; 2],
    ) -> Self {
        let width = size(config.width);
        let (sizes, normal) = ([length, width], Gain::Normal(DEVIATION));
        let tokens = Embedding::new(b, "tokens", [vocabulary, width], length, normal);
        let positions = Embedding::new(b, "positions", sizes, length, normal);
        let dropout = Dropout::new(b, config.dropout);
        let blocks = BlockStyle::plain(config, length).blocks(b);
        Self {
            tokens,
            dropout,
            attention: Some(Attended {
                positions,
                blocks,
                norm: LayerNorm::new(b, "norm", &sizes),
            }),
            width,
        }
    }

    /// Numbers that come out.
    pub(super) const fn output(&self) -> usize {
        self.width
    }

    /// `[rows, length]` to `[rows, output]`.
    pub(super) fn forward(&self, pass: &mut Pass<'_>, input: &TokenInput) -> Tensor<2> {
        let [rows, length] = input.ids.dims();
        let x = self.tokens.forward(pass, input.ids.clone());
        let x = match &self.attention {
            None => self.dropout.forward(pass, x),
            Some(attended) => {
                let positions = attended.positions.forward(pass, input.positions.clone());
                let mut x = self.dropout.forward(pass, x + positions);
                for (segment, block) in &attended.blocks {
                    let (block, mask) = (block.clone(), input.mask.clone());
                    x = pass.checkpoint(*segment, x, move |pass, x| {
                        block.forward(pass, x, Some(&mask), None)
                    });
                }
                attended.norm.forward(pass, x)
            }
        };
        let shares = input
            .shares
            .clone()
            .expect("a branch over texts is built for rows that have them");
        let shares = shares.reshape([rows, length, 1]);
        (x * shares).sum_dim(1).reshape([rows, self.width])
    }
}
