//! Number and delay of restarts of failed ranks.

use std::time::Duration;

use feedline_http::backoff::{Jitter, doubled};

use crate::output::counted;

/// Longest wait before the first restart, in ms; it doubles with each.
const BASE_MS: u64 = 1_000;

/// Maximum wait, in ms.
const CAP_MS: u64 = 60_000;

/// Counts restarts since the last new checkpoint.
#[derive(Debug)]
pub(super) struct Restarts {
    limit: u64,
    used: u64,
    /// Steps of the newest checkpoint so far.
    saved: u64,
    /// Step and way of the last failure.
    last: Option<(u64, String)>,
    jitter: Jitter,
}

impl Restarts {
    /// Allows at most `limit` restarts without a new checkpoint. `seed` determines the waits.
    pub(super) const fn new(limit: u64, seed: u64) -> Self {
        Self {
            limit,
            used: 0,
            saved: 0,
            last: None,
            jitter: Jitter::new(seed),
        }
    }

    /// Restarts since the last new checkpoint.
    pub(super) const fn used(&self) -> u64 {
        self.used
    }

    /// Returns the wait before the next restart, after a failure at `step` of this kind (`way`),
    /// with `saved` steps in the newest checkpoint: a random time up to a bound that doubles.
    ///
    /// # Errors
    /// The reason for no further restart.
    pub(super) fn next(&mut self, step: u64, way: &str, saved: u64) -> Result<Duration, String> {
        if saved > self.saved {
            (self.saved, self.used, self.last) = (saved, 0, None);
        }
        let now = (step, way.to_owned());
        if self.limit > 0 && self.last.as_ref() == Some(&now) {
            return Err(format!(
                "it is the second time in a row at step {step} in this way, with no checkpoint in between, so that another \
                 start would not help"
            ));
        }
        if self.used >= self.limit {
            return Err(match self.limit {
                0 => "`train.parallel.restarts` is 0".to_owned(),
                limit => format!(
                    "the ranks were restarted {} without a new checkpoint (`train.parallel.restarts`)",
                    counted(limit, "time")
                ),
            });
        }
        let times = u32::try_from(self.used).unwrap_or(u32::MAX);
        let longest = doubled(BASE_MS, times, CAP_MS);
        self.used += 1;
        self.last = Some(now);
        Ok(Duration::from_millis(self.jitter.up_to(longest)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_starts_anew_with_a_new_checkpoint() {
        let mut restarts = Restarts::new(2, 7);
        for saved in [0, 10, 20] {
            restarts.next(saved + 1, "killed", saved).unwrap();
            restarts.next(saved + 2, "killed", saved).unwrap();
            assert_eq!(restarts.used(), 2);
        }
        let why = restarts.next(23, "killed", 20).unwrap_err();
        assert!(why.contains("restarted 2 times without a new"), "{why}");
    }

    #[test]
    fn the_same_failure_twice_in_a_row_is_the_last() {
        let mut restarts = Restarts::new(9, 7);
        restarts.next(5, "killed", 0).unwrap();
        restarts.next(5, "silent", 0).unwrap();
        restarts.next(6, "silent", 0).unwrap();
        let why = restarts.next(6, "silent", 0).unwrap_err();
        assert!(why.contains("second time in a row at step 6"), "{why}");
        restarts.next(6, "silent", 3).unwrap();
    }

    #[test]
    fn no_restart_where_none_is_wanted() {
        let why = Restarts::new(0, 7).next(5, "killed", 0).unwrap_err();
        assert_eq!(why, "`train.parallel.restarts` is 0");
    }

    #[test]
    fn waits_are_random_below_a_bound_that_doubles() {
        let longest = |nth: u64| {
            let waits = (0..300).map(|seed| {
                let mut restarts = Restarts::new(99, seed);
                let waits = (0..=nth).map(|step| restarts.next(step, "killed", 0).unwrap());
                waits.last().unwrap()
            });
            waits.max().unwrap().as_millis()
        };
        for (nth, bound) in [
            (0, 1_000),
            (1, 2_000),
            (5, 32_000),
            (6, 60_000),
            (40, 60_000),
        ] {
            let found = longest(nth);
            assert!(found <= bound && found > bound * 9 / 10, "{nth}: {found}");
        }
    }
}
