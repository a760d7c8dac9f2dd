//! Collective operations of ranks.
//!
//! Every operation is made of messages from one rank to another, with the same numbers on all ranks in the same order;
//! sums are taken in a [`Tree`] over the ranks, so they have the same bits whatever carries the messages.

use std::{
    fmt::Debug,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{
    RankPlace, Tree,
    on_device::TensorExchange,
    recv_queue::{Message, Patience, RankFailure, RecvQueue},
    status::{Phase, Status},
    wire::{RankBounds, Wire},
};
use crate::error::Error;

/// Carries messages to one other rank. Never waits for what that rank computes.
pub(super) trait RankTransport: Debug + Send + Sync {
    /// Sends a message.
    ///
    /// # Errors
    /// Reason that it cannot be sent.
    fn send(&self, message: Message) -> Result<(), String>;

    /// Says that no more will come: because all is done, or for a failure.
    fn leave(&self, failure: Option<&RankFailure>);
}

/// This rank among the others.
#[derive(Debug)]
pub(crate) struct Ranks {
    pub(super) place: RankPlace,
    pub(super) recv_queue: Arc<RecvQueue>,
    /// Number of collective operations by messages. Exchanges of tensors, which a rank may begin before another, have numbers of
    /// their own.
    messages: AtomicU64,
    /// By rank; `None` for this one.
    transports: Vec<Option<Box<dyn RankTransport>>>,
    pub(super) patience: Patience,
    /// Exchanges tensors on the devices of the ranks.
    pub(super) tensors: Option<Arc<dyn TensorExchange>>,
}

impl Ranks {
    /// `transports` lead to all ranks but this one.
    pub(super) fn new(
        place: RankPlace,
        recv_queue: Arc<RecvQueue>,
        transports: Vec<Option<Box<dyn RankTransport>>>,
        patience: Patience,
    ) -> Self {
        recv_queue.finished(place.rank);
        Self {
            place,
            recv_queue,
            messages: AtomicU64::new(0),
            transports,
            patience,
            tensors: None,
        }
    }

    /// The only rank.
    pub(crate) fn alone() -> Self {
        Self::only(Arc::default())
    }

    /// The only rank, which says in `status` where it is.
    pub(super) fn only(status: Arc<Status>) -> Self {
        let patience = Patience {
            message: std::time::Duration::ZERO,
            silence: None,
        };
        let recv_queue = Arc::new(RecvQueue::new(vec![status]));
        Self::new(RankPlace::ALONE, recv_queue, vec![None], patience)
    }

    /// Number of this rank, and number of all.
    pub(crate) const fn place(&self) -> RankPlace {
        self.place
    }

    /// Returns true if this rank writes the outputs of a run.
    pub(crate) const fn leads(&self) -> bool {
        self.place.rank == 0
    }

    /// Returns true if there is another rank.
    pub(crate) const fn are_many(&self) -> bool {
        self.place.world > 1
    }

    /// Says where this rank is.
    pub(crate) fn at(&self, step: u64, phase: Phase) {
        self.recv_queue.status[self.place.rank].set(step, phase);
    }

    /// Says that there is a checkpoint of so many steps.
    pub(crate) fn saved(&self, steps: u64) {
        self.recv_queue.status[self.place.rank].saved(steps);
    }

    /// Adds up `values`, as many on every rank, and gives every rank the sum.
    ///
    /// Each rank adds up a share of them and sends it to the others.
    ///
    /// # Errors
    /// [`Error::Rank`], for this operation as for all: it names the rank at fault.
    pub(crate) fn all_reduce(&self, values: &mut [f32], wire: Wire) -> Result<(), Error> {
        let borders = RankBounds::even(values.len(), self.place.world);
        self.reduce_scatter(values, &borders, wire)?;
        self.all_gather(values, &borders, wire)
    }

    /// Adds up this rank's share of `values`; the rest stays what it was. The sums are numbers that `wire` can carry.
    ///
    /// # Errors
    /// As [`Ranks::all_reduce`].
    pub(crate) fn reduce_scatter(
        &self,
        values: &mut [f32],
        borders: &RankBounds,
        wire: Wire,
    ) -> Result<(), Error> {
        if !self.are_many() {
            return Ok(());
        }
        let number = self.number();
        for rank in self.others() {
            self.send(rank, number, wire.encode(&values[borders.of(rank)]))?;
        }
        let own = borders.of(self.place.rank);
        let add = |sum: &mut Vec<f32>, part: Vec<f32>| {
            sum.iter_mut()
                .zip(part)
                .for_each(|(sum, part)| *sum += part);
        };
        let mut tree = Tree::default();
        for rank in 0..self.place.world {
            let part = if rank == self.place.rank {
                wire.rounded(values[own.clone()].to_vec())
            } else {
                self.numbers(rank, number, own.len(), wire)?
            };
            tree.push(Some(part), add);
        }
        if let Some(sum) = tree.finish(add) {
            values[own].copy_from_slice(&wire.rounded(sum));
        }
        Ok(())
    }

    /// Gives every rank the shares that the others have of `values`.
    ///
    /// # Errors
    /// As [`Ranks::all_reduce`].
    pub(crate) fn all_gather(
        &self,
        values: &mut [f32],
        borders: &RankBounds,
        wire: Wire,
    ) -> Result<(), Error> {
        if !self.are_many() {
            return Ok(());
        }
        let number = self.number();
        let own = wire.encode(&values[borders.of(self.place.rank)]);
        for rank in self.others() {
            self.send(rank, number, own.clone())?;
        }
        for rank in self.others() {
            let range = borders.of(rank);
            let part = self.numbers(rank, number, range.len(), wire)?;
            values[range].copy_from_slice(&part);
        }
        Ok(())
    }

    /// The bytes that every rank gave, in rank order.
    ///
    /// # Errors
    /// As [`Ranks::all_reduce`].
    pub(crate) fn gather(&self, bytes: Vec<u8>) -> Result<Vec<Vec<u8>>, Error> {
        let number = self.number();
        for rank in self.others() {
            self.send(rank, number, bytes.clone())?;
        }
        let mut own = Some(bytes);
        (0..self.place.world)
            .map(|rank| match own.take_if(|_| rank == self.place.rank) {
                Some(bytes) => Ok(bytes),
                None => self.receive(rank, number),
            })
            .collect()
    }

    /// The sums of a few numbers of all ranks.
    ///
    /// # Errors
    /// As [`Ranks::all_reduce`].
    pub(crate) fn sums<const N: usize>(&self, values: [f64; N]) -> Result<[f64; N], Error> {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes());
        let add = |sum: &mut [f64; N], part: [f64; N]| {
            sum.iter_mut()
                .zip(part)
                .for_each(|(sum, part)| *sum += part);
        };
        let mut tree = Tree::default();
        for bytes in self.gather(bytes.collect())? {
            let (words, _) = bytes.as_chunks::<8>();
            let mut part = [0.0; N];
            for (value, word) in part.iter_mut().zip(words) {
                *value = f64::from_le_bytes(*word);
            }
            tree.push(Some(part), add);
        }
        Ok(tree.finish(add).unwrap_or([0.0; N]))
    }

    /// Bytes of rank 0, on all ranks. Others give `None`.
    ///
    /// # Errors
    /// As [`Ranks::all_reduce`].
    pub(crate) fn broadcast(&self, bytes: Option<Vec<u8>>) -> Result<Vec<u8>, Error> {
        let number = self.number();
        let Some(bytes) = bytes.filter(|_| self.leads()) else {
            return self.receive(0, number);
        };
        for rank in self.others() {
            self.send(rank, number, bytes.clone())?;
        }
        Ok(bytes)
    }

    /// Waits until all ranks are here.
    ///
    /// # Errors
    /// As [`Ranks::all_reduce`].
    pub(crate) fn barrier(&self) -> Result<(), Error> {
        self.gather(Vec::new()).map(|_| ())
    }

    /// Reports to the others that this rank cannot continue.
    pub(crate) fn abort(&self, error: &Error) {
        let failure = match error {
            Error::Rank { rank, reason, .. } => RankFailure {
                rank: *rank,
                reason: reason.clone(),
            },
            other => RankFailure {
                rank: self.place.rank,
                reason: format!("it stopped: {other}"),
            },
        };
        self.leave(Some(&failure));
    }

    fn leave(&self, failure: Option<&RankFailure>) {
        for transport in self.transports.iter().flatten() {
            transport.leave(failure);
        }
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let RankPlace { rank, world } = self.place;
        // Each begins with its neighbour, so that no rank is everybody's first.
        (1..world).map(move |distance| (rank + distance) % world)
    }

    /// Counts a collective operation by messages; its number.
    fn number(&self) -> u64 {
        self.recv_queue.status[self.place.rank].next_collective();
        self.messages.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn send(&self, to: usize, number: u64, bytes: Vec<u8>) -> Result<(), Error> {
        let Some(transport) = &self.transports[to] else {
            return Ok(());
        };
        let sent = transport.send(Message { number, bytes });
        sent.map_err(|reason| self.error(RankFailure { rank: to, reason }))
    }

    fn receive(&self, from: usize, number: u64) -> Result<Vec<u8>, Error> {
        let received = self.recv_queue.receive(from, self.patience);
        let message = received.map_err(|failure| self.error(failure))?;
        if message.number != number {
            let reason = format!(
                "it is at message {}, others are at {number}",
                message.number
            );
            return Err(self.error(RankFailure { rank: from, reason }));
        }
        Ok(message.bytes)
    }

    fn numbers(&self, from: usize, number: u64, len: usize, wire: Wire) -> Result<Vec<f32>, Error> {
        let bytes = self.receive(from, number)?;
        let expected = wire.bytes(len);
        if bytes.len() != expected {
            let reason = format!("it sent {} bytes instead of {expected}", bytes.len());
            return Err(self.error(RankFailure { rank: from, reason }));
        }
        Ok(wire.decode(&bytes))
    }

    /// The error, with where all ranks were.
    pub(super) fn error(&self, failure: RankFailure) -> Error {
        let status = self.recv_queue.status.iter().enumerate();
        let ranks = status.map(|(rank, status)| format!("rank {rank} at {status}"));
        Error::Rank {
            rank: failure.rank,
            reason: failure.reason,
            ranks: ranks.collect::<Vec<_>>().join("; "),
        }
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        self.leave(None);
    }
}
