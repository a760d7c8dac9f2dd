//! Fully connected layers with GELU and dropout between them.
//!
//! Layer i computes `x W + b` with `layer.i.weight: [in, out]` and `layer.i.bias: [out]`. After every layer but the
//! last: GELU in its exact form `x Φ(x)` (Hendrycks and Gimpel 2016, arXiv 1606.08415), then inverted dropout, which
//! multiplies the kept activations by `1 / (1 - share)` (Srivastava et al. 2014).
//!
//! Initial weights are uniform in `±bound`, initial biases 0. Before a GELU `bound = sqrt(6 / in)`, the gain of a
//! rectifier (He et al. 2015, arXiv 1502.01852, eq. 10); the last layer has `bound = sqrt(6 / (in + out))`
//! (Glorot and Bengio 2010, eq. 16).

use burn::tensor::{Tensor, TensorData, activation, module};
use feedline_schemas::ids::Seed;
use rayon::prelude::*;

use crate::{
    model::{Dropout, Model, Parameter},
    random::Stream,
};

/// A multi-layer perceptron; without hidden layers it is a linear model.
#[derive(Clone, Debug)]
pub(crate) struct Mlp {
    parameters: Vec<Parameter>,
    /// `[in, out]` of each layer.
    layers: Vec<[usize; 2]>,
    dropout: f64,
}

impl Mlp {
    /// Lays out the layers `inputs -> hidden.. -> outputs`.
    pub(crate) fn new(inputs: usize, hidden: &[usize], outputs: usize, dropout: f64) -> Self {
        let ends: Vec<usize> = hidden.iter().copied().chain([outputs]).collect();
        let starts = [inputs].into_iter().chain(hidden.iter().copied());
        let layers: Vec<[usize; 2]> = starts.zip(ends).map(|(from, to)| [from, to]).collect();
        let mut parameters = Vec::new();
        let mut begin = 0;
        let mut add = |name: String, shape: Vec<usize>, decays| {
            let range = begin..begin + shape.iter().product::<usize>();
            begin = range.end;
            parameters.push(Parameter {
                name,
                shape,
                range,
                decays,
            });
        };
        for (i, &[from, to]) in layers.iter().enumerate() {
            add(format!("layer.{i}.weight"), vec![from, to], true);
            add(format!("layer.{i}.bias"), vec![to], false);
        }
        Self {
            parameters,
            layers,
            dropout,
        }
    }
}

impl Model for Mlp {
    fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    fn initial(&self, seed: Seed) -> Vec<f32> {
        let stream = Stream::initialization(seed);
        let mut bucket = vec![0.0; crate::model::bucket_len(&self.parameters)];
        for (i, &[from, to]) in self.layers.iter().enumerate() {
            let fans = if i + 1 < self.layers.len() {
                from
            } else {
                from + to
            };
            let weights = &mut bucket[self.parameters[2 * i].range.clone()];
            fill_uniform(weights, (6.0 / exact(fans)).sqrt(), stream.part(i));
        }
        bucket
    }

    fn forward(&self, weights: &[Tensor<1>], x: Tensor<2>, dropout: Option<Dropout>) -> Tensor<2> {
        let mut x = x;
        for (i, &shape) in self.layers.iter().enumerate() {
            let weight = weights[2 * i].clone().reshape(shape);
            x = module::linear(x, weight, Some(weights[2 * i + 1].clone()));
            if i + 1 < self.layers.len() {
                x = activation::gelu(x);
                if let Some(dropout) = dropout {
                    x = self.drop_out(x, dropout, i);
                }
            }
        }
        x
    }

    fn dropout(&self) -> f64 {
        self.dropout
    }
}

impl Mlp {
    fn drop_out(&self, x: Tensor<2>, dropout: Dropout, layer: usize) -> Tensor<2> {
        let shape = x.dims();
        let mask = mask(
            shape,
            self.dropout,
            dropout.first_row,
            dropout.stream.part(layer),
        );
        let mask = Tensor::from_data(TensorData::new(mask, shape), &x.device());
        x * mask
    }
}

