//! Norms: numbers are brought to mean 0 and variance 1, then scaled and shifted by learnt numbers.
//!
//! `y = (x - mean) / sqrt(variance + 1e-5) * scale + shift`, the variance being that of the population and the epsilon
//! inside the root, as in the papers. They differ in what mean and variance are taken over.

use crate::float_casts::exact_len;
use burn::tensor::{Tensor, module};

use super::{Buffer, Builder, Initial, Pass, Slot, in_f32, kernel};

const EPSILON: f64 = 1e-5;

/// Fraction of the way to a full batch's statistics that running statistics move at each step.
pub const MOMENTUM: f32 = 0.1;

/// Scale and shift, `[channels]` each.
#[derive(Clone, Copy, Debug)]
struct Affine {
    scale: Slot,
    shift: Slot,
}

impl Affine {
    fn new(builder: &mut Builder, channels: usize, scale: f32) -> Self {
        Self {
            scale: builder.parameter("scale", &[channels], false, Initial::Constant(scale)),
            shift: builder.parameter("shift", &[channels], false, Initial::Constant(0.0)),
        }
    }
}

/// Batch norm (Ioffe and Szegedy 2015, arXiv 1502.03167): mean and variance of each channel over all rows and places.
///
/// In training they are those of a ghost batch (Hoffer, Hubara, Soudry 2017, arXiv 1705.08741): a batch has as many
/// as `train.model.ghost_batch` and the batch size say, on every machine and by any number of ranks that divide them.
/// Outside training they are the running statistics, buffers that move at each step towards the mean of the ghost batches'
/// statistics, weighted by rows: by the share [`MOMENTUM`] for a full batch, and in proportion to its rows for a shorter
/// one, whose few rows say less. The variance among them is the unbiased one. A ghost batch of one number observes nothing.
#[derive(Clone, Copy, Debug)]
pub struct BatchNorm {
    affine: Affine,
    mean: Buffer,
    variance: Buffer,
}

impl BatchNorm {
    /// Over samples of `sizes`; the first counts the channels.
    pub fn new(builder: &mut Builder, name: &str, sizes: &[usize]) -> Self {
        Self::with_scale(builder, name, sizes, 1.0)
    }

    /// The same, with scales that begin as said. 0 for the last norm of a residual block makes the block begin as the
    /// identity (Goyal et al. 2017, arXiv 1706.02677, section 5.1).
    pub fn with_scale(builder: &mut Builder, name: &str, sizes: &[usize], scale: f32) -> Self {
        let channels = sizes[0];
        let norm = builder.within(name, |b| Self {
            affine: Affine::new(b, channels, scale),
            mean: b.buffer("running_mean", &[channels], 0.0),
            variance: b.buffer("running_variance", &[channels], 1.0),
        });
        let kept = sizes.iter().product();
        builder.note(name, "batch norm".into(), sizes, 2 * channels, kept);
        norm
    }

    /// Normalises `[rows, channels, ..]`.
    #[must_use]
    pub fn forward<const D: usize>(&self, pass: &mut Pass<'_>, x: Tensor<D>) -> Tensor<D> {
        let scale = pass.parameter(self.affine.scale);
        let shift = pass.parameter(self.affine.shift);
        let given = x.dtype();
        let x = in_f32(x);
        if !pass.is_training() {
            let (mean, variance) = (pass.buffer(self.mean), pass.buffer(self.variance));
            return module::batch_norm(x, scale, shift, mean, variance, EPSILON).cast(given);
        }
        let rows = x.dims()[0];
        let ghosts = pass.ghost_batches(rows);
        if ghosts.len() <= 1 {
            let (output, observed) = train(x, scale, shift);
            if let Some([mean, variance]) = observed {
                pass.observe(self.mean, mean);
                pass.observe(self.variance, variance);
            }
            return output.cast(given);
        }
        let mut outputs = Vec::with_capacity(ghosts.len());
        let mut sums: Option<[Tensor<1>; 2]> = None;
        for ghost in ghosts {
            let of_rows = x.clone().narrow(0, ghost.start, ghost.len());
            let (output, observed) = train(of_rows, scale.clone(), shift.clone());
            outputs.push(output);
            let buffers = || [pass.buffer(self.mean), pass.buffer(self.variance)];
            let share = exact_len(ghost.len()) / exact_len(rows);
            let weighted = observed.unwrap_or_else(buffers).map(|value| value * share);
            sums = Some(match sums {
                None => weighted,
                Some([mean, variance]) => {
                    let [more_mean, more_variance] = weighted;
                    [mean + more_mean, variance + more_variance]
                }
            });
        }
        if let Some([mean, variance]) = sums {
            pass.observe(self.mean, mean);
            pass.observe(self.variance, variance);
        }
        Tensor::cat(outputs, 0).cast(given)
    }
}

