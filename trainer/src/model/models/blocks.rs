//! Building blocks that several models share.

use burn::tensor::Tensor;
use feedline_schemas::config::{ActivationKind, ModelConfig, NormKind};

use crate::model::layers::{
    Activation, Angles, Attention, BatchNorm, Builder, Dropout, Gain, GroupNorm, Heads,
    KeyValueCache, LayerNorm, Linear, Mask, Pass, RmsNorm, Segment,
};

/// Most groups of a group norm, the number of its paper.
const GROUPS_MAX: usize = 32;

/// Fewest numbers in a group: of very few, a norm leaves little but their signs.
const GROUP_LEAST: usize = 16;

/// Widths as sizes.
pub(super) fn sizes(widths: Option<&[u32]>) -> Vec<usize> {
    let widths = widths.unwrap_or_default().iter();
    widths.map(|&width| width as usize).collect()
}

/// A number that was filled in.
pub(super) fn size(value: Option<u32>) -> usize {
    value.expect("the defaults of the type were filled in") as usize
}

/// The nonlinearity of a configuration.
pub(super) const fn activation(config: &ModelConfig) -> Activation {
    match config.activation {
        Some(kind) => of_kind(kind),
        None => Activation::Gelu,
    }
}

/// The nonlinearity of a kind; of one with a gate, that of the gate.
const fn of_kind(kind: ActivationKind) -> Activation {
    match kind {
        ActivationKind::Relu => Activation::Relu,
        ActivationKind::Silu | ActivationKind::Swiglu => Activation::Silu,
        ActivationKind::Gelu => Activation::Gelu,
    }
}

/// A norm of any kind.
#[derive(Clone, Copy, Debug)]
pub(super) enum Norm {
    Batch(BatchNorm),
    Layer(LayerNorm),
    Group(GroupNorm),
    Rms(RmsNorm),
}

impl Norm {
    /// The norm of a configuration, over samples of `sizes`; none for `none`.
    pub(super) fn new(
        builder: &mut Builder,
        kind: Option<NormKind>,
        sizes: &[usize],
    ) -> Option<Self> {
        let name = "norm";
        match kind? {
            NormKind::None => None,
            NormKind::Batch => Some(Self::Batch(BatchNorm::new(builder, name, sizes))),
            NormKind::Layer if sizes.len() == 1 => {
                Some(Self::Layer(LayerNorm::new(builder, name, sizes)))
            }
            NormKind::Rms => Some(Self::Rms(RmsNorm::new(builder, name, sizes))),
            NormKind::Layer => Some(Self::Group(GroupNorm::new(builder, name, sizes, 1))),
            NormKind::Group => {
                let numbers = sizes.iter().product::<usize>();
                let fits = |g: &usize| sizes[0].is_multiple_of(*g) && numbers / g >= GROUP_LEAST;
                let groups = (1..=GROUPS_MAX).rev().find(fits).unwrap_or(1);
                Some(Self::Group(GroupNorm::new(builder, name, sizes, groups)))
            }
        }
    }

    pub(super) fn forward<const D: usize>(&self, pass: &mut Pass<'_>, x: Tensor<D>) -> Tensor<D> {
        match self {
            Self::Batch(norm) => norm.forward(pass, x),
            Self::Layer(norm) => norm.forward(pass, x),
            Self::Group(norm) => norm.forward(pass, x),
            Self::Rms(norm) => norm.forward(pass, x),
        }
    }
}

/// Style of fully connected hidden layers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    pub(super) activation: Activation,
    pub(super) norm: Option<NormKind>,
    pub(super) skip: bool,
    pub(super) dropout: f64,
}

impl Style {
    /// Style of a configuration.
    pub(super) const fn of(config: &ModelConfig) -> Self {
        Self {
            activation: activation(config),
            norm: config.norm,
            skip: matches!(config.skip, Some(true)),
            dropout: config.dropout,
        }
    }

    /// The same without norm or skips.
    pub(super) const fn plain(config: &ModelConfig) -> Self {
        Self {
            norm: None,
            skip: false,
            ..Self::of(config)
        }
    }
}

/// Fully connected hidden layers: linear, norm, nonlinearity, dropout, and the input added where that is asked for and
/// the widths agree (He et al. 2015, arXiv 1512.03385).
#[derive(Clone, Debug)]
pub(super) struct Dense {
    layers: Vec<(Segment, Hidden)>,
    output: usize,
}

#[derive(Clone, Debug)]
struct Hidden {
    linear: Linear,
    norm: Option<Norm>,
    activation: Activation,
    dropout: Dropout,
    skips: bool,
}

