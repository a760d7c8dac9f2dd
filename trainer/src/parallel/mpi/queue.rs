//! Queue of frames to be sent to one rank.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::super::frame::FrameKind;

/// Frames that wait before the sender has to: exchanges wait for responses, so that there are never
/// many.
const FRAMES_MAX: usize = 16;

/// A frame on its way.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) session: u64,
    pub(super) kind: FrameKind,
    pub(super) number: u64,
    pub(super) bytes: Vec<u8>,
}

/// Frames for one rank, in order.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<QueuedParcels>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueuedParcels {
    parcels: VecDeque<Parcel>,
    closed: bool,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, QueuedParcels> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a frame, and waits up to `limit` until there is room for it.
    ///
    /// # Errors
    /// Reason that it cannot be sent.
    pub(super) fn push(&self, parcel: Parcel, limit: Duration) -> Result<(), String> {
        let full =
            |waiting: &mut QueuedParcels| !waiting.closed && waiting.parcels.len() >= FRAMES_MAX;
        let (mut waiting, timeout) = self
            .changed
            .wait_timeout_while(self.waiting(), limit, full)
            .unwrap_or_else(PoisonError::into_inner);
        if waiting.closed {
            return Err("MPI has ended here".to_owned());
        }
        if timeout.timed_out() {
            let seconds = limit.as_secs_f64();
            return Err(format!("it has taken no message for {seconds} s"));
        }
        waiting.parcels.push_back(parcel);
        self.changed.notify_all();
        Ok(())
    }

    /// Adds a frame if nothing else waits.
    pub(super) fn push_if_empty(&self, parcel: impl FnOnce() -> Parcel) {
        let mut waiting = self.waiting();
        if waiting.parcels.is_empty() && !waiting.closed {
            waiting.parcels.push_back(parcel());
            self.changed.notify_all();
        }
    }

    /// Adds a last frame: nothing comes after it.
    pub(super) fn close(&self, last: Parcel) {
        let mut waiting = self.waiting();
        waiting.parcels.push_back(last);
        waiting.closed = true;
        self.changed.notify_all();
    }

    /// Waits for the next frame; `None` after the last.
    pub(super) fn pop(&self) -> Option<Parcel> {
        let empty = |waiting: &mut QueuedParcels| !waiting.closed && waiting.parcels.is_empty();
        let mut waiting = self
            .changed
            .wait_while(self.waiting(), empty)
            .unwrap_or_else(PoisonError::into_inner);
        self.changed.notify_all();
        waiting.parcels.pop_front()
    }
}
