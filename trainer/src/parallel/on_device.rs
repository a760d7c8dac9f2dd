//! Exchange of tensors among ranks, on the devices that hold them.
//!
//! With NCCL the numbers never leave the devices. Ranks that meet over TCP alone sum in host memory, section by section
//! beside the backward pass, and need none of this.

use std::{fmt::Debug, sync::Arc, time::Duration};

use burn::tensor::{DType, Tensor};

#[cfg(test)]
use super::{RankBounds, RankPlace};
use super::{Ranks, Wire};
use crate::error::Error;

/// Use of a tensor that is as long on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TensorOp {
    /// Every rank gets all sums, with the same bits.
    AllReduce,
    /// One rank gets all sums. The numbers of the others mean nothing afterwards.
    Reduce {
        /// Number of the rank.
        root: usize,
    },
    /// Every rank gives its share, and gets those of the others. The even shares, in rank order, are one for each.
    AllGather,
}

/// Exchanges tensors among all ranks, one exchange after the other in the order in which they begin.
pub(super) trait TensorExchange: Debug + Send + Sync {
    /// Begins an exchange, which runs once the tensors are computed. Returns its number.
    fn begin(&self, tensors: Vec<TensorWork>) -> u64;

    /// Waits for the end of an exchange; those that began before it are dropped. Returns the tensors after their operations.
    ///
    /// # Errors
    /// As [`Ranks::all_reduce`].
    fn finish(&self, ranks: &Ranks, number: u64) -> Result<ExchangedTensors, Error>;
}

/// A tensor, which has no other holder, and its use.
pub(super) type TensorWork = (TensorOp, Tensor<1>);

/// Tensors after an exchange, and its times.
pub(super) type ExchangedTensors = (Vec<TensorWork>, ExchangeTimes);

/// Times of an exchange on the monotonic clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExchangeTimes {
    /// Its numbers were computed.
    pub(crate) computed: Duration,
    /// The exchanges before it had ended too.
    pub(crate) begun: Duration,
    pub(crate) ended: Duration,
}

/// Times of several exchanges that belong together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExchangeTotals {
    /// Last of their numbers were computed.
    computed: Duration,
    ended: Duration,
    spent: Duration,
}

impl ExchangeTotals {
    /// Adds an exchange.
    pub(crate) fn add(&mut self, times: ExchangeTimes) {
        self.computed = self.computed.max(times.computed);
        self.ended = self.ended.max(times.ended);
        self.spent += times.ended.saturating_sub(times.begun);
    }

    /// Time of exchanges when all numbers were computed.
    pub(crate) const fn alone(&self) -> Duration {
        self.ended.saturating_sub(self.computed)
    }

    /// Time of exchanges beside the computation.
    pub(crate) fn hidden(&self) -> Duration {
        self.spent.saturating_sub(self.alone())
    }
}

/// Reason that there is an exchange of tensors.
const ON_DEVICES: &str = "the ranks sum on their devices";

/// Begins exchanges of tensors.
#[derive(Clone, Debug)]
pub(crate) struct TensorSender(Arc<dyn TensorExchange>);

impl TensorSender {
    /// Begins the exchange of a tensor that has no other holder, in numbers that `wire` carries. Returns its number.
    pub(crate) fn begin(&self, op: TensorOp, wire: Wire, tensor: Tensor<1>) -> u64 {
        let tensor = match wire {
            Wire::Full => tensor,
            Wire::Bf16 => tensor.cast(DType::BF16),
        };
        self.0.begin(vec![(op, tensor)])
    }
}

impl Ranks {
    /// Returns true if the ranks sum tensors on their devices.
    pub(crate) const fn sum_on_devices(&self) -> bool {
        self.tensors.is_some()
    }

    /// Sender of tensors, where ranks sum on their devices.
    pub(crate) fn tensor_sender(&self) -> Option<TensorSender> {
        self.tensors.clone().map(TensorSender)
    }

    /// Begins the exchange of a tensor, as [`TensorSender::begin`].
    ///
    /// # Panics
    /// When the ranks do not sum on their devices.
    pub(crate) fn begin_tensor(&self, op: TensorOp, wire: Wire, tensor: Tensor<1>) -> u64 {
        let sender = self.tensor_sender().expect(ON_DEVICES);
        sender.begin(op, wire, tensor)
    }