/// Normalises a ghost batch by its own statistics. Returns them too, the variance unbiased; one number has none.
fn train<const D: usize>(
    x: Tensor<D>,
    scale: Tensor<1>,
    shift: Tensor<1>,
) -> (Tensor<D>, Option<[Tensor<1>; 2]>) {
    let dims = x.dims();
    let count = dims.iter().product::<usize>() / dims[1];
    let normed = module::batch_norm_train(x, scale, shift, EPSILON);
    let observed = (count > 1).then(|| {
        let unbiased = exact_len(count) / exact_len(count - 1);
        [normed.mean, normed.variance * unbiased]
    });
    (normed.output, observed)
}

/// Layer norm (Ba, Kiros, Hinton 2016, arXiv 1607.06450): mean and variance over the last size, for each row and place.
#[derive(Clone, Copy, Debug)]
pub struct LayerNorm {
    affine: Affine,
}

impl LayerNorm {
    /// Over samples of `sizes`; the last is normalized.
    ///
    /// # Panics
    /// For samples without sizes.
    pub fn new(builder: &mut Builder, name: &str, sizes: &[usize]) -> Self {
        let width = *sizes.last().expect("a sample has sizes");
        let affine = builder.within(name, |b| Affine::new(b, width, 1.0));
        let kept = sizes.iter().product();
        builder.note(name, "layer norm".into(), sizes, 2 * width, kept);
        Self { affine }
    }

    /// Normalises `[.., width]`.
    #[must_use]
    pub fn forward<const D: usize>(&self, pass: &Pass<'_>, x: Tensor<D>) -> Tensor<D> {
        let scale = pass.parameter(self.affine.scale);
        let shift = pass.parameter(self.affine.shift);
        let given = x.dtype();
        kernel::layer_norm(in_f32(x), [scale, shift], EPSILON).cast(given)
    }
}

/// Root-mean-square norm (Zhang and Sennrich 2019, arXiv 1910.07467): `x / sqrt(mean(x^2) + 1e-5) * scale` over the last
/// size, for each row and place.
#[derive(Clone, Copy, Debug)]
pub struct RmsNorm {
    scale: Slot,
}

impl RmsNorm {
    /// Over samples of `sizes`; the last is normalized.
    ///
    /// # Panics
    /// For samples without sizes.
    pub fn new(builder: &mut Builder, name: &str, sizes: &[usize]) -> Self {
        let width = *sizes.last().expect("a sample has sizes");
        let ones = Initial::Constant(1.0);
        let scale = builder.within(name, |b| b.parameter("scale", &[width], false, ones));
        let kept = sizes.iter().product();
        builder.note(name, "rms norm".into(), sizes, width, kept);
        Self { scale }
    }

    /// Normalises `[.., width]`.
    #[must_use]
    pub fn forward<const D: usize>(&self, pass: &Pass<'_>, x: Tensor<D>) -> Tensor<D> {
        let given = x.dtype();
        let scale = pass.parameter(self.scale);
        kernel::rms_norm(in_f32(x), scale, EPSILON).cast(given)
    }
}

/// Group norm (Wu and He 2018, arXiv 1803.08494): mean and variance over groups of neighbouring channels and all places,
/// for each row. It knows no batch, so it is the same in training and after.
#[derive(Clone, Copy, Debug)]
pub struct GroupNorm {
    affine: Affine,
    groups: usize,
}

