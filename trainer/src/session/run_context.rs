//! Context of a run in progress: progress, clock, stop flag, tracker and ranks.

use std::sync::atomic::AtomicBool;

use feedline_schemas::progress::Progress;
use feedline_storage::clock::Clock;

use crate::{parallel::Ranks, reporting::status::Tracker};

/// Tracker, clock, stop flag and ranks of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch<'a> {
    pub(crate) progress: &'a dyn Progress,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) stop: &'a AtomicBool,
    pub(crate) tracker: &'a Tracker,
    pub(crate) ranks: &'a Ranks,
}
