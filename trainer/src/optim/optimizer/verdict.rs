//! Decision of a device whether a step is taken, by numbers that the host need not know yet.

use burn::tensor::{Bool, Device, Tensor, TensorData};

use super::device_sums::chosen;
use crate::{
    device::{
        Upload as _,
        kernels::{self, GradientScale, JudgedSums, place},
    },
    float_casts::single,
};

/// Numbers of a step on a device, by [`place`]: its sums, whether they are finite, and the scale of its gradient.
#[derive(Clone, Debug)]
pub(crate) struct StepVerdict {
    numbers: Tensor<1>,
}

impl StepVerdict {
    /// The verdict by sums of a batch: a step is taken where loss, norm and values of buffers are finite.
    pub(crate) fn judge(sums: JudgedSums, of: GradientScale) -> Self {
        let numbers = kernels::judge(&sums, of).unwrap_or_else(|| judged(sums, of));
        Self { numbers }
    }

    /// The verdict on a gradient that the host knows to be finite.
    pub(crate) fn taken(scale: f64, device: &Device) -> Self {
        let mut numbers = vec![0.0; place::ALONE];
        numbers[place::GOOD] = 1.0;
        numbers[place::SCALE] = single(scale);
        let numbers = Tensor::upload(TensorData::new(numbers, [place::ALONE]), device);
        Self { numbers }
    }

    /// All numbers.
    pub(crate) const fn numbers(&self) -> &Tensor<1> {
        &self.numbers
    }

    /// True where the step is taken, `[1]`.
    pub(crate) fn good(&self) -> Tensor<1, Bool> {
        let good = self.numbers.clone().narrow(0, place::GOOD, 1);
        good.greater_elem(0.5)
    }

    /// Factor of the gradient, `[1]`.
    pub(crate) fn scale(&self) -> Tensor<1> {
        self.numbers.clone().narrow(0, place::SCALE, 1)
    }
}

/// The numbers of a step, by operations of the library.
fn judged(sums: JudgedSums, of: GradientScale) -> Tensor<1> {
    let JudgedSums {
        loss,
        unsmoothed,
        norm,
        buffers,
        of_ranks,
    } = sums;
    let device = loss.device();
    let factor = match &of_ranks {
        Some([weight, _]) => factor_of_ranks(weight, of),
        None => Tensor::full([1], of.factor, &device),
    };
    let judged = Tensor::cat(vec![loss.clone(), norm.clone(), buffers.clone()], 0);
    let good = judged.is_finite().all();
    let scale = if of.clip_norm > 0.0 {
        let clipped = (norm.clone() * factor.clone()).recip() * of.clip_norm;
        clipped.clamp_max(1.0) * factor
    } else {
        factor
    };
    let mut numbers = vec![loss, unsmoothed, norm, buffers, good.float(), scale];
    numbers.extend(of_ranks.into_iter().flatten());
    Tensor::cat(numbers, 0)
}

/// Factor that makes of a computed gradient that of the mean over all ranks, `[1]`; harmless where no rank has weight.
fn factor_of_ranks(weight: &Tensor<1>, of: GradientScale) -> Tensor<1> {
    let has_weight = weight.clone().greater_elem(0.0);
    let factor = Tensor::full([1], of.nominal, &weight.device()) / weight.clone();
    chosen(&has_weight, factor.clone(), Tensor::ones_like(&factor)) / of.loss_scale
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::numbers;

    /// Sums `[loss, unsmoothed, norm, buffers]`, and those of ranks, on a device.
    fn sums(sums: [f32; 4], of_ranks: Option<[f32; 2]>, device: &Device) -> JudgedSums {
        let tensor = |number: f32| Tensor::from_data(TensorData::new(vec![number], [1]), device);
        let [loss, unsmoothed, norm, buffers] = sums.map(tensor);
        JudgedSums {
            loss,
            unsmoothed,
            norm,
            buffers,
            of_ranks: of_ranks.map(|sums| sums.map(tensor)),
        }
    }

    const SCALE: GradientScale = GradientScale {
        factor: 0.5,
        nominal: 32.0,
        loss_scale: 4.0,
        clip_norm: 0.0,
    };

    /// Devices on which a verdict is compared.
    fn devices() -> Vec<Device> {
        let adapter = crate::model::layers::check::adapter().map(|adapter| adapter.device);
        if adapter.is_none() {
            eprintln!("on the processor only: no adapter");
        }
        std::iter::once(Device::flex()).chain(adapter).collect()
    }

    #[test]
    fn the_scale_is_that_of_the_mean_and_clips_long_gradients() {
        for device in devices() {
            for (norm, clip_norm, of_ranks, expected) in [
                (6.0, 0.0, None, 0.5),
                (6.0, 3.0, None, 0.5),
                (6.0, 1.5, None, 0.25),
                (0.0, 1.5, None, 0.5),
                (6.0, 0.0, Some([4.0, 0.0]), 2.0),
                (6.0, 3.0, Some([4.0, 2.0]), 0.5),
                // No rank has a row that counts.
                (6.0, 0.0, Some([0.0, 1.0]), 0.25),
            ] {
                let of = GradientScale { clip_norm, ..SCALE };
                let judged = sums([8.0, 9.0, norm, 0.0], of_ranks, &device);
                let verdict = StepVerdict::judge(judged, of);
                let found = numbers(verdict.numbers().clone());
                assert_eq!(found[..4], [8.0, 9.0, norm, 0.0]);
                assert_eq!(
                    found[place::GOOD..=place::SCALE],
                    [1.0, expected],
                    "{norm} {of:?}"
                );
                assert_eq!(
                    found[place::ALONE..],
                    *of_ranks.as_ref().map_or(&[][..], |of| of)
                );
                assert_eq!(numbers(verdict.scale()), [expected]);
                assert!(verdict.good().into_data().iter::<bool>().all(|good| good));
            }
        }
    }

    #[test]
    fn a_step_by_numbers_that_are_not_finite_is_left_out() {
        for device in devices() {
            for (bad, unsmoothed_too) in [(0, false), (2, false), (3, false), (1, true)] {
                for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    let mut of_batch = [8.0, 9.0, 6.0, 1.0];
                    of_batch[bad] = value;
                    let verdict = StepVerdict::judge(sums(of_batch, None, &device), SCALE);
                    let good = numbers(verdict.numbers().clone())[place::GOOD];
                    // The loss without label smoothing is only reported.
                    let expected = if unsmoothed_too { 1.0 } else { 0.0 };
                    assert!((good - expected).abs() < 0.1, "{bad} {value}");
                }
            }
        }
    }

    #[test]
    fn a_gradient_of_the_host_is_always_taken() {
        let device = Device::flex();
        let verdict = StepVerdict::taken(0.125, &device);
        assert_eq!(numbers(verdict.scale()), [0.125]);
        assert!(verdict.good().into_data().iter::<bool>().all(|good| good));
    }
}