/// Uniform values in `±bound`.
#[expect(
    clippy::cast_possible_truncation,
    reason = "rounding to f32 is what is wanted"
)]
fn fill_uniform(values: &mut [f32], bound: f64, stream: Stream) {
    for (i, value) in values.iter_mut().enumerate() {
        *value = (bound * 2.0f64.mul_add(stream.uniform(i as u64), -1.0)) as f32;
    }
}

/// A mask of `[rows, width]`: 0 with probability `share`, else `1 / (1 - share)`. An element is a function of the
/// stream and of its place in the whole batch.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share below 1 of 2^64 fits, and it is positive"
)]
fn mask([rows, width]: [usize; 2], share: f64, first_row: usize, stream: Stream) -> Vec<f32> {
    let threshold = (share * 2.0_f64.powi(64)) as u64;
    let kept = (1.0 / (1.0 - share)) as f32;
    let mut mask = vec![0.0; rows * width];
    mask.par_chunks_mut(width)
        .enumerate()
        .with_min_len(64)
        .for_each(|(row, values)| {
            let first = ((first_row + row) * width) as u64;
            for (value, index) in values.iter_mut().zip(first..) {
                *value = if stream.bits(index) < threshold {
                    0.0
                } else {
                    kept
                };
            }
        });
    mask
}

#[expect(
    clippy::cast_precision_loss,
    reason = "layer widths are far below 2^53"
)]
const fn exact(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_named_by_layer_and_lie_without_gaps() {
        let mlp = Mlp::new(3, &[4, 5], 2, 0.0);
        let found: Vec<_> = mlp
            .parameters()
            .iter()
            .map(|p| (p.name.as_str(), p.range.clone(), p.decays))
            .collect();
        let expected = [
            ("layer.0.weight", 0..12, true),
            ("layer.0.bias", 12..16, false),
            ("layer.1.weight", 16..36, true),
            ("layer.1.bias", 36..41, false),
            ("layer.2.weight", 41..51, true),
            ("layer.2.bias", 51..53, false),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn no_hidden_layers_is_a_linear_model() {
        let mlp = Mlp::new(3, &[], 1, 0.5);
        assert_eq!(mlp.layers, [[3, 1]]);
    }

    #[test]
    fn initial_weights_fill_their_bounds_and_biases_are_zero() {
        let mlp = Mlp::new(6, &[1000], 500, 0.0);
        let bucket = mlp.initial(Seed::new(3));
        let largest = |i: usize| {
            bucket[mlp.parameters[i].range.clone()]
                .iter()
                .fold(0.0_f32, |m, v| m.max(v.abs()))
        };
        assert!((0.99..=1.0).contains(&largest(0)), "He: {}", largest(0));
        let glorot = (6.0_f32 / 1500.0).sqrt();
        assert!(
            (0.99 * glorot..=glorot).contains(&largest(2)),
            "Glorot: {}",
            largest(2)
        );
        assert_eq!((largest(1).to_bits(), largest(3).to_bits()), (0, 0));
        assert_ne!(bucket, mlp.initial(Seed::new(4)));
    }

    #[test]
    fn mask_drops_its_share_and_keeps_the_mean() {
        let mask = mask([1000, 100], 0.25, 0, Stream::initialization(Seed::new(1)));
        let dropped = mask.iter().filter(|v| **v < 0.5).count();
        assert!((24_000..26_000).contains(&dropped), "{dropped}");
        assert!(
            mask.iter()
                .all(|&v| v < 0.5 || (v - 4.0 / 3.0).abs() < 1e-6)
        );
    }

    #[test]
    fn mask_of_a_row_does_not_depend_on_how_the_batch_is_cut() {
        let stream = Stream::initialization(Seed::new(1));
        let whole = mask([10, 7], 0.5, 0, stream);
        assert_eq!(mask([4, 7], 0.5, 6, stream), whole[6 * 7..]);
    }

    #[test]
    fn nothing_is_dropped_at_share_zero() {
        assert!(
            mask([9, 9], 0.0, 0, Stream::initialization(Seed::new(1)))
                .iter()
                .all(|v| v.to_bits() == 1.0_f32.to_bits())
        );
    }
}
