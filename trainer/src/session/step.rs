//! One step.

use feedline_schemas::ids::{Epoch, Step};

use super::TrainSession;
use crate::{
    data::samples::{Data, RankBatch},
    device::take_bus_bytes,
    error::Error,
    model::engine::Computed,
    optim::{clip, loss::mean, loss_scale},
    parallel::Phase,
    reporting::{memory, metrics_log::MetricsLine, step_times::MeterWindow},
    session::loss_guard::{self, SeenBatch, UpdateVerdict},
};

/// Rows named when a batch goes wrong.
const ROWS_NAMED: usize = 5;

/// Result of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BatchOutcome {
    /// The weights were updated.
    Updated,
    /// It was left out.
    LeftOut,
    /// It was left out, and the weights are those of an earlier step.
    WentBack,
}

impl<D: Data> TrainSession<'_, D> {
    /// One step, after which the ranks compare their weights when that is due.
    pub(super) fn step(&mut self, batch: &impl RankBatch) -> Result<BatchOutcome, Error> {
        let taken = self.take(batch)?;
        if self.plan.settings.comparison_due(self.position.step) {
            self.compare_weights()?;
        }
        Ok(taken)
    }

    /// Computes a batch, looks at it, then updates the weights. Nothing is changed before loss, gradient and running
    /// statistics are known to be finite. All ranks look at the same numbers, and so find the same.
    fn take(&mut self, batch: &impl RankBatch) -> Result<BatchOutcome, Error> {
        if self.steps_on_device() {
            return self.take_on_device(batch);
        }
        let samples = batch.samples();
        self.plan.check_targets(samples, batch.keys())?;
        let taken = self.position.step;
        let config = self.plan.settings.config();
        let loss_scale = self.loss_scale();
        let computed = self.compute(samples, loss_scale)?;
        self.at(Phase::Updating);
        let loss = mean(computed.loss_sum, computed.weight);
        let factor = factor(computed.nominal, computed.weight) / loss_scale;
        let norm = self.sharing.norm(self.watch.ranks, &self.gradient)? * factor;
        if loss.is_finite() && !norm.is_finite() && self.drop_overflowed(taken, loss) {
            self.pass(batch, &computed);
            self.report(loss);
            return Ok(BatchOutcome::LeftOut);
        }
        let buffers = computed.buffers.iter().copied().map(f64::from).sum();
        for (what, value) in [
            ("loss", loss),
            ("gradient norm", norm),
            ("sum of running statistics", buffers),
        ] {
            if !f64::is_finite(value) {
                let rows = self.of_all(&computed.losses, batch)?;
                self.leave_out(what, value, rows, taken)?;
                self.step_past(batch, 0);
                return Ok(BatchOutcome::LeftOut);
            }
        }
        let seen = SeenBatch {
            step: taken.next(),
            loss,
            norm,
            rate: self.schedule.rate(taken, &self.position.plateau),
            is_short: self.is_short(samples.global_rows()),
        };
        match loss_guard::look(&config.guard, &mut self.position.guard, seen) {
            UpdateVerdict::Fine => {}
            UpdateVerdict::Alarm(alarm) => self.tell(alarm, seen.step),
            UpdateVerdict::Diverged { mean } => {
                self.go_back(loss, mean, seen.step)?;
                self.step_past(batch, 0);
                return Ok(BatchOutcome::WentBack);
            }
        }
        self.update(&computed, (factor, samples.global_rows()), seen)?;
        self.pass(batch, &computed);
        self.report(loss);
        self.log_step(seen)?;
        Ok(BatchOutcome::Updated)
    }

    /// Moves the weights along the gradient of a batch of `rows`, times `factor`.
    fn update(
        &mut self,
        computed: &Computed,
        (factor, rows): (f64, usize),
        seen: SeenBatch,
    ) -> Result<(), Error> {
        let config = self.plan.settings.config();
        let scale = clip::scale(seen.norm, config.clip_norm) * factor;
        let number = self.position.updates() + 1;
        self.engine
            .move_buffers(&mut self.bucket, &computed.buffers, rows);
        if self.stays_on_device {
            self.update_on_device(number, seen.rate, scale)?;
        } else {
            self.optimizer
                .step(&mut self.bucket, &self.gradient, number, seen.rate, scale);
            self.gather_weights()?;
            if let Some(average) = &mut self.average {
                average.update(Step::new(number), &self.bucket);
            }
        }
        let scaling = config.loss_scale.as_ref();
        if let Some((config, state)) = scaling.zip(self.position.loss_scale.as_mut()) {
            loss_scale::good(config, state);
        }
        Ok(())
    }

    /// Returns true if a batch of `rows` has fewer than half of the rows of a full one.
    pub(super) const fn is_short(&self, rows: usize) -> bool {
        2 * rows < self.plan.settings.config().batch_size as usize
    }

    /// Counts the loss of a batch: the sum, that without label smoothing, and their weight.
    pub(super) fn count_loss(&mut self, [loss_sum, unsmoothed_sum, weight]: [f64; 3]) {
        self.position.running.loss_sum += loss_sum;
        if self.engine.smooths() {
            let sum = &mut self.position.running.unsmoothed_sum;
            *sum.get_or_insert(0.0) += unsmoothed_sum;
        }
        self.position.running.weight += weight;
    }

    /// The batch is behind, and its loss counts.
    fn pass(&mut self, batch: &impl RankBatch, computed: &Computed) {
        self.count_loss([computed.loss_sum, computed.unsmoothed_sum, computed.weight]);
        // The other ranks were about as fast.
        let samples = batch.samples();
        let seen = computed.losses.len() * samples.global_rows() / samples.rows().max(1);
        self.step_past(batch, seen);
    }

    /// The batch is behind, whatever became of it.
    pub(super) fn step_past(&mut self, batch: &impl RankBatch, samples: usize) {
        self.position.step = self.position.step.next();
        self.position.loader = batch.state().clone();
        self.meter.computed(self.watch.clock.monotonic(), samples);
    }

    pub(super) fn log_step(&mut self, seen: SeenBatch) -> Result<(), Error> {
        if !self.plan.settings.log_due(seen.step) {
            return Ok(());
        }
        let MeterWindow {
            samples_per_s,
            data_wait_share,
            save_stall_s,
        } = self.meter.take_window();
        let are_many = self.watch.ranks.are_many();
        let exchanged = are_many.then(|| self.meter.take_exchange());
        let (communication_s, hidden_communication_s) = exchanged.unzip();
        let bus = self.engine.kind().is_gpu().then(take_bus_bytes);
        let line = MetricsLine::Step {
            step: seen.step,
            epoch: self.position.epoch,
            loss: seen.loss,
            gradient_norm: seen.norm,
            learning_rate: seen.rate,
            samples_per_s,
            data_wait_share,
            communication_s,
            hidden_communication_s,
            memory_bytes: memory::resident(),
            bytes_to_device: bus.map(|bytes| bytes.uploaded),
            bytes_from_device: bus.map(|bytes| bytes.downloaded),
            device: self.watch.tracker.performance.take_line(samples_per_s),
            save_stall_s,
            pace: self.compare_pace()?,
        };
        self.write_line(&line);
        Ok(())
    }

    /// Scale of the loss; 1 without one.
    pub(super) fn loss_scale(&self) -> f64 {
        self.position.loss_scale.as_ref().map_or(1.0, |s| s.scale)
    }

    /// Drops the step after `taken` steps, whose gradient overflowed f16, and lowers the scale of the loss. False where that cannot
    /// be lowered.
    pub(super) fn drop_overflowed(&mut self, taken: Step, loss: f64) -> bool {
        let config = self.plan.settings.config().loss_scale.as_ref();
        let Some((config, state)) = config.zip(self.position.loss_scale.as_mut()) else {
            return false;
        };
        let loss_scale = state.scale;
        if !loss_scale::bad(config, state) {
            return false;
        }
        let (step, epoch, scale) = (taken.next(), self.position.epoch, state.scale);
        tracing::info!(
            step = step.get(),
            scale,
            "a step was left out: its gradient overflows f16; the loss is scaled less"
        );
        self.position.guard.dropped += 1;
        let line = MetricsLine::Dropped {
            step,
            epoch,
            loss,
            loss_scale,
        };
        self.write_line(&line);
        true
    }
}

