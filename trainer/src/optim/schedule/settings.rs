//! `[train.schedule]`: which keys each type has, and the schedule they describe.

use feedline_schemas::config::{ScheduleConfig, ScheduleKind, ScheduleUnit, TrainConfig};

use super::{Course, Schedule, Stairs};
use crate::{
    config::values::{filled, name_of, share, whole, within},
    error::{Error, config as wrong},
};

/// Checks `config` and fills in every key that its type has.
///
/// # Errors
/// [`Error::Config`] for the first key that the type has no use for, or whose value is out of range.
pub(crate) fn resolve(config: &ScheduleConfig) -> Result<ScheduleConfig, Error> {
    use ScheduleKind::{Cosine, CosineRestarts, Linear, Plateau, Step};
    let kind = config.r#type;
    let default = ScheduleConfig {
        final_fraction: matches!(kind, Cosine | CosineRestarts | Linear | Plateau).then_some(0.01),
        period: config.period.filter(|_| kind == CosineRestarts),
        period_factor: (kind == CosineRestarts).then_some(1),
        every: config.every.filter(|_| kind == Step),
        milestones: config.milestones.clone().filter(|_| kind == Step),
        factor: matches!(kind, Step | Plateau).then_some(0.1),
        patience: (kind == Plateau).then_some(2),
        threshold: (kind == Plateau).then_some(1e-4),
        unit: matches!(kind, CosineRestarts | Step).then_some(ScheduleUnit::Steps),
        ..config.clone()
    };
    macro_rules! fill {
        ($($key:ident),*) => {
            ScheduleConfig {
                $($key: filled(
                    concat!("schedule.", stringify!($key)), &kind, config.$key.clone(), default.$key,
                )?,)*
                ..config.clone()
            }
        };
    }
    let filled = fill!(
        final_fraction,
        period,
        period_factor,
        every,
        milestones,
        factor,
        patience,
        threshold,
        unit
    );
    check(&filled)?;
    Ok(filled)
}

fn check(config: &ScheduleConfig) -> Result<(), Error> {
    let kind = name_of(&config.r#type);
    if let Some(value) = config.final_fraction {
        within(
            "schedule.final_fraction",
            value,
            value <= 1.0,
            "from 0 to 1",
        )?;
    }
    if let Some(value) = config.factor {
        let ok = value > 0.0 && value < 1.0;
        within("schedule.factor", value, ok, "above 0 and below 1")?;
    }
    if let Some(value) = config.threshold {
        share("schedule.threshold", value)?;
    }
    for (key, value) in [
        ("schedule.period", config.period),
        (
            "schedule.period_factor",
            config.period_factor.map(u64::from),
        ),
        ("schedule.every", config.every),
        (
            "schedule.base_batch_size",
            config.base_batch_size.map(u64::from),
        ),
    ] {
        value.map_or(Ok(()), |value| whole(key, value, 1, u64::MAX))?;
    }
    if let Some(milestones) = &config.milestones {
        let rising = milestones.windows(2).all(|pair| pair[0] < pair[1]);
        if milestones.is_empty() || milestones[0] == 0 || !rising {
            let reason = format!("it is {milestones:?} and must be numbers from 1 that rise");
            return Err(wrong("schedule.milestones", reason));
        }
    }
    match config.r#type {
        ScheduleKind::CosineRestarts if config.period.is_none() => Err(wrong(
            "schedule.period",
            format!("`{kind}` needs it: set the length of the first period"),
        )),
        ScheduleKind::Step if config.every.is_some() == config.milestones.is_some() => Err(wrong(
            "schedule.every",
            format!("`{kind}` needs either this or `train.schedule.milestones`"),
        )),
        _ => Ok(()),
    }
}

/// Steps of the warm-up of a run that is long enough.
const WARMUP_STEPS: u64 = 100;

/// A shorter run has so many steps for each step of its warm-up.
const STEPS_A_WARMUP_STEP: u64 = 10;

