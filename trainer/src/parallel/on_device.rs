//! Exchange of tensors among ranks, on the devices that hold them.
//!
//! With NCCL the numbers never leave the devices. Ranks that meet over TCP alone sum in host memory, section by section
//! beside the backward pass, and need none of this.

use std::{fmt::Debug, time::Duration};

use burn::tensor::{DType, Tensor};

#[cfg(test)]
use super::{RankBounds, RankPlace};
use super::{Ranks, Wire};
use crate::error::Error;

/// Use of a tensor that is as long on every rank. Its even shares, in rank order, are one for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TensorOp {
    /// Every rank gets all sums, with the same bits.
    AllReduce,
    /// Every rank gets the sums of its share. Its other numbers mean nothing afterwards.
    ReduceScatter,
    /// Every rank gives its share, and gets those of the others.
    AllGather,
}

/// Exchanges tensors among all ranks.
pub(super) trait TensorExchange: Debug + Send + Sync {
    /// The tensors after their operations, and the time of the exchange alone.
    ///
    /// # Errors
    /// As [`Ranks::all_reduce`].
    fn exchange(&self, ranks: &Ranks, tensors: Vec<TensorWork>) -> Result<ExchangedTensors, Error>;
}

/// A tensor, which has no other holder, and its use.
pub(super) type TensorWork = (TensorOp, Tensor<1>);

/// Tensors after an exchange, and the time of the exchange alone.
pub(super) type ExchangedTensors = (Vec<TensorWork>, Duration);

impl Ranks {
    /// Returns true if the ranks sum tensors on their devices.
    pub(crate) const fn sum_on_devices(&self) -> bool {
        self.tensors.is_some()
    }

    /// Exchanges tensors that have no other holder, in numbers that the wire of each carries. Returns them as f32, and the
    /// time of the exchange alone.
    ///
    /// # Errors
    /// As [`Ranks::all_reduce`].
    ///
    /// # Panics
    /// When the ranks do not sum on their devices.
    pub(crate) fn exchange_tensors<const N: usize>(
        &self,
        tensors: [(TensorOp, Wire, Tensor<1>); N],
    ) -> Result<([Tensor<1>; N], Duration), Error> {
        let work = tensors.map(|(op, wire, tensor)| match wire {
            Wire::Full => (op, tensor),
            Wire::Bf16 => (op, tensor.cast(DType::BF16)),
        });
        let exchange = self.tensors.as_ref();
        let exchange = exchange.expect("the ranks sum on their devices");
        let (done, spent) = exchange.exchange(self, work.into())?;
        let done: Vec<_> = done
            .into_iter()
            .map(|(_, tensor)| tensor.cast(DType::F32))
            .collect();
        let done = done
            .try_into()
            .unwrap_or_else(|_| unreachable!("as many tensors come back"));
        Ok((done, spent))
    }
}

/// An exchange through host memory in the place of NCCL, for tests.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct ThroughHost;

#[cfg(test)]
impl TensorExchange for ThroughHost {
    fn exchange(&self, ranks: &Ranks, tensors: Vec<TensorWork>) -> Result<ExchangedTensors, Error> {
        use burn::tensor::TensorData;

        let exchange = |(op, tensor): TensorWork| {
            let wire = match tensor.dtype() {
                DType::BF16 => Wire::Bf16,
                _ => Wire::Full,
            };
            let device = tensor.device();
            let mut values = tensor.try_into_vec_as::<f32>().unwrap();
            let len = values.len();
            let RankPlace { rank, world } = ranks.place();
            let shares = RankBounds::even(len, world);
            match op {
                TensorOp::AllReduce => ranks.all_reduce(&mut values, wire)?,
                TensorOp::AllGather => ranks.all_gather(&mut values, &shares, wire)?,
                TensorOp::ReduceScatter => {
                    assert!(len.is_multiple_of(world));
                    ranks.reduce_scatter(&mut values, &shares, wire)?;
                    let own = values[shares.of(rank)].to_vec();
                    values.fill(f32::NAN);
                    values[shares.of(rank)].copy_from_slice(&own);
                }
            }
            let data = TensorData::new(values, [len]);
            Ok((op, Tensor::from_data(data, &device)))
        };
        let done = tensors.into_iter().map(exchange);
        Ok((done.collect::<Result<_, Error>>()?, Duration::ZERO))
    }
}

#[cfg(test)]
impl Ranks {
    /// The same, whose tensors are exchanged through host memory.
    pub(crate) fn summing_through_host(mut self) -> Self {
        self.tensors = Some(Box::new(ThroughHost));
        self
    }
}