impl Hidden {
    fn new(builder: &mut Builder, name: &str, from: usize, width: usize, style: Style) -> Self {
        let linear = Linear::new(builder, name, &[from], width, Gain::He);
        let norm = builder.within(name, |b| {
            let norm = Norm::new(b, style.norm, &[width]);
            style.activation.note(b, "activation", &[width]);
            norm
        });
        Self {
            linear,
            norm,
            activation: style.activation,
            dropout: Dropout::new(builder, style.dropout),
            skips: style.skip && from == width,
        }
    }

    fn forward(&self, pass: &mut Pass<'_>, x: Tensor<2>) -> Tensor<2> {
        let before = self.skips.then(|| x.clone());
        let mut x = self.linear.forward(pass, x);
        if let Some(norm) = &self.norm {
            x = norm.forward(pass, x);
        }
        x = self.dropout.forward(pass, self.activation.forward(x));
        match before {
            Some(before) => x + before,
            None => x,
        }
    }
}

impl Dense {
    /// Layers `layer.0`, `layer.1` and so on, from `inputs` numbers.
    pub(super) fn new(
        builder: &mut Builder,
        inputs: usize,
        widths: &[usize],
        style: Style,
    ) -> Self {
        let mut from = inputs;
        let layers = widths.iter().enumerate().map(|(i, &width)| {
            let name = format!("layer.{i}");
            let layer = builder.segment(&name, &[from], |b| {
                Hidden::new(b, &name, from, width, style)
            });
            from = width;
            layer
        });
        Self {
            layers: layers.collect(),
            output: widths.last().copied().unwrap_or(inputs),
        }
    }

    /// Numbers that come out.
    pub(super) const fn output(&self) -> usize {
        self.output
    }

    pub(super) fn forward(&self, pass: &mut Pass<'_>, x: Tensor<2>) -> Tensor<2> {
        let mut x = pass.for_product(x);
        for (segment, layer) in &self.layers {
            let layer = layer.clone();
            x = pass.checkpoint(*segment, x, move |pass, x| layer.forward(pass, x));
        }
        x
    }
}

/// A norm over the last size, which a transformer has.
#[derive(Clone, Copy, Debug)]
pub(super) enum LastNorm {
    Layer(LayerNorm),
    Rms(RmsNorm),
}

impl LastNorm {
    pub(super) fn new(builder: &mut Builder, name: &str, style: BlockStyle) -> Self {
        match style.norm {
            NormKind::Rms => Self::Rms(RmsNorm::new(builder, name, &style.sizes)),
            _ => Self::Layer(LayerNorm::new(builder, name, &style.sizes)),
        }
    }

    pub(super) fn forward(&self, pass: &Pass<'_>, x: Tensor<3>) -> Tensor<3> {
        match self {
            Self::Layer(norm) => norm.forward(pass, x),
            Self::Rms(norm) => norm.forward(pass, x),
        }
    }
}

/// Style of the blocks of a transformer.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockStyle {
    /// Length and width.
    pub(super) sizes: [usize; 2],
    pub(super) heads: Heads,
    /// Number of blocks.
    pub(super) layers: usize,
    norm: NormKind,
    activation: ActivationKind,
    bias: bool,
    dropout: f64,
}

impl BlockStyle {
    /// GPT-2's, with the sizes of a configuration whose defaults are filled in, for `length` positions.
    pub(super) fn plain(config: &ModelConfig, length: usize) -> Self {
        Self {
            sizes: [length, size(config.width)],
            heads: Heads::equal(size(config.heads)),
            layers: size(config.layers),
            norm: NormKind::Layer,
            activation: ActivationKind::Gelu,
            bias: true,
            dropout: config.dropout,
        }
    }

    /// The style of a configuration whose defaults are filled in, for `length` positions.
    pub(super) fn of(config: &ModelConfig, length: usize) -> Self {
        let plain = Self::plain(config, length);
        let queries = plain.heads.queries;
        Self {
            heads: Heads {
                queries,
                keys: config.kv_heads.map_or(queries, |keys| keys as usize),
            },
            norm: config.norm.unwrap_or(plain.norm),
            activation: config.activation.unwrap_or(plain.activation),
            bias: config.bias.unwrap_or(plain.bias),
            ..plain
        }
    }

    /// Numbers in a head.
    pub(super) const fn inside(&self) -> usize {
        self.sizes[1] / self.heads.queries
    }

    /// The blocks `block.0`, `block.1` and so on.
    pub(super) fn blocks(self, builder: &mut Builder) -> Vec<(Segment, TransformerBlock)> {
        let block = |i: usize| {
            let name = format!("block.{i}");
            builder.segment(&name, &self.sizes, |b| {
                TransformerBlock::new(b, &name, self)
            })
        };
        (0..self.layers).map(block).collect()
    }
}