/// The schedule of a run with `batches_per_epoch`. `config` holds what [`resolve`] returned.
pub(crate) fn schedule(config: &TrainConfig, batches_per_epoch: u64) -> Schedule {
    let ScheduleConfig {
        r#type,
        warmup_steps,
        unit,
        base_batch_size,
        ..
    } = config.schedule;
    let scale = base_batch_size.map_or(1.0, |base| f64::from(config.batch_size) / f64::from(base));
    let steps = |count: u64| match unit {
        Some(ScheduleUnit::Epochs) => count.saturating_mul(batches_per_epoch),
        Some(ScheduleUnit::Steps) | None => count,
    };
    let total_steps = config.epochs.saturating_mul(batches_per_epoch);
    let usual = WARMUP_STEPS.min(total_steps / STEPS_A_WARMUP_STEP);
    Schedule {
        peak: config.learning_rate * scale,
        warmup_steps: warmup_steps.unwrap_or(usual),
        total_steps,
        course: course(r#type, &config.schedule, steps),
    }
}

fn course(kind: ScheduleKind, config: &ScheduleConfig, steps: impl Fn(u64) -> u64) -> Course {
    const FILLED: &str = "what the type uses was filled in";
    let final_fraction = || config.final_fraction.expect(FILLED);
    let factor = || config.factor.expect(FILLED);
    match kind {
        ScheduleKind::Constant => Course::Constant,
        ScheduleKind::Cosine => Course::Cosine {
            final_fraction: final_fraction(),
        },
        ScheduleKind::Linear => Course::Linear {
            final_fraction: final_fraction(),
        },
        ScheduleKind::CosineRestarts => Course::Restarts {
            period: steps(config.period.expect(FILLED)),
            factor: config.period_factor.expect(FILLED).into(),
            final_fraction: final_fraction(),
        },
        ScheduleKind::Step => Course::Stairs {
            at: match (config.every, &config.milestones) {
                (Some(every), _) => Stairs::Every(steps(every)),
                (None, milestones) => {
                    let milestones = milestones.iter().flatten();
                    Stairs::Milestones(milestones.map(|&count| steps(count)).collect())
                }
            },
            factor: factor(),
        },
        ScheduleKind::Plateau => Course::Plateau {
            factor: factor(),
            patience: config.patience.expect(FILLED),
            threshold: config.threshold.expect(FILLED),
            final_fraction: final_fraction(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ScheduleKind::{Constant, Cosine, CosineRestarts, Linear, Plateau, Step};

    fn of(kind: ScheduleKind, change: impl FnOnce(&mut ScheduleConfig)) -> ScheduleConfig {
        let mut config = ScheduleConfig {
            r#type: kind,
            ..ScheduleConfig::default()
        };
        change(&mut config);
        config
    }

    #[test]
    fn every_type_resolves_and_resolving_twice_changes_nothing() {
        for config in [
            of(Constant, |_| ()),
            of(Cosine, |_| ()),
            of(Linear, |_| ()),
            of(Plateau, |_| ()),
            of(CosineRestarts, |c| c.period = Some(5)),
            of(Step, |c| c.every = Some(5)),
            of(Step, |c| c.milestones = Some(vec![1, 5])),
        ] {
            let resolved = resolve(&config).unwrap();
            assert_eq!(resolve(&resolved).unwrap(), resolved);
            let train = TrainConfig {
                schedule: resolved,
                ..TrainConfig::default()
            };
            schedule(&train, 10);
        }
    }

    #[test]
    fn what_cannot_be_is_named() {
        let refused = |config| resolve(&config).unwrap_err().to_string();
        for (key, config) in [
            (
                "final_fraction",
                of(Cosine, |c| c.final_fraction = Some(1.1)),
            ),
            (
                "final_fraction",
                of(Constant, |c| c.final_fraction = Some(0.1)),
            ),
            ("period", of(CosineRestarts, |_| ())),
            ("period", of(CosineRestarts, |c| c.period = Some(0))),
            ("period", of(Linear, |c| c.period = Some(9))),
            ("every", of(Step, |_| ())),
            ("every", of(Step, |c| c.every = Some(0))),
            (
                "every",
                of(Step, |c| (c.every, c.milestones) = (Some(2), Some(vec![3]))),
            ),
            ("milestones", of(Step, |c| c.milestones = Some(vec![3, 3]))),
            ("milestones", of(Step, |c| c.milestones = Some(vec![]))),
            ("milestones", of(Cosine, |c| c.milestones = Some(vec![3]))),
            ("factor", of(Plateau, |c| c.factor = Some(1.0))),
            ("factor", of(Plateau, |c| c.factor = Some(0.0))),
            ("patience", of(Step, |c| c.patience = Some(1))),
            ("threshold", of(Plateau, |c| c.threshold = Some(1.0))),
            ("unit", of(Cosine, |c| c.unit = Some(ScheduleUnit::Epochs))),
            (
                "base_batch_size",
                of(Cosine, |c| c.base_batch_size = Some(0)),
            ),
        ] {
            let message = refused(config);
            assert!(
                message.contains(&format!("`train.schedule.{key}`")),
                "{message}"
            );
        }
    }

    #[test]
    fn epochs_become_steps() {
        let schedule_of = |config| {
            let train = TrainConfig {
                schedule: resolve(&config).unwrap(),
                epochs: 30,
                ..TrainConfig::default()
            };
            schedule(&train, 10)
        };
        let epochs = Some(ScheduleUnit::Epochs);
        let stairs = |c: &mut ScheduleConfig| (c.milestones, c.unit) = (Some(vec![2, 7]), epochs);
        let found = schedule_of(of(Step, stairs));
        let at = Stairs::Milestones(vec![20, 70]);
        assert_eq!(found.course, Course::Stairs { at, factor: 0.1 });
        assert_eq!(found.total_steps, 300);
        let restarts = |c: &mut ScheduleConfig| (c.period, c.unit) = (Some(2), epochs);
        let Course::Restarts { period, .. } = schedule_of(of(CosineRestarts, restarts)).course
        else {
            panic!("restarts")
        };
        assert_eq!(period, 20);
    }

    #[test]
    fn a_short_run_warms_up_for_a_tenth_of_its_steps_unless_the_steps_are_written() {
        let warmup_of = |warmup_steps, epochs, batches| {
            let config = TrainConfig {
                epochs,
                schedule: resolve(&of(Cosine, |c| c.warmup_steps = warmup_steps)).unwrap(),
                ..TrainConfig::default()
            };
            schedule(&config, batches).warmup_steps
        };
        for (epochs, batches, expected) in [(20, 1, 2), (1, 9, 0), (10, 99, 99), (10, 101, 100)] {
            assert_eq!(warmup_of(None, epochs, batches), expected);
            assert_eq!(warmup_of(Some(100), epochs, batches), 100);
        }
    }

    #[test]
    fn the_peak_grows_with_the_batch_when_a_base_is_given() {
        let peak = |batch_size, base_batch_size| {
            let config = TrainConfig {
                batch_size,
                learning_rate: 0.1,
                schedule: resolve(&of(Cosine, |c| c.base_batch_size = base_batch_size)).unwrap(),
                ..TrainConfig::default()
            };
            schedule(&config, 1).peak
        };
        for (batch, base, expected) in [
            (1024, Some(256), 0.4),
            (64, Some(256), 0.025),
            (256, Some(256), 0.1),
            (1024, None, 0.1),
        ] {
            assert!(
                (peak(batch, base) - expected).abs() < 1e-15,
                "{batch} {base:?}"
            );
        }
    }
}
