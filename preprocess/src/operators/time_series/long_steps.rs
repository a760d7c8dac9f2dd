//! Steps between consecutive rows that are longer than the usual one of their entity.
//!
//! Windows and features that count rows reach over missing rows if no `max_gap` is set. Steps are
//! counted as the rows pass. An entity counts if at least half of its steps are about as long as
//! the median one, so that a longest step makes sense, and if at most a tenth of them are long:
//! closed days of a market are not missing.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

/// Steps of an entity below which none is usual.
const LEAST_STEPS: u64 = 8;

/// Counts of all entities of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LongStepCounts {
    /// Entities with at least two rows.
    pub(crate) entities: u64,
    /// Entities with a long step.
    pub(crate) with_long: u64,
    /// Steps of all entities.
    pub(crate) steps: u64,
    /// Steps that are at least 1.5 times as long as the usual one.
    pub(crate) long: u64,
    /// The longest one, and the usual one of its entity, in microseconds.
    pub(crate) longest: i64,
    pub(crate) usual: i64,
    /// The longest usual step of an entity, in microseconds.
    pub(crate) longest_usual: i64,
}

/// Counts of the rows that have passed, for the warnings of a build.
#[derive(Debug, Default)]
pub(crate) struct LongSteps(Mutex<LongStepCounts>);

impl LongSteps {
    /// Returns the counts of the last complete pass.
    pub(crate) fn read(&self) -> LongStepCounts {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, counts: LongStepCounts) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = counts;
    }
}

/// Steps of about one length.
#[derive(Clone, Copy, Debug)]
struct AlikeSteps {
    count: u64,
    shortest: i64,
    longest: i64,
}

/// Counts steps, entity by entity.
#[derive(Debug, Default)]
pub(super) struct StepCounter {
    /// Steps of the current entity by their first four binary digits.
    alike: BTreeMap<u32, AlikeSteps>,
    all: LongStepCounts,
}

impl StepCounter {
    /// Counts a step of the current entity, in microseconds.
    pub(super) fn add(&mut self, step: i64) {
        let Some(digits) = step.checked_ilog2() else {
            return;
        };
        let following = (i128::from(step) << 3 >> digits) & 7;
        let key = digits * 8 + u32::try_from(following).unwrap_or_default();
        let alike = self.alike.entry(key).or_insert(AlikeSteps {
            count: 0,
            shortest: step,
            longest: step,
        });
        alike.count += 1;
        alike.shortest = alike.shortest.min(step);
        alike.longest = alike.longest.max(step);
    }

    /// Ends the current entity.
    pub(super) fn end_entity(&mut self) {
        let alike = std::mem::take(&mut self.alike);
        let steps: u64 = alike.values().map(|alike| alike.count).sum();
        self.all.entities += u64::from(steps > 0);
        self.all.steps += steps;
        let mut before = 0;
        let median = alike.iter().find(|(_, alike)| {
            before += alike.count;
            before * 2 >= steps
        });
        let Some((median, AlikeSteps { longest: usual, .. })) =
            median.filter(|_| steps >= LEAST_STEPS)
        else {
            return;
        };
        let near = alike.range(median.saturating_sub(1)..=median + 1);
        let near: u64 = near.map(|(_, alike)| alike.count).sum();
        if near * 2 < steps {
            return;
        }
        self.all.longest_usual = self.all.longest_usual.max(*usual);
        let is_long =
            |alike: &&AlikeSteps| i128::from(alike.shortest) * 2 >= i128::from(*usual) * 3;
        let long: u64 = alike
            .values()
            .filter(is_long)
            .map(|steps| steps.count)
            .sum();
        if long == 0 || long * 10 > steps {
            return;
        }
        self.all.with_long += 1;
        self.all.long += long;
        let longest = alike.values().map(|alike| alike.longest).max();
        if let Some(longest) = longest.filter(|longest| *longest > self.all.longest) {
            self.all.longest = longest;
            self.all.usual = *usual;
        }
    }

    /// Ends the last entity, and returns the counts.
    pub(super) fn finish(&mut self) -> LongStepCounts {
        self.end_entity();
        std::mem::take(&mut self.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000;

    fn counts(entities: &[Vec<i64>]) -> LongStepCounts {
        let mut counter = StepCounter::default();
        for steps in entities {
            steps.iter().for_each(|step| counter.add(*step));
            counter.end_entity();
        }
        counter.finish()
    }

    #[test]
    fn steps_over_missing_rows_are_counted_by_the_rate_of_each_entity() {
        let mut hourly = vec![HOUR; 99];
        hourly.push(60 * HOUR);
        let mut quarterly = vec![HOUR / 4; 195];
        quarterly.extend([HOUR / 2; 5]);
        let expected = LongStepCounts {
            entities: 3,
            with_long: 2,
            steps: 400,
            long: 6,
            longest: 60 * HOUR,
            usual: HOUR,
            longest_usual: HOUR,
        };
        let regular = vec![HOUR / 2; 100];
        assert_eq!(counts(&[hourly, quarterly, regular]), expected);
    }

    #[test]
    fn closed_days_and_uneven_times_are_not_missing_rows() {
        let day = 24 * HOUR;
        let weeks: Vec<i64> = (0..50)
            .flat_map(|_| [day, day, day, day, 3 * day])
            .collect();
        assert_eq!(counts(&[weeks]).long, 0);
        let months: Vec<i64> = (0..48).map(|month| (28 + month % 4) * day).collect();
        assert_eq!(counts(&[months]).long, 0);
        let trades: Vec<i64> = (1..200).map(|i| i * i * 7 % 1_000 * 1_000).collect();
        assert_eq!(counts(&[trades]).long, 0);
        let few = vec![HOUR, HOUR, 60 * HOUR];
        assert_eq!(counts(&[few]).long, 0);
        assert_eq!(counts(&[vec![i64::MAX; 20]]).long, 0);
    }
}
