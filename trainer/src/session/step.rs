//! One step.

use feedline_schemas::{
    ids::{Epoch, Step},
    manifest::Split,
};

use super::Session;
use crate::{
    clip,
    data::{Batch, Data},
    engine::Computed,
    error::Error,
    log::Line,
    loss::mean,
    loss_scale,
    meter::Window,
    parallel::Phase,
    random::Stream,
    track::memory,
};

/// Keys named when a batch goes wrong.
const KEYS_NAMED: usize = 5;

impl<D: Data> Session<'_, D> {
    /// One optimizer step. Nothing is changed before loss and gradient are known to be finite.
    pub(super) fn step(&mut self, batch: &D::Batch) -> Result<(), Error> {
        let samples = batch.samples();
        self.plan.check_targets(samples, batch.keys())?;
        let taken = self.position.step;
        let config = self.plan.settings.config();
        let dropout = Stream::dropout(config.seed, taken);
        let loss_scale = self.position.loss_scale.as_ref().map_or(1.0, |s| s.scale);
        self.at(Phase::Computing);
        let computed = self.engine.loss_and_gradient(
            &self.bucket,
            samples,
            (dropout, loss_scale),
            &mut self.gradient,
        );
        let Computed {
            losses,
            loss_sum,
            weight,
            nominal,
            buffers,
        } = self.exchange(computed)?;
        self.at(Phase::Updating);
        let loss = mean(loss_sum, weight);
        // Makes of the gradient that was computed that of the mean.
        let factor = if weight > 0.0 { nominal / weight } else { 1.0 };
        let factor = factor / loss_scale;
        let norm = clip::global_norm(&self.gradient) * factor;
        let dropped = loss.is_finite() && !norm.is_finite() && self.lower_loss_scale();
        for (what, value) in [("loss", loss), ("gradient norm", norm)] {
            if !value.is_finite() && !dropped {
                let (losses, keys) = self.of_all(&losses, batch.keys())?;
                let at = (taken, self.position.epoch);
                return Err(not_finite(at, what, value, Split::Train, &losses, &keys));
            }
        }
        let rate = self.schedule.rate(taken, &self.position.plateau);
        let step = taken.next();
        if !dropped {
            let scale = clip::scale(norm, config.clip_norm) * factor;
            let updates = self.count_update(step);
            self.optimizer
                .step(&mut self.bucket, &self.gradient, updates, rate, scale);
            self.engine.move_buffers(&mut self.bucket, &buffers);
            if let Some(average) = &mut self.average {
                average.update(step, &self.bucket);
            }
        }

        self.position.step = step;
        self.position.loader = batch.state().clone();
        self.position.running.loss_sum += loss_sum;
        self.position.running.weight += weight;
        let now = self.watch.clock.monotonic();
        // The other ranks were about as fast.
        let seen = losses.len() * samples.global_rows() / samples.rows().max(1);
        self.meter.computed(now, seen);
        self.report(loss);
        if self.plan.settings.log_due(step) && !dropped {
            let Window {
                samples_per_s,
                data_wait_share,
                save_stall_s,
            } = self.meter.take_window();
            let epoch = self.position.epoch;
            let line = Line::Step {
                step,
                epoch,
                loss,
                gradient_norm: norm,
                learning_rate: rate,
                samples_per_s,
                data_wait_share,
                communication_s: self
                    .watch
                    .ranks
                    .are_many()
                    .then(|| self.meter.take_exchange()),
                memory_bytes: memory::resident(),
                save_stall_s,
            };
            self.write_line(&line);
        }
        if self.plan.settings.comparison_due(step) {
            self.compare_weights()?;
        }
        Ok(())
    }

    /// Lowers the scale of the loss, with f16, after a gradient that is not finite; false where it cannot be lowered.
    fn lower_loss_scale(&mut self) -> bool {
        let config = self.plan.settings.config().loss_scale.as_ref();
        let Some((config, state)) = config.zip(self.position.loss_scale.as_mut()) else {
            return false;
        };
        let lowered = loss_scale::bad(config, state);
        if lowered {
            let (step, scale) = (self.position.step.get(), state.scale);
            tracing::info!(
                step,
                scale,
                "a step was left out: its gradient overflows f16; the loss is scaled less"
            );
        }
        lowered
    }

    /// The number of the update that `step` makes, the first being 1: steps that were left out do not count.
    fn count_update(&mut self, step: Step) -> u64 {
        let config = self.plan.settings.config().loss_scale.as_ref();
        let Some((config, state)) = config.zip(self.position.loss_scale.as_mut()) else {
            return step.get();
        };
        loss_scale::good(config, state);
        step.get() - state.dropped
    }
}

/// The error for a loss or gradient that is not finite. Names the samples whose own loss is not, or else the first.
pub(super) fn not_finite(
    at: (Step, Epoch),
    what: &'static str,
    value: f64,
    split: Split,
    losses: &[f32],
    keys: &[u64],
) -> Error {
    // Tokens have a loss each, not one per row.
    let by_row = losses.len() == keys.len();
    let bad = losses.iter().zip(keys);
    let bad = bad.filter(|(loss, _)| by_row && !loss.is_finite());
    let mut named: Vec<u64> = bad.map(|(_, key)| *key).take(KEYS_NAMED).collect();
    if named.is_empty() {
        named = keys.iter().copied().take(KEYS_NAMED).collect();
    }
    let named: Vec<String> = named.iter().map(|key| format!("`{key:016x}`")).collect();
    Error::NotFinite {
        step: at.0,
        epoch: at.1,
        what,
        split,
        value,
        keys: named.join(", "),
    }
}
