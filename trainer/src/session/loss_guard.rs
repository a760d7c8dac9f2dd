//! Looks at the loss and the gradient norm of each batch before its update.
//!
//! A loss is a spike when it is over `spike_factor` times the mean of the last `spike_window`
//! losses that were none, and over that mean and three of their standard deviations. The second
//! keeps the guard quiet where losses are noisy: when one batch in five is ten times as hard, three
//! times the mean is nothing special. As many spikes as `spike_steps` without a loss between them
//! that is no higher than the mean are a divergence. Spikes that end before are batches that the
//! weights survived, and their losses count like others from then on.
//!
//! An alarm only reports. It is left out for values below a tenth of what the run began with: a loss that has fallen to
//! nothing is noisy by any factor. It is left out for the short batch at the end of an epoch too, whose mean is of few rows.
//!
//! A rise of the learning rate to more than twice its last value, such as a warm restart, begins a new window: the loss
//! is expected to rise with it.
//!
//! The guard's state is in the [`GuardState`] of a checkpoint, so a run that resumes behaves as one
//! that never stopped.

use feedline_schemas::{
    checkpoint::{GuardState, Rollback},
    config::{GuardConfig, NotFinitePolicy},
    count::counted,
    ids::Step,
    report::Warning,
};

use crate::float_casts::exact_len;

/// One skipped batch in so many is worth a warning.
const MANY: u64 = 20;

/// Standard deviations above the mean that a spike exceeds.
const DEVIATIONS: f64 = 3.0;

/// Factor of a rise of the learning rate that begins a new window.
const RESTART: f64 = 2.0;

/// Fraction of the first mean of a value up to which it is no alarm.
const SMALL: f64 = 0.1;

/// Loss and gradient norm of a batch before its update.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeenBatch {
    /// Step that the batch is.
    pub(crate) step: Step,
    /// Its mean loss; finite.
    pub(crate) loss: f64,
    /// Norm of its gradient; finite.
    pub(crate) norm: f64,
    /// Learning rate of its update.
    pub(crate) rate: f64,
    /// True if it has fewer than half of the rows of a full batch.
    pub(crate) is_short: bool,
}

/// Decision about an update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum UpdateVerdict {
    /// Update the weights.
    Fine,
    /// Update them, and report that this value is far over the mean.
    Alarm(Alarm),
    /// Go back: the loss has diverged from this mean.
    Diverged {
        /// Mean of the losses before.
        mean: f64,
    },
}

/// Name of the loss in an alarm.
const LOSS: &str = "loss";

/// A value that is far over its mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Alarm {
    /// `loss` or `gradient norm`.
    pub(crate) what: &'static str,
    /// It.
    pub(crate) value: f64,
    /// Mean of those before.
    pub(crate) mean: f64,
}

/// Looks at a batch.
pub(crate) fn look(config: &GuardConfig, state: &mut GuardState, seen: SeenBatch) -> UpdateVerdict {
    if state.rate > 0.0 && seen.rate > RESTART * state.rate {
        state.losses.clear();
        state.norms.clear();
        state.spikes.clear();
    }
    state.rate = seen.rate;
    let of_loss = look_at_loss(config, state, seen.loss);
    let of_norm = look_at_norm(config, state, seen.norm);
    let alarm = match of_loss {
        Err(mean) => return UpdateVerdict::Diverged { mean },
        Ok(alarm) => alarm.or(of_norm),
    };
    // One in a window is enough: they come in flocks.
    let quiet = state.alarmed.is_none_or(|alarmed| {
        seen.step.get() >= alarmed.get().saturating_add(u64::from(config.spike_window))
    });
    let is_small = |alarm: &Alarm| {
        let first = match alarm.what {
            LOSS => state.first_loss,
            _ => state.first_norm,
        };
        first.is_some_and(|first| alarm.value < SMALL * first)
    };
    match alarm.filter(|alarm| quiet && !seen.is_short && !is_small(alarm)) {
        Some(alarm) => {
            state.alarmed = Some(seen.step);
            UpdateVerdict::Alarm(alarm)
        }
        None => UpdateVerdict::Fine,
    }
}

