//! The loop: epochs of steps, validation after each, early stopping, checkpoints.
//!
//! Between two steps a run is its [`Position`], the bucket, the optimizer's state and the best weights; a checkpoint
//! holds just these, and every step is a pure function of them and of its batch.

use std::sync::atomic::{AtomicBool, Ordering};

use feedline_schemas::{
    checkpoint::{BestEpoch, EarlyStopping, Plateau, RunningLoss},
    ids::{Epoch, Rank, Step},
    loader_state::LoaderState,
    manifest::Split,
    progress::{Event, Progress},
    report::TrainReport,
};
use feedline_storage::clock::Clock;

use crate::{
    average::Average,
    checkpoint::{BEST_PATH, Checkpoints, Snapshot, SnapshotRef},
    clip,
    data::{Batch, Data},
    engine::{Computed, Engine},
    error::Error,
    log::{Line, MetricsLog},
    loss,
    meter::Meter,
    metrics::{Evaluation, Metrics},
    optimizer::Optimizer,
    plan::{Plan, Position},
    random::Stream,
    run_folder::RunFolder,
    schedule::Schedule,
};

/// This process among its equals; there is one.
const RANK: Rank = Rank::new(0);

/// Keys named when a batch goes wrong.
const KEYS_NAMED: usize = 5;

/// Whom to tell, what time it is, and whether to stop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch<'a> {
    pub(crate) progress: &'a dyn Progress,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) stop: &'a AtomicBool,
}

/// A run in progress.
#[derive(Debug)]
pub(crate) struct Session<'a, D> {
    plan: &'a Plan,
    data: &'a D,
    folder: &'a RunFolder,
    watch: Watch<'a>,
    engine: Engine,
    schedule: Schedule,
    checkpoints: Checkpoints<'a>,
    log: MetricsLog<'a>,
    position: Position,
    bucket: Vec<f32>,
    optimizer: Optimizer,
    /// The average of the weights, where one is kept.
    average: Option<Average>,
    /// Best weights, once an epoch has been measured.
    best: Option<Vec<f32>>,
    best_written: bool,
    gradient: Vec<f32>,
    meter: Meter,
}

