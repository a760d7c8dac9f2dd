//! Rows that look back over a day of another length than 24 hours.
//!
//! Spans of days are multiples of 24 hours. In a zone whose clocks change, a day has 23 or 25 hours
//! twice a year. Rows of each day at one local time then are another number of rows apart from what
//! a span of days suggests. Rows are counted as they pass.
//!
//! The row as many days back as the span is at its end. Behind a day of 23 hours it comes inside,
//! which matters to features that exclude it (`closed = "right"`), and is too young for those that
//! take it (`lag` and `difference`). Behind a day of 25 hours it comes outside, which matters to
//! features that include it. A `max_gap` matters only to a step that is above it by the change.

use std::sync::{Mutex, PoisonError};

use feedline_schemas::config::Closed;
use jiff::{civil::Time, tz::TimeZone};

use super::{
    features::{Feature, FeatureKind, Series},
    instant::{local_datetime, zone_of},
    window::Span,
};

const DAY: i64 = 86_400_000_000;

/// Counts of all entities of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClockChangeCounts {
    /// Rows with another past than the longest span of a feature suggests, and first rows behind a gap that only a longer day
    /// makes.
    pub(crate) rows: u64,
    /// Time of the first of them, by entity and time, in microseconds since 1970.
    pub(crate) first: Option<i64>,
}

/// Counts of the rows that have passed, for the warnings of a build.
#[derive(Debug, Default)]
pub(crate) struct ClockChanges(Mutex<ClockChangeCounts>);

impl ClockChanges {
    /// Returns the counts of the last complete pass.
    pub(crate) fn read(&self) -> ClockChangeCounts {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, counts: ClockChangeCounts) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = counts;
    }
}

/// Counts rows, entity by entity.
#[derive(Debug)]
pub(super) struct ClockChangeCounter {
    zone: TimeZone,
    /// The longest spans of days of features that a shorter, and that a longer day changes, in microseconds.
    spans: [Option<i64>; 2],
    /// Longest distance between neighbours, in microseconds, if it is one of days.
    max_gap: Option<i64>,
    /// Time of the row before, and what clocks showed then.
    last: Option<(i64, Option<Time>)>,
    /// True if clocks showed the same at the two rows before.
    is_daily: bool,
    /// First times whose rows no longer look back over a shorter, and over a longer day.
    ends: [Option<i64>; 2],
    all: ClockChangeCounts,
}

impl ClockChangeCounter {
    /// Counter for `series`; `None` if it has no spans of days, or its days are those of UTC.
    pub(super) fn of(series: &Series) -> Option<Self> {
        let zone = series.instant.zone.as_deref().filter(|zone| *zone != "UTC");
        let mut spans = [None; 2];
        for feature in &series.features {
            let Some(Span::Time(span)) = feature.span else {
                continue;
            };
            let longest = &mut spans[usize::from(includes_its_end(feature))];
            if span % DAY == 0 {
                *longest = (*longest).max(Some(span));
            }
        }
        let max_gap = series.max_gap.map(|(longest, _)| longest);
        let max_gap = max_gap.filter(|longest| longest % DAY == 0);
        if spans == [None; 2] && max_gap.is_none() {
            return None;
        }
        Some(Self::new(zone_of(Some(zone?))?, spans, max_gap))
    }

    const fn new(zone: TimeZone, spans: [Option<i64>; 2], max_gap: Option<i64>) -> Self {
        Self {
            zone,
            spans,
            max_gap,
            last: None,
            is_daily: false,
            ends: [None; 2],
            all: ClockChangeCounts {
                rows: 0,
                first: None,
            },
        }
    }

    /// Counts the next row of the current entity by its time.
    pub(super) fn add(&mut self, time: i64) {
        let clock = local_datetime(&self.zone, time).map(|local| local.time());
        let mut is_behind_gap = false;
        if let Some((before, earlier)) = self.last {
            let is_day = clock.is_some() && clock == earlier;
            // One step alone may be a gap that happens to end at the same time of another day.
            if is_day && self.is_daily {
                is_behind_gap = self.add_days(before, time);
            }
            self.is_daily = is_day;
        }
        let is_within = self.ends.iter().flatten().any(|end| time < *end);
        if is_within || is_behind_gap {
            self.all.rows += 1;
            self.all.first.get_or_insert(time);
        }
        self.last = Some((time, clock));
    }

    /// Adds a step of days at one local time. Returns true if it is above the longest one only by a change of clocks.
    fn add_days(&mut self, before: i64, time: i64) -> bool {
        let step = time.saturating_sub(before);
        let change = step.saturating_add(DAY / 2).rem_euclid(DAY) - DAY / 2;
        let place = usize::from(change > 0);
        if let Some(span) = self.spans[place].filter(|_| change != 0) {
            self.ends[place] = Some(time.saturating_add(span));
        }
        let is_gap = |longest: i64| step > longest && step - change <= longest;
        self.max_gap.is_some_and(is_gap)
    }

    /// Ends the current entity.
    pub(super) fn end_entity(&mut self) {
        (self.last, self.is_daily, self.ends) = (None, false, [None; 2]);
    }

    /// Ends the last entity, and returns the counts.
    pub(super) fn finish(&mut self) -> ClockChangeCounts {
        self.end_entity();
        std::mem::take(&mut self.all)
    }
}

