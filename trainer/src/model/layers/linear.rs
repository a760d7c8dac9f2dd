//! `x W + b`.

use crate::float_casts::exact_len;
use burn::tensor::{Tensor, module};

use super::{Builder, Initial, Pass, Slot, lora};

/// Scale of a layer's first weights. Biases begin at 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gain {
    /// Uniform in `±sqrt(6 / in)`, for a layer before a rectifier (He et al. 2015, arXiv 1502.01852, eq. 10).
    He,
    /// Uniform in `±sqrt(6 / (in + out))` (Glorot and Bengio 2010, eq. 16).
    Glorot,
    /// Normal with this standard deviation.
    Normal(f64),
    /// All 0.
    Zero,
}

impl Gain {
    /// The initial values of a weight with these fans.
    pub(super) fn initial(self, fan_in: usize, fan_out: usize) -> Initial {
        match self {
            Self::He => Initial::Uniform {
                bound: (6.0 / exact_len(fan_in)).sqrt(),
            },
            Self::Glorot => Initial::Uniform {
                bound: (6.0 / exact_len(fan_in + fan_out)).sqrt(),
            },
            Self::Normal(deviation) => Initial::Normal { deviation },
            Self::Zero => Initial::Constant(0.0),
        }
    }
}

/// A fully connected layer: `weight: [in, out]`, `bias: [out]`.
#[derive(Clone, Debug)]
pub struct Linear {
    weight: Slot,
    bias: Option<Slot>,
}

impl Linear {
    /// From samples of `sizes`, whose last is `in`, to the same sizes with `out` in its place.
    ///
    /// # Panics
    /// For samples without sizes.
    pub fn new(builder: &mut Builder, name: &str, sizes: &[usize], out: usize, gain: Gain) -> Self {
        Self::with_bias(builder, name, sizes, out, gain, true)
    }

    /// The same, with or without a bias.
    ///
    /// # Panics
    /// For samples without sizes.
    pub fn with_bias(
        builder: &mut Builder,
        name: &str,
        sizes: &[usize],
        out: usize,
        gain: Gain,
        bias: bool,
    ) -> Self {
        let (&from, before) = sizes.split_last().expect("a sample has sizes");
        let layer = builder.within(name, |b| Self {
            weight: b.parameter("weight", &[from, out], true, gain.initial(from, out)),
            bias: bias.then(|| b.parameter("bias", &[out], false, Initial::Constant(0.0))),
        });
        builder.linear(layer.weight);
        let output: Vec<usize> = before.iter().copied().chain([out]).collect();
        let parameters = from * out + if bias { out } else { 0 };
        builder.note(
            name,
            "linear".into(),
            &output,
            parameters,
            sizes.iter().product(),
        );
        layer
    }

    /// `[.., in]` to `[.., out]`.
    #[must_use]
    pub fn forward<const D: usize>(&self, pass: &Pass<'_>, x: Tensor<D>) -> Tensor<D> {
        let given = x.dtype();
        let bias = self.bias.map(|slot| pass.for_product(pass.parameter(slot)));
        let weight = pass.for_product(pass.parameter(self.weight));
        let added = lora::added(pass, self.weight, &x);
        let y = module::linear(pass.for_product(x), weight, bias);
        match added {
            Some(added) => (y + added).cast(given),
            None => y.cast(given),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::layers::check::check;

    #[test]
    fn gradients_equal_finite_differences() {
        check(
            [4, 5],
            |b| Linear::new(b, "l", &[5], 3, Gain::Glorot),
            |l, pass, x| l.forward(pass, x),
        );
        check(
            [2, 3, 5],
            |b| Linear::with_bias(b, "l", &[3, 5], 4, Gain::He, false),
            |l, pass, x| l.forward(pass, x),
        );
    }
}
