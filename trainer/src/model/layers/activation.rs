//! Element-wise activations.

use burn::tensor::Tensor;

use super::{Builder, Pass, in_f32, kernel};

/// A nonlinearity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x Φ(x)`, exact (Hendrycks and Gimpel 2016, arXiv 1606.08415).
    Gelu,
    /// `max(x, 0)`.
    Relu,
    /// `x sigmoid(x)` (Elfwing, Uchibe, Doya 2017, arXiv 1702.03118).
    Silu,
}

impl Activation {
    /// Applies it; any shape.
    #[must_use]
    pub fn forward<const D: usize>(self, x: Tensor<D>) -> Tensor<D> {
        let given = x.dtype();
        match self {
            Self::Gelu => kernel::gelu(in_f32(x)).cast(given),
            Self::Relu => kernel::relu(x),
            Self::Silu => kernel::silu(in_f32(x)).cast(given),
        }
    }

    /// Notes it for the summary; it keeps its input.
    pub fn note(self, builder: &mut Builder, name: &str, sizes: &[usize]) {
        let kind = match self {
            Self::Gelu => "gelu",
            Self::Relu => "relu",
            Self::Silu => "silu",
        };
        builder.note(name, kind.into(), sizes, 0, sizes.iter().product());
    }
}

/// Inverted dropout (Srivastava et al. 2014): in training, sets a share of the numbers to 0 and multiplies the others by
/// `1 / (1 - share)`. What is drawn for a row depends on seed, step, place in the batch and place in the model.
#[derive(Clone, Copy, Debug)]
pub struct Dropout {
    share: f64,
    site: usize,
}

impl Dropout {
    /// Drops `share` of the numbers, 0 to below 1.
    pub fn new(builder: &mut Builder, share: f64) -> Self {
        let site = builder.dropout_site();
        Self { share, site }
    }

    /// Applies it; any shape with rows in front.
    #[must_use]
    pub fn forward<const D: usize>(&self, pass: &Pass<'_>, x: Tensor<D>) -> Tensor<D> {
        pass.drop_out(x, self.share, self.site)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::layers::check::{self, check};

    #[test]
    fn gradients_equal_finite_differences() {
        for activation in [Activation::Gelu, Activation::Relu, Activation::Silu] {
            check([3, 7], |_| (), move |(), _, x| activation.forward(x));
            check([3, 7], |_| (), move |(), _, x| activation.forward(x * 5.0));
            // Not in row-major order.
            check(
                [3, 7],
                |_| (),
                move |(), _, x| activation.forward(x.transpose()),
            );
        }
    }

    #[test]
    fn gradient_of_dropout_equals_finite_differences() {
        check(
            [5, 2, 6],
            |b| (Dropout::new(b, 0.4), Dropout::new(b, 0.4)),
            |(first, second), pass, x| {
                let x = first.forward(pass, x);
                second.forward(pass, x)
            },
        );
    }

    #[test]
    fn dropout_does_nothing_outside_training() {
        let (_, x, y) = check::evaluated(
            [4, 9],
            |b| Dropout::new(b, 0.5),
            |d, pass, x| d.forward(pass, x),
        );
        assert_eq!(x, y);
    }

    #[test]
    fn values_are_those_of_the_definitions() {
        // Φ(1) = 0.841344746, sigmoid(1) = 0.731058579.
        let device = burn::tensor::Device::flex();
        let at = |activation: Activation, x: f32| {
            let y = activation.forward(Tensor::<1>::from_floats([x], &device));
            y.into_data().try_into_vec::<f32>().unwrap()[0]
        };
        assert!((at(Activation::Gelu, 1.0) - 0.841_344_7).abs() < 1e-5);
        assert!((at(Activation::Silu, 1.0) - 0.731_058_6).abs() < 1e-6);
        assert!((at(Activation::Relu, 1.5) - 1.5).abs() < 1e-9);
        assert!(at(Activation::Relu, -1.5).abs() < 1e-9);
        for activation in [Activation::Gelu, Activation::Relu, Activation::Silu] {
            assert!(at(activation, f32::NAN).is_nan());
            assert!((at(activation, 30.0) - 30.0).abs() < 1e-4);
            assert!(at(activation, -30.0).abs() < 1e-4);
        }
    }
}
