//! Status of a run in progress: updated by the session, read by other threads.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use feedline_schemas::{
    checkpoint::BestEpoch,
    ids::{Epoch, Step},
};

use crate::{
    evaluation::metrics::Metrics,
    reporting::{metrics_log::MetricsLine, performance::PerformanceMeter},
};

/// Numbers of the newest `step` line.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rates {
    pub(crate) gradient_norm: f64,
    pub(crate) learning_rate: f64,
    pub(crate) samples_per_s: f64,
    pub(crate) data_wait_share: f64,
    pub(crate) communication_s: Option<f64>,
    pub(crate) memory_bytes: Option<u64>,
}

/// A run in progress.
#[derive(Clone, Debug, Default)]
pub(crate) struct Status {
    /// Steps taken.
    pub(crate) step: u64,
    /// Steps since the start that were left out, as their gradient overflowed f16.
    pub(crate) dropped_steps: u64,
    /// Steps of all epochs.
    pub(crate) steps_planned: u64,
    /// Epochs finished.
    pub(crate) epochs: u64,
    /// Trainable parameters.
    pub(crate) parameters: u64,
    /// Mean loss of the newest batch; absent before the first.
    pub(crate) loss: Option<f64>,
    pub(crate) rates: Option<Rates>,
    /// Mean validation loss of the newest epoch; absent before the first.
    pub(crate) validation_loss: Option<f64>,
    /// `validation_<metric>` of the newest epoch.
    pub(crate) validation: Metrics,
    /// Steps since the start that the weights know nothing of: left out, or stepped past when the weights went back.
    pub(crate) skipped_steps: u64,
    /// Times since the start that the weights went back.
    pub(crate) rollbacks: u64,
    /// Checkpoints written by this process.
    pub(crate) checkpoints: u64,
    /// Tries of this process that failed.
    pub(crate) failed_checkpoints: u64,
    /// Share of the time of this process that the trainer waited for batches.
    pub(crate) data_wait_share: f64,
    pub(crate) best: Option<BestEpoch>,
}

/// Decides after each epoch if a run is worth continuing.
pub(crate) trait Judge: std::fmt::Debug + Send + Sync {
    /// `validation` holds `validation_<metric>`.
    fn goes_on(&self, epoch: u64, loss: f64, validation: &Metrics) -> bool;
}

/// Hears of a run in progress.
#[derive(Debug, Default)]
pub(crate) struct Tracker {
    status: Mutex<Status>,
    /// Speed of the run, and use of its device.
    pub(crate) performance: PerformanceMeter,
    judge: Option<Arc<dyn Judge>>,
    hopeless: AtomicBool,
}

impl Tracker {
    /// One that asks `judge` after each epoch.
    pub(crate) fn judged(judge: Arc<dyn Judge>) -> Self {
        Self {
            judge: Some(judge),
            ..Self::default()
        }
    }

    /// Returns true if the run is a trial of a search.
    pub(crate) const fn is_trial(&self) -> bool {
        self.judge.is_some()
    }

    /// Returns true if the judge decided to interrupt the run.
    pub(crate) fn hopeless(&self) -> bool {
        self.hopeless.load(Ordering::Relaxed)
    }

    /// Current status.
    pub(crate) fn status(&self) -> Status {
        self.change().clone()
    }

    /// Status for changes. A thread that panicked during a change left complete numbers behind.
    pub(crate) fn change(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the step of the run, and its epoch in progress.
    pub(crate) fn at(&self, step: Step, epoch: Epoch) {
        let mut status = self.change();
        (status.step, status.epochs) = (step.get(), epoch.get());
    }

    /// A line of metrics was written.
    pub(crate) fn line(&self, line: &MetricsLine) {
        let mut status = self.change();
        match line {
            MetricsLine::Step {
                gradient_norm,
                learning_rate,
                samples_per_s,
                data_wait_share,
                communication_s,
                memory_bytes,
                ..
            } => {
                status.rates = Some(Rates {
                    gradient_norm: *gradient_norm,
                    learning_rate: *learning_rate,
                    samples_per_s: *samples_per_s,
                    data_wait_share: *data_wait_share,
                    communication_s: *communication_s,
                    memory_bytes: *memory_bytes,
                });
            }
            MetricsLine::SaveFailed { .. }
            | MetricsLine::Skipped { .. }
            | MetricsLine::Dropped { .. }
            | MetricsLine::Alarm { .. }
            | MetricsLine::Rollback { .. } => {}
            MetricsLine::Epoch {
                epoch,
                validation_loss,
                validation,
                ..
            } => {
                let goes_on = |judge: &Arc<dyn Judge>| {
                    judge.goes_on(epoch.get(), *validation_loss, validation)
                };
                if !self.judge.as_ref().is_none_or(goes_on) {
                    self.hopeless.store(true, Ordering::Relaxed);
                }
                status.validation_loss = Some(*validation_loss);
                status.validation = validation.clone();
            }
        }
    }
}