    /// Waits for the end of the exchange of a tensor, and returns it as f32. Exchanges that began before it are dropped.
    ///
    /// # Errors
    /// As [`Ranks::all_reduce`].
    ///
    /// # Panics
    /// When the ranks do not sum on their devices.
    pub(crate) fn finish_tensor(&self, number: u64) -> Result<(Tensor<1>, ExchangeTimes), Error> {
        let exchange = self.tensors.as_ref();
        let exchange = exchange.expect(ON_DEVICES);
        let (mut done, times) = exchange.finish(self, number)?;
        let Some((_, tensor)) = done.pop() else {
            unreachable!("as many tensors come back");
        };
        Ok((tensor.cast(DType::F32), times))
    }
}

/// An exchange through host memory in the place of NCCL, for tests. By its clock, exchange number `n` is computed and begins at `n`
/// seconds, and takes half a second.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct ThroughHost {
    status: Arc<super::status::Status>,
    /// Exchanges that have not ended, and the number of the first of them.
    begun: std::sync::Mutex<(u64, std::collections::VecDeque<Vec<TensorWork>>)>,
}

#[cfg(test)]
impl TensorExchange for ThroughHost {
    fn begin(&self, tensors: Vec<TensorWork>) -> u64 {
        self.status.next_collective();
        let mut begun = self.begun.lock().unwrap();
        begun.1.push_back(tensors);
        begun.0 + begun.1.len() as u64 - 1
    }

    fn finish(&self, ranks: &Ranks, number: u64) -> Result<ExchangedTensors, Error> {
        let mut begun = self.begun.lock().unwrap();
        loop {
            let tensors = begun.1.pop_front().unwrap();
            let at = Duration::from_secs(begun.0);
            begun.0 += 1;
            let tensors = tensors.into_iter();
            let done = tensors.map(|work| exchange_through_host(ranks, work));
            let done = done.collect::<Result<_, Error>>()?;
            if begun.0 > number {
                let times = ExchangeTimes {
                    computed: at,
                    begun: at,
                    ended: at + Duration::from_millis(500),
                };
                return Ok((done, times));
            }
        }
    }
}

#[cfg(test)]
fn exchange_through_host(ranks: &Ranks, (op, tensor): TensorWork) -> Result<TensorWork, Error> {
    use burn::tensor::TensorData;

    let wire = match tensor.dtype() {
        DType::BF16 => Wire::Bf16,
        _ => Wire::Full,
    };
    let device = tensor.device();
    let mut values = tensor.try_into_vec_as::<f32>().unwrap();
    let len = values.len();
    let RankPlace { rank, world } = ranks.place();
    match op {
        TensorOp::AllReduce => ranks.all_reduce(&mut values, wire)?,
        TensorOp::AllGather => {
            ranks.all_gather(&mut values, &RankBounds::even(len, world), wire)?
        }
        TensorOp::Reduce { root } => {
            ranks.all_reduce(&mut values, wire)?;
            if rank != root {
                values.fill(f32::NAN);
            }
        }
    }
    Ok((
        op,
        Tensor::from_data(TensorData::new(values, [len]), &device),
    ))
}

#[cfg(test)]
impl Ranks {
    /// The same, whose tensors are exchanged through host memory.
    pub(crate) fn summing_through_host(mut self) -> Self {
        self.tensors = Some(Arc::new(ThroughHost {
            status: Arc::clone(&self.recv_queue.status[self.place.rank]),
            begun: std::sync::Mutex::default(),
        }));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchanges_that_end_after_the_computation_are_alone_for_the_rest() {
        let ms = Duration::from_millis;
        let mut totals = ExchangeTotals::default();
        for [computed, begun, ended] in [[10, 10, 14], [12, 14, 17], [30, 30, 35], [31, 35, 37]] {
            let [computed, begun, ended] = [computed, begun, ended].map(ms);
            totals.add(ExchangeTimes {
                computed,
                begun,
                ended,
            });
        }
        assert_eq!((totals.alone(), totals.hidden()), (ms(6), ms(8)));
        assert_eq!(ExchangeTotals::default().alone(), Duration::ZERO);
    }
}
