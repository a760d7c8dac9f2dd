//! What a run is about, and how a checkpoint says so.

use feedline_schemas::{
    Versioned,
    checkpoint::{CheckpointHeader, EarlyStopping, RunningLoss},
    ids::{Epoch, Hash128, Step},
    loader_state::LoaderState,
    manifest::Layout,
};

use crate::{
    checkpoint::Snapshot,
    data::{Samples, Targets},
    error::Error,
    settings::Settings,
    task::Task,
};

/// What a run is about.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Checked configuration.
    pub(crate) settings: Settings,
    /// What is predicted.
    pub(crate) task: Task,
    /// Layout of the shards.
    pub(crate) layout: Layout,
    /// Fingerprint of the manifest.
    pub(crate) fingerprint: Hash128,
    /// Dataset folder, for messages.
    pub(crate) dataset_url: String,
}

/// Where a run is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Position {
    /// Steps taken.
    pub(crate) step: Step,
    /// Epoch in progress.
    pub(crate) epoch: Epoch,
    /// Where the loader goes on.
    pub(crate) loader: LoaderState,
    /// What early stopping remembers.
    pub(crate) early_stopping: EarlyStopping,
    /// Sums of the epoch in progress.
    pub(crate) running: RunningLoss,
}

impl Plan {
    /// An error about the dataset.
    pub(crate) fn dataset_error(&self, reason: String) -> Error {
        Error::Dataset {
            url: self.dataset_url.clone(),
            reason,
        }
    }

    /// Class ids must be below the number of classes: the engine looks outputs up by them.
    pub(crate) fn check_targets(&self, samples: Samples<'_>, keys: &[u64]) -> Result<(), Error> {
        let (Targets::Classes(ids), Task::Classification { counts }) =
            (samples.targets, &self.task)
        else {
            return Ok(());
        };
        let bad = |id: i32| usize::try_from(id).map_or(true, |id| id >= counts.len());
        let Some(row) = ids.iter().position(|&id| bad(id)) else {
            return Ok(());
        };
        let (id, key, classes) = (ids[row], keys[row], counts.len());
        Err(self.dataset_error(format!("the sample with key `{key:016x}` has class id {id}, ids are below {classes}; build it again")))
    }

    /// The header of a checkpoint at `position`; its hashes are filled in when it is written.
    pub(crate) fn header(&self, position: &Position) -> CheckpointHeader {
        CheckpointHeader {
            format: CheckpointHeader::TAG.format.to_owned(),
            version: CheckpointHeader::TAG.version,
            step: position.step,
            epoch: position.epoch,
            seed: self.settings.config().seed,
            loader: position.loader.clone(),
            fingerprint: self.fingerprint,
            layout: self.layout.clone(),
            config: self.settings.config().clone(),
            early_stopping: position.early_stopping.clone(),
            running: position.running.clone(),
            tensor_hash: Hash128::new(0),
            header_hash: Hash128::new(0),
        }
    }

    /// Whether a snapshot is of this run; the folder's name says so, this makes sure.
    pub(crate) fn accepts(&self, snapshot: &Snapshot) -> Result<(), String> {
        let header = &snapshot.header;
        if header.fingerprint != self.fingerprint {
            return Err(format!(
                "it belongs to the dataset with fingerprint `{}`",
                header.fingerprint
            ));
        }
        if header.layout != self.layout || header.seed != self.settings.config().seed {
            return Err("it belongs to another layout or seed".to_owned());
        }
        if snapshot.moments.is_none() {
            return Err("it has no optimizer state".to_owned());
        }
        Ok(())
    }
}
