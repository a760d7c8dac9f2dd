//! Norms: numbers are brought to mean 0 and variance 1, then scaled and shifted by learnt numbers.
//!
//! `y = (x - mean) / sqrt(variance + 1e-5) * scale + shift`, the variance being that of the population and the epsilon
//! inside the root, as in the papers. They differ in what mean and variance are taken over.

use crate::number::exact_len;
use burn::tensor::{Tensor, module};

use super::{Buffer, Builder, Initial, Pass, Slot, in_f32, kernel};

const EPSILON: f64 = 1e-5;

/// Share by which running statistics move towards a batch's at each step.
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
/// In training they are those of the part of the batch that a pass sees: where the engine cuts a batch into parts, this
/// is ghost batch norm (Hoffer, Hubara, Soudry 2017, arXiv 1705.08741) with the parts as ghost batches. The cut follows
/// from shapes alone, so it is the same on every machine. Outside training they are the running statistics, buffers
/// that move at each step by the share [`MOMENTUM`] towards the mean of the parts' statistics, weighted by rows; the
/// variance among them is the unbiased one.
#[derive(Clone, Copy, Debug)]
pub struct BatchNorm {
    affine: Affine,
    mean: Buffer,
    variance: Buffer,
}

impl BatchNorm {
    /// Over samples of `sizes`, the first of which counts the channels.
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
        let dims = x.dims();
        let count = dims.iter().product::<usize>() / dims[1];
        let normed = module::batch_norm_train(x, scale, shift, EPSILON);
        // One number has no variance.
        if count > 1 {
            let unbiased = exact_len(count) / exact_len(count - 1);
            pass.observe(self.mean, normed.mean);
            pass.observe(self.variance, normed.variance * unbiased);
        }
        normed.output.cast(given)
    }
}

/// Layer norm (Ba, Kiros, Hinton 2016, arXiv 1607.06450): mean and variance over the last size, for each row and place.
#[derive(Clone, Copy, Debug)]
pub struct LayerNorm {
    affine: Affine,
}

impl LayerNorm {
    /// Over samples of `sizes`, of which the last is normalised.
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

/// Group norm (Wu and He 2018, arXiv 1803.08494): mean and variance over groups of neighbouring channels and all places,
/// for each row. It knows no batch, so it is the same in training and after.
#[derive(Clone, Copy, Debug)]
pub struct GroupNorm {
    affine: Affine,
    groups: usize,
}

impl GroupNorm {
    /// Over samples of `sizes`, the first of which counts the channels, in `groups` that divide them.
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
    use super::*;
    use crate::layers::check::{self, check};

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