/// Factor that turns the computed gradient, divided by `nominal`, into that of the mean of losses of this weight.
pub(super) fn factor(nominal: f64, weight: f64) -> f64 {
    if weight > 0.0 { nominal / weight } else { 1.0 }
}

/// The error for a loss or gradient of a step that is not finite. Names the samples whose own loss is not, or else the first.
pub(super) fn not_finite(
    (step, epoch): (Step, Epoch),
    what: &'static str,
    value: f64,
    losses: &[f32],
    keys: &[u64],
) -> Error {
    Error::NotFinite {
        step,
        epoch,
        what,
        value,
        keys: names_of(losses, keys),
    }
}

/// Keys of a few rows of a batch that went wrong.
pub(super) fn names_of(losses: &[f32], keys: &[u64]) -> String {
    let rows = rows_to_name(losses, keys.len()).into_iter();
    let named: Vec<String> = rows.map(|row| format!("`{:016x}`", keys[row])).collect();
    named.join(", ")
}

/// A few rows of a batch that went wrong: those whose own loss is not finite, or else the first.
pub(super) fn rows_to_name(losses: &[f32], rows: usize) -> Vec<usize> {
    // Tokens have a loss each, not one per row.
    let bad = |row: &usize| losses.len() == rows && !losses[*row].is_finite();
    let named: Vec<usize> = (0..rows).filter(bad).take(ROWS_NAMED).collect();
    if named.is_empty() {
        (0..rows.min(ROWS_NAMED)).collect()
    } else {
        named
    }
}
