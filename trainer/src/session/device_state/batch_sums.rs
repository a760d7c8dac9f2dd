//! Sums over the rows of a batch, on a device: what a step needs of it.
//!
//! The gradient is not among them. A rank of several has the sums of its own rows first. They are exchanged as one tensor: running
//! statistics, loss, loss without label smoothing, weight, and ranks that are to stop.

use burn::tensor::{Device, Tensor, TensorData};

use crate::device::Upload as _;

/// Numbers after the running statistics in the tensor.
const SCALARS: usize = 4;

/// Sums over the rows of a batch.
#[derive(Debug)]
pub(crate) struct BatchSums {
    /// Sum of the losses, `[1]`.
    pub(super) loss_sum: Tensor<1>,
    /// The same without label smoothing.
    pub(super) unsmoothed_sum: Tensor<1>,
    /// Observed values of the buffers, packed; `None` for a model without any.
    pub(super) observed: Option<Tensor<1>>,
    /// Sums that only the ranks together know; `None` for a rank alone.
    pub(super) of_ranks: Option<RankSums>,
}

/// Sums over ranks.
#[derive(Clone, Debug)]
pub(super) struct RankSums {
    /// Divisor of the sum of the losses for their mean, `[1]`.
    pub(super) weight: Tensor<1>,
    /// Number of ranks that are to stop, `[1]`.
    pub(super) stops: Tensor<1>,
}

impl BatchSums {
    /// The sums of this rank, with the weight of its losses and its wish to stop, as one tensor.
    pub(crate) fn of_rank(self, weight: f64, stop: bool, device: &Device) -> Tensor<1> {
        let numbers = [
            crate::float_casts::single(weight),
            f32::from(u8::from(stop)),
        ];
        let numbers = Tensor::upload(TensorData::new(numbers.to_vec(), [numbers.len()]), device);
        let observed = self.observed.into_iter();
        let sums = observed.chain([self.loss_sum, self.unsmoothed_sum, numbers]);
        Tensor::cat(sums.collect(), 0)
    }

    /// The sums of all ranks, from those that [`of_rank`](Self::of_rank) gave.
    pub(crate) fn of_ranks(sums: &Tensor<1>) -> Self {
        let [len] = sums.dims();
        let observed = len - SCALARS;
        let scalar = |number| sums.clone().narrow(0, observed + number, 1);
        Self {
            observed: (observed > 0).then(|| sums.clone().narrow(0, 0, observed)),
            loss_sum: scalar(0),
            unsmoothed_sum: scalar(1),
            of_ranks: Some(RankSums {
                weight: scalar(2),
                stops: scalar(3),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::numbers;

    fn sums(observed: Option<Vec<f32>>, device: &Device) -> BatchSums {
        let tensor = |values: Vec<f32>| {
            let len = values.len();
            Tensor::from_data(TensorData::new(values, [len]), device)
        };
        BatchSums {
            loss_sum: tensor(vec![8.0]),
            unsmoothed_sum: tensor(vec![9.0]),
            observed: observed.map(tensor),
            of_ranks: None,
        }
    }

    #[test]
    fn sums_come_back_from_the_exchange_as_they_went() {
        let device = Device::flex();
        for observed in [None, Some(vec![1.0, 2.0])] {
            let found = sums(observed.clone(), &device).of_rank(12.5, true, &device);
            let found = BatchSums::of_ranks(&found);
            assert_eq!(numbers(found.loss_sum), [8.0]);
            assert_eq!(numbers(found.unsmoothed_sum), [9.0]);
            assert_eq!(found.observed.map(numbers), observed);
            let of_ranks = found.of_ranks.unwrap();
            assert_eq!(numbers(of_ranks.weight), [12.5]);
            assert_eq!(numbers(of_ranks.stops), [1.0]);
        }
    }
}
