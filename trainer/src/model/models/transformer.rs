//! A decoder that predicts the next token, of the kind of GPT-2 (Radford et al. 2019) or of Llama (Touvron et al. 2023,
//! arXiv 2302.13971).
//!
//! Ids are embedded; learned positions are added, or queries and keys are rotated by the position; blocks with their norms
//! in front; a last norm; a score of each id, by default from the table that embeds them. A position looks at itself and at
//! what is before it in its document, and is numbered from its document's beginning, so documents that share a row do not
//! know of each other.

use burn::tensor::{Int, Tensor, TensorData};
use feedline_schemas::config::{ModelConfig, PositionKind};

use super::blocks::{BlockStyle, DEVIATION, LastNorm, TransformerBlock, size};
use crate::{
    device::Upload as _,
    model::{
        interface::{Input, Model, Objective},
        layers::{
            AngleTable, Angles, Builder, Dropout, Embedding, Gain, KeyValueCache, Layout, Linear,
            Pass, Segment,
        },
    },
};

/// A causal transformer.
#[derive(Clone, Debug)]
pub(super) struct Transformer {
    layout: Layout,
    tokens: Embedding,
    positions: Positions,
    dropout: Dropout,
    blocks: Vec<(Segment, TransformerBlock)>,
    norm: LastNorm,
    /// Scores of ids, when they are not those of the embedding.
    scores: Option<Linear>,
    vocabulary: usize,
}

/// Encoding of positions.
#[derive(Clone, Debug)]
enum Positions {
    Learned(Embedding),
    Rotary(AngleTable),
}

impl Transformer {
    /// For `length` ids below `vocabulary`.
    pub(super) fn new(config: &ModelConfig, length: usize, vocabulary: usize) -> Self {
        let style = BlockStyle::of(config, length);
        let (width, sizes) = (size(config.width), style.sizes);
        let normal = Gain::Normal(DEVIATION);
        let mut b = Builder::new();
        let tokens = Embedding::new(&mut b, "tokens", [vocabulary, width], length, normal);
        let positions = match config.positions {
            Some(PositionKind::Rotary) => {
                Positions::Rotary(AngleTable::new(length, style.inside()))
            }
            Some(PositionKind::Learned) | None => {
                let table = Embedding::new(&mut b, "positions", sizes, length, normal);
                Positions::Learned(table)
            }
        };
        let dropout = Dropout::new(&mut b, config.dropout);
        let blocks = style.blocks(&mut b);
        let norm = LastNorm::new(&mut b, "norm", style);
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

    /// `[rows, length, vocabulary]` of what comes out of the blocks.
    fn scores(&self, pass: &Pass<'_>, x: Tensor<3>) -> Tensor<3> {
        let x = self.norm.forward(pass, x);
        match &self.scores {
            Some(scores) => scores.forward(pass, x),
            None => self.tokens.scores(pass, x),
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
        let x = self.tokens.forward(pass, tokens.ids.clone());
        let positions = &tokens.positions;
        let (x, angles) = match &self.positions {
            Positions::Learned(table) => (x + table.forward(pass, positions.clone()), None),
            Positions::Rotary(table) => {
                let angles = Angles::new(table, positions, x.dtype());
                (x, Some(angles))
            }
        };
        let mut x = self.dropout.forward(pass, x);
        for (segment, block) in &self.blocks {
            let (block, mask, angles) = (block.clone(), tokens.mask.clone(), angles.clone());
            x = pass.checkpoint(*segment, x, move |pass, x| {
                block.forward(pass, x, Some(&mask), angles.as_ref())
            });
        }
        let scores = self.scores(pass, x);
        scores.reshape([rows * length, self.vocabulary])
    }

    fn objective(&self) -> Objective {
        Objective::NextToken
    }

    fn extend(
        &self,
        pass: &Pass<'_>,
        ids: Tensor<2, Int>,
        cache: &mut KeyValueCache,
    ) -> Option<Tensor<2>> {
        let [rows, new] = ids.dims();
        let (past, device) = (cache.length(), ids.device());
        let x = self.tokens.forward(pass, ids);
        let (mut x, angles) = match &self.positions {
            Positions::Learned(table) => {
                let positions = (past..past + new).map(|at| i32::try_from(at).unwrap_or(i32::MAX));
                let data = TensorData::new(positions.collect::<Vec<i32>>(), [1, new]);
                let positions = Tensor::<2, Int>::upload(data, &device);
                (x + table.forward(pass, positions), None)
            }
            Positions::Rotary(table) => {
                let angles = Angles::following(table, [past, new], &device, x.dtype());
                (x, Some(angles))
            }
        };
        for (_, block) in &self.blocks {
            x = block.extend(pass, x, cache, angles.as_ref());
        }
        cache.advance(new);
        let scores = self.scores(pass, x.narrow(1, new - 1, 1));
        Some(scores.reshape([rows, self.vocabulary]))
    }
}
