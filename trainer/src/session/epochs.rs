//! Epochs of a run: steps, then validation, until there are enough of them.

use feedline_schemas::{
    checkpoint::{BestEpoch, EarlyStopping, RunningLoss},
    config::OptimizerKind,
    count::counted,
    diagnostics::Diagnostics,
    ids::Step,
    loader_state::LoaderState,
    manifest::Split,
    report::{EarlyStop, TrainReport, Warning},
};

use super::{TrainSession, step::BatchOutcome, warning_of};
use crate::{
    checkpoint::{BEST_PATH, Numbers},
    data::samples::{Data, RankBatch},
    error::Error,
    evaluation::{
        baseline,
        metrics::{Evaluation, Metrics},
    },
    optim::{loss, loss_scale, optimizer::count_parameters},
    parallel::Phase,
    plan::Position,
    reporting::{metrics_log::MetricsLine, paths::REPORT_PATH},
    session::loss_guard,
};

/// Code of the warning of a test split that cannot be measured.
const TEST_NOT_FINITE: &str = "test_not_finite";

/// Result on the test split; empty but for the warning where a loss on it is not finite.
#[derive(Debug, Default)]
struct TestResult {
    metrics: Metrics,
    baseline: Metrics,
    tokens: Option<u64>,
    diagnostics: Option<Diagnostics>,
    warning: Option<Warning>,
}

