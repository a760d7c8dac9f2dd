//! A decoder of the GPT-2 kind (Radford et al. 2019) that predicts the next token.
//!
//! Ids and positions are embedded and added; blocks with their norms in front; a last norm; a score of each id, by
//! default from the table that embeds them. A position looks at itself and at what is before it in its document, and is
//! numbered from its document's beginning, so documents that share a row do not know of each other.

use burn::tensor::Tensor;
use feedline_schemas::config::ModelConfig;

use super::blocks::{Block, DEVIATION, size};
use crate::{
    layers::{Builder, Dropout, Embedding, Gain, LayerNorm, Layout, Linear, Pass, Segment},
    model::{Input, Model, Objective},
};

/// A causal transformer.
#[derive(Clone, Debug)]
pub(super) struct Transformer {
    layout: Layout,
    tokens: Embedding,
    positions: Embedding,
    dropout: Dropout,
    blocks: Vec<(Segment, Block)>,
    norm: LayerNorm,
    /// Scores of ids, when they are not those of the embedding.
    scores: Option<Linear>,
    vocabulary: usize,
}

impl Transformer {
    /// For `length` ids below `vocabulary`.
    pub(super) fn new(config: &ModelConfig, length: usize, vocabulary: usize) -> Self {
        let (width, layers) = (size(config.width), size(config.layers));
        let (heads, sizes) = (size(config.heads), [length, width]);
        let normal = Gain::Normal(DEVIATION);
        let mut b = Builder::new();
        let tokens = Embedding::new(&mut b, "tokens", [vocabulary, width], length, normal);
        let positions = Embedding::new(&mut b, "positions", [length, width], length, normal);
        let dropout = Dropout::new(&mut b, config.dropout);
        let block = |i: usize| {
            let name = format!("block.{i}");
            b.segment(&name, &sizes, |b| {
                Block::new(b, &name, sizes, heads, layers, config.dropout)
            })
        };
        let blocks = (0..layers).map(block).collect();
        let norm = LayerNorm::new(&mut b, "norm", &sizes);
        let tied = config.tied.unwrap_or(true);
        let scores =
            (!tied).then(|| Linear::with_bias(&mut b, "scores", &sizes, vocabulary, normal, false));
        if tied {
            let kept = length * width;
            b.note(
                "scores",
                "linear, tied".into(),
                &[length, vocabulary],
                0,
                kept,
            );
        }
        Self {
            layout: b.finish(),
            tokens,
            positions,
            dropout,
            blocks,
            norm,
            scores,
            vocabulary,
        }
    }
}

impl Model for Transformer {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn forward(&self, pass: &mut Pass<'_>, input: &Input) -> Tensor<2> {
        let tokens = input.tokens();
        let [rows, length] = tokens.ids.dims();
        let x = self.tokens.forward(pass, tokens.ids.clone())
            + self.positions.forward(pass, tokens.positions.clone());
        let mut x = self.dropout.forward(pass, x);
        for (segment, block) in &self.blocks {
            let (block, mask) = (block.clone(), tokens.mask.clone());
            x = pass.checkpoint(*segment, x, move |pass, x| {
                block.forward(pass, x, Some(&mask))
            });
        }
        let x = self.norm.forward(pass, x);
        let scores = match &self.scores {
            Some(scores) => scores.forward(pass, x),
            None => self.tokens.scores(pass, x),
        };
        scores.reshape([rows * length, self.vocabulary])
    }

    fn objective(&self) -> Objective {
        Objective::NextToken
    }
}