/// An alarm for a spike, or the mean that a divergence began from.
fn look_at_loss(
    config: &GuardConfig,
    state: &mut GuardState,
    loss: f64,
) -> Result<Option<Alarm>, f64> {
    if config.spike_factor == 0.0 {
        return Ok(None);
    }
    let spread = full(config, &state.losses);
    state.first_loss = state.first_loss.or(spread.map(|of| of.mean));
    let limit =
        |of: &Spread| (config.spike_factor * of.mean).max(of.mean + DEVIATIONS * of.deviation);
    let spike = spread.filter(|of| of.mean > 0.0 && loss > limit(of));
    let Some(Spread { mean, .. }) = spike else {
        if spread.is_none_or(|of| loss <= of.mean) {
            for loss in std::mem::take(&mut state.spikes) {
                keep(config, &mut state.losses, loss);
            }
        }
        keep(config, &mut state.losses, loss);
        if state.spikes.is_empty() {
            state.calm = state.calm.saturating_add(1);
        }
        if state.calm >= config.spike_steps
            && let Some(clean) = state.candidate.take()
        {
            state.anchor = clean;
        }
        return Ok(None);
    };
    state.spikes.push(loss);
    state.calm = 0;
    if state.spikes.len() >= config.spike_steps as usize {
        return Err(mean);
    }
    Ok(Some(Alarm {
        what: LOSS,
        value: loss,
        mean,
    }))
}

fn look_at_norm(config: &GuardConfig, state: &mut GuardState, norm: f64) -> Option<Alarm> {
    if config.gradient_factor == 0.0 {
        return None;
    }
    let spread = full(config, &state.norms);
    keep(config, &mut state.norms, norm);
    let mean = spread?.mean;
    state.first_norm = state.first_norm.or(Some(mean));
    (norm > config.gradient_factor * mean).then_some(Alarm {
        what: "gradient norm",
        value: norm,
        mean,
    })
}

fn keep(config: &GuardConfig, window: &mut Vec<f64>, value: f64) {
    window.push(value);
    let extra = window.len().saturating_sub(config.spike_window as usize);
    window.drain(..extra);
}

/// Mean and standard deviation of a window.
#[derive(Clone, Copy)]
struct Spread {
    mean: f64,
    deviation: f64,
}

/// Those of a window that is full.
fn full(config: &GuardConfig, window: &[f64]) -> Option<Spread> {
    if window.len() < config.spike_window as usize {
        return None;
    }
    let count = exact_len(window.len());
    let mean = window.iter().sum::<f64>() / count;
    let squares: f64 = window.iter().map(|v| (v - mean) * (v - mean)).sum();
    Some(Spread {
        mean,
        deviation: (squares / count).sqrt(),
    })
}

/// A checkpoint is planned after `step`: it is what to go back to, once it turns out to be clean.
pub(crate) fn planned(config: &GuardConfig, state: &mut GuardState, step: Step) {
    if config.spike_factor > 0.0 && state.candidate.is_none() && state.spikes.is_empty() {
        state.candidate = Some(step);
        state.calm = 0;
    }
}

/// Counts a batch that is left out as step `step`; false when there were too many in the window.
pub(crate) fn may_skip(config: &GuardConfig, state: &mut GuardState, step: Step) -> bool {
    let first = step.get().saturating_sub(config.window_steps);
    state.skipped.retain(|skipped| skipped.get() > first);
    if state.skipped.len() >= config.max_skipped as usize {
        return false;
    }
    state.skipped.push(step);
    state.skipped_in_all += 1;
    true
}

/// The warning of a run of `steps` that skipped more than one batch in [`MANY`], or any where the policy is to stop: it names
/// no run, so a run may resume with another one.
pub(crate) fn warning(config: &GuardConfig, state: &GuardState, steps: u64) -> Option<Warning> {
    let skipped = state.skipped_in_all;
    let has_changed = skipped > 0 && config.not_finite == NotFinitePolicy::Stop;
    if !has_changed && skipped.saturating_mul(MANY) <= steps {
        return None;
    }
    let changed = match has_changed {
        true => {
            ", by an earlier command with `not_finite = \"skip\"`; with `stop`, as it is set now, the run would have ended at the \
             first of them"
        }
        false => "",
    };
    let message = format!(
        "{} skipped in {}, since their loss or gradient is not finite{changed}: the model has learnt nothing from their rows; \
         correct or remove the samples that `metrics.jsonl` names, or lower `train.learning_rate`",
        counted(skipped, "batch"),
        counted(steps, "step")
    );
    Some(Warning::new("skipped_batches", message).with_key("train.guard.not_finite"))
}

/// State after the weights went back, at step `step`, to those of step `to`, whose checkpoint holds
/// the state `then`.
pub(crate) fn went_back(state: &GuardState, then: GuardState, to: Step, step: Step) -> GuardState {
    let updates = to.get() - then.dropped;
    let mut rollbacks = state.rollbacks.clone();
    rollbacks.push(Rollback { step, to });
    GuardState {
        dropped: step.get() - updates,
        skipped: state.skipped.clone(),
        skipped_in_all: state.skipped_in_all,
        alarmed: state.alarmed,
        candidate: None,
        anchor: to,
        spikes: vec![],
        rollbacks,
        ..then
    }
}

#[cfg(test)]
mod tests;