impl<D: Data> TrainSession<'_, D> {
    /// Begins to load the first batches of a run that resumes, while the rest of it is set up. Those of one that begins are
    /// loaded already.
    ///
    /// # Errors
    /// An error of the loader.
    pub(crate) fn prepare(&self) -> Result<(), Error> {
        let Position { loader, epoch, .. } = &self.position;
        let is_between =
            loader.epoch > *epoch || loader.batch.get() >= self.data.batches_per_epoch();
        let is_start = *loader == self.data.start();
        if is_start || is_between || self.position.early_stopping.finished {
            return Ok(());
        }
        self.data.prepare_from(loader)
    }

    /// Trains to the end, then measures the best weights on the test split, if `measured` asks for it.
    ///
    /// # Errors
    /// [`Error::Interrupted`] when the stop flag was set, [`Error::NotFinite`], [`Error::LossNotFinite`], [`Error::NoUpdate`],
    /// [`Error::OnlySkipped`], or what data and storage say.
    pub(crate) fn run(mut self, measured: bool) -> Result<Option<TrainReport>, Error> {
        let begun = self.position.step.get();
        let trained = self.train();
        self.settle();
        let flushed = if self.watch.ranks.leads() {
            self.log.finish()
        } else {
            Ok(())
        };
        trained.and(flushed.map_err(|error| self.unsaved(error)))?;
        self.finish_saving()?;
        self.check_updates()?;
        if !measured {
            return Ok(None);
        }
        let best = self.best.take().expect("an epoch has been measured");
        let TestResult {
            metrics,
            baseline,
            tokens,
            diagnostics,
            warning: test_warning,
        } = self.measure_test(&best)?;
        let best = self.position.early_stopping.best.clone();
        let best_epoch = best.expect("an epoch has been measured");
        let config = self.plan.settings.config();
        let warning = baseline::warning(config, Some(&best_epoch), [&metrics, &baseline]);
        let baselines = [&best_epoch.baseline, &baseline];
        let constant = baseline::constant_target(&self.plan.task, baselines);
        Ok(Some(TrainReport {
            steps: self.position.step.get(),
            dropped_steps: self.position.dropped_steps(),
            resumed_at: (begun > 0).then_some(begun),
            seed: self.plan.settings.config().seed.get(),
            epochs: self.position.epoch.get(),
            stopped_early: (self.position.epoch.get() < config.epochs).then_some(EarlyStop {
                planned_epochs: config.epochs,
                patience: config.patience,
            }),
            best_epoch: best_epoch.number(),
            parameters: self.engine.trained_len(),
            muon: (config.optimizer.r#type == OptimizerKind::Muon)
                .then(|| count_parameters(self.engine.model().layout().trained_entries())),
            device: self.engine.device_name().to_owned(),
            classes: self.plan.task.classes().to_vec(),
            targets: self.plan.task.targets(),
            test: metrics,
            baseline,
            validation: best_epoch.metrics,
            validation_baseline: best_epoch.baseline,
            test_tokens: tokens,
            warnings: warning
                .into_iter()
                .chain(constant)
                .chain(test_warning)
                .chain(self.left_out_warnings())
                .chain(self.saving.checkpoints().warnings())
                .chain(warning_of(&self.schedule))
                .chain(self.engine.device_warning().cloned())
                .chain(self.device_warning.clone())
                .collect(),
            worst: best_epoch.worst,
            test_diagnostics: diagnostics,
            validation_diagnostics: best_epoch.diagnostics,
            data_wait_share: self.meter.total_wait_share(),
            performance: None,
            skipped_batches: self.position.guard.skipped_in_all,
            rollbacks: self.position.guard.rollbacks.len() as u64,
            quarantined: 0,
            images: self.plan.images.clone(),
            mixture: self.data.given(&self.position.loader),
            checkpoint: self.folder.url_of(BEST_PATH),
            metrics: self.log.url(),
            report: self.folder.url_of(REPORT_PATH),
            continued_from: None,
            started_over: None,
        }))
    }

    /// Refuses a run whose steps were all left out.
    ///
    /// # Errors
    /// [`Error::NoUpdate`] or [`Error::OnlySkipped`].
    fn check_updates(&self) -> Result<(), Error> {
        match &self.position.loss_scale {
            Some(state) if self.position.has_only_dropped() => Err(Error::NoUpdate {
                dropped: state.dropped,
                steps: self.position.step.get(),
                scale: state.scale,
            }),
            _ if self.position.has_only_skipped() => Err(Error::OnlySkipped {
                skipped: self.position.guard.skipped_in_all,
                steps: self.position.step.get(),
            }),
            _ => Ok(()),
        }
    }

    /// The warnings of a run with many steps that moved no weight.
    fn left_out_warnings(&self) -> Vec<Warning> {
        let config = &self.plan.settings.config().guard;
        let skipped = loss_guard::warning(config, &self.position.guard, self.position.step.get());
        self.dropped_warning().into_iter().chain(skipped).collect()
    }

    /// The warning of a run with many steps whose gradient overflowed f16.
    fn dropped_warning(&self) -> Option<Warning> {
        let config = self.plan.settings.config().loss_scale.as_ref()?;
        let state = self.position.loss_scale.as_ref()?;
        let (steps, warmup) = (self.position.step.get(), self.schedule.warmup_steps);
        loss_scale::warning(config, state, steps, warmup)
    }

    /// Measures the kept weights on the test split. They are good even where a loss on it is not finite: the result is then a
    /// warning.
    ///
    /// # Errors
    /// [`Error::Interrupted`], or what data and storage say.
    fn measure_test(&self, weights: &[f32]) -> Result<TestResult, Error> {
        match self.evaluate(weights, Split::Test) {
            Ok(Some(test)) => Ok(TestResult {
                metrics: test.metrics(),
                baseline: test.baseline(),
                tokens: test.tokens(),
                diagnostics: test.diagnostics(),
                warning: None,
            }),
            Ok(None) => Err(self.interrupted()),
            Err(error @ Error::LossNotFinite { .. }) => {
                let message = format!(
                    "the trained weights are kept, and the report has no metrics of the test split: {error}"
                );
                tracing::warn!(code = TEST_NOT_FINITE, "{message}");
                Ok(TestResult {
                    warning: Some(Warning::new(TEST_NOT_FINITE, message)),
                    ..TestResult::default()
                })
            }
            Err(error) => Err(error),
        }
    }

    /// Takes epochs until there are enough, or validation stops getting better.
    fn train(&mut self) -> Result<(), Error> {
        while !self.position.early_stopping.finished {
            self.train_epoch()?;
            self.finish_epoch()?;
            if self.watch.tracker.hopeless() && !self.position.early_stopping.finished {
                return Err(self.interrupt()?);
            }
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
        let batches = self.data.epoch(loader.clone())?;
        let feed = self.feed.clone();
        feed.feed(batches, |batches| self.take_steps(batches, done))
    }

    /// Takes the steps of an epoch after the first `done`.
    fn take_steps<B: RankBatch>(
        &mut self,
        batches: &mut dyn Iterator<Item = Result<B, Error>>,
        done: u64,
    ) -> Result<(), Error> {
        let per_epoch = self.data.batches_per_epoch();
        self.meter.begin(self.watch.clock.monotonic());
        for batch_number in done + 1..=per_epoch {
            self.at(Phase::Loading);
            // Lines of metrics, progress and comparisons are no waiting.
            self.meter.noted(self.watch.clock.monotonic());
            let next = batches.next();
            self.meter.waited(self.watch.clock.monotonic());
            let batch = next.unwrap_or_else(|| {
                Err(self.plan.dataset_error(format!(
                    "epoch {} ended after {} of {}; verify it with `feedline shards verify`",
                    self.position.epoch.next(),
                    batch_number - 1,
                    counted(per_epoch, "batch"),
                )))
            });
            let batch = match batch {
                Ok(batch) => batch,
                // What the step before has to say comes first.
                Err(error) => return Err(self.look().err().unwrap_or(error)),
            };
            if batch_number == per_epoch {
                self.prepare_what_follows(batch.state())?;
            }
            let taken = self.step(&batch)?;
            let due = taken == BatchOutcome::WentBack
                || self.plan.settings.checkpoint_due(self.position.step);
            // What is planned comes first: an interruption must not keep a checkpoint from being one to go back to.
            if due && batch_number < per_epoch {
                self.save()?;
            }
            if self.stopping() {
                return Err(self.interrupt()?);
            }
        }
        Ok(())
    }

    /// Begins to load what follows the epoch's last batch: the validation split and the next epoch.
    fn prepare_what_follows(&self, last: &LoaderState) -> Result<(), Error> {
        self.data.prepare_sequential(Split::Validation)?;
        if self.position.epoch.next().get() < self.plan.settings.config().epochs {
            self.data.prepare_epoch(last)?;
        }
        Ok(())
    }

    /// Measures the validation split, decides whether to continue, and writes checkpoints.
    fn finish_epoch(&mut self) -> Result<(), Error> {
        self.fetch()?;
        let Some(validation) = self.evaluate(self.weights(), Split::Validation)? else {
            return Err(self.interrupt()?);
        };
        let improved = self.remember(&validation);
        // Weights that no step has moved say nothing of the learning rate.
        if self.position.has_moved_in_epoch() {
            self.schedule
                .measured(validation.loss(), &mut self.position.plateau);
        } else {
            tracing::warn!(
                epoch = self.position.epoch.next().get(),
                key = "train.patience",
                "no step of the epoch moved the weights: it counts neither for `patience` nor for a plateau schedule"
            );
        }
        let best = self.position.early_stopping.best.clone();
        self.watch.tracker.change().best = best;
        let position = &mut self.position;
        let line = MetricsLine::Epoch {
            epoch: position.epoch,
            step: position.step,
            train_loss: mean_of(&position.running),
            unsmoothed_train_loss: unsmoothed_mean_of(&position.running),
            validation_loss: validation.loss(),
            best: improved,
            quarantined: Some(self.data.quarantined()).filter(|samples| *samples > 0),
            validation: prefixed(validation.metrics()),
        };
        position.running = RunningLoss {
            updates_before: Some(position.updates()),
            ..RunningLoss::default()
        };
        position.epoch = position.epoch.next();
        position.loader = LoaderState {
            epoch: position.epoch,
            batch: Step::new(0),
            ..position.loader.clone()
        };
        let config = self.plan.settings.config();
        let out_of_patience = is_out_of_patience(config.patience, &position.early_stopping);
        position.early_stopping.finished = out_of_patience || position.epoch.get() >= config.epochs;
        self.watch.tracker.at(position.step, position.epoch);
        self.write_line(&line);
        self.save()
    }

    /// Keeps the weights when they are the best so far.
    fn remember(&mut self, validation: &Evaluation) -> bool {
        let has_moved = self.position.has_moved_in_epoch();
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
                baseline: validation.baseline(),
                worst: validation.worst(),
                diagnostics: validation.diagnostics(),
            });
            state.evaluations_since_best = 0;
            self.best = Some(Numbers::new(self.weights().to_vec()));
        } else if has_moved {
            // An epoch whose steps were all left out could not improve it.
            state.evaluations_since_best += 1;
        }
        improved
    }
}

/// Returns whether too many epochs brought no better validation loss; with a patience of 0 none are too many.
pub(super) const fn is_out_of_patience(patience: u32, state: &EarlyStopping) -> bool {
    patience > 0 && state.evaluations_since_best >= patience
}

/// The mean of the losses; `None` where no batch counted.
fn mean_of(running: &RunningLoss) -> Option<f64> {
    (running.weight > 0.0).then(|| loss::mean(running.loss_sum, running.weight))
}

/// The mean without label smoothing, where there is some.
fn unsmoothed_mean_of(running: &RunningLoss) -> Option<f64> {
    let sum = running.unsmoothed_sum?;
    Some(loss::mean(sum, running.weight))
}

fn prefixed(metrics: Metrics) -> Metrics {
    metrics
        .into_iter()
        .map(|(name, value)| (format!("validation_{name}"), value))
        .collect()
}
