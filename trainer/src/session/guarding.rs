//! Reaction of the session to a bad batch.

use feedline_schemas::{
    checkpoint::GuardState,
    config::NotFinitePolicy,
    ids::{Origin, Step},
};

use super::{
    TrainSession,
    exchange::RowsOfAll,
    step::{names_of, not_finite, rows_to_name},
};
use crate::{
    data::samples::Data,
    error::Error,
    optim::average::Average,
    reporting::metrics_log::{MetricsLine, NamedSample},
    session::loss_guard::{self, Alarm},
};

/// Key of the factor that bounds `what`, the `loss` or the `gradient norm` of an alarm.
fn factor_key(what: &str) -> &'static str {
    match what {
        "loss" => "train.guard.spike_factor",
        _ => "train.guard.gradient_factor",
    }
}

impl<D: Data> TrainSession<'_, D> {
    /// Leaves a batch out that gave something that is not finite, after `taken` steps, or ends the run, as configured.
    pub(super) fn leave_out(
        &mut self,
        what: &'static str,
        value: f64,
        rows: RowsOfAll,
        taken: Step,
    ) -> Result<(), Error> {
        let config = &self.plan.settings.config().guard;
        let RowsOfAll {
            losses,
            keys,
            origins,
        } = rows;
        let (step, epoch) = (taken.next(), self.position.epoch);
        let error = not_finite((step, epoch), what, value, &losses, &keys);
        if config.not_finite == NotFinitePolicy::Stop {
            return Err(error);
        }
        if !loss_guard::may_skip(config, &mut self.position.guard, step) {
            return Err(Error::TooManySkipped {
                max_skipped: config.max_skipped,
                window_steps: config.window_steps,
                source: Box::new(error),
            });
        }
        let value_found = value.to_string();
        tracing::error!(
            step = step.get(),
            epoch = epoch.next().get(),
            what,
            value = value_found,
            samples = names_of(&losses, &keys),
            "a batch was left out, since this is not finite; training goes on"
        );
        let has_place = !self.plan.is_of_query;
        let name = |row: usize| {
            let place = has_place.then(|| Origin::from_packed(origins[row]));
            NamedSample {
                key: format!("{:016x}", keys[row]),
                source: place.map(Origin::source),
                sequence: place.map(Origin::sequence),
                row: place.map(Origin::row),
            }
        };
        let rows = rows_to_name(&losses, keys.len()).into_iter();
        let line = MetricsLine::Skipped {
            step,
            epoch,
            what,
            value: value_found,
            samples: rows.map(name).collect(),
        };
        self.write_line(&line);
        self.position.guard.dropped += 1;
        Ok(())
    }

    /// Says that a value of a step is far over its mean.
    pub(super) fn tell(&mut self, alarm: Alarm, step: Step) {
        let Alarm { what, value, mean } = alarm;
        let epoch = self.position.epoch;
        tracing::warn!(
            step = step.get(),
            what,
            value,
            mean,
            key = factor_key(what),
            "far over its mean"
        );
        let line = MetricsLine::Alarm {
            step,
            epoch,
            what,
            value,
            mean,
        };
        self.write_line(&line);
    }

    /// Takes the weights, the optimizer and the average back to the last clean checkpoint, after the loss diverged in `step`.
    pub(super) fn go_back(&mut self, loss: f64, mean: f64, step: Step) -> Result<(), Error> {
        let epoch = self.position.epoch;
        let rollbacks = self.position.guard.rollbacks.len();
        let max_rollbacks = self.plan.settings.config().guard.max_rollbacks;
        let diverged = || Error::Diverged {
            step,
            epoch,
            loss,
            mean,
            rollbacks,
        };
        if rollbacks >= max_rollbacks as usize {
            return Err(diverged());
        }
        self.settle();
        let Some((to, then)) = self.restore()? else {
            return Err(diverged());
        };
        self.position.guard = loss_guard::went_back(&self.position.guard, then, to, step);
        // The number of updates has fallen: equal numbers would no longer mean equal weights.
        self.position.running.updates_before = None;
        let (from, back) = (step.get(), to.get());
        tracing::error!(
            from,
            to = back,
            loss,
            mean,
            "the loss diverged: weights went back"
        );
        let line = MetricsLine::Rollback {
            step,
            epoch,
            loss,
            mean,
            to,
        };
        self.write_line(&line);
        Ok(())
    }

    /// Takes the numbers of the last clean checkpoint, or of one before it when that cannot be read, or those of the
    /// start. Returns its step and what the guard remembered; `None` when that start was a file of weights.
    fn restore(&mut self) -> Result<Option<(Step, GuardState)>, Error> {
        self.device_state = None;
        let anchor = self.position.guard.anchor;
        let found = self.agreed(|checkpoints, usable| {
            match checkpoints.newest_up_to(anchor, usable) {
                Err(error @ Error::AllDamaged { .. }) => {
                    tracing::error!(%error, "no checkpoint to go back to: starting from the first weights");
                    Ok(None)
                }
                other => other,
            }
        })?;
        let settings = &self.plan.settings;
        let average = settings.config().average.clone();
        let Some(snapshot) = found else {
            if self.plan.init.is_some() {
                return Ok(None);
            }
            self.bucket = self.engine.model().initial(settings.config().seed);
            self.optimizer = settings.optimizer(self.sharing.own());
            self.average = average.map(|config| Average::new(config, self.bucket.clone()));
            return Ok(Some((Step::new(0), GuardState::default())));
        };
        self.take_state(&snapshot.header, snapshot.state)?;
        self.bucket = snapshot.parameters;
        self.average = average
            .zip(snapshot.average)
            .map(|(config, weights)| Average::new(config, weights));
        Ok(Some((snapshot.header.step, snapshot.header.guard)))
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::GuardConfig;

    use super::*;
    use crate::session::loss_guard::{SeenBatch, UpdateVerdict};

    #[test]
    fn an_alarm_names_the_key_of_its_factor() {
        let config = GuardConfig {
            spike_window: 4,
            ..GuardConfig::default()
        };
        for (loss, norm, key) in [
            (5.0, 1.0, "train.guard.spike_factor"),
            (1.0, 20.0, "train.guard.gradient_factor"),
        ] {
            let mut state = GuardState::default();
            let mut look = |step, loss, norm| {
                let seen = SeenBatch {
                    step: Step::new(step),
                    loss,
                    norm,
                    rate: 0.1,
                    is_short: false,
                };
                loss_guard::look(&config, &mut state, seen)
            };
            for step in 1..=4 {
                assert_eq!(look(step, 1.0, 1.0), UpdateVerdict::Fine);
            }
            let UpdateVerdict::Alarm(Alarm { what, .. }) = look(5, loss, norm) else {
                panic!("{key}")
            };
            assert_eq!(factor_key(what), key);
        }
    }
}
