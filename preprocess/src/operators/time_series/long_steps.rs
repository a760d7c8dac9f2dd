//! Steps between consecutive rows that are longer than the usual one of their entity.
//!
//! Windows and features that count rows reach over missing rows if no `max_gap` is set. Steps are
//! counted as the rows pass. An entity has a usual step if at least half of its steps are about as
//! long as the median one; else its times are uneven, which is counted apart.
//!
//! Closed days of a market are not missing rows. Long steps that are more than a tenth of the steps
//! of an entity are over closed days if one of these holds:
//! - Rows are daily but for weekdays without rows, and for a few holidays ([`ClosedDays`]). With more
//!   than a few, only the steps over other days are counted.
//! - They recur: at least two thirds of them follow one of two patterns, which are a number of usual
//!   steps and the length of the long one behind them. Weekends are such a pattern, and so are the
//!   nights and the weekends of a stock exchange; holidays are the third that is left. Rows that are
//!   missing at random follow two patterns in at most 0.39 of their long steps, at any rate of
//!   missing rows.
//!
//! Neither explains a hole: a step over more open weekdays than a run of holidays has, or, of rows that
//! are not daily, one over four times as long as the steps that recur.
//!
//! Entities with few long steps show no pattern, such as a share that was listed two weeks ago. Their
//! patterns are counted together; too few of all are no sign of missing rows.
//!
//! Long steps that are fewer, or that follow no pattern, are counted; nine in ten of them that begin at
//! one time are marked as those of a [`ClosingTime`], as the nights of an exchange of many rows a day.
//!
//! Entities with few steps have no usual one. Theirs are compared with the median of each entity, and
//! counted together.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use jiff::tz::TimeZone;

use super::{closed_days::ClosedDays, closing_time::ClosingTime};

/// Steps of an entity below which none is usual.
const LEAST_STEPS: u64 = 8;

/// Steps beside the medians of entities with few steps, below which they are not compared.
const LEAST_BESIDE: u64 = 20;

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
    /// Steps that are at least 1.5 times as long as the usual one, but for those over closed weekdays only.
    pub(crate) long: u64,
    /// Those over closed weekdays only, of entities with other long steps, and the longest one in microseconds. Those over holidays
    /// are among them where other days explain all steps but holes, which are longer.
    pub(crate) over_closed: u64,
    pub(crate) longest_closed: i64,
    /// True if the counted steps are those holes alone.
    pub(crate) are_holes: bool,
    /// The longest one, and the usual one of its entity, in microseconds.
    pub(crate) longest: i64,
    pub(crate) usual: i64,
    /// The longest usual step of an entity, in microseconds.
    pub(crate) longest_usual: i64,
    /// The shortest usual step of an entity with a long step, in microseconds; 0 for none.
    pub(crate) shortest_usual: i64,
    /// Long steps that begin at the closing time of their entity, and that time of the first such entity.
    pub(crate) closing: u64,
    pub(crate) closes: Option<ClosingTime>,
    /// Entities without a usual step.
    pub(crate) uneven: u64,
    /// Those of them that have few steps, and were compared together.
    pub(crate) uneven_together: u64,
    /// The shortest and the longest step of these, in microseconds.
    pub(crate) uneven_steps: Option<[i64; 2]>,
}