impl GroupNorm {
    /// Over samples of `sizes`, the first of them the number of channels, in `groups` that divide
    /// it.
    pub fn new(builder: &mut Builder, name: &str, sizes: &[usize], groups: usize) -> Self {
        let affine = builder.within(name, |b| Affine::new(b, sizes[0], 1.0));
        let kept = 3 * sizes.iter().product::<usize>();
        builder.note(
            name,
            format!("group norm {groups}"),
            sizes,
            2 * sizes[0],
            kept,
        );
        Self { affine, groups }
    }

    /// Normalises `[rows, channels, ..]`.
    #[must_use]
    pub fn forward<const D: usize>(&self, pass: &Pass<'_>, x: Tensor<D>) -> Tensor<D> {
        let dims = x.dims();
        let inside = dims[1..].iter().product::<usize>() / self.groups;
        let given = x.dtype();
        let x = in_f32(x).reshape([dims[0], self.groups, inside]);
        let centred = x.clone() - x.mean_dim(2);
        let variance = (centred.clone() * centred.clone()).mean_dim(2);
        let normed = (centred / (variance + EPSILON).sqrt()).reshape(dims);
        let mut channels = [1; D];
        channels[1] = dims[1];
        let scale: Tensor<1> = pass.parameter(self.affine.scale);
        let shift: Tensor<1> = pass.parameter(self.affine.shift);
        (normed * scale.reshape(channels) + shift.reshape(channels)).cast(given)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::TensorData;

    use super::*;
    use crate::model::layers::{
        Ghosts, Training,
        check::{self, check},
        observed_in,
    };

    #[test]
    fn gradients_equal_finite_differences() {
        check(
            [4, 3, 2, 3],
            |b| BatchNorm::new(b, "n", &[3, 2, 3]),
            |n, pass, x| n.forward(pass, x),
        );
        check(
            [6, 3],
            |b| BatchNorm::with_scale(b, "n", &[3], 0.0),
            |n, pass, x| n.forward(pass, x),
        );
        check(
            [2, 3, 5],
            |b| LayerNorm::new(b, "n", &[3, 5]),
            |n, pass, x| n.forward(pass, x),
        );
        check(
            [2, 3, 5],
            |b| RmsNorm::new(b, "n", &[3, 5]),
            |n, pass, x| n.forward(pass, x),
        );
        check(
            [2, 4, 3, 2],
            |b| GroupNorm::new(b, "n", &[4, 3, 2], 2),
            |n, pass, x| n.forward(pass, x),
        );
        check(
            [3, 6],
            |b| GroupNorm::new(b, "n", &[6], 3),
            |n, pass, x| n.forward(pass, x),
        );
    }

    #[test]
    fn group_norm_of_one_channel_each_has_mean_zero_and_variance_one_per_channel() {
        let build = |b: &mut Builder| GroupNorm::new(b, "n", &[2, 3, 3], 2);
        let (bucket, _, y) = check::outputs([2, 2, 3, 3], build, |n, pass, x| n.forward(pass, x));
        for (i, channel) in y.chunks(9).enumerate() {
            let mean = channel.iter().sum::<f64>() / 9.0;
            let square = channel.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 9.0;
            assert!((mean - bucket[2 + i % 2]).abs() < 1e-9, "{mean}");
            assert!(
                (square.sqrt() - bucket[i % 2].abs()).abs() < 1e-3,
                "{square}"
            );
        }
    }

    #[test]
    fn rms_norm_divides_by_the_root_of_the_mean_square() {
        let build = |b: &mut Builder| RmsNorm::new(b, "n", &[3]);
        let (scale, x, y) = check::outputs([2, 3], build, |n, pass, x| n.forward(pass, x));
        for (x, y) in x.chunks(3).zip(y.chunks(3)) {
            let square = x.iter().map(|v| v * v).sum::<f64>() / 3.0;
            let normed = x.iter().map(|v| v / (square + EPSILON).sqrt());
            let expected: Vec<f64> = normed.zip(&scale).map(|(v, scale)| v * scale).collect();
            check::assert_near(y, &expected, 1e-9);
        }
    }

    #[test]
    fn after_training_batch_norm_uses_the_running_statistics_of_each_channel() {
        let build = |b: &mut Builder| BatchNorm::new(b, "n", &[2, 2]);
        let (bucket, x, y) = check::evaluated([3, 2, 2], build, |n, pass, x| n.forward(pass, x));
        let [scale, shift, mean, variance] = [0, 2, 4, 6].map(|at| &bucket[at..at + 2]);
        let expected: Vec<f64> = x
            .iter()
            .enumerate()
            .map(|(i, x)| {
                let c = i / 2 % 2;
                (x - mean[c]) / (variance[c] + EPSILON).sqrt() * scale[c] + shift[c]
            })
            .collect();
        check::assert_near(&y, &expected, 1e-9);
    }

    #[test]
    fn batch_norm_observes_the_mean_and_the_unbiased_variance_of_each_channel() {
        let mut builder = Builder::new();
        let norm = BatchNorm::new(&mut builder, "n", &[1]);
        let layout = builder.finish();
        let bucket = [1.0, 0.0, 0.0, 1.0];
        let observed = check::observed(&layout, &bucket, |pass, device| {
            let x = Tensor::<2>::from_floats([[1.0], [2.0], [6.0]], device);
            norm.forward(pass, x)
        });
        assert_eq!(observed, [3.0, 7.0]);
    }

    #[test]
    fn ghost_batches_of_one_part_are_normalised_as_parts_of_their_own() {
        let mut builder = Builder::new();
        let norm = BatchNorm::new(&mut builder, "n", &[2]);
        let layout = builder.finish();
        let bucket = [1.5, 0.5, 0.25, -0.5, 0.1, 0.2, 2.0, 3.0];
        let device = burn::tensor::Device::flex();
        let rows = [
            [1.0_f32, 9.0],
            [2.0, 7.0],
            [6.0, 8.0],
            [0.5, 1.0],
            [4.0, 2.0],
        ];
        let forward = |rows: &[[f32; 2]], ghosts| {
            let entries = layout.entries().iter();
            let weights: Vec<Tensor<1>> = entries
                .map(|entry| Tensor::from_floats(&bucket[entry.range.clone()], &device))
                .collect();
            let training = Training {
                ghosts,
                ..check::training().unwrap()
            };
            let mut pass = Pass::new(&layout, &weights, Some(training));
            let flat: Vec<f32> = rows.iter().flatten().copied().collect();
            let data = TensorData::new(flat, [rows.len(), 2]);
            let y = norm.forward(&mut pass, Tensor::<2>::from_data(data, &device));
            let y: Vec<f32> = y.into_data().try_into_vec().unwrap();
            (y, observed_in(&layout, pass.into_observed(), &bucket))
        };
        let two = Ghosts {
            first_row: 0,
            rows: 5,
            count: 2,
        };
        let (together, observed) = forward(&rows, two);
        let (first, of_first) = forward(&rows[..2], Ghosts::WHOLE);
        let (second, of_second) = forward(&rows[2..], Ghosts::WHOLE);
        assert_eq!(together, [first, second].concat());
        for (i, found) in observed.iter().enumerate() {
            let expected = 0.4 * of_first[i] + 0.6 * of_second[i];
            assert!((found - expected).abs() < 1e-5, "{found} {expected}");
        }
        // Five ghost batches of one number each say nothing.
        let five = Ghosts { count: 5, ..two };
        let (_, observed) = forward(&rows, five);
        for (found, running) in observed.iter().zip(&bucket[4..]) {
            assert!((found - running).abs() < 1e-6, "{found} {running}");
        }
    }

    #[test]
    fn batch_norm_observes_nothing_of_one_number() {
        let mut builder = Builder::new();
        let norm = BatchNorm::new(&mut builder, "n", &[1]);
        let layout = builder.finish();
        let bucket = [1.0, 0.0, 0.25, 4.0];
        let observed = check::observed(&layout, &bucket, |pass, device| {
            norm.forward(pass, Tensor::<2>::from_floats([[9.0]], device))
        });
        assert_eq!(observed, [0.25, 4.0]);
    }
}
