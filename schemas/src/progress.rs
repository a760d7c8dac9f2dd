//! Progress reports of a stage to its caller.

use std::fmt::Debug;

/// One piece of news. Stages report at least once a batch; a receiver may draw bars, log lines or nothing.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// Current work, such as `ingest quotes` or `train`.
    pub stage: &'a str,
    /// Units done so far.
    pub done: u64,
    /// Units in total, where known.
    pub total: Option<u64>,
    /// Name of the unit, plural: `rows`, `pages`, `steps`.
    pub unit: &'static str,
    /// Anything a person should see beside the count, such as a wait reason or the current loss; may be empty.
    pub note: &'a str,
}

/// Receiver of [`Event`]s. It must return quickly: it is called from the stage's own threads.
pub trait Progress: Debug + Send + Sync {
    /// Takes one piece of news.
    fn report(&self, event: Event<'_>);
}

/// A receiver that ignores everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn report(&self, _: Event<'_>) {}
}
