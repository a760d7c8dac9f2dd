//! The learning rate as a function of the step, and with `plateau` of the validation losses too.
//!
//! The warm-up comes first: the rate rises linearly from `peak / warmup_steps` at the first step to the peak at the last
//! one of the warm-up. Courses that fall towards the end of the run (cosine, linear) leave the peak with the step after
//! it and are at `final_fraction` at the last step. Periods are counted from the first step after the warm-up, which has
//! the peak; stairs from the first step of the run.

mod settings;

use crate::float_casts::exact;
use feedline_schemas::{checkpoint::Plateau, ids::Step};

pub(crate) use self::settings::{resolve, schedule};

/// The schedule.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Schedule {
    /// Highest rate.
    pub(crate) peak: f64,
    /// Steps of the warm-up.
    pub(crate) warmup_steps: u64,
    /// Steps in all.
    pub(crate) total_steps: u64,
    /// Schedule after the warm-up.
    pub(crate) course: Course,
}

/// The rate after the warm-up, as a share of the peak.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Course {
    /// 1.
    Constant,
    /// Half a cosine (Loshchilov and Hutter 2017, arXiv 1608.03983, eq. 5, with one period).
    Cosine { final_fraction: f64 },
    /// The same in each period; each is `factor` times as long as the one before.
    Restarts {
        period: u64,
        factor: u64,
        final_fraction: f64,
    },
    /// A straight line.
    Linear { final_fraction: f64 },
    /// A fall by `factor` each time a step is reached.
    Stairs { at: Stairs, factor: f64 },
    /// A fall by `factor` when more than `patience` evaluations in a row were not below the best by `threshold`, a
    /// share of it; at the lowest `final_fraction`.
    Plateau {
        factor: f64,
        patience: u32,
        threshold: f64,
        final_fraction: f64,
    },
}

/// The steps after which the rate falls.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Stairs {
    /// Every multiple.
    Every(u64),
    /// These, rising.
    Milestones(Vec<u64>),
}

impl Schedule {
    /// The rate of the step that follows `taken` steps.
    pub(crate) fn rate(&self, taken: Step, plateau: &Plateau) -> f64 {
        let (taken, warmup) = (taken.get(), self.warmup_steps);
        if taken < warmup {
            return self.peak * (exact(taken + 1) / exact(warmup));
        }
        let share = match &self.course {
            Course::Constant => 1.0,
            Course::Cosine { final_fraction } => half_cosine(self.progress(taken), *final_fraction),
            Course::Linear { final_fraction } => {
                1.0 - (1.0 - final_fraction) * self.progress(taken)
            }
            Course::Restarts {
                period,
                factor,
                final_fraction,
            } => {
                let (into, period) = place_in_period(taken - warmup, *period, *factor);
                half_cosine(exact(into) / exact(period), *final_fraction)
            }
            Course::Stairs { at, factor } => factor.powf(exact(at.falls(taken))),
            Course::Plateau {
                factor,
                final_fraction,
                ..
            } => factor.powf(plateau.falls.into()).max(*final_fraction),
        };
        self.peak * share
    }

    /// Returns whether the rates of the first `taken` steps are those of `other`, whatever the validation losses.
    pub(crate) fn agrees_with(&self, other: &Self, taken: u64) -> bool {
        let is_plateau = |of: &Self| matches!(of.course, Course::Plateau { .. });
        let by_length = matches!(self.course, Course::Cosine { .. } | Course::Linear { .. });
        let is_same_after =
            self.course == other.course && (!by_length || self.total_steps == other.total_steps);
        let is_warm_up = taken <= self.warmup_steps && !is_plateau(self) && !is_plateau(other);
        let is_same_rise =
            self.peak.to_bits() == other.peak.to_bits() && self.warmup_steps == other.warmup_steps;
        taken == 0 || (is_same_rise && (is_warm_up || is_same_after))
    }

