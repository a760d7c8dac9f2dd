//! What of a run is written down, and how it goes on from there.

use feedline_schemas::{
    checkpoint::{EarlyStopping, Plateau, RunningLoss},
    ids::Step,
    loader_state::LoaderState,
};

use super::Session;
use crate::{
    average::Average,
    checkpoint::{Snapshot, SnapshotRef},
    data::Data,
    error::Error,
    log::MetricsLog,
    plan::Position,
};

impl<D: Data> Session<'_, D> {
    /// Goes on from the newest checkpoint that can be used; stays at the start when there is none.
    ///
    /// # Errors
    /// [`Error::AllDamaged`] or [`Error::Storage`].
    pub(crate) fn resume(mut self) -> Result<Self, Error> {
        let Some(snapshot) = self
            .checkpoints
            .newest(|snapshot| self.plan.accepts(snapshot))?
        else {
            return Ok(self);
        };
        let Snapshot {
            header,
            parameters,
            state,
            average,
            best,
        } = snapshot;
        let config = self.plan.settings.config().average.clone();
        self.average = config
            .zip(average)
            .map(|(config, weights)| Average::new(config, weights));
        self.best = header
            .early_stopping
            .best
            .is_some()
            .then(|| best.unwrap_or_else(|| parameters.clone()));
        self.bucket = parameters;
        let trained = self.engine.trained();
        self.optimizer = self.plan.settings.resumed_optimizer(&trained, state);
        self.log = MetricsLog::resume(self.folder, self.watch, header.step, header.epoch)?;
        self.position = Position {
            step: header.step,
            epoch: header.epoch,
            loader: header.loader,
            early_stopping: header.early_stopping,
            plateau: header.plateau,
            loss_scale: header.loss_scale.or(self.position.loss_scale),
            running: header.running,
        };
        // A process may have died between writing this checkpoint and removing an old one.
        self.checkpoints.tidy(header.step);
        tracing::info!(
            step = header.step.get(),
            epoch = header.epoch.get(),
            "resumed"
        );
        Ok(self)
    }

    /// Refuses a folder that already has checkpoints.
    ///
    /// # Errors
    /// [`Error::RunExists`] or [`Error::Storage`].
    pub(crate) fn fresh(self) -> Result<Self, Error> {
        if self.checkpoints.any()? {
            Err(Error::RunExists {
                url: self.folder.url(),
            })
        } else {
            Ok(self)
        }
    }

    /// Writes the lines of metrics, then a checkpoint.
    pub(super) fn save(&mut self) -> Result<(), Error> {
        self.log.flush(self.watch.clock.monotonic())?;
        let best = self
            .best
            .as_deref()
            .filter(|best| *best != self.bucket.as_slice());
        let header = self.plan.header(&self.position);
        self.checkpoints.save(SnapshotRef {
            header,
            parameters: &self.bucket,
            state: self.optimizer.state(),
            average: self.average.as_ref().map(Average::weights),
            best,
        })
    }

    /// Writes the best weights, if this process has not.
    ///
    /// The header is that of the instant after their epoch, so the bytes are the same whenever they are written.
    pub(super) fn save_best(&mut self) -> Result<(), Error> {
        let (Some(parameters), Some(best), false) = (
            &self.best,
            &self.position.early_stopping.best,
            self.best_written,
        ) else {
            return Ok(());
        };
        let epoch = best.epoch.next();
        let header = self.plan.header(&Position {
            step: best.step,
            epoch,
            loader: LoaderState {
                epoch,
                batch: Step::new(0),
                ..self.position.loader.clone()
            },
            early_stopping: EarlyStopping {
                best: Some(best.clone()),
                ..EarlyStopping::default()
            },
            plateau: Plateau::default(),
            loss_scale: None,
            running: RunningLoss::default(),
        });
        self.checkpoints.save_best(SnapshotRef {
            header,
            parameters,
            state: &[],
            average: None,
            best: None,
        })?;
        self.best_written = true;
        Ok(())
    }

    /// Saves everything; the error to leave with.
    pub(super) fn interrupt(&mut self) -> Result<Error, Error> {
        self.save()?;
        Ok(Error::Interrupted {
            checkpoint: self.checkpoints.url(self.position.step),
        })
    }
}