impl LongStepCounts {
    /// Adds the long steps of other entities.
    fn add_long(&mut self, other: &Self) {
        self.are_holes = other.are_holes && (self.long == 0 || self.are_holes);
        self.with_long += other.with_long;
        self.long += other.long;
        self.over_closed += other.over_closed;
        self.longest_closed = self.longest_closed.max(other.longest_closed);
        self.closing += other.closing;
        self.closes = self.closes.or(other.closes);
        self.shortest_usual = match self.shortest_usual {
            0 => other.shortest_usual,
            shortest => shortest.min(other.shortest_usual),
        };
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
    /// The shortest and the longest step.
    const fn range(&self) -> [i64; 2] {
        [self.shortest, self.longest]
    }

    /// Returns true if the steps are at least 1.5 times as long as the usual one.
    fn are_long(self, usual: i64) -> bool {
        i128::from(self.shortest) * 2 >= i128::from(usual) * 3
    }
}

/// Consecutive alike steps.
#[derive(Clone, Copy, Debug)]
struct StepRun {
    /// First four binary digits of each.
    digits: u32,
    count: u64,
    /// Times of the rows around the first one.
    first: [i64; 2],
}

/// Entities with too few steps for a usual one.
#[derive(Debug, Default)]
struct ShortEntities {
    entities: u64,
    /// Their steps without the median one of each.
    beside: u64,
    /// Those about as long as the median one.
    near: u64,
    /// The shortest and the longest step, in microseconds.
    steps: Option<[i64; 2]>,
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
    /// Its first runs of steps.
    runs: Vec<StepRun>,
    /// Its weekdays.
    days: ClosedDays,
    all: LongStepCounts,
    /// Long steps of entities that have too few of them to see patterns, and their patterns.
    few: LongStepCounts,
    patterns_of_few: Patterns,
    short: ShortEntities,
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
            short: ShortEntities::default(),
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
            Some(last) if last.digits == key => last.count += 1,
            _ => {
                if self.runs.len() < MOST_RUNS {
                    self.runs.push(StepRun {
                        digits: key,
                        count: 1,
                        first: [before, time],
                    });
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
            self.add_short(&alike, steps);
            return;
        }
        let Some(usual) = usual_step(&alike, steps) else {
            self.all.uneven += 1;
            widen(
                &mut self.all.uneven_steps,
                alike.values().map(AlikeSteps::range),
            );
            return;
        };
        self.all.longest_usual = self.all.longest_usual.max(usual);
        let mut found = long_steps(&alike, usual);
        let long = found.long;
        if long == 0 {
            return;
        }
        let is_long = |run: &StepRun| {
            let alike = alike.get(&run.digits);
            alike.is_some_and(|alike| alike.are_long(usual))
        };
        if long >= LEAST_LONG {
            let steps = runs.iter().filter(|run| is_long(run)).map(|run| run.first);
            let closing = ClosingTime::find(&self.zone, usual, long, steps);
            found.closes = closing.map(|(at, _)| at);
            found.closing = closing.map_or(0, |(_, count)| count);
        }
        if long * 10 <= steps {
            self.all.add_long(&found);
            return;
        }
        let patterns = patterns_of(&runs, is_long);
        let recurs = recur(&patterns);
        let is_explained = days.explain(usual, steps) || recurs;
        let hole = days.find_hole(usual);
        let has_hole = hole.unwrap_or_else(|| recurs && has_far_step(&alike, usual, long));
        if is_explained && !has_hole {
            return;
        }
        if let Some(over) = days.split_steps(usual, is_explained) {
            found.are_holes = is_explained;
            (found.long, found.longest) = (over.open.min(long), over.longest);
            (found.over_closed, found.longest_closed) = (over.closed, over.longest_closed);
            (found.closing, found.closes) = (0, None);
        }
        if has_hole || long >= LEAST_LONG || days.are_none() {
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

    /// Adds an entity with too few steps for a usual one; a single step is as long as itself.
    fn add_short(&mut self, alike: &BTreeMap<u32, AlikeSteps>, steps: u64) {
        let Some((_, near)) = near_median(alike, steps).filter(|_| steps > 1) else {
            return;
        };
        self.short.entities += 1;
        self.short.beside += steps - 1;
        self.short.near += near.saturating_sub(1);
        widen(&mut self.short.steps, alike.values().map(AlikeSteps::range));
    }

    /// Ends the last entity, and returns the counts.
    pub(super) fn finish(&mut self) -> LongStepCounts {
        self.end_entity();
        let few = std::mem::take(&mut self.few);
        let patterns = std::mem::take(&mut self.patterns_of_few);
        if patterns.values().sum::<u64>() >= LEAST_LONG && !recur(&patterns) {
            self.all.add_long(&few);
        }
        let short = std::mem::take(&mut self.short);
        if short.beside >= LEAST_BESIDE && short.near * 2 < short.beside {
            self.all.uneven += short.entities;
            self.all.uneven_together = short.entities;
            widen(&mut self.all.uneven_steps, short.steps);
        }
        std::mem::take(&mut self.all)
    }
}

/// Widens the `range` of the shortest and the longest step by these ranges.
fn widen(range: &mut Option<[i64; 2]>, ranges: impl IntoIterator<Item = [i64; 2]>) {
    for [shortest, longest] in ranges {
        let [least, most] = range.unwrap_or([shortest, longest]);
        *range = Some([least.min(shortest), most.max(longest)]);
    }
}

/// Longest of the steps that are about as long as the median one, if at least half of `steps` are.
fn usual_step(alike: &BTreeMap<u32, AlikeSteps>, steps: u64) -> Option<i64> {
    let (longest, near) = near_median(alike, steps)?;
    (near * 2 >= steps).then_some(longest)
}

/// Longest of the steps that are alike to the median one of `steps`, and the number of those about as long.
fn near_median(alike: &BTreeMap<u32, AlikeSteps>, steps: u64) -> Option<(i64, u64)> {
    let mut before = 0;
    let (median, found) = alike.iter().find(|(_, alike)| {
        before += alike.count;
        before * 2 >= steps
    })?;
    let near = alike.range(median.saturating_sub(1)..=median + 1);
    let near: u64 = near.map(|(_, alike)| alike.count).sum();
    Some((found.longest, near))
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
        shortest_usual: usual,
        ..LongStepCounts::default()
    }
}

/// Returns true if a step is over four times as long as the `long` steps that recur: at least three and a twentieth of them.
fn has_far_step(alike: &BTreeMap<u32, AlikeSteps>, usual: i64, long: u64) -> bool {
    let recurs = |steps: &&AlikeSteps| steps.count > 2 && steps.count * 20 >= long;
    let recurring = alike.values().filter(|steps| steps.are_long(usual));
    let most = recurring.filter(recurs).map(|steps| steps.longest).max();
    let longest = alike.values().map(|steps| i128::from(steps.longest)).max();
    most.is_some_and(|most| longest > Some(i128::from(most) * 4))
}

/// Long steps of an entity by their patterns.
fn patterns_of(runs: &[StepRun], is_long: impl Fn(&StepRun) -> bool) -> Patterns {
    let mut patterns = Patterns::new();
    // The rows may begin anywhere in a pattern, so the first long step has none.
    let mut since: Option<u64> = None;
    for run in runs {
        let StepRun { digits, count, .. } = *run;
        if !is_long(run) {
            since = since.map(|since| since + count);
            continue;
        }
        if let Some(since) = since {
            *patterns.entry((since, digits)).or_default() += 1;
        }
        if count > 1 {
            *patterns.entry((0, digits)).or_default() += count - 1;
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
mod tests;