    /// From 0 at the end of the warm-up to 1 at the last step.
    fn progress(&self, taken: u64) -> f64 {
        let falling = self.total_steps.saturating_sub(self.warmup_steps).max(1);
        (exact(taken + 1 - self.warmup_steps) / exact(falling)).min(1.0)
    }

    /// Takes note of a validation loss.
    pub(crate) fn measured(&self, loss: f64, plateau: &mut Plateau) {
        let Course::Plateau {
            patience,
            threshold,
            ..
        } = self.course
        else {
            return;
        };
        if plateau
            .best
            .is_none_or(|best| loss < best * (1.0 - threshold))
        {
            plateau.best = Some(loss);
            plateau.evaluations_since_best = 0;
        } else {
            plateau.evaluations_since_best += 1;
        }
        if plateau.evaluations_since_best > patience {
            plateau.falls += 1;
            plateau.evaluations_since_best = 0;
        }
    }
}

impl Stairs {
    /// Number of falls of the rate after `taken` steps.
    fn falls(&self, taken: u64) -> u64 {
        match self {
            Self::Every(steps) => taken / steps,
            Self::Milestones(steps) => steps.partition_point(|&step| step <= taken) as u64,
        }
    }
}

/// From 1 at `progress` 0 to `final_fraction` at 1.
fn half_cosine(progress: f64, final_fraction: f64) -> f64 {
    let cosine = 0.5 * (1.0 + (std::f64::consts::PI * progress).cos());
    final_fraction + (1.0 - final_fraction) * cosine
}

