//! Writes checkpoints in the background, at most one at a time.
//!
//! The numbers are copied while the next step is computed, which does not change them, into memory that is used again for
//! the next checkpoint. A second checkpoint waits for the first.

use std::sync::{Arc, atomic::AtomicBool};

use feedline_schemas::{
    checkpoint::CheckpointHeader,
    ids::{Epoch, Step},
};
use rayon::prelude::*;

use super::{Checkpoints, Frozen, Numbers, StateFile};
use crate::{
    checkpoint::run_folder::{Background, RunFolder},
    error::Error,
    optim::optimizer::StateBucket,
    reporting::metrics_log::LogFile,
};

/// Numbers that one task copies.
const PIECE: usize = 1 << 18;

/// Memory for one snapshot.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    parameters: Numbers,
    average: Numbers,
    state: Vec<Numbers>,
}

/// Numbers that training continues to change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Live<'a> {
    pub(crate) parameters: &'a [f32],
    pub(crate) average: Option<&'a [f32]>,
    /// Of the optimizer; none where ranks hold it in shares.
    pub(crate) state: &'a [StateBucket],
}

/// Copy of [`Live`] numbers.
#[derive(Debug)]
pub(crate) struct Copied {
    parameters: Numbers,
    average: Option<Numbers>,
    state: Vec<(String, Numbers)>,
}

impl Snapshots {
    /// Copies the optimizer's state.
    pub(crate) fn copy_state(&mut self, state: &[StateBucket]) -> Vec<(String, Numbers)> {
        self.state.resize_with(state.len(), Numbers::default);
        let state = state.iter().zip(&mut self.state);
        state
            .map(|(bucket, memory)| (bucket.name.clone(), copied(memory, &bucket.values)))
            .collect()
    }

    /// Copies everything.
    pub(crate) fn copy(&mut self, live: Live<'_>) -> Copied {
        Copied {
            parameters: copied(&mut self.parameters, live.parameters),
            average: live
                .average
                .map(|average| copied(&mut self.average, average)),
            state: self.copy_state(live.state),
        }
    }
}

/// `values` in `memory`, or in new one when the old is still being read.
fn copied(memory: &mut Numbers, values: &[f32]) -> Numbers {
    if Arc::get_mut(memory).is_none_or(|old| old.len() != values.len()) {
        *memory = Arc::new(vec![0.0; values.len()]);
    }
    let numbers = Arc::get_mut(memory).expect("it has no other owner");
    numbers
        .par_chunks_mut(PIECE)
        .zip(values.par_chunks(PIECE))
        .for_each(|(to, from)| to.copy_from_slice(from));
    Arc::clone(memory)
}

/// Content to write.
#[derive(Debug)]
pub(crate) struct SaveJob {
    /// The metrics up to the checkpoint, which are written first, by the rank that has them.
    pub(crate) log: Option<Arc<LogFile>>,
    /// This rank's share of the optimizer's state, where there is such.
    pub(crate) state: Option<StateFile>,
    /// The checkpoint, where there is a new one.
    pub(crate) checkpoint: Option<Frozen>,
    /// The best weights, where there are better ones than were written.
    pub(crate) best: Option<Frozen>,
}

/// Result of a [`SaveJob`].
#[derive(Debug)]
pub(crate) struct Saved {
    /// Step and epoch of the checkpoint, if there was one and it is durable.
    pub(crate) checkpoint: Option<(Step, Epoch)>,
    /// Step of the best weights, if there were any and they are durable.
    pub(crate) best: Option<Step>,
    /// Error, if it failed.
    pub(crate) failure: Option<Error>,
}

/// A [`SaveJob`] that lacks the numbers.
#[derive(Debug)]
pub(crate) struct Due {
    pub(crate) log: Option<Arc<LogFile>>,
    pub(crate) state: Option<StateFile>,
    /// Header and best weights of the checkpoint, where there is a new one.
    pub(crate) checkpoint: Option<(CheckpointHeader, Option<Numbers>)>,
    pub(crate) best: Option<Frozen>,
}

impl Due {
    /// Returns true if there are numbers to copy.
    pub(crate) const fn copies(&self) -> bool {
        self.checkpoint.is_some()
    }

    /// With the numbers, where there are some.
    pub(crate) fn with(self, copied: Option<Copied>) -> SaveJob {
        let checkpoint = self.checkpoint.zip(copied);
        SaveJob {
            log: self.log,
            state: self.state,
            checkpoint: checkpoint.map(|((header, best), copied)| Frozen {
                header,
                parameters: copied.parameters,
                state: copied.state,
                average: copied.average,
                best,
            }),
            best: self.best,
        }
    }
}

impl SaveJob {
    fn run(self, checkpoints: &Checkpoints) -> Saved {
        let mut saved = Saved {
            checkpoint: None,
            best: None,
            failure: None,
        };
        saved.failure = self.write(checkpoints, &mut saved).err();
        saved
    }

    fn write(self, checkpoints: &Checkpoints, saved: &mut Saved) -> Result<(), Error> {
        if let Some(log) = &self.log {
            log.flush()?;
        }
        if let Some(file) = self.state {
            let at = file.at;
            checkpoints.save_state(file)?;
            if self.checkpoint.is_none() {
                saved.checkpoint = Some(at);
            }
        }
        if let Some(frozen) = self.checkpoint {
            let at = (frozen.header.step, frozen.header.epoch);
            checkpoints.save(frozen)?;
            saved.checkpoint = Some(at);
        }
        if let Some(frozen) = self.best {
            let step = frozen.header.step;
            checkpoints.save_best(frozen)?;
            saved.best = Some(step);
        }
        Ok(())
    }
}

/// Writes checkpoints.
#[derive(Debug)]
pub(crate) struct Saver {
    folder: RunFolder,
    checkpoints: Checkpoints,
    under_way: Option<Background<Saved>>,
}

impl Saver {
    /// A saver with nothing to do.
    pub(crate) const fn new(folder: RunFolder, checkpoints: Checkpoints) -> Self {
        Self {
            folder,
            checkpoints,
            under_way: None,
        }
    }

    /// The checkpoints.
    pub(crate) const fn checkpoints(&self) -> &Checkpoints {
        &self.checkpoints
    }

    /// Begins to write.
    ///
    /// # Panics
    /// When a job is under way: [`wait`](Self::wait) for it.
    pub(crate) fn start(&mut self, job: SaveJob) {
        assert!(self.under_way.is_none(), "one job at a time");
        let checkpoints = self.checkpoints.clone();
        self.under_way = Some(self.folder.background(move || job.run(&checkpoints)));
    }

    /// Waits for the job that is under way, if there is one; not for long, once `told` asks the run
    /// to stop.
    pub(crate) fn wait(&mut self, told: &AtomicBool) -> Option<Saved> {
        self.under_way.take().map(|job| job.wait(told))
    }

    /// Lets `time` pass.
    pub(crate) fn pause(&self, time: std::time::Duration) {
        self.folder.pause(time);
    }
}