/// Returns true if a feature is made of the row that is as old as its span, among others.
fn includes_its_end(feature: &Feature) -> bool {
    match feature.kind {
        FeatureKind::Lag | FeatureKind::Difference => false,
        FeatureKind::ForwardFill | FeatureKind::Interpolate => true,
        _ => feature.closed == Closed::Left,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::time_series::{
        Instant,
        tests::{TIMED, resolved},
    };

    const HOUR: i64 = DAY / 24;

    /// Counts by spans that a shorter, and that a longer day changes, and by the longest gap; all in days, 0 for none.
    fn counts(zone: &str, days: [i64; 3], entities: &[Vec<i64>]) -> ClockChangeCounts {
        let [shorter, longer, gap] = days.map(|days| (days > 0).then_some(days * DAY));
        let zone = TimeZone::get(zone).unwrap();
        let mut counter = ClockChangeCounter::new(zone, [shorter, longer], gap);
        for times in entities {
            times.iter().for_each(|time| counter.add(*time));
            counter.end_entity();
        }
        counter.finish()
    }

    /// Midnights of Rome from 10 days before to 20 days behind the end of summer time.
    fn midnights() -> Vec<i64> {
        let first = Instant::iso().of_text("2024-10-16T22:00:00Z").unwrap();
        let later = |day: i64| if day > 10 { HOUR } else { 0 };
        (0..30).map(|day| first + day * DAY + later(day)).collect()
    }

    /// Midnights of Rome from 10 days before to 20 days behind the begin of summer time.
    fn spring_midnights() -> Vec<i64> {
        let first = Instant::iso().of_text("2024-03-20T23:00:00Z").unwrap();
        let earlier = |day: i64| if day > 10 { HOUR } else { 0 };
        (0..30)
            .map(|day| first + day * DAY - earlier(day))
            .collect()
    }

    #[test]
    fn rows_of_days_of_a_zone_count_while_their_span_has_a_day_of_another_length() {
        let days = midnights();
        let found = counts("Europe/Rome", [0, 7, 0], &[days.clone(), days.clone()]);
        assert_eq!((found.rows, found.first), (14, Some(days[11])));
        // In another zone these are no days of one time, and days of UTC are 24 hours long.
        let none = ClockChangeCounts::default();
        let tokyo = counts("Asia/Tokyo", [7, 7, 1], std::slice::from_ref(&days));
        assert_eq!(tokyo, none);
        let utc: Vec<i64> = (0..30).map(|day| days[0] + day * DAY).collect();
        assert_eq!(counts("Europe/Rome", [7, 7, 1], &[utc]), none);
        // Of hours, 24 are 24 hours.
        let hours: Vec<i64> = (0..900).map(|hour| days[0] + hour * HOUR).collect();
        assert_eq!(counts("Europe/Rome", [1, 1, 1], &[hours]), none);
    }

    #[test]
    fn a_span_counts_behind_the_change_of_clocks_that_it_suffers_from() {
        let (autumn, spring) = ([midnights()], [spring_midnights()]);
        let rows = |days, entities: &[Vec<i64>]| counts("Europe/Rome", days, entities).rows;
        assert_eq!((rows([7, 0, 0], &spring), rows([7, 0, 0], &autumn)), (7, 0));
        assert_eq!((rows([0, 7, 0], &spring), rows([0, 7, 0], &autumn)), (0, 7));
        assert_eq!((rows([7, 3, 0], &spring), rows([7, 3, 0], &autumn)), (7, 3));
    }

    #[test]
    fn a_gap_counts_only_where_the_longer_day_is_above_it() {
        let days = midnights();
        let gap = |gap: i64, days: &[i64]| counts("Europe/Rome", [0, 0, gap], &[days.to_vec()]);
        let found = gap(1, &days);
        assert_eq!((found.rows, found.first), (1, Some(days[11])));
        assert_eq!(gap(2, &days).rows, 0);
        assert_eq!(gap(1, &spring_midnights()).rows, 0);
        // A missing day is a gap by every clock.
        let missing = [&days[..11], &days[12..]].concat();
        assert_eq!(gap(1, &missing).rows, 0);
        assert_eq!(gap(2, &missing).rows, 1);
    }

    #[test]
    fn only_spans_of_days_in_a_zone_are_counted() {
        let counter = |zone: &str, keys: &str, feature: &str| {
            let feature =
                format!("feature = [{{ name = \"f\", column = \"v\", type = {feature} }}]");
            let series = resolved(&format!("{TIMED}{zone}{keys} }}\n{feature}")).unwrap();
            let counter = ClockChangeCounter::of(&series)?;
            let spans = [counter.spans[0], counter.spans[1], counter.max_gap];
            Some(spans.map(|span| span.map_or(0, |span| span / DAY)))
        };
        let rome = ", zone = \"Europe/Rome\"";
        let [week, hours] = ["1w", "25h"].map(|span| format!("\"lag\", window = \"{span}\""));
        assert_eq!(counter(rome, "", &week), Some([7, 0, 0]));
        let gap = ", max_gap = \"2d\"";
        assert_eq!(counter(rome, gap, &hours), Some([0, 0, 2]));
        assert_eq!(counter(rome, "", &hours), None);
        assert_eq!(counter("", "", &week), None);
        assert_eq!(counter(", zone = \"UTC\"", "", &week), None);
        for (feature, expected) in [
            ("\"difference\", window = \"7d\"", [7, 0, 0]),
            ("\"rolling_mean\", window = \"7d\"", [0, 7, 0]),
            (
                "\"rolling_mean\", window = \"7d\", closed = \"right\"",
                [7, 0, 0],
            ),
        ] {
            assert_eq!(counter(rome, "", feature), Some(expected), "{feature}");
        }
    }
}
