//! Checkpoints: `checkpoints/step-<steps taken, 8 digits>.safetensors` and `best.safetensors` in the run's folder.
//!
//! A file is safetensors with one metadata entry, `feedline`, that holds the [`CheckpointHeader`]. Tensors, all f32:
//! `parameter.<name>`, `average.<name>` where an average of the weights is kept, `optimizer.all.<bucket>` for each bucket
//! of the optimizer's state that is not empty, and `best.<name>` when the best weights are not the current ones.
//! `best.safetensors` has the best weights as `parameter.<name>` and nothing else.
//! `header_hash` covers the header, `tensor_hash` in it the tensors, and the texts must be as they are written: any changed
//! byte is seen.
//!
//! When ranks hold the optimizer's state in shares, each writes its own beside it ([`state`]), and
//! the header has the hashes.
//!
//! A checkpoint is there complete or not at all. Older ones are removed only after a newer one is durable, so a crash at
//! any instant leaves at least one; when the newest cannot be used the one before it is taken.
//!
//! A [`Saver`] writes in the background, out of a copy of the numbers that is made between two steps; nothing else of
//! the size of the model is allocated for it.

mod decode;
mod encode;
pub(crate) mod export;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod paths;
pub(crate) mod run_folder;
mod saver;
mod snapshot;
mod state;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use feedline_schemas::{
    checkpoint::CheckpointHeader, config::TrainConfig, ids::Step, report::Warning,
};

use self::paths::{FOLDER, path, step_of_state, steps_in};
pub(crate) use self::{
    decode::{Expected, decode},
    encode::{Frozen, Numbers},
    paths::{BEST_PATH, step_of},
    saver::{Due, Live, Saved, Saver, Snapshots},
    snapshot::{METADATA_KEY, Snapshot},
    state::StateFile,
};
use crate::{
    checkpoint::run_folder::RunFolder, error::Error, model::interface::Parameter,
    optim::optimizer::StateLayout,
};

/// Returns true if a run's folder has checkpoints.
///
/// # Errors
/// [`Error::Storage`].
pub(crate) fn exist_in(folder: &RunFolder) -> Result<bool, Error> {
    Ok(!folder.list(FOLDER)?.is_empty())
}

/// The checkpoints of a run.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoints {
    folder: RunFolder,
    layout: Arc<[Parameter]>,
    state: StateLayout,
    keep: Keep,
    /// Longest wait for the shares of other ranks.
    patience: Duration,
    /// Damaged checkpoints in whose place another one was used; clones share them.
    passed_over: Arc<Mutex<Vec<String>>>,
}

/// Rule that selects the checkpoints to keep.
#[derive(Clone, Copy, Debug)]
struct Keep {
    /// So many of the newest.
    newest: usize,
    /// Those after a multiple of so many steps; 0 for none.
    every_steps: u64,
}

impl Keep {
    const fn for_good(self, step: Step) -> bool {
        self.every_steps > 0 && step.get().is_multiple_of(self.every_steps)
    }
}

impl Checkpoints {
    /// The checkpoints in `folder` of a model with this layout, whose optimizer has state of that layout.
    pub(crate) fn new(
        folder: RunFolder,
        layout: &[Parameter],
        state: StateLayout,
        config: &TrainConfig,
    ) -> Self {
        Self {
            folder,
            layout: layout.into(),
            state,
            keep: Keep {
                newest: config.checkpoint.keep as usize,
                every_steps: config.checkpoint.keep_every_steps,
            },
            // The others wait for this one meanwhile.
            patience: Duration::from_secs(config.parallel.timeout_s) / 2,
            passed_over: Arc::default(),
        }
    }

    fn passed_over(&self) -> MutexGuard<'_, Vec<String>> {
        self.passed_over
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a damaged checkpoint.
    pub(crate) fn pass_over(&self, error: &Error) {
        let mut passed_over = self.passed_over();
        let reason = error.to_string();
        if !passed_over.contains(&reason) {
            passed_over.push(reason);
        }
    }

