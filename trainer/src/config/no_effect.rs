//! Warnings of keys that have no effect in a run, or hardly the one that they are set for.

use feedline_schemas::{
    config::{GuardConfig, LoraConfig, TrainConfig},
    report::Warning,
};

use crate::{
    model::layers::Layout,
    optim::schedule::{Course, Schedule, Stairs},
};

/// Code of a key without effect.
const NO_EFFECT: &str = "no_effect";

/// Warnings of a configuration, resolved, for a model with this layout and a run with this schedule.
pub(crate) fn warnings(config: &TrainConfig, schedule: &Schedule, layout: &Layout) -> Vec<Warning> {
    let found = [
        of_steps(schedule),
        of_patience(config, schedule),
        of_guard(&config.guard),
        config.lora.as_ref().and_then(|lora| of_rank(lora, layout)),
        of_frozen_base(config),
    ];
    let found: Vec<Warning> = found.into_iter().flatten().collect();
    for warning in &found {
        tracing::warn!(code = warning.code, "{}", warning.message);
    }
    found
}

/// A fall or a period of the learning rate that the run does not reach.
fn of_steps(schedule: &Schedule) -> Option<Warning> {
    let total = schedule.total_steps;
    let (key, message) = match &schedule.course {
        Course::Stairs { at, .. } => {
            let (key, last) = match at {
                Stairs::Every(every) => ("every", *every),
                Stairs::Milestones(steps) => ("milestones", *steps.last()?),
            };
            if last < total {
                return None;
            }
            let what = "the learning rate falls";
            (
                key,
                format!("the run has {total} steps, and {what} after step {last}"),
            )
        }
        Course::Restarts { period, .. }
            if schedule.warmup_steps.saturating_add(*period) > total =>
        {
            let message =
                format!("the run has {total} steps and ends within its first period of {period}");
            ("period", message)
        }
        _ => return None,
    };
    let key = format!("train.schedule.{key}");
    Some(Warning::new(NO_EFFECT, message).with_key(&key))
}

/// A plateau that ends the run before it lowers the learning rate.
fn of_patience(config: &TrainConfig, schedule: &Schedule) -> Option<Warning> {
    let Course::Plateau { patience, .. } = schedule.course else {
        return None;
    };
    let stop = config.patience;
    (stop > 0 && patience >= stop).then(|| {
        let message = format!(
            "training stops after {stop} epochs without a lower loss (`train.patience`), before the learning rate falls after \
             more than {patience}"
        );
        Warning::new(NO_EFFECT, message).with_key("train.schedule.patience")
    })
}

/// Keys of a guard that is off.
fn of_guard(guard: &GuardConfig) -> Option<Warning> {
    let usual = GuardConfig::default();
    let is_set =
        guard.spike_steps != usual.spike_steps || guard.max_rollbacks != usual.max_rollbacks;
    (guard.spike_factor == 0.0 && is_set).then(|| {
        let message = "`train.guard.spike_factor = 0` looks for no spikes, so `spike_steps` and `max_rollbacks` have no effect";
        Warning::new(NO_EFFECT, message).with_key("train.guard.spike_factor")
    })
}

/// Adapters with more parameters than the matrices that they change.
fn of_rank(lora: &LoraConfig, layout: &Layout) -> Option<Warning> {
    let rank = lora.rank as usize;
    let sides = layout.adapted_sides();
    let largest = sides
        .into_iter()
        .max_by_key(|sides| sides.iter().min().copied())?;
    (largest.iter().all(|side| *side < rank)).then(|| {
        let [from, to] = largest;
        let message = format!(
            "adapters of rank {rank} have more parameters than the matrices that they change, the largest of which is \
             {from} x {to}: a rank below its sides does the same with fewer"
        );
        Warning::new("large_rank", message).with_key("train.lora.rank")
    })
}

/// Adapters to weights that were never trained.
fn of_frozen_base(config: &TrainConfig) -> Option<Warning> {
    (config.lora.is_some() && config.init.is_none()).then(|| {
        let message = "adapters change weights that stay as they are drawn, since no `train.init` gives trained ones";
        Warning::new("untrained_base", message).with_key("train.lora")
    })
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::{ScheduleConfig, ScheduleKind};

    use super::*;
    use crate::optim::schedule;

    fn keys(config: &TrainConfig) -> Vec<String> {
        let resolved = TrainConfig {
            schedule: schedule::resolve(&config.schedule).unwrap(),
            ..config.clone()
        };
        let mut builder = crate::model::layers::Builder::new();
        let gain = crate::model::layers::Gain::He;
        crate::model::layers::Linear::new(&mut builder, "l", &[9], 16, gain);
        let plain = builder.finish();
        let layout = match &config.lora {
            Some(lora) => plain.adapted(lora).unwrap(),
            None => plain,
        };
        let schedule = schedule::schedule(&resolved, 10);
        let found = warnings(&resolved, &schedule, &layout);
        found
            .into_iter()
            .filter_map(|warning| warning.key)
            .collect()
    }

    fn with(change: impl FnOnce(&mut TrainConfig)) -> Vec<String> {
        let mut config = TrainConfig {
            epochs: 16,
            ..TrainConfig::default()
        };
        change(&mut config);
        keys(&config)
    }

    #[test]
    fn keys_that_the_run_does_not_reach_are_named() {
        let none: [&str; 0] = [];
        assert_eq!(with(|_| ()), none);
        let schedule = |r#type, change: fn(&mut ScheduleConfig)| {
            with(|c| {
                c.schedule.r#type = r#type;
                change(&mut c.schedule);
                c.patience = 5;
            })
        };
        use ScheduleKind::{CosineRestarts, Plateau, Step};
        let steps = |at| schedule(Step, at);
        assert_eq!(steps(|c| c.milestones = Some(vec![40, 159])), none);
        assert_eq!(
            steps(|c| c.milestones = Some(vec![40, 900])),
            ["train.schedule.milestones"]
        );
        assert_eq!(steps(|c| c.every = Some(160)), ["train.schedule.every"]);
        assert_eq!(
            schedule(CosineRestarts, |c| c.period = Some(100_000)),
            ["train.schedule.period"]
        );
        assert_eq!(schedule(CosineRestarts, |c| c.period = Some(50)), none);
        assert_eq!(
            schedule(Plateau, |c| c.patience = Some(9)),
            ["train.schedule.patience"]
        );
        assert_eq!(schedule(Plateau, |c| c.patience = Some(4)), none);
    }

    #[test]
    fn a_guard_that_is_off_and_adapters_that_do_little_are_named() {
        let off = with(|c| (c.guard.spike_factor, c.guard.spike_steps) = (0.0, 9));
        assert_eq!(off, ["train.guard.spike_factor"]);
        assert!(with(|c| c.guard.spike_factor = 0.0).is_empty());
        let of_rank = |rank| {
            with(|c| {
                c.lora = Some(LoraConfig {
                    rank,
                    ..LoraConfig::default()
                });
            })
        };
        assert_eq!(of_rank(400), ["train.lora.rank", "train.lora"]);
        assert_eq!(of_rank(4), ["train.lora"]);
    }
}