/// The feed-forward layers of a block: `out(activation(up(x)))` with four times the width inside, or `out(silu(g) u)` where
/// `up` gives `g` and `u` beside each other (SwiGLU, Shazeer 2020, arXiv 2002.05202).
#[derive(Clone, Debug)]
struct FeedForward {
    up: Linear,
    out: Linear,
    activation: Activation,
    /// True for a gate.
    gated: bool,
}

/// The width inside feed-forward layers with a gate is a multiple of this.
const GATED_MULTIPLE: usize = 16;

impl FeedForward {
    fn new(b: &mut Builder, style: BlockStyle, [inner, added]: [Gain; 2]) -> Self {
        let [length, width] = style.sizes;
        let gated = style.activation == ActivationKind::Swiglu;
        let (inside, columns) = match gated {
            true => {
                let inside = (8 * width).div_ceil(3).next_multiple_of(GATED_MULTIPLE);
                (inside, 2 * inside)
            }
            false => (4 * width, 4 * width),
        };
        let up = Linear::with_bias(b, "up", &style.sizes, columns, inner, style.bias);
        let activation = of_kind(style.activation);
        match gated {
            // Both factors are kept.
            true => b.note(
                "activation",
                "swiglu".into(),
                &[length, inside],
                0,
                3 * length * inside,
            ),
            false => activation.note(b, "activation", &[length, inside]),
        }
        let out = Linear::with_bias(b, "out", &[length, inside], width, added, style.bias);
        Self {
            up,
            out,
            activation,
            gated,
        }
    }

    fn forward(&self, pass: &Pass<'_>, x: Tensor<3>) -> Tensor<3> {
        let inner = self.up.forward(pass, x);
        let inner = match self.gated {
            true => {
                let inside = inner.dims()[2] / 2;
                let gate = inner.clone().narrow(2, 0, inside);
                self.activation.forward(gate) * inner.narrow(2, inside, inside)
            }
            false => self.activation.forward(inner),
        };
        self.out.forward(pass, inner)
    }
}

/// A transformer block with the norms before its parts (GPT-2, Radford et al. 2019): `x + attention(norm(x))`, then
/// `x + feed_forward(norm(x))`.
#[derive(Clone, Debug)]
pub(super) struct TransformerBlock {
    attention_norm: LastNorm,
    attention: Attention,
    norm: LastNorm,
    feed_forward: FeedForward,
    dropouts: [Dropout; 2],
}

/// Standard deviation of a transformer's first weights.
pub(super) const DEVIATION: f64 = 0.02;

impl TransformerBlock {
    /// A model's blocks whose additions to the residual stream begin smaller by `1 / sqrt(2 layers)`, as in GPT-2.
    fn new(builder: &mut Builder, name: &str, style: BlockStyle) -> Self {
        let layers = u32::try_from(style.layers).unwrap_or(u32::MAX);
        let added = Gain::Normal(DEVIATION / (2.0 * f64::from(layers)).sqrt());
        let gains = [Gain::Normal(DEVIATION), added];
        builder.within(name, |b| Self {
            attention_norm: LastNorm::new(b, "attention_norm", style),
            attention: Attention::new(b, "attention", style.sizes, style.heads, gains, style.bias),
            norm: LastNorm::new(b, "norm", style),
            feed_forward: FeedForward::new(b, style, gains),
            dropouts: [(); 2].map(|()| Dropout::new(b, style.dropout)),
        })
    }

    /// `[rows, length, width]` to the same. What is added to `x` is computed in the type of products, the sum is not.
    pub(super) fn forward(
        &self,
        pass: &Pass<'_>,
        x: Tensor<3>,
        mask: Option<&Mask>,
        angles: Option<&Angles>,
    ) -> Tensor<3> {
        self.around(pass, x, |normed| {
            self.attention.forward(pass, normed, mask, angles)
        })
    }

    /// The same for the positions after those in `cache`.
    pub(super) fn extend(
        &self,
        pass: &Pass<'_>,
        x: Tensor<3>,
        cache: &mut KeyValueCache,
        angles: Option<&Angles>,
    ) -> Tensor<3> {
        self.around(pass, x, |normed| {
            self.attention.extend(pass, normed, cache, angles)
        })
    }

    fn around(
        &self,
        pass: &Pass<'_>,
        x: Tensor<3>,
        attend: impl FnOnce(Tensor<3>) -> Tensor<3>,
    ) -> Tensor<3> {
        let given = x.dtype();
        let normed = pass.for_product(self.attention_norm.forward(pass, x.clone()));
        let x = x + self.dropouts[0].forward(pass, attend(normed).cast(given));
        let normed = pass.for_product(self.norm.forward(pass, x.clone()));
        let added = self.feed_forward.forward(pass, normed).cast(given);
        x + self.dropouts[1].forward(pass, added)
    }
}
