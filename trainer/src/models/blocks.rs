//! Building blocks that several models share.

use burn::tensor::Tensor;
use feedline_schemas::config::{ActivationKind, ModelConfig, NormKind};

use crate::layers::{
    Activation, Attention, BatchNorm, Builder, Dropout, Gain, GroupNorm, LayerNorm, Linear, Mask,
    Pass, Segment,
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
        Some(ActivationKind::Relu) => Activation::Relu,
        Some(ActivationKind::Silu) => Activation::Silu,
        Some(ActivationKind::Gelu) | None => Activation::Gelu,
    }
}

/// A norm of any kind.
#[derive(Clone, Copy, Debug)]
pub(super) enum Norm {
    Batch(BatchNorm),
    Layer(LayerNorm),
    Group(GroupNorm),
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

/// A transformer block with the norms before its parts (GPT-2, Radford et al. 2019): `x + attention(norm(x))`, then
/// `x + out(gelu(up(norm(x))))` with four times the width inside.
#[derive(Clone, Debug)]
pub(super) struct Block {
    attention_norm: LayerNorm,
    attention: Attention,
    norm: LayerNorm,
    up: Linear,
    out: Linear,
    dropouts: [Dropout; 2],
}

/// Standard deviation of a transformer's first weights.
pub(super) const DEVIATION: f64 = 0.02;

impl Block {
    /// `layers` of them make a model; what they add to the residual stream begins smaller by `1 / sqrt(2 layers)`, as in
    /// GPT-2.
    pub(super) fn new(
        builder: &mut Builder,
        name: &str,
        [length, width]: [usize; 2],
        heads: usize,
        layers: usize,
        dropout: f64,
    ) -> Self {
        let sizes = [length, width];
        let layers = u32::try_from(layers).unwrap_or(u32::MAX);
        let added = Gain::Normal(DEVIATION / (2.0 * f64::from(layers)).sqrt());
        let inner = Gain::Normal(DEVIATION);
        builder.within(name, |b| {
            let attention_norm = LayerNorm::new(b, "attention_norm", &sizes);
            let attention = Attention::new(b, "attention", sizes, heads, [inner, added]);
            let norm = LayerNorm::new(b, "norm", &sizes);
            let up = Linear::new(b, "up", &sizes, 4 * width, inner);
            Activation::Gelu.note(b, "activation", &[length, 4 * width]);
            let out = Linear::new(b, "out", &[length, 4 * width], width, added);
            Self {
                attention_norm,
                attention,
                norm,
                up,
                out,
                dropouts: [Dropout::new(b, dropout), Dropout::new(b, dropout)],
            }
        })
    }

    /// `[rows, length, width]` to the same. What is added to `x` is computed in the type of products, the sum is not.
    pub(super) fn forward(&self, pass: &Pass<'_>, x: Tensor<3>, mask: Option<&Mask>) -> Tensor<3> {
        let given = x.dtype();
        let normed = pass.for_product(self.attention_norm.forward(pass, x.clone()));
        let seen = self.attention.forward(pass, normed, mask).cast(given);
        let x = x + self.dropouts[0].forward(pass, seen);
        let normed = pass.for_product(self.norm.forward(pass, x.clone()));
        let inner = Activation::Gelu.forward(self.up.forward(pass, normed));
        let added = self.out.forward(pass, inner).cast(given);
        x + self.dropouts[1].forward(pass, added)
    }
}