/// Steps since the period of step `at` began, and the period's length.
fn place_in_period(at: u64, period: u64, factor: u64) -> (u64, u64) {
    if factor == 1 {
        return (at % period, period);
    }
    let (mut into, mut period) = (at, period);
    while into >= period {
        into -= period;
        period = period.saturating_mul(factor);
    }
    (into, period)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn check(schedule: &Schedule, expected: &[(u64, f64)]) {
        for &(taken, rate) in expected {
            let found = schedule.rate(Step::new(taken), &Plateau::default());
            assert!(
                (found - rate).abs() < 1e-12,
                "after {taken} steps: {found}, expected {rate}"
            );
        }
    }

    fn cosine(peak: f64, warmup_steps: u64, total_steps: u64, final_fraction: f64) -> Schedule {
        Schedule {
            peak,
            warmup_steps,
            total_steps,
            course: Course::Cosine { final_fraction },
        }
    }

    #[test]
    fn rate_rises_linearly_then_falls_along_a_cosine_to_its_share() {
        let at_quarter = 0.2 + 0.8 * (1.0 + std::f64::consts::FRAC_1_SQRT_2) / 2.0;
        check(
            &cosine(1.0, 4, 8, 0.2),
            &[
                (0, 0.25),
                (1, 0.5),
                (3, 1.0),
                (4, at_quarter),
                (5, 0.6),
                (7, 0.2),
            ],
        );
    }

    #[test]
    fn no_warm_up_starts_on_the_cosine() {
        check(&cosine(2.0, 0, 2, 0.0), &[(0, 1.0), (1, 0.0)]);
    }

    #[test]
    fn a_run_shorter_than_its_warm_up_never_reaches_the_peak() {
        check(&cosine(1.0, 10, 5, 0.0), &[(0, 0.1), (4, 0.5)]);
    }

    #[test]
    fn steps_past_the_end_keep_the_final_rate() {
        check(&cosine(1.0, 0, 3, 0.1), &[(2, 0.1), (3, 0.1), (100, 0.1)]);
    }

    #[test]
    fn courses_that_end_with_the_run_agree_only_at_the_same_length_or_in_the_warm_up() {
        let short = cosine(1.0, 10, 20, 0.1);
        let long = cosine(1.0, 10, 40, 0.1);
        assert!(short.agrees_with(&long, 10) && !short.agrees_with(&long, 11));
        assert!(short.agrees_with(&short, 20));
        assert!(!short.agrees_with(&cosine(2.0, 10, 20, 0.1), 1));
        assert!(!short.agrees_with(&cosine(1.0, 11, 20, 0.1), 1));
        let course = Course::Constant;
        let constant = |total_steps| Schedule {
            course: course.clone(),
            ..cosine(1.0, 10, total_steps, 0.1)
        };
        assert!(constant(20).agrees_with(&constant(40), 20));
        assert!(!constant(20).agrees_with(&short, 20) && constant(20).agrees_with(&short, 10));
    }

    #[test]
    fn the_warm_up_comes_before_every_course() {
        let schedule = |course| Schedule {
            peak: 2.0,
            warmup_steps: 4,
            total_steps: 100,
            course,
        };
        let warm_up = [(0, 0.5), (1, 1.0), (2, 1.5), (3, 2.0)];
        let factor = 0.5;
        let every = schedule(Course::Stairs {
            at: Stairs::Every(6),
            factor,
        });
        let restarts = schedule(Course::Restarts {
            period: 3,
            factor: 1,
            final_fraction: 0.0,
        });
        for (schedule, after) in [
            (schedule(Course::Constant), [(4, 2.0), (5, 2.0), (99, 2.0)]),
            (every, [(4, 2.0), (6, 1.0), (12, 0.5)]),
            (restarts, [(4, 2.0), (5, 1.5), (7, 2.0)]),
        ] {
            check(&schedule, &warm_up);
            check(&schedule, &after);
        }
    }

    /// Output of `schedules.py`: rates by step, and the losses that PyTorch's plateau saw.
    fn fixture() -> BTreeMap<String, Vec<f64>> {
        serde_json::from_str(include_str!("../../../tests/torch/schedules.json")).unwrap()
    }

    #[test]
    fn rates_equal_pytorchs() {
        let fixture = fixture();
        let check = |name: &str, peak, course, first: u64| {
            let schedule = Schedule {
                peak,
                warmup_steps: 0,
                total_steps: 40,
                course,
            };
            for (t, &rate) in fixture[name]
                .iter()
                .enumerate()
                .skip(usize::from(first > 0))
            {
                let taken = Step::new(t as u64 - first);
                let found = schedule.rate(taken, &Plateau::default());
                assert!((found - rate).abs() < 1e-12, "{name} {t}: {found} {rate}");
            }
        };
        let final_fraction = 0.02;
        // PyTorch's first step has the peak, ours has left it: our step t is PyTorch's t + 1.
        check("cosine", 0.5, Course::Cosine { final_fraction }, 1);
        check("linear", 0.5, Course::Linear { final_fraction }, 1);
        for (name, factor) in [("restarts", 1), ("restarts_longer", 3)] {
            let course = Course::Restarts {
                period: 4,
                factor,
                final_fraction,
            };
            check(name, 0.5, course, 0);
        }
        let stairs = |at| Course::Stairs { at, factor: 0.3 };
        check("every", 0.5, stairs(Stairs::Every(7)), 0);
        let milestones = Stairs::Milestones(vec![1, 5, 21]);
        check("milestones", 0.5, stairs(milestones), 0);
    }

    #[test]
    fn a_plateau_falls_where_pytorchs_does() {
        let fixture = fixture();
        let schedule = Schedule {
            peak: 0.5,
            warmup_steps: 0,
            total_steps: 40,
            course: Course::Plateau {
                factor: 0.4,
                patience: 2,
                threshold: 0.05,
                final_fraction: 0.01,
            },
        };
        let mut plateau = Plateau::default();
        let rates = &fixture["plateau"];
        for (loss, rate) in fixture["plateau_losses"].iter().zip(rates) {
            schedule.measured(*loss, &mut plateau);
            let found = schedule.rate(Step::new(7), &plateau);
            assert!((found - rate).abs() < 1e-12, "{found} {rate} {plateau:?}");
        }
        assert!(
            rates
                .last()
                .is_some_and(|rate| (rate - 0.005).abs() < 1e-12),
            "the floor is reached"
        );
    }
}
