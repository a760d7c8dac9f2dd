//! Convolutions and pools, then fully connected layers.
//!
//! For each of `channels`: a convolution that keeps the image's sides, the norm, the nonlinearity, a pool that halves
//! them. Then all numbers go through the `hidden` layers, with dropout, to the outputs.

use burn::tensor::Tensor;
use feedline_schemas::{
    config::{ModelConfig, NormKind, PoolKind},
    count::counted,
};

use super::blocks::{Dense, Norm, Style, activation, sizes};
use crate::{
    error::{Error, config as wrong},
    model::{
        interface::{Input, Model},
        layers::{
            Activation, AveragePool, Builder, Conv2d, Gain, Layout, Linear, MaxPool, Pass, Segment,
        },
    },
};

#[derive(Clone, Copy, Debug)]
enum StagePool {
    None,
    Max(MaxPool),
    Average(AveragePool),
}

#[derive(Clone, Debug)]
struct Stage {
    conv: Conv2d,
    norm: Option<Norm>,
    activation: Activation,
    pool: StagePool,
}

impl Stage {
    fn forward(&self, pass: &mut Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        let mut x = self.conv.forward(pass, x);
        if let Some(norm) = &self.norm {
            x = norm.forward(pass, x);
        }
        x = self.activation.forward(x);
        match &self.pool {
            StagePool::None => x,
            StagePool::Max(pool) => pool.forward(x),
            StagePool::Average(pool) => pool.forward(x),
        }
    }
}

/// The convolutions.
#[derive(Clone, Debug)]
pub(super) struct CnnTrunk {
    stages: Vec<(Segment, Stage)>,
    output: [usize; 3],
}

impl CnnTrunk {
    /// For images of `sizes`, `[channels, height, width]`.
    pub(super) fn new(
        b: &mut Builder,
        config: &ModelConfig,
        channels: &[usize],
        sizes: [usize; 3],
    ) -> Result<Self, Error> {
        let mut output = sizes;
        let mut stages = Vec::new();
        for (i, &out) in channels.iter().enumerate() {
            let name = format!("conv.{i}");
            let (segment, stage) = b.segment(&name, &output, |b| {
                b.within(&name, |b| stage(b, config, output, out))
            });
            let (stage, after) = stage.ok_or_else(|| {
                let [_, height, width] = sizes;
                let reason = format!(
                    "images of {height}x{width} cannot be halved {}; give fewer, or set \
                     `train.model.pool` to `none`",
                    counted(channels.len() as u64, "time")
                );
                wrong("model.channels", reason)
            })?;
            stages.push((segment, stage));
            output = after;
        }
        Ok(Self { stages, output })
    }

    /// Numbers that come out.
    pub(super) const fn output(&self) -> usize {
        self.output[0] * self.output[1] * self.output[2]
    }

    /// `[rows, channels, height, width]` to `[rows, output]`.
    pub(super) fn forward(&self, pass: &mut Pass<'_>, x: Tensor<4>) -> Tensor<2> {
        let mut x = pass.for_product(x);
        for (segment, stage) in &self.stages {
            let stage = stage.clone();
            x = pass.checkpoint(*segment, x, move |pass, x| stage.forward(pass, x));
        }
        let rows = x.dims()[0];
        x.reshape([rows, self.output()])
    }
}

/// A stage and the sizes after it; `None` when there is nothing left to halve.
fn stage(
    b: &mut Builder,
    config: &ModelConfig,
    sizes: [usize; 3],
    out: usize,
) -> Option<(Stage, [usize; 3])> {
    let kernel = [config.kernel.map_or(3, |kernel| kernel as usize), 1];
    let normed = config.norm.is_some_and(|norm| norm != NormKind::None);
    let conv = if normed {
        Conv2d::without_bias(b, "conv", sizes, out, kernel, Gain::He)
    } else {
        Conv2d::new(b, "conv", sizes, out, kernel, Gain::He)
    };
    let sizes = conv.output();
    let norm = Norm::new(b, config.norm, &sizes);
    let activation = activation(config);
    activation.note(b, "activation", &sizes);
    let halves = sizes[1] >= 2 && sizes[2] >= 2;
    let (pool, sizes) = match config.pool.unwrap_or(PoolKind::Max) {
        PoolKind::None => (StagePool::None, sizes),
        _ if !halves => return None,
        PoolKind::Max => {
            let pool = MaxPool::new(b, "pool", sizes, [2, 2, 0]);
            (StagePool::Max(pool), pool.output())
        }
        PoolKind::Average => {
            let pool = AveragePool::new(b, "pool", sizes, [2, 2]);
            (StagePool::Average(pool), pool.output())
        }
    };
    let stage = Stage {
        conv,
        norm,
        activation,
        pool,
    };
    Some((stage, sizes))
}

/// A convolutional network.
#[derive(Clone, Debug)]
pub(super) struct Cnn {
    layout: Layout,
    trunk: CnnTrunk,
    hidden: Dense,
    last: Linear,
}

impl Cnn {
    /// For images of `sizes`.
    ///
    /// # Errors
    /// [`Error::Config`] when the images are too small for so many pools.
    pub(super) fn new(
        config: &ModelConfig,
        image: [usize; 3],
        outputs: usize,
    ) -> Result<Self, Error> {
        let mut b = Builder::new();
        let channels = sizes(config.channels.as_deref());
        let trunk = CnnTrunk::new(&mut b, config, &channels, image)?;
        let widths = sizes(config.hidden.as_deref());
        let hidden = Dense::new(&mut b, trunk.output(), &widths, Style::plain(config));
        let last = Linear::new(&mut b, "last", &[hidden.output()], outputs, Gain::Glorot);
        Ok(Self {
            layout: b.finish(),
            trunk,
            hidden,
            last,
        })
    }
}

impl Model for Cnn {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn forward(&self, pass: &mut Pass<'_>, input: &Input) -> Tensor<2> {
        let x = self.trunk.forward(pass, input.images());
        let x = self.hidden.forward(pass, x);
        self.last.forward(pass, x)
    }
}
