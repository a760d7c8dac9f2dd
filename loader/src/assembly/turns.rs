//! Count of the batches of a pass under way, and the time to make more.
//!
//! The thread makes batches until as many are under way as may be, then it sleeps. Where these are many, the caller wakes
//! it only when half of them are left: a wake-up takes some ten microseconds of the caller's time on busy processors, and
//! takes the processor away from it. A batch that is ready costs neither.

use super::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// From so many batches on, the assemble thread sleeps until half of them are taken.
const MANY: u32 = 8;

/// The batches under way: given to the pool and not yet taken by the caller.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    state: Mutex<TurnState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct TurnState {
    under_way: u32,
    /// Most batches left at which the sleeping thread is woken; `None` while it does not sleep.
    wakes_at: Option<u32>,
    is_over: bool,
}

/// Result of waiting for a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AwaitedTurn {
    /// Another batch may be made; it counts as under way.
    Granted,
    /// The caller is gone.
    Over,
}

impl Turns {
    /// Takes a turn if fewer than `most` batches are under way.
    pub(crate) fn try_take(&self, most: u32) -> Option<AwaitedTurn> {
        let mut state = self.lock();
        state.take(most)
    }

    /// Waits for a turn, until the caller has taken enough of `most` batches.
    pub(crate) fn take(&self, most: u32) -> AwaitedTurn {
        let mut state = self.lock();
        if let Some(turn) = state.take(most) {
            return turn;
        }
        let wakes_at = if most < MANY { most - 1 } else { most / 2 };
        state.wakes_at = Some(wakes_at);
        while state.under_way > wakes_at && !state.is_over {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.wakes_at = None;
        state.take(most).unwrap_or(AwaitedTurn::Over)
    }

    /// Counts a batch that the caller took.
    pub(crate) fn give_back(&self) {
        let mut state = self.lock();
        state.under_way = state.under_way.saturating_sub(1);
        if state.wakes_at.is_some_and(|most| state.under_way <= most) {
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Says that the caller takes no more.
    pub(crate) fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, TurnState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TurnState {
    fn take(&mut self, most: u32) -> Option<AwaitedTurn> {
        if self.is_over {
            return Some(AwaitedTurn::Over);
        }
        (self.under_way < most).then(|| {
            self.under_way += 1;
            AwaitedTurn::Granted
        })
    }
}
