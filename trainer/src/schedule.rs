//! The learning rate as a function of the step: linear warm-up, then half a cosine without restarts
//! (Loshchilov and Hutter 2017, "SGDR", eq. 5, with one period).

use feedline_schemas::ids::Step;

/// The schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Schedule {
    /// Highest rate.
    pub(crate) peak: f64,
    /// Steps of the warm-up.
    pub(crate) warmup_steps: u64,
    /// Steps in all.
    pub(crate) total_steps: u64,
    /// Last rate as a share of the peak.
    pub(crate) final_share: f64,
}

impl Schedule {
    /// The rate of the step that follows `taken` steps.
    ///
    /// It rises linearly from `peak / warmup_steps` at the first step to `peak` at the last one of the warm-up, then
    /// falls along a cosine to `peak * final_share` at the last step.
    #[expect(
        clippy::cast_precision_loss,
        reason = "step counts stay far below 2^53"
    )]
    pub(crate) fn rate(&self, taken: Step) -> f64 {
        let step = taken.next().get();
        if step <= self.warmup_steps {
            return self.peak * (step as f64 / self.warmup_steps as f64);
        }
        let falling = self.total_steps.saturating_sub(self.warmup_steps).max(1);
        let progress = ((step - self.warmup_steps) as f64 / falling as f64).min(1.0);
        let cosine = 0.5 * (1.0 + (std::f64::consts::PI * progress).cos());
        self.peak * (self.final_share + (1.0 - self.final_share) * cosine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schedule: Schedule, expected: &[(u64, f64)]) {
        for &(taken, rate) in expected {
            let found = schedule.rate(Step::new(taken));
            assert!(
                (found - rate).abs() < 1e-12,
                "after {taken} steps: {found}, expected {rate}"
            );
        }
    }

    #[test]
    fn rate_rises_linearly_then_falls_along_a_cosine_to_its_share() {
        let schedule = Schedule {
            peak: 1.0,
            warmup_steps: 4,
            total_steps: 8,
            final_share: 0.2,
        };
        let at_quarter = 0.2 + 0.8 * (1.0 + std::f64::consts::FRAC_1_SQRT_2) / 2.0;
        check(
            schedule,
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
        let schedule = Schedule {
            peak: 2.0,
            warmup_steps: 0,
            total_steps: 2,
            final_share: 0.0,
        };
        check(schedule, &[(0, 1.0), (1, 0.0)]);
    }

    #[test]
    fn a_run_shorter_than_its_warm_up_never_reaches_the_peak() {
        let schedule = Schedule {
            peak: 1.0,
            warmup_steps: 10,
            total_steps: 5,
            final_share: 0.0,
        };
        check(schedule, &[(0, 0.1), (4, 0.5)]);
    }

    #[test]
    fn steps_past_the_end_keep_the_final_rate() {
        let schedule = Schedule {
            peak: 1.0,
            warmup_steps: 0,
            total_steps: 3,
            final_share: 0.1,
        };
        check(schedule, &[(2, 0.1), (3, 0.1), (100, 0.1)]);
    }
}
