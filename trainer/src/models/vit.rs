//! A vision transformer (Dosovitskiy et al. 2020, arXiv 2010.11929), with the mean over all patches in place of a class
//! token (Beyer, Zhai, Kolesnikov 2022, arXiv 2205.01580).

use burn::tensor::Tensor;
use feedline_schemas::config::ModelConfig;

use super::blocks::{Block, DEVIATION, size};
use crate::{
    error::{Error, config as wrong},
    layers::{
        Builder, Conv2d, Dropout, Gain, Initial, LayerNorm, Layout, Linear, Pass, Segment, Slot,
    },
    model::{Input, Model},
};

/// A vision transformer.
#[derive(Clone, Debug)]
pub(super) struct Vit {
    layout: Layout,
    patches: Conv2d,
    /// `[patches, width]`, learnt.
    positions: Slot,
    dropout: Dropout,
    blocks: Vec<(Segment, Block)>,
    norm: LayerNorm,
    last: Linear,
}

impl Vit {
    /// For pictures of `sizes`.
    ///
    /// # Errors
    /// [`Error::Config`] when the patches do not cover the pictures.
    pub(super) fn new(
        config: &ModelConfig,
        picture: [usize; 3],
        outputs: usize,
    ) -> Result<Self, Error> {
        let [_, high, wide] = picture;
        let patch = size(config.patch);
        if !high.is_multiple_of(patch) || !wide.is_multiple_of(patch) {
            let reason =
                format!("it is {patch} and must divide the pictures' sides, {high}x{wide}");
            return Err(wrong("model.patch", reason));
        }
        let (width, layers, heads) = (size(config.width), size(config.layers), size(config.heads));
        let mut b = Builder::new();
        let patches = Conv2d::patches(&mut b, "patches", picture, width, patch, Gain::Glorot);
        let [_, down, across] = patches.output();
        let sizes = [down * across, width];
        let deviation = DEVIATION;
        let positions = b.parameter("positions", &sizes, true, Initial::Normal { deviation });
        b.note("positions", "embedding".into(), &sizes, sizes[0] * width, 0);
        let dropout = Dropout::new(&mut b, config.dropout);
        let block = |i: usize| {
            let name = format!("block.{i}");
            b.segment(&name, &sizes, |b| {
                Block::new(b, &name, sizes, heads, layers, config.dropout)
            })
        };
        let blocks = (0..layers).map(block).collect();
        let norm = LayerNorm::new(&mut b, "norm", &sizes);
        let last = Linear::new(&mut b, "last", &[width], outputs, Gain::Glorot);
        Ok(Self {
            layout: b.finish(),
            patches,
            positions,
            dropout,
            blocks,
            norm,
            last,
        })
    }
}

impl Model for Vit {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn forward(&self, pass: &mut Pass<'_>, input: &Input) -> Tensor<2> {
        let x = self.patches.forward(pass, input.pictures());
        let [rows, width, down, across] = x.dims();
        let x = x.reshape([rows, width, down * across]).swap_dims(1, 2);
        let positions: Tensor<2> = pass.parameter(self.positions);
        let x = x + positions.reshape([1, down * across, width]);
        let mut x = self.dropout.forward(pass, x);
        for (segment, block) in &self.blocks {
            let block = block.clone();
            x = pass.checkpoint(*segment, x, move |pass, x| block.forward(pass, x, None));
        }
        let x = self.norm.forward(pass, x).mean_dim(1);
        self.last.forward(pass, x.reshape([rows, width]))
    }
}
