//! One step.

use feedline_schemas::{
    ids::{Epoch, Rank, Step},
    manifest::Split,
};

use super::Session;
use crate::{
    clip,
    data::{Batch, Data},
    engine::Computed,
    error::Error,
    log::Line,
    loss,
    random::Stream,
    track::memory,
};

/// This process among its equals; there is one.
const RANK: Rank = Rank::new(0);

/// Keys named when a batch goes wrong.
const KEYS_NAMED: usize = 5;

impl<D: Data> Session<'_, D> {
    /// One optimizer step. Nothing is changed before loss and gradient are known to be finite.
    pub(super) fn step(&mut self, batch: &D::Batch) -> Result<(), Error> {
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
                communication_s: None,
                memory_bytes: memory::resident(),
            };
            self.log.add(&line, now)?;
        }
        Ok(())
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

/// The error for a loss or gradient that is not finite. Names the samples whose own loss is not, or else the first.
pub(super) fn not_finite(
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
