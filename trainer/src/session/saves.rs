//! Saves of a run that are under way, and the durable ones.

use feedline_schemas::ids::{Epoch, Hash128, Step};

use crate::{
    checkpoint::{Checkpoints, Due, Live, Saved, Saver, Snapshots, StateFile},
    error::Error,
    optim::{average::Average, optimizer::Optimizer},
    session::run_context::Watch,
};

/// Numbers that a due checkpoint copies.
pub(super) fn live<'a>(
    bucket: &'a [f32],
    average: Option<&'a Average>,
    optimizer: &'a Optimizer,
    due: &Due,
) -> Live<'a> {
    let whole = due
        .checkpoint
        .as_ref()
        .is_some_and(|(header, _)| header.state_shards.is_empty());
    Live {
        parameters: bucket,
        average: average.map(Average::weights),
        state: if whole { optimizer.state() } else { &[] },
    }
}

/// Saves under way, and the durable ones.
#[derive(Debug)]
pub(super) struct Saving {
    pub(super) saver: Saver,
    pub(super) snapshots: Snapshots,
    /// A checkpoint whose numbers the next step copies while it computes.
    pub(super) due: Option<Due>,
    /// Step and epoch of the newest checkpoint that is durable.
    pub(super) durable: Option<(Step, Epoch)>,
    /// Step of the best weights that this process has written.
    pub(super) best_written: Option<Step>,
    /// This rank's share of the optimizer's state, and the hashes of all ranks', where ranks hold it in shares.
    pub(super) state: Option<(StateFile, Vec<Hash128>)>,
}

impl Saving {
    /// Nothing is durable yet.
    pub(super) fn new(saver: Saver) -> Self {
        Self {
            saver,
            snapshots: Snapshots::default(),
            due: None,
            durable: None,
            best_written: None,
            state: None,
        }
    }

    /// The run's checkpoints.
    pub(super) const fn checkpoints(&self) -> &Checkpoints {
        self.saver.checkpoints()
    }

    /// Records the result of a job; returns its error.
    pub(super) fn heard(&mut self, saved: Saved, watch: Watch<'_>) -> Option<Error> {
        {
            let mut status = watch.tracker.change();
            status.checkpoints += u64::from(saved.checkpoint.is_some());
            status.failed_checkpoints += u64::from(saved.failure.is_some());
        }
        self.durable = saved.checkpoint.or(self.durable);
        if let Some((step, _)) = self.durable.filter(|_| watch.ranks.leads()) {
            watch.ranks.saved(step.get());
        }
        self.best_written = saved.best.or(self.best_written);
        saved.failure
    }
}
