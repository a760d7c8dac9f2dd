//! Trained numbers in equally long shares, one for each rank, where each rank moves a share of the parameters.
//!
//! A rank moves the weights of its share, and gets those of the others.

use std::ops::Range;

use burn::tensor::Tensor;

use crate::{
    error::Error,
    model::{interface::Parameter, packed_bucket::Pack},
    parallel::RankPlace,
};

/// Shares of the trained numbers.
#[derive(Debug)]
pub(crate) struct RankShares {
    /// Places of all trained parameters, in bucket order.
    pack: Pack,
    /// Numbers of each share.
    share_len: usize,
    place: RankPlace,
}

/// Exchange of tensors among the ranks in the middle of a step.
pub(crate) trait ShareExchange {
    /// The sums over all ranks.
    ///
    /// # Errors
    /// [`Error::Rank`].
    fn sum(&mut self, values: Tensor<1>) -> Result<Tensor<1>, Error>;

    /// The shares of all ranks, from a tensor that has this rank's.
    ///
    /// # Errors
    /// [`Error::Rank`].
    fn gather(&mut self, shares: Tensor<1>) -> Result<Tensor<1>, Error>;
}

impl RankShares {
    /// The shares of these parameters; `runs` has those that each rank moves.
    pub(crate) fn new(trained: &[Parameter], runs: &[Range<usize>], rank: usize) -> Self {
        let ranges = |run: &Range<usize>| {
            let parameters = trained[run.clone()].iter();
            parameters.map(|p| p.range.clone()).collect()
        };
        let (pack, share_len) = Pack::in_shares(runs.iter().map(ranges));
        let world = runs.len();
        Self {
            pack,
            share_len,
            place: RankPlace { rank, world },
        }
    }

    /// Places of all trained parameters.
    pub(super) const fn pack(&self) -> &Pack {
        &self.pack
    }

    /// A tensor of all shares, which has only this rank's numbers.
    pub(super) fn with_own(&self, own: Tensor<1>) -> Tensor<1> {
        let all = self.place.world * self.share_len;
        among_zeros(all, self.place.rank * self.share_len, own)
    }

    /// One number for each rank; only that of this rank is known.
    pub(super) fn with_number(&self, own: Tensor<1>) -> Tensor<1> {
        among_zeros(self.place.world, self.place.rank, own)
    }
}

/// A tensor of so many numbers, 0 but for these from `begin` on.
fn among_zeros(len: usize, begin: usize, values: Tensor<1>) -> Tensor<1> {
    let [count] = values.dims();
    let place = begin..begin + count;
    Tensor::zeros([len], &values.device()).slice_assign([place], values)
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, TensorData};

    use super::*;
    use crate::device::numbers;

    fn parameters(lens: &[usize]) -> Vec<Parameter> {
        let mut end = 0;
        let parameter = |len: &usize| {
            end += len;
            Parameter {
                name: String::new(),
                shape: vec![*len],
                range: end - len..end,
                decays: true,
                is_hidden: false,
            }
        };
        lens.iter().map(parameter).collect()
    }

    #[test]
    fn every_rank_finds_its_numbers_in_its_share() {
        let device = Device::flex();
        let trained = parameters(&[3, 200, 5]);
        let runs = [0..1, 1..3, 3..3];
        let bucket: Vec<f32> = (0..208_u8).map(f32::from).collect();
        let all = |rank: usize| {
            let shares = RankShares::new(&trained, &runs, rank);
            let all = shares.pack().upload(&bucket, &device);
            (shares, all)
        };
        for (rank, begin, run) in [(0, 0, 0..1), (1, 3, 1..3), (2, 208, 3..3)] {
            let (shares, tensor) = all(rank);
            assert_eq!(tensor.dims(), [3 * 384]);
            let own = Pack::new(trained[run].iter().map(|p| p.range.clone()));
            let share = |all: Tensor<1>| numbers(all.narrow(0, rank * 384, own.len()));
            let found = share(tensor);
            assert_eq!(found, numbers(own.upload(&bucket, &device)));
            assert!(rank == 2 || found[0].to_bits() == bucket[begin].to_bits());
            let back = shares.with_own(own.upload(&bucket, &device));
            assert_eq!(share(back.clone()), found);
            let sum = |values: &[f32]| values.iter().sum::<f32>();
            assert!((sum(&numbers(back)) - sum(&found)).abs() < 1e-3);
            let number = Tensor::from_data(TensorData::new(vec![7.0_f32], [1]), &device);
            let expected: Vec<f32> = (0..3).map(|r| if r == rank { 7.0 } else { 0.0 }).collect();
            assert_eq!(numbers(shares.with_number(number)), expected);
        }
    }
}
