//! Steps between consecutive rows that are longer than the usual one of their entity.
//!
//! Windows and features that count rows reach over missing rows if no `max_gap` is set. Steps are
//! counted as the rows pass. An entity has a usual step if at least half of its steps are about as
//! long as the median one; else its times are uneven, which is counted apart.
//!
//! Closed days of a market are not missing rows. Long steps that are more than a tenth of the steps
//! of an entity are over closed days if one of these holds:
//! - Rows are daily but for weekdays without rows, and for a few holidays ([`ClosedDays`]).
//! - They recur: at least two thirds of them follow one of two patterns, which are a number of usual
//!   steps and the length of the long one behind them. Weekends are such a pattern, and so are the
//!   nights and the weekends of a stock exchange; holidays are the third that is left. Rows that are
//!   missing at random follow two patterns in at most 0.39 of their long steps, at any rate of
//!   missing rows.
//!
//! Entities with few long steps show no pattern, such as a share that was listed two weeks ago. Their
//! patterns are counted together; too few of all are no sign of missing rows.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use jiff::tz::TimeZone;

use super::closed_days::ClosedDays;

/// Steps of an entity below which none is usual.
const LEAST_STEPS: u64 = 8;

/// Long steps below which patterns cannot be seen.
const LEAST_LONG: u64 = 6;

/// Most runs of alike steps that are kept of an entity, to look for patterns.
const MOST_RUNS: usize = 1 << 14;

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
    /// Entities without a usual step.
    pub(crate) uneven: u64,
    /// The shortest and the longest step of these, in microseconds.
    pub(crate) uneven_steps: Option<[i64; 2]>,
}

impl LongStepCounts {
    /// Adds the long steps of other entities.
    fn add_long(&mut self, other: &Self) {
        self.with_long += other.with_long;
        self.long += other.long;
        if other.longest > self.longest {
            (self.longest, self.usual) = (other.longest, other.usual);
        }
    }
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

impl AlikeSteps {
    /// Returns true if the steps are at least 1.5 times as long as the usual one.
    fn are_long(self, usual: i64) -> bool {
        i128::from(self.shortest) * 2 >= i128::from(usual) * 3
    }
}

/// Long steps by the usual steps since the long one before, and their first binary digits.
type Patterns = BTreeMap<(u64, u32), u64>;

/// Counts steps, entity by entity.
#[derive(Debug)]
pub(super) struct StepCounter {
    /// Time zone of the days.
    zone: TimeZone,
    /// Steps of the current entity by their first four binary digits.
    alike: BTreeMap<u32, AlikeSteps>,
    /// Its first runs of consecutive alike steps: these digits, and the number of steps.
    runs: Vec<(u32, u64)>,
    /// Its weekdays.
    days: ClosedDays,
    all: LongStepCounts,
    /// Long steps of entities that have too few of them to see patterns, and their patterns.
    few: LongStepCounts,
    patterns_of_few: Patterns,
}

impl StepCounter {
    /// Counter of entities with days in `zone`.
    pub(super) fn new(zone: TimeZone) -> Self {
        Self {
            zone,
            alike: BTreeMap::new(),
            runs: Vec::new(),
            days: ClosedDays::default(),
            all: LongStepCounts::default(),
            few: LongStepCounts::default(),
            patterns_of_few: Patterns::new(),
        }
    }

    /// Counts the step between two rows of the current entity, by their times in microseconds.
    pub(super) fn add(&mut self, before: i64, time: i64) {
        let step = time.saturating_sub(before);
        let Some(digits) = step.checked_ilog2() else {
            return;
        };
        self.days.add(&self.zone, [before, time]);
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
        match self.runs.last_mut() {
            Some((last, count)) if *last == key => *count += 1,
            _ => {
                if self.runs.len() < MOST_RUNS {
                    self.runs.push((key, 1));
                }
            }
        }
    }

    /// Ends the current entity.
    pub(super) fn end_entity(&mut self) {
        let alike = std::mem::take(&mut self.alike);
        let runs = std::mem::take(&mut self.runs);
        let days = std::mem::take(&mut self.days);
        let steps: u64 = alike.values().map(|alike| alike.count).sum();
        self.all.entities += u64::from(steps > 0);
        self.all.steps += steps;
        if steps < LEAST_STEPS {
            return;
        }
        let Some(usual) = usual_step(&alike, steps) else {
            self.add_uneven(&alike);
            return;
        };
        self.all.longest_usual = self.all.longest_usual.max(usual);
        let found = long_steps(&alike, usual);
        let long = found.long;
        if long == 0 {
            return;
        }
        if long * 10 <= steps {
            self.all.add_long(&found);
            return;
        }
        let is_long = |digits: &u32| alike.get(digits).is_some_and(|alike| alike.are_long(usual));
        let patterns = patterns_of(&runs, is_long);
        if days.explain(usual, steps) || recur(&patterns) {
            return;
        }
        if long >= LEAST_LONG || days.are_none() {
            self.all.add_long(&found);
        } else {
            self.add_few(&found, patterns);
        }
    }