    /// Warnings of damaged checkpoints in whose place another one was used.
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        let warning = |reason: &String| {
            let message = format!("{reason}; another checkpoint was used");
            Warning::new("damaged_checkpoint", message)
        };
        self.passed_over().iter().map(warning).collect()
    }

    /// Checkpoints of the same kind in another folder.
    pub(crate) fn of_folder(&self, folder: RunFolder) -> Self {
        Self {
            folder,
            ..self.clone()
        }
    }

    /// Copies the checkpoint after `step` steps, and the shares of the optimizer's state that
    /// belong to it, to another folder; a missing one is left out.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(crate) fn copy(&self, step: Step, to: &RunFolder) -> Result<(), Error> {
        let mut own: Vec<String> = self
            .folder
            .list(FOLDER)?
            .into_iter()
            .map(|f| f.path)
            .collect();
        own.retain(|path| step_of_state(path) == Some(step));
        // The checkpoint comes last.
        own.push(path(step));
        for path in own {
            if let Some(bytes) = self.folder.get_opt(&path)? {
                to.put(&path, bytes.to_vec())?;
            }
        }
        Ok(())
    }

    /// URL of the checkpoint after `step` steps.
    pub(crate) fn url(&self, step: Step) -> String {
        self.folder.url_of(&path(step))
    }

    /// Returns true if there is a checkpoint.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(crate) fn any(&self) -> Result<bool, Error> {
        Ok(!self.steps()?.is_empty())
    }

    /// Writes a checkpoint, once the shares of the optimizer's state that ranks hold are there, then removes those that are
    /// too old.
    ///
    /// # Errors
    /// [`Error::StateMissing`]; [`Error::Storage`] when it could not be written; one that could not be removed is only logged.
    pub(crate) fn save(&self, frozen: Frozen) -> Result<(), Error> {
        let header = frozen.header.clone();
        self.await_state(&header)?;
        let parts = encode::encode(&self.layout, frozen);
        self.folder.put_parts(&path(header.step), parts)?;
        self.tidy(&header);
        Ok(())
    }

    /// The file of the checkpoint after `step` steps, for another rank.
    ///
    /// # Errors
    /// [`Error::Damaged`] when it no longer exists, or [`Error::Storage`].
    pub(crate) fn bytes(&self, step: Step) -> Result<Vec<u8>, Error> {
        let bytes = self.folder.get_opt(&path(step))?;
        let bytes = bytes.ok_or_else(|| Error::Damaged {
            url: self.url(step),
            reason: "it was removed while it was being read".into(),
        })?;
        Ok(bytes.to_vec())
    }

    /// The checkpoint in a file that another rank has read.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub(crate) fn read(&self, bytes: &[u8]) -> Result<Snapshot, Error> {
        decode(&self.folder.url(), bytes, self.expected(&self.state))
    }

    /// Removes what is old once the checkpoint with this header is durable; a failure is only logged.
    pub(crate) fn tidy(&self, newest: &CheckpointHeader) {
        if let Err(error) = self.remove_old(newest) {
            tracing::warn!(%error, "old checkpoints were not removed");
        }
    }

    /// Keeps the newest up to `newest`, those that are kept for good, and what the guard may go back to. Later ones can
    /// only be damaged ones that a resume stepped behind: they go when training has passed them by overwriting.
    fn remove_old(&self, newest: &CheckpointHeader) -> Result<(), Error> {
        let spared = [Some(newest.guard.anchor), newest.guard.candidate];
        let listed = self.folder.list(FOLDER)?;
        let mut steps = steps_in(&listed);
        steps.retain(|step| *step <= newest.step);
        let old = steps.len().saturating_sub(self.keep.newest);
        let goes = |step: &Step| !spared.contains(&Some(*step)) && !self.keep.for_good(*step);
        let gone: Vec<Step> = steps[..old].iter().copied().filter(goes).collect();
        gone.iter()
            .try_for_each(|step| self.folder.delete(&path(*step)))?;
        steps.retain(|step| !gone.contains(step));
        // Shares of a state without its checkpoint are of no use.
        let alone = listed.iter().filter(|file| {
            step_of_state(&file.path)
                .is_some_and(|step| step <= newest.step && !steps.contains(&step))
        });
        alone
            .into_iter()
            .try_for_each(|file| self.folder.delete(&file.path))
    }

    /// Reads the newest checkpoint that `usable` accepts, or `None` when there is none at all.
    ///
    /// # Errors
    /// [`Error::AllDamaged`] when there are some but none can be used; [`Error::Storage`] when one could not be read,
    /// which says nothing about what it holds.
    pub(crate) fn newest(
        &self,
        usable: impl Fn(&Snapshot) -> Result<(), String>,
    ) -> Result<Option<Snapshot>, Error> {
        self.newest_up_to(Step::new(u64::MAX), usable)
    }

    /// As [`newest`](Self::newest), of those after at most `last` steps.
    ///
    /// # Errors
    /// As [`newest`](Self::newest).
    pub(crate) fn newest_up_to(
        &self,
        last: Step,
        usable: impl Fn(&Snapshot) -> Result<(), String>,
    ) -> Result<Option<Snapshot>, Error> {
        let mut steps = self.steps()?;
        steps.retain(|step| *step <= last);
        let mut first_refusal = None;
        for step in steps.iter().rev() {
            let url = self.url(*step);
            let Some(bytes) = self.folder.get_opt(&path(*step))? else {
                continue;
            };
            let refusal = match decode(&url, &bytes, self.expected(&self.state)) {
                Ok(snapshot) => match usable(&snapshot) {
                    Ok(()) => match self.verify_state(&snapshot.header) {
                        Ok(()) => return Ok(Some(snapshot)),
                        Err(error) => error,
                    },
                    Err(reason) => Error::Damaged { url, reason },
                },
                Err(error) => error,
            };
            if !matches!(refusal, Error::Damaged { .. }) {
                return Err(refusal);
            }
            tracing::warn!(error = %refusal, "a checkpoint cannot be used; trying the one before it");
            self.pass_over(&refusal);
            first_refusal.get_or_insert(refusal);
        }
        match first_refusal {
            None => Ok(None),
            Some(source) => Err(Error::AllDamaged {
                url: self.folder.url(),
                count: steps.len(),
                source: Box::new(source),
            }),
        }
    }

    /// Writes the best weights.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(crate) fn save_best(&self, frozen: Frozen) -> Result<(), Error> {
        let parts = encode::encode(&self.layout, frozen);
        self.folder.put_parts(BEST_PATH, parts)
    }

    /// Reads the best weights, or `None` when they were not written yet.
    ///
    /// # Errors
    /// [`Error::Damaged`] or [`Error::Storage`].
    pub(crate) fn best(&self) -> Result<Option<Snapshot>, Error> {
        let bytes = self.folder.get_opt(BEST_PATH)?;
        bytes
            .map(|bytes| {
                let url = self.folder.url_of(BEST_PATH);
                decode(&url, &bytes, self.expected(&StateLayout::new()))
            })
            .transpose()
    }

    fn expected<'b>(&'b self, state: &'b StateLayout) -> Expected<'b> {
        Expected {
            parameters: &self.layout,
            state,
        }
    }

    /// Steps of all checkpoints, rising.
    fn steps(&self) -> Result<Vec<Step>, Error> {
        Ok(steps_in(&self.folder.list(FOLDER)?))
    }
}

#[cfg(test)]
mod tests;
