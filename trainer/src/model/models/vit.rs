//! A vision transformer (Dosovitskiy et al. 2020, arXiv 2010.11929), with the mean over all patches in place of a class
//! token (Beyer, Zhai, Kolesnikov 2022, arXiv 2205.01580).

use burn::tensor::Tensor;
use feedline_schemas::config::ModelConfig;

use super::blocks::{BlockStyle, DEVIATION, TransformerBlock, size};
use crate::{
    error::{Error, config as wrong},
    model::{
        interface::{Input, Model},
        layers::{
            Builder, Conv2d, Dropout, Gain, Initial, LayerNorm, Layout, Linear, Pass, Segment, Slot,
        },
    },
};

/// Layers before the outputs.
#[derive(Clone, Debug)]
pub(super) struct VitTrunk {
    patches: Conv2d,
    /// `[patches, width]`, learnt.
    positions: Slot,
    dropout: Dropout,
    blocks: Vec<(Segment, TransformerBlock)>,
    norm: LayerNorm,
    width: usize,
}

impl VitTrunk {
    /// For images of `sizes`.
    ///
    /// # Errors
    /// [`Error::Config`] when the patches do not cover the images.
    pub(super) fn new(
        b: &mut Builder,
        config: &ModelConfig,
        image: [usize; 3],
    ) -> Result<Self, Error> {
        let [_, high, wide] = image;
        let patch = size(config.patch);
        if !high.is_multiple_of(patch) || !wide.is_multiple_of(patch) {
            let reason = format!("it is {patch} and must divide the images' sides, {high}x{wide}");
            return Err(wrong("model.patch", reason));
        }
        let width = size(config.width);
        let patches = Conv2d::patches(b, "patches", image, width, patch, Gain::Glorot);
        let [_, down, across] = patches.output();
        let sizes = [down * across, width];
        let deviation = DEVIATION;
        let positions = b.parameter("positions", &sizes, true, Initial::Normal { deviation });
        b.table(positions);
        b.note("positions", "embedding".into(), &sizes, sizes[0] * width, 0);
        let dropout = Dropout::new(b, config.dropout);
        let blocks = BlockStyle::plain(config, down * across).blocks(b);
        let norm = LayerNorm::new(b, "norm", &sizes);
        Ok(Self {
            patches,
            positions,
            dropout,
            blocks,
            norm,
            width,
        })
    }

    /// Numbers that come out.
    pub(super) const fn output(&self) -> usize {
        self.width
    }

    /// `[rows, channels, height, width]` to `[rows, output]`.
    pub(super) fn forward(&self, pass: &mut Pass<'_>, images: Tensor<4>) -> Tensor<2> {
        let x = self.patches.forward(pass, images);
        let [rows, width, down, across] = x.dims();
        let x = x.reshape([rows, width, down * across]).swap_dims(1, 2);
        let positions: Tensor<2> = pass.parameter(self.positions);
        let x = x + positions.reshape([1, down * across, width]);
        let mut x = self.dropout.forward(pass, x);
        for (segment, block) in &self.blocks {
            let block = block.clone();
            x = pass.checkpoint(*segment, x, move |pass, x| {
                block.forward(pass, x, None, None)
            });
        }
        let x = self.norm.forward(pass, x).mean_dim(1);
        x.reshape([rows, width])
    }
}

/// A vision transformer.
#[derive(Clone, Debug)]
pub(super) struct Vit {
    layout: Layout,
    trunk: VitTrunk,
    last: Linear,
}

impl Vit {
    /// For images of `sizes`.
    ///
    /// # Errors
    /// [`Error::Config`] when the patches do not cover the images.
    pub(super) fn new(
        config: &ModelConfig,
        image: [usize; 3],
        outputs: usize,
    ) -> Result<Self, Error> {
        let mut b = Builder::new();
        let trunk = VitTrunk::new(&mut b, config, image)?;
        let last = Linear::new(&mut b, "last", &[trunk.output()], outputs, Gain::Glorot);
        Ok(Self {
            layout: b.finish(),
            trunk,
            last,
        })
    }
}

impl Model for Vit {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn forward(&self, pass: &mut Pass<'_>, input: &Input) -> Tensor<2> {
        let x = self.trunk.forward(pass, input.images());
        self.last.forward(pass, x)
    }
}
