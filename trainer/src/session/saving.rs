//! Saving and resuming of a run.

use std::time::Duration;

use feedline_schemas::{
    checkpoint::{CheckpointHeader, EarlyStopping, GuardState, Plateau, RunningLoss},
    count::counted,
    ids::{Hash128, Step},
    loader_state::LoaderState,
    run::ContinuedFrom,
};

use super::{TrainSession, epochs::is_out_of_patience, saves::live, shares, step::BatchOutcome};
use crate::{
    checkpoint::{Checkpoints, Due, Frozen, Numbers, Snapshot, StateFile, run_folder::RunFolder},
    data::samples::Data,
    error::{Error, KeptCheckpoint},
    optim::{average::Average, optimizer::StateBucket},
    parallel::Phase,
    plan::Position,
    reporting::metrics_log::{MetricsLine, MetricsLog},
    session::loss_guard,
};

/// Waits between the tries of a checkpoint that must not be missed: the first, the last, and one before leaving.
const WAITS_MS: [u64; 5] = [100, 200, 400, 800, 1600];

/// Says why a checkpoint cannot be used, if so.
type Usable<'c> = &'c dyn Fn(&Snapshot) -> Result<(), String>;

impl<D: Data> TrainSession<'_, D> {
    /// Resumes from the newest checkpoint that can be used; stays at the start when there is none.
    ///
    /// # Errors
    /// [`Error::AllDamaged`] or [`Error::Storage`].
    pub(crate) fn resume(mut self) -> Result<Self, Error> {
        self.sweep();
        let newest = self.agreed(|checkpoints, usable| checkpoints.newest(usable))?;
        let Some(snapshot) = newest else {
            return Ok(self);
        };
        // A process may have died between writing this checkpoint and removing an old one.
        if self.watch.ranks.leads() {
            self.saving.checkpoints().tidy(&snapshot.header);
        }
        let (step, epoch) = (snapshot.header.step, snapshot.header.epoch);
        let own = self.plan.settings.config().schedule.warmup_steps;
        if let (None, Some(steps)) = (own, snapshot.header.config.schedule.warmup_steps) {
            tracing::warn!(
                key = "train.schedule.warmup_steps",
                "the checkpoint was written with a warm-up of {}; by default it is now at most a tenth of the steps, so \
                 learning rates may differ from here on; write the key to keep them",
                counted(steps, "step")
            );
        }
        let checkpoints = self.saving.checkpoints().clone();
        let folder = self.folder;
        self.take_snapshot(snapshot, &checkpoints, folder)?;
        self.saving.durable = Some((step, epoch));
        self.watch.ranks.saved(step.get());
        tracing::info!(step = step.get(), epochs = epoch.get(), "resumed");
        Ok(self)
    }

    /// Continues from a checkpoint of the run in another folder, with this run's length and
    /// learning rate, and writes it as a checkpoint of this one.
    ///
    /// # Errors
    /// [`Error::AllDamaged`] or [`Error::Storage`]; [`Error::Damaged`] when the checkpoint no
    /// longer exists.
    pub(crate) fn prolong(
        mut self,
        folder: &RunFolder,
        from: &ContinuedFrom,
    ) -> Result<Self, Error> {
        self.sweep();
        let checkpoints = self.saving.checkpoints().of_folder(folder.clone());
        let step = Step::new(from.step);
        let found = self.agreed_of(&checkpoints, |checkpoints, usable| {
            checkpoints.newest_up_to(step, usable)
        })?;
        let snapshot = found.filter(|found| found.header.step == step);
        let snapshot = snapshot.ok_or_else(|| Error::Damaged {
            url: checkpoints.url(step),
            reason: "it was removed or changed while it was being read".into(),
        })?;
        let guard = snapshot.header.guard.clone();
        self.take_snapshot(snapshot, &checkpoints, folder)?;
        let config = self.plan.settings.config();
        let epoch = self.position.epoch.get();
        let state = &mut self.position.early_stopping;
        state.finished = is_out_of_patience(config.patience, state) || epoch >= config.epochs;
        if self.writes() {
            self.freeze_state()?;
            self.save_now()?;
        }
        if self.watch.ranks.leads() {
            // The weights may have to go back to them.
            let to = [Some(guard.anchor), guard.candidate];
            for kept in to.into_iter().flatten().filter(|kept| *kept < step) {
                checkpoints.copy(kept, self.folder)?;
            }
        }
        Ok(self)
    }

    /// Takes everything that a checkpoint holds; files that belong to it are in `folder`.
    fn take_snapshot(
        &mut self,
        snapshot: Snapshot,
        checkpoints: &Checkpoints,
        folder: &RunFolder,
    ) -> Result<(), Error> {
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
            .then(|| Numbers::new(best.unwrap_or_else(|| parameters.clone())));
        self.bucket = parameters;
        (self.device_state, self.pending) = (None, None);
        self.take_state_of(checkpoints, &header, state)?;
        if self.watch.ranks.leads() {
            let at = (header.step, header.epoch);
            self.log = MetricsLog::resume(self.folder.clone(), self.watch, folder, at)?;
        }
        self.position = Position {
            step: header.step,
            epoch: header.epoch,
            loader: header.loader,
            early_stopping: header.early_stopping,
            plateau: header.plateau,
            loss_scale: header.loss_scale.or(self.position.loss_scale.take()),
            running: header.running,
            guard: header.guard,
        };
        let best = self.position.early_stopping.best.clone();
        self.watch
            .tracker
            .at(self.position.step, self.position.epoch);
        let mut status = self.watch.tracker.change();
        status.best = best;
        status.dropped_steps = self.position.dropped_steps();
        Ok(())
    }

    fn sweep(&self) {
        if self.watch.ranks.leads() {
            self.folder.sweep();
        }
    }

    /// Refuses a folder that already has checkpoints.
    ///
    /// # Errors
    /// [`Error::RunExists`] or [`Error::Storage`].
    pub(crate) fn fresh(self) -> Result<Self, Error> {
        self.sweep();
        if self.watch.ranks.leads() && self.saving.checkpoints().any()? {
            return Err(Error::RunExists {
                url: self.folder.url(),
            });
        }
        self.watch.ranks.barrier()?;
        Ok(self)
    }

    /// The checkpoint that the first rank finds with `find`, of those that it may use, on all ranks.
    pub(super) fn agreed(
        &self,
        find: impl FnOnce(&Checkpoints, Usable<'_>) -> Result<Option<Snapshot>, Error>,
    ) -> Result<Option<Snapshot>, Error> {
        self.agreed_of(self.saving.checkpoints(), find)
    }

    /// As [`agreed`](Self::agreed), of these checkpoints.
    fn agreed_of(
        &self,
        checkpoints: &Checkpoints,
        find: impl FnOnce(&Checkpoints, Usable<'_>) -> Result<Option<Snapshot>, Error>,
    ) -> Result<Option<Snapshot>, Error> {
        let ranks = self.watch.ranks;
        if ranks.leads() {
            let found = find(checkpoints, &|snapshot| self.plan.accepts(snapshot))?;
            if ranks.are_many() {
                let bytes = found
                    .as_ref()
                    .map(|found| checkpoints.bytes(found.header.step));
                ranks.broadcast(Some(bytes.transpose()?.unwrap_or_default()))?;
            }
            return Ok(found);
        }
        let bytes = ranks.broadcast(None)?;
        let some = !bytes.is_empty();
        some.then(|| checkpoints.read(&bytes)).transpose()
    }

    /// Has the next step begin to write a checkpoint of what is now, once the one before it is written, or begins now when there
    /// are no numbers to copy. The first one is waited for, so that a folder that cannot be written to is known at once. A later one that fails is an alarm, and the next one is another try.
    ///
    /// # Errors
    /// [`Error::Storage`] when the first could not be written.
    pub(super) fn save(&mut self) -> Result<(), Error> {
        let begun = self.watch.clock.monotonic();
        self.fetch()?;
        self.at(Phase::Saving);
        self.compare_weights()?;
        let config = &self.plan.settings.config().guard;
        loss_guard::planned(config, &mut self.position.guard, self.position.step);
        if !self.writes() {
            return Ok(());
        }
        self.settle();
        self.freeze_state()?;
        if self.saving.durable.is_none() {
            self.save_now()?;
        } else {
            let due = self.due();
            if due.copies() {
                self.saving.due = Some(due);
            } else {
                self.begin(due);
            }
        }
        self.meter.saved(begun, self.watch.clock.monotonic());
        Ok(())
    }

    /// Makes sure that all there is to know at the end is durable.
    ///
    /// # Errors
    /// [`Error::Storage`] when it could not be written by any of several tries.
    pub(super) fn finish_saving(&mut self) -> Result<(), Error> {
        if !self.writes() {
            return Ok(());
        }
        self.settle();
        let best = self.position.early_stopping.best.as_ref();
        let at = (self.position.step, self.position.epoch);
        let has_best = self.saving.best_written == best.map(|best| best.step);
        if self.saving.durable == Some(at) && (has_best || !self.watch.ranks.leads()) {
            return Ok(());
        }
        self.save_now()
    }

    /// Returns true if this rank has something to write.
    fn writes(&self) -> bool {
        self.watch.ranks.leads() || self.sharing.shares_optimizer()
    }

    /// Copies this rank's share of the optimizer's state, where ranks hold it in shares, and learns the hashes of all.
    ///
    /// # Errors
    /// Errors of the ranks.
    fn freeze_state(&mut self) -> Result<(), Error> {
        if !self.sharing.shares_optimizer() {
            return Ok(());
        }
        let ranks = self.watch.ranks;
        let at = (self.position.step, self.position.epoch);
        // Its memory is used again.
        self.saving.state = None;
        let own = self.saving.snapshots.copy_state(self.optimizer.state());
        let file = StateFile::new(at, ranks.place(), &own);
        let hashes = shares::of_all(ranks, &[file.hash.get()])?;
        let hashes = hashes.into_iter().map(Hash128::new).collect();
        self.saving.state = Some((file, hashes));
        Ok(())
    }

    /// Takes this rank's share of the optimizer's state from a checkpoint.
    ///
    /// # Errors
    /// [`Error::Damaged`] or [`Error::Storage`].
    pub(super) fn take_state(
        &mut self,
        header: &CheckpointHeader,
        state: Vec<StateBucket>,
    ) -> Result<(), Error> {
        let checkpoints = self.saving.checkpoints().clone();
        self.take_state_of(&checkpoints, header, state)
    }

    /// As [`take_state`](Self::take_state), where the checkpoint is one of these.
    fn take_state_of(
        &mut self,
        checkpoints: &Checkpoints,
        header: &CheckpointHeader,
        state: Vec<StateBucket>,
    ) -> Result<(), Error> {
        let settings = &self.plan.settings;
        let ranges = self.sharing.state_ranges(settings);
        let mut own = if header.state_shards.is_empty() {
            self.sharing.cut(state, &ranges)
        } else {
            checkpoints.state_within(header, &ranges)?
        };
        // A rank without parameters has no buckets.
        own.truncate(settings.optimizer_state(self.sharing.own()).len());
        self.optimizer = settings.resumed_optimizer(self.sharing.own(), own);
        Ok(())
    }

    /// Waits for the write that is under way or due, and says so when it failed.
    pub(super) fn settle(&mut self) {
        if let Some(due) = self.saving.due.take() {
            self.begin(due);
        }
        let Some(saved) = self.saving.saver.wait(self.watch.stop) else {
            return;
        };
        if let Some(error) = self.saving.heard(saved, self.watch) {
            let Position { step, epoch, .. } = self.position;
            let kept = self.saving.durable.map(|(step, _)| step.get());
            tracing::error!(%error, step = step.get(), kept, "a checkpoint could not be written");
            let line = MetricsLine::SaveFailed {
                step,
                epoch,
                reason: error.to_string(),
            };
            self.write_line(&line);
        }
    }

    /// Writes what is not yet durable, and waits until it is.
    fn save_now(&mut self) -> Result<(), Error> {
        let mut waits = WAITS_MS.iter();
        loop {
            let due = self.due();
            self.begin(due);
            let saved = self.saving.saver.wait(self.watch.stop);
            let Some(error) = saved.and_then(|saved| self.saving.heard(saved, self.watch)) else {
                return Ok(());
            };
            let wait = waits.next();
            let wait = wait.filter(|_| matches!(error, Error::Storage(_)));
            let Some(wait) = wait else {
                return Err(self.unsaved(error));
            };
            tracing::error!(%error, "a checkpoint could not be written; trying again");
            self.saving.saver.pause(Duration::from_millis(*wait));
        }
    }

    /// Copies the numbers of what is to be written, and begins to write it.
    fn begin(&mut self, due: Due) {
        let live = live(&self.bucket, self.average.as_ref(), &self.optimizer, &due);
        let copied = due.copies().then(|| self.saving.snapshots.copy(live));
        self.saving.saver.start(due.with(copied));
    }

    /// Checkpoint that is due now.
    fn due(&self) -> Due {
        let at = (self.position.step, self.position.epoch);
        let is_new = self.saving.durable != Some(at);
        let (file, hashes) = self.saving.state.clone().unzip();
        let leads = self.watch.ranks.leads();
        let checkpoint = (is_new && leads).then(|| {
            let header = CheckpointHeader {
                state_shards: hashes.unwrap_or_default(),
                ..self.plan.header(&self.position)
            };
            (header, self.best.clone())
        });
        Due {
            log: leads.then(|| self.log.file()),
            state: file.filter(|_| is_new),
            checkpoint,
            best: leads.then(|| self.best_to_write()).flatten(),
        }
    }

    /// The best weights, if this process has not written them.
    ///
    /// The header is that of the instant after their epoch, so the bytes are the same whenever they are written.
    fn best_to_write(&self) -> Option<Frozen> {
        let weights = self.best.as_ref()?;
        let best = self.position.early_stopping.best.as_ref()?;
        if self.saving.best_written == Some(best.step) {
            return None;
        }
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
            guard: GuardState::default(),
        });
        Some(Frozen {
            header,
            parameters: Numbers::clone(weights),
            state: vec![],
            average: None,
            best: None,
        })
    }

    /// Turns an error of the last save of a stopped run into one that says where to resume.
    pub(super) fn unsaved(&self, error: Error) -> Error {
        if !self.folder.is_late() {
            return error;
        }
        let kept = self.saving.durable.map(|(step, _)| KeptCheckpoint {
            url: self.saving.checkpoints().url(step),
            step,
        });
        Error::InterruptedUnsaved {
            step: self.position.step,
            kept,
            source: Box::new(error),
        }
    }

    /// Saves everything, as far as the folder is fast enough; the error to leave with.
    pub(super) fn interrupt(&mut self) -> Result<Error, Error> {
        if self.fetch()? == BatchOutcome::WentBack {
            // Its checkpoint is one of those to go back to.
            let config = &self.plan.settings.config().guard;
            loss_guard::planned(config, &mut self.position.guard, self.position.step);
        }
        self.at(Phase::Saving);
        self.compare_weights()?;
        if self.writes() {
            self.folder.hurry();
            self.settle();
            self.freeze_state()?;
            self.save_now()?;
        }
        Ok(self.interrupted())
    }

    /// The error to leave with when everything is saved.
    pub(super) fn interrupted(&self) -> Error {
        let checkpoints = self.saving.checkpoints();
        Error::Interrupted {
            checkpoint: checkpoints.url(self.position.step),
        }
    }
}
