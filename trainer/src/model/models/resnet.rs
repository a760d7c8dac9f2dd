//! Residual networks of 18, 34 and 50 layers (He et al. 2015, arXiv 1512.03385, table 1).
//!
//! In 50 the stride is in the 3x3 convolution of a block, not in the first 1x1, and the last norm of each block begins
//! with scale 0, so that blocks begin as the identity (both from Goyal et al. 2017, arXiv 1706.02677). For small images
//! the stem is one 3x3 convolution without a pool, as in section 4.2 of the paper for CIFAR-10.

use burn::tensor::Tensor;
use feedline_schemas::config::ModelConfig;

use crate::model::{
    interface::{Input, Model},
    layers::{
        Activation, BatchNorm, Builder, Conv2d, Dropout, Gain, Layout, Linear, MaxPool, Pass,
        Segment, global_average,
    },
};

/// A convolution without bias and its norm.
#[derive(Clone, Debug)]
struct ConvNorm {
    conv: Conv2d,
    norm: BatchNorm,
}

impl ConvNorm {
    fn new(
        b: &mut Builder,
        name: &str,
        sizes: [usize; 3],
        out: usize,
        kernel: [usize; 2],
        scale: f32,
    ) -> Self {
        b.within(name, |b| {
            let conv = Conv2d::without_bias(b, "conv", sizes, out, kernel, Gain::He);
            let norm = BatchNorm::with_scale(b, "norm", &conv.output(), scale);
            Self { conv, norm }
        })
    }

    fn forward(&self, pass: &mut Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        let x = self.conv.forward(pass, x);
        self.norm.forward(pass, x)
    }
}

/// A residual block: two 3x3 convolutions, or 1x1, 3x3 and 1x1 with four times the channels at the end.
#[derive(Clone, Debug)]
struct ResidualBlock {
    convs: Vec<ConvNorm>,
    /// Set where the sizes change.
    shortcut: Option<ConvNorm>,
}

impl ResidualBlock {
    fn new(
        b: &mut Builder,
        sizes: [usize; 3],
        channels: usize,
        stride: usize,
        bottleneck: bool,
    ) -> Self {
        let plan: &[(usize, [usize; 2])] = if bottleneck {
            &[
                (channels, [1, 1]),
                (channels, [3, stride]),
                (4 * channels, [1, 1]),
            ]
        } else {
            &[(channels, [3, stride]), (channels, [3, 1])]
        };
        let mut convs: Vec<ConvNorm> = Vec::new();
        for (i, &(out, kernel)) in plan.iter().enumerate() {
            let from = convs.last().map_or(sizes, |before| before.conv.output());
            let scale = if i + 1 == plan.len() { 0.0 } else { 1.0 };
            convs.push(ConvNorm::new(b, &i.to_string(), from, out, kernel, scale));
            let output = convs[i].conv.output();
            Activation::Relu.note(b, &format!("{i}.activation"), &output);
        }
        let output = convs[plan.len() - 1].conv.output();
        let shortcut = (output != sizes)
            .then(|| ConvNorm::new(b, "shortcut", sizes, output[0], [1, stride], 1.0));
        Self { convs, shortcut }
    }

    fn output(&self) -> [usize; 3] {
        let last = self.convs.last().expect("a block has convolutions");
        last.conv.output()
    }

    fn forward(&self, pass: &mut Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        let before = match &self.shortcut {
            Some(shortcut) => shortcut.forward(pass, x.clone()),
            None => x.clone(),
        };
        let mut x = x;
        for (i, conv) in self.convs.iter().enumerate() {
            x = conv.forward(pass, x);
            if i + 1 < self.convs.len() {
                x = Activation::Relu.forward(x);
            }
        }
        Activation::Relu.forward(x + before)
    }
}

/// Layers before the outputs.
#[derive(Clone, Debug)]
pub(super) struct ResnetTrunk {
    stem: ConvNorm,
    pool: Option<MaxPool>,
    blocks: Vec<(Segment, ResidualBlock)>,
    dropout: Dropout,
    output: usize,
}

impl ResnetTrunk {
    /// For images of `sizes`.
    pub(super) fn new(b: &mut Builder, config: &ModelConfig, sizes: [usize; 3]) -> Self {
        let (counts, bottleneck) = match config.depth {
            Some(50) => ([3, 4, 6, 3], true),
            Some(34) => ([3, 4, 6, 3], false),
            _ => ([2, 2, 2, 2], false),
        };
        let small = config.small_images.unwrap_or(false);
        let kernel = if small { [3, 1] } else { [7, 2] };
        let stem = ConvNorm::new(b, "stem", sizes, 64, kernel, 1.0);
        let mut sizes = stem.conv.output();
        Activation::Relu.note(b, "stem.activation", &sizes);
        let pool = (!small).then(|| MaxPool::new(b, "pool", sizes, [3, 2, 1]));
        sizes = pool.map_or(sizes, |pool| pool.output());
        let mut blocks = Vec::new();
        for (stage, count) in counts.into_iter().enumerate() {
            for i in 0..count {
                let stride = if stage > 0 && i == 0 { 2 } else { 1 };
                let name = format!("stage.{stage}.{i}");
                let block = b.segment(&name, &sizes, |b| {
                    b.within(&name, |b| {
                        ResidualBlock::new(b, sizes, 64 << stage, stride, bottleneck)
                    })
                });
                sizes = block.1.output();
                blocks.push(block);
            }
        }
        let dropout = Dropout::new(b, config.dropout);
        Self {
            stem,
            pool,
            blocks,
            dropout,
            output: sizes[0],
        }
    }

    /// Numbers that come out.
    pub(super) const fn output(&self) -> usize {
        self.output
    }

    /// `[rows, channels, height, width]` to `[rows, output]`.
    pub(super) fn forward(&self, pass: &mut Pass<'_>, images: Tensor<4>) -> Tensor<2> {
        let x = pass.for_product(images);
        let mut x = Activation::Relu.forward(self.stem.forward(pass, x));
        if let Some(pool) = &self.pool {
            x = pool.forward(x);
        }
        for (segment, block) in &self.blocks {
            let block = block.clone();
            x = pass.checkpoint(*segment, x, move |pass, x| block.forward(pass, x));
        }
        self.dropout.forward(pass, global_average(x))
    }
}

/// A residual network.
#[derive(Clone, Debug)]
pub(super) struct Resnet {
    layout: Layout,
    trunk: ResnetTrunk,
    last: Linear,
}

impl Resnet {
    /// For images of `sizes`.
    pub(super) fn new(config: &ModelConfig, sizes: [usize; 3], outputs: usize) -> Self {
        let mut b = Builder::new();
        let trunk = ResnetTrunk::new(&mut b, config, sizes);
        let last = Linear::new(&mut b, "last", &[trunk.output()], outputs, Gain::Glorot);
        Self {
            layout: b.finish(),
            trunk,
            last,
        }
    }
}

impl Model for Resnet {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn forward(&self, pass: &mut Pass<'_>, input: &Input) -> Tensor<2> {
        let x = self.trunk.forward(pass, input.images());
        self.last.forward(pass, x)
    }
}
