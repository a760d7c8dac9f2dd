//! Permits for bytes of blocks.
//!
//! Whoever reads takes permits in the order of first need and gives them back when a block is done with. Up to the
//! limit they are free for all; above it only blocks of the batch that is being assembled get one. So the bytes held
//! stay below the larger of the limit and what that batch needs, and the batch always gets all it needs: nothing that
//! waits for a block can keep the block from being read.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// Bytes of blocks that may be held.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    state: Mutex<BudgetState>,
    changed: Notify,
}

#[derive(Debug)]
struct BudgetState {
    held: u64,
    /// Batch that is being assembled.
    demanded: u64,
    over: bool,
}

impl Budget {
    /// A budget of `limit` bytes for a pass that begins with batch `start`.
    pub(crate) fn new(limit: u64, start: u64) -> Self {
        let state = BudgetState {
            held: 0,
            demanded: start,
            over: false,
        };
        Self {
            limit,
            state: Mutex::new(state),
            changed: Notify::new(),
        }
    }

    /// Waits until a block that batch `first` is the first to need may be held, and counts it. Only one caller may wait
    /// at a time. Dropping the future takes nothing.
    pub(crate) async fn take(self: &Arc<Self>, first: u64, bytes: u64) -> Permit {
        loop {
            if let Some(held) = self.try_take(first, bytes) {
                return Permit {
                    budget: Arc::clone(self),
                    bytes,
                    held,
                };
            }
            self.changed.notified().await;
        }
    }

    fn try_take(&self, first: u64, bytes: u64) -> Option<u64> {
        let mut state = self.lock();
        let held = state.held + bytes;
        if held > self.limit {
            if first > state.demanded {
                return None;
            }
            if !std::mem::replace(&mut state.over, true) {
                tracing::warn!(
                    limit_bytes = self.limit,
                    held_bytes = held,
                    "the blocks of one batch exceed `prefetch_bytes`: nothing is read ahead; raise it, or lower \
                     `window_blocks` or `domains`"
                );
            }
        }
        state.held = held;
        Some(held)
    }

    fn give(&self, bytes: u64) {
        self.lock().held -= bytes;
        self.changed.notify_one();
    }

    /// Says that batch `batch` is being assembled.
    pub(crate) fn demand(&self, batch: u64) {
        self.lock().demanded = batch;
        self.changed.notify_one();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BudgetState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to hold some bytes; given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    budget: Arc<Budget>,
    bytes: u64,
    /// Bytes held in all when this was given.
    pub(crate) held: u64,
}

impl Permit {
    /// Takes the right to hold `bytes` of these off it.
    pub(crate) fn split(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self {
            budget: Arc::clone(&self.budget),
            bytes,
            held: self.held,
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.budget.give(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_over_the_limit_are_granted_to_the_batch_in_hand_only() {
        let budget = Budget::new(10, 0);
        assert_eq!(budget.try_take(5, 6), Some(6));
        assert_eq!(budget.try_take(5, 4), Some(10));
        assert_eq!(budget.try_take(5, 1), None);
        budget.demand(5);
        assert_eq!(budget.try_take(5, 1), Some(11));
        assert_eq!(budget.try_take(6, 1), None);
        budget.give(6);
        assert_eq!(budget.try_take(6, 5), Some(10));
    }

    #[tokio::test]
    async fn parts_of_a_permit_are_given_back_one_by_one() {
        let budget = Arc::new(Budget::new(10, 0));
        let mut whole = budget.take(1, 10).await;
        let part = whole.split(4);
        assert_eq!(budget.try_take(1, 1), None);
        drop(part);
        assert_eq!(budget.try_take(1, 4), Some(10));
        budget.give(4);
        drop(whole);
        assert_eq!(budget.try_take(1, 10), Some(10));
    }

    #[tokio::test]
    async fn a_waiting_reader_is_woken_by_returned_bytes() {
        let budget = Arc::new(Budget::new(10, 0));
        let first = budget.take(1, 10).await;
        let (second, ()) = tokio::join!(budget.take(2, 3), async { drop(first) });
        assert_eq!(second.held, 3);
    }
}