impl<'a, D: Data> Session<'a, D> {
    /// A run at its start.
    pub(crate) fn start(
        plan: &'a Plan,
        data: &'a D,
        engine: Engine,
        folder: &'a RunFolder,
        watch: Watch<'a>,
    ) -> Self {
        let bucket = engine.model().initial(plan.settings.config().seed);
        let len = bucket.len();
        let now = watch.clock.monotonic();
        let average = plan.settings.config().average.clone();
        let trained = engine.model().layout().trained_entries();
        let optimizer = plan.settings.optimizer(trained);
        let state = plan.settings.optimizer_state(trained);
        let schedule = plan.settings.schedule(data.batches_per_epoch());
        if schedule.warmup_steps >= schedule.total_steps {
            tracing::warn!(
                warmup_steps = schedule.warmup_steps,
                total_steps = schedule.total_steps,
                "the run ends before the learning rate has risen to its peak; lower `train.schedule.warmup_steps`"
            );
        }
        Self {
            checkpoints: Checkpoints::new(
                folder,
                engine.model().parameters(),
                state,
                plan.settings.config().checkpoint.keep,
            ),
            log: MetricsLog::new(folder, now),
            position: Position {
                step: Step::new(0),
                epoch: Epoch::new(0),
                loader: data.start(),
                early_stopping: EarlyStopping::default(),
                plateau: Plateau::default(),
                running: RunningLoss::default(),
            },
            optimizer,
            average: average.map(|config| Average::new(config, bucket.clone())),
            best: None,
            best_written: false,
            gradient: vec![0.0; len],
            meter: Meter::new(now),
            plan,
            data,
            folder,
            watch,
            engine,
            schedule,
            bucket,
        }
    }

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
        let trained = self.engine.model().layout().trained_entries();
        self.optimizer = self.plan.settings.resumed_optimizer(trained, state);
        self.log = MetricsLog::resume(
            self.folder,
            self.watch.clock.monotonic(),
            header.step,
            header.epoch,
        )?;
        self.position = Position {
            step: header.step,
            epoch: header.epoch,
            loader: header.loader,
            early_stopping: header.early_stopping,
            plateau: header.plateau,
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

    /// Trains to the end, then measures the best weights on the test split.
    ///
    /// # Errors
    /// [`Error::Interrupted`] when the stop flag was set, [`Error::NotFinite`], or what data and storage say.
    pub(crate) fn run(mut self) -> Result<TrainReport, Error> {
        let trained = self.train();
        let flushed = self.log.flush(self.watch.clock.monotonic());
        trained.and(flushed)?;
        self.save_best()?;
        let best = self.best.take().expect("an epoch has been measured");
        let Some(test) = self.evaluate(&best, Split::Test)? else {
            return Err(Error::Interrupted {
                checkpoint: self.checkpoints.url(self.position.step),
            });
        };
        let best_epoch = self
            .position
            .early_stopping
            .best
            .expect("an epoch has been measured");
        Ok(TrainReport {
            steps: self.position.step.get(),
            seed: self.plan.settings.config().seed.get(),
            epochs: self.position.epoch.get(),
            best_epoch: best_epoch.epoch.get(),
            parameters: self.engine.model().layout().trained_len() as u64,
            test: test.metrics(),
            baseline: test.baseline(),
            validation: best_epoch.metrics,
            worst: best_epoch.worst,
            data_wait_share: self.meter.total_wait_share(),
            checkpoint: self.folder.url_of(BEST_PATH),
            metrics: self.log.url(),
        })
    }

    /// Takes epochs until there are enough, or validation stops getting better.
    fn train(&mut self) -> Result<(), Error> {
        while !self.position.early_stopping.finished {
            self.train_epoch()?;
            self.finish_epoch()?;
        }
        Ok(())
    }

    /// Takes the steps that are left of the epoch.
    fn train_epoch(&mut self) -> Result<(), Error> {
        let per_epoch = self.data.batches_per_epoch();
        let Position { loader, epoch, .. } = &self.position;
        // After an epoch's last batch a loader may name that epoch's end or the next one's beginning.
        let done = if loader.epoch > *epoch {
            per_epoch
        } else {
            loader.batch.get()
        };
        if done >= per_epoch {
            return Ok(());
        }
        let mut batches = self.data.epoch(loader.clone())?;
        self.meter.begin(self.watch.clock.monotonic());
        for batch_number in done + 1..=per_epoch {
            let next = batches.next();
            self.meter.waited(self.watch.clock.monotonic());
            let batch = next.ok_or_else(|| self.plan.dataset_error(format!(
                "epoch {} ended after {} of {per_epoch} batches; verify it with `feedline shards verify`",
                self.position.epoch,
                batch_number - 1,
            )))??;
            self.step(&batch)?;
            if self.stopping() {
                return Err(self.interrupt()?);
            }
            if self.plan.settings.checkpoint_due(self.position.step) && batch_number < per_epoch {
                self.save()?;
            }
        }
        Ok(())
    }

    /// One optimizer step. Nothing is changed before loss and gradient are known to be finite.
    fn step(&mut self, batch: &D::Batch) -> Result<(), Error> {
        let samples = batch.samples();
        self.plan.check_targets(samples, batch.keys())?;
        let taken = self.position.step;
        let config = self.plan.settings.config();
        let dropout = Stream::dropout(config.seed, RANK, taken);
        let Computed {
            losses,
            weight,
            buffers,
        } = self
            .engine
            .loss_and_gradient(&self.bucket, samples, dropout, &mut self.gradient);
        let loss = loss::sum(&losses) / weight;
        let norm = clip::global_norm(&self.gradient);
        for (what, value) in [("loss", loss), ("gradient norm", norm)] {
            if !value.is_finite() {
                return Err(self.not_finite(what, value, Split::Train, &losses, batch.keys()));
            }
        }
        let rate = self.schedule.rate(taken, &self.position.plateau);
        let scale = clip::scale(norm, config.clip_norm);
        let step = taken.next();
        self.optimizer
            .step(&mut self.bucket, &self.gradient, step.get(), rate, scale);
        self.engine.move_buffers(&mut self.bucket, &buffers);
        if let Some(average) = &mut self.average {
            average.update(step, &self.bucket);
        }

        self.position.step = step;
        self.position.loader = batch.state().clone();
        self.position.running.loss_sum += loss::sum(&losses);
        self.position.running.weight += weight;
        let now = self.watch.clock.monotonic();
        self.meter.computed(now, losses.len());
        self.report(loss);
        if self.plan.settings.log_due(step) {
            let (samples_per_s, data_wait_share) = self.meter.take_window();
            let epoch = self.position.epoch;
            let line = Line::Step {
                step,
                epoch,
                loss,
                gradient_norm: norm,
                learning_rate: rate,
                samples_per_s,
                data_wait_share,
            };
            self.log.add(&line, now)?;
        }
        Ok(())
    }

    /// Measures the validation split, decides whether to go on, and writes checkpoints.
    fn finish_epoch(&mut self) -> Result<(), Error> {
        let Some(validation) = self.evaluate(self.weights(), Split::Validation)? else {
            return Err(self.interrupt()?);
        };
        let improved = self.remember(&validation);
        self.schedule
            .measured(validation.loss(), &mut self.position.plateau);
        let position = &mut self.position;
        let line = Line::Epoch {
            epoch: position.epoch,
            step: position.step,
            train_loss: mean_of(&position.running),
            validation_loss: validation.loss(),
            best: improved,
            validation: prefixed(validation.metrics()),
        };
        position.running = RunningLoss::default();
        position.epoch = position.epoch.next();
        position.loader = LoaderState {
            epoch: position.epoch,
            batch: Step::new(0),
            ..position.loader.clone()
        };
        let config = self.plan.settings.config();
        let patience = config.patience;
        let out_of_patience =
            patience > 0 && position.early_stopping.evaluations_since_best >= patience;
        position.early_stopping.finished = out_of_patience || position.epoch.get() >= config.epochs;
        self.log.add(&line, self.watch.clock.monotonic())?;
        self.save()?;
        if improved { self.save_best() } else { Ok(()) }
    }

    /// Keeps the weights when they are the best so far.
    fn remember(&mut self, validation: &Evaluation) -> bool {
        let state = &mut self.position.early_stopping;
        let loss = validation.loss();
        let improved = state.best.as_ref().is_none_or(|best| loss < best.loss);
        if improved {
            let (epoch, step) = (self.position.epoch, self.position.step);
            state.best = Some(BestEpoch {
                epoch,
                step,
                loss,
                metrics: validation.metrics(),
                worst: validation.worst(),
            });
            state.evaluations_since_best = 0;
            self.best = Some(self.weights().to_vec());
            self.best_written = false;
        } else {
            state.evaluations_since_best += 1;
        }
        improved
    }

    /// The weights that are measured and kept.
    fn weights(&self) -> &[f32] {
        self.average.as_ref().map_or(&self.bucket, Average::weights)
    }

    /// Measures weights on a split; `None` when the stop flag was set meanwhile.
    fn evaluate(&self, bucket: &[f32], split: Split) -> Result<Option<Evaluation>, Error> {
        let stage = format!("evaluate {split}");
        let report = |rows| {
            self.watch.progress.report(Event {
                stage: &stage,
                done: rows,
                total: None,
                unit: "rows",
                note: "",
            })
        };
        let at = (self.position.step, self.position.epoch);
        evaluate(
            self.plan,
            &self.engine,
            self.data,
            bucket,
            split,
            at,
            |rows| {
                report(rows);
                !self.stopping()
            },
        )
    }

    /// Writes the lines of metrics, then a checkpoint.
    fn save(&mut self) -> Result<(), Error> {
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
    fn save_best(&mut self) -> Result<(), Error> {
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

    fn stopping(&self) -> bool {
        self.watch.stop.load(Ordering::Relaxed)
    }

    /// Saves everything; the error to leave with.
    fn interrupt(&mut self) -> Result<Error, Error> {
        self.save()?;
        Ok(Error::Interrupted {
            checkpoint: self.checkpoints.url(self.position.step),
        })
    }

    fn report(&self, loss: f64) {
        let epoch = self.position.epoch.next();
        let note = format!(
            "epoch {epoch} of {}, loss {loss:.4}",
            self.plan.settings.config().epochs
        );
        self.watch.progress.report(Event {
            stage: "train",
            done: self.position.step.get(),
            total: Some(self.schedule.total_steps),
            unit: "steps",
            note: &note,
        });
    }

    fn not_finite(
        &self,
        what: &'static str,
        value: f64,
        split: Split,
        losses: &[f32],
        keys: &[u64],
    ) -> Error {
        not_finite(
            (self.position.step, self.position.epoch),
            what,
            value,
            split,
            losses,
            keys,
        )
    }
}

/// Measures weights on all rows of a split. `go_on` hears the number of rows after each batch and may end the pass;
/// then the result is `None`.
///
/// # Errors
/// [`Error::NotFinite`] when a loss is NaN or infinite, [`Error::Dataset`] for a split without rows, or what the data
/// says.
pub(crate) fn evaluate<D: Data>(
    plan: &Plan,
    engine: &Engine,
    data: &D,
    bucket: &[f32],
    split: Split,
    at: (Step, Epoch),
    go_on: impl Fn(u64) -> bool,
) -> Result<Option<Evaluation>, Error> {
    let mut evaluation = Evaluation::new(&plan.task);
    for batch in data.sequential(split)? {
        let batch = batch?;
        let samples = batch.samples();
        plan.check_targets(samples, batch.keys())?;
        let prediction = engine.predict(bucket, samples);
        let loss = loss::sum(&prediction.losses);
        if !loss.is_finite() {
            return Err(not_finite(
                at,
                "loss",
                loss,
                split,
                &prediction.losses,
                batch.keys(),
            ));
        }
        evaluation.add(&prediction, samples.targets);
        evaluation.add_worst(&prediction.losses, batch.keys(), batch.origins());
        if !go_on(evaluation.rows()) {
            return Ok(None);
        }
    }
    if evaluation.rows() == 0 {
        return Err(plan.dataset_error(format!(
            "its {split} split has no rows; give it a larger share, or add data"
        )));
    }
    Ok(Some(evaluation))
}

/// The error for a loss or gradient that is not finite. Names the samples whose own loss is not, or else the first.
fn not_finite(
    at: (Step, Epoch),
    what: &'static str,
    value: f64,
    split: Split,
    losses: &[f32],
    keys: &[u64],
) -> Error {
    let bad = losses
        .iter()
        .zip(keys)
        // Tokens have a loss each, not one per row.
        .filter(|(loss, _)| losses.len() == keys.len() && !loss.is_finite())
        .map(|(_, key)| key);
    let mut named: Vec<String> = bad
        .take(KEYS_NAMED)
        .map(|key| format!("`{key:016x}`"))
        .collect();
    if named.is_empty() {
        named = keys
            .iter()
            .take(KEYS_NAMED)
            .map(|key| format!("`{key:016x}`"))
            .collect();
    }
    Error::NotFinite {
        step: at.0,
        epoch: at.1,
        what,
        split,
        value,
        keys: named.join(", "),
    }
}

fn mean_of(running: &RunningLoss) -> f64 {
    running.loss_sum / running.weight
}

fn prefixed(metrics: Metrics) -> Metrics {
    metrics
        .into_iter()
        .map(|(name, value)| (format!("validation_{name}"), value))
        .collect()
}

#[cfg(test)]
mod tests;
