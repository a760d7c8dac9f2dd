//! Queue of finished batches for the caller, who may be a thread or an async task.

use futures::task::AtomicWaker;

use super::sync::{
    Arc,
    channel::{Receiver, Sender, unbounded},
};
use crate::{Batch, Error};

/// A batch that is done, by its number: they need not be done in order.
pub(crate) type Outcome = (u64, Result<Batch, Error>);

/// The sending end. When the last clone is gone, the receiver learns it.
#[derive(Debug)]
pub(crate) struct ReadyQueue {
    /// Present until `drop`, which closes it before it wakes the receiver.
    sender: Option<Sender<Outcome>>,
    waker: Arc<AtomicWaker>,
}

/// A ready queue, what comes out of it, and whom to wake then. Bounded by the slabs, which every batch needs.
pub(crate) fn ready_queue() -> (ReadyQueue, Receiver<Outcome>, Arc<AtomicWaker>) {
    let (sender, receiver) = unbounded();
    let waker = Arc::new(AtomicWaker::new());
    let ready_queue = ReadyQueue {
        sender: Some(sender),
        waker: Arc::clone(&waker),
    };
    (ready_queue, receiver, waker)
}

impl ReadyQueue {
    /// Gives a batch to the caller; without one, its slab goes back to the ring.
    pub(crate) fn send(&self, outcome: Outcome) {
        if let Some(sender) = &self.sender {
            sender.send(outcome).ok();
        }
        self.waker.wake();
    }
}

impl Clone for ReadyQueue {
    fn clone(&self) -> Self {
        Self {
            sender: self.sender.clone(),
            waker: Arc::clone(&self.waker),
        }
    }
}

impl Drop for ReadyQueue {
    fn drop(&mut self) {
        self.sender = None;
        self.waker.wake();
    }
}