    /// Adds an entity that has too few long steps to see patterns.
    fn add_few(&mut self, found: &LongStepCounts, patterns: Patterns) {
        self.few.add_long(found);
        for (pattern, count) in patterns {
            *self.patterns_of_few.entry(pattern).or_default() += count;
        }
    }

    /// Counts an entity without a usual step.
    fn add_uneven(&mut self, alike: &BTreeMap<u32, AlikeSteps>) {
        self.all.uneven += 1;
        for alike in alike.values() {
            let [shortest, longest] = self
                .all
                .uneven_steps
                .unwrap_or([alike.shortest, alike.longest]);
            self.all.uneven_steps =
                Some([shortest.min(alike.shortest), longest.max(alike.longest)]);
        }
    }

    /// Ends the last entity, and returns the counts.
    pub(super) fn finish(&mut self) -> LongStepCounts {
        self.end_entity();
        let few = std::mem::take(&mut self.few);
        let patterns = std::mem::take(&mut self.patterns_of_few);
        if patterns.values().sum::<u64>() >= LEAST_LONG && !recur(&patterns) {
            self.all.add_long(&few);
        }
        std::mem::take(&mut self.all)
    }
}

/// Longest of the steps that are about as long as the median one, if at least half of `steps` are.
fn usual_step(alike: &BTreeMap<u32, AlikeSteps>, steps: u64) -> Option<i64> {
    let mut before = 0;
    let (median, found) = alike.iter().find(|(_, alike)| {
        before += alike.count;
        before * 2 >= steps
    })?;
    let near = alike.range(median.saturating_sub(1)..=median + 1);
    let near: u64 = near.map(|(_, alike)| alike.count).sum();
    (near * 2 >= steps).then_some(found.longest)
}

/// Counts of the long steps of an entity.
fn long_steps(alike: &BTreeMap<u32, AlikeSteps>, usual: i64) -> LongStepCounts {
    let long = alike.values().filter(|alike| alike.are_long(usual));
    let longest = alike.values().map(|alike| alike.longest).max();
    LongStepCounts {
        with_long: 1,
        long: long.map(|alike| alike.count).sum(),
        longest: longest.unwrap_or_default(),
        usual,
        ..LongStepCounts::default()
    }
}

/// Long steps of an entity by their patterns.
fn patterns_of(runs: &[(u32, u64)], is_long: impl Fn(&u32) -> bool) -> Patterns {
    let mut patterns = Patterns::new();
    // The rows may begin anywhere in a pattern, so the first long step has none.
    let mut since: Option<u64> = None;
    for (digits, count) in runs {
        if !is_long(digits) {
            since = since.map(|since| since + count);
            continue;
        }
        if let Some(since) = since {
            *patterns.entry((since, *digits)).or_default() += 1;
        }
        if *count > 1 {
            *patterns.entry((0, *digits)).or_default() += count - 1;
        }
        since = Some(0);
    }
    patterns
}

/// Returns true if at least two thirds of the long steps follow one of two patterns, each more than
/// once.
fn recur(patterns: &Patterns) -> bool {
    let long: u64 = patterns.values().sum();
    let repeated = patterns.values().copied().filter(|count| *count > 1);
    let mut repeated: Vec<u64> = repeated.collect();
    repeated.sort_unstable();
    let recurring: u64 = repeated.iter().rev().take(2).sum();
    long > 0 && recurring * 3 >= long * 2
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000;

    fn counts(entities: &[Vec<i64>]) -> LongStepCounts {
        let mut counter = StepCounter::new(TimeZone::UTC);
        for steps in entities {
            let mut before = 0_i64;
            for step in steps {
                let time = before.checked_add(*step);
                counter.add(time.map_or(0, |_| before), time.unwrap_or(*step));
                before = time.unwrap_or(*step);
            }
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
            ..LongStepCounts::default()
        };
        let regular = vec![HOUR / 2; 100];
        assert_eq!(counts(&[hourly, quarterly, regular]), expected);
    }

    #[test]
    fn closed_days_are_not_missing_rows() {
        let day = 24 * HOUR;
        let weeks: Vec<i64> = (0..50)
            .flat_map(|_| [day, day, day, day, 3 * day])
            .collect();
        assert_eq!(counts(&[weeks]).long, 0);
        let months: Vec<i64> = (0..48).map(|month| (28 + month % 4) * day).collect();
        assert_eq!(counts(&[months]).long, 0);
        // An exchange of four hours a day, with a holiday every tenth week.
        let sessions: Vec<i64> = (0..250)
            .flat_map(|day| {
                let closed = match day % 5 {
                    4 => 69,
                    _ if day % 50 == 12 => 45,
                    _ => 21,
                };
                [HOUR, HOUR, HOUR, closed * HOUR]
            })
            .collect();
        assert_eq!(counts(&[sessions]).long, 0);
        let few = vec![HOUR, HOUR, 60 * HOUR];
        assert_eq!(counts(&[few]).long, 0);
        // A share that was listed two weeks ago, with two weekends and with one.
        let two = [1, 3, 1, 1, 1, 1, 3, 1, 1, 1].map(|days| days * day);
        let one = [1, 1, 1, 1, 3, 1, 1, 1].map(|days| days * day);
        for share in [&two[..], &two[..8], &one] {
            assert_eq!(counts(&[share.to_vec()]).long, 0, "{share:?}");
        }
        assert_eq!(counts(&[vec![i64::MAX; 20]]).long, 0);
    }

    /// Steps between the hours that are left if the given percentage of 3,000 is missing.
    fn with_missing(percentage: u64) -> Vec<i64> {
        let mut random = 1_u64;
        let hours = (0..3_000_i64).filter(|_| {
            random = random * 16_807 % 2_147_483_647;
            random / 7 % 100 >= percentage
        });
        let hours: Vec<i64> = hours.collect();
        let steps = hours.windows(2).map(|pair| (pair[1] - pair[0]) * HOUR);
        steps.collect()
    }

    #[test]
    fn rows_that_are_missing_at_random_are_counted_however_many_they_are() {
        for percentage in [2, 5, 10, 15, 25, 40] {
            let steps = with_missing(percentage);
            let expected = steps.iter().filter(|step| **step > HOUR).count() as u64;
            let found = counts(&[steps]);
            assert_eq!(found.long, expected, "{percentage}");
            assert_eq!((found.usual, found.uneven), (HOUR, 0), "{percentage}");
        }
    }

    #[test]
    fn entities_with_few_long_steps_are_judged_together() {
        // Three nights of an exchange of four hours a day.
        let closed = |hours: i64| [HOUR, HOUR, HOUR, hours * HOUR];
        let nights: Vec<i64> = [21, 21, 69].into_iter().flat_map(closed).collect();
        let exchange = vec![nights; 20];
        assert_eq!(counts(&exchange).long, 0);
        // Sensors with a few hours each, some of them missing.
        let hours = with_missing(15);
        let sensors: Vec<Vec<i64>> = hours.chunks(20).map(<[i64]>::to_vec).collect();
        let found = counts(&sensors);
        let expected = hours.iter().filter(|step| **step > HOUR).count() as u64;
        assert!(found.long * 10 > expected * 9, "{found:?} {expected}");
        // One of them is too short to see a pattern.
        let sensor = vec![HOUR, HOUR, 2 * HOUR, HOUR, HOUR, HOUR, 3 * HOUR, HOUR, HOUR];
        assert_eq!(counts(std::slice::from_ref(&sensor)).long, 0);
        assert_eq!(counts(&[vec![HOUR; 30], sensor]).long, 0);
        // Daily rows with every weekday have no closed days.
        let day = 24 * HOUR;
        let steps = [1, 1, 2, 1, 1, 1, 2, 1, 1, 1, 1].map(|days| days * day);
        assert_eq!(counts(&[steps.to_vec()]).long, 2);
    }

    #[test]
    fn times_without_a_usual_step_are_uneven() {
        let trades: Vec<i64> = (1..200).map(|i| i * i * 7 % 1_000 * 1_000).collect();
        let found = counts(&[trades, vec![HOUR; 20], with_missing(70)]);
        assert_eq!((found.long, found.uneven, found.entities), (0, 2, 3));
        let [shortest, longest] = found.uneven_steps.unwrap();
        assert!(shortest < 1_000_000 && longest > 5 * HOUR, "{found:?}");
        assert_eq!(counts(&[vec![HOUR; 20]]).uneven_steps, None);
    }
}
