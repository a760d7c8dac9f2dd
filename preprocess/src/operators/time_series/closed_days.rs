//! Weekdays on which an entity of daily rows has none, such as the weekends of a market.

use std::{
    collections::BTreeMap,
    ops::{Range, RangeInclusive},
};

use jiff::{civil::Date, tz::TimeZone};

use super::instant::local_datetime;

const HOUR: i64 = 3_600_000_000;

/// Usual steps of daily rows, and the shortest step between rows of two days; a day may have 23 or 25 hours.
const DAILY: RangeInclusive<i64> = 20 * HOUR..=28 * HOUR;

const SECONDS_OF_DAY: i64 = 86_400;
const EPOCH: Date = Date::constant(1970, 1, 1);

/// All weekdays, with a bit for each from Monday on.
const ALL_DAYS: u8 = 0b111_1111;

/// Most open weekdays of a run of holidays: six in the golden week of Tokyo in 2019, and in the new year of Shanghai in 2024.
const HOLIDAY_RUN: u8 = 6;

/// Days between two rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CrossedDays {
    /// Complete weeks, at most one more than the days of a run of holidays.
    weeks: u8,
    /// Weekdays of the days behind them.
    rest: u8,
}

impl CrossedDays {
    /// Counts days since 1970.
    fn of(days: Range<i64>) -> Self {
        let weeks = days.end.saturating_sub(days.start).max(0) / 7;
        Self {
            weeks: u8::try_from(weeks).map_or(HOLIDAY_RUN + 1, |weeks| weeks.min(HOLIDAY_RUN + 1)),
            rest: weekdays(days.start + weeks * 7..days.end),
        }
    }

    /// Weekdays of all days.
    const fn weekdays(self) -> u8 {
        if self.weeks > 0 { ALL_DAYS } else { self.rest }
    }

    /// Number of days that are on none of the weekdays of `closed`, of at most some weeks.
    fn open(self, closed: u8) -> u32 {
        let open = ALL_DAYS & !closed;
        u32::from(self.weeks) * open.count_ones() + (self.rest & open).count_ones()
    }
}

/// Weekdays with rows of an entity, and those between them.
#[derive(Debug, Default)]
pub(super) struct ClosedDays {
    with_rows: u8,
    /// Steps by the days between their rows: their number, and the longest one in microseconds.
    steps: BTreeMap<CrossedDays, (u64, i64)>,
}

/// Steps over days without rows of an entity with closed weekdays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepsOverDays {
    /// Those over a day of an open weekday, or over more than a run of holidays, and the longest of them in microseconds.
    pub(super) open: u64,
    pub(super) longest: i64,
    /// The others: those over closed weekdays only, or over holidays too, and the longest of them.
    pub(super) closed: u64,
    pub(super) longest_closed: i64,
}

impl ClosedDays {
    /// Adds the step between two rows, in microseconds since 1970; days are those of `zone`.
    pub(super) fn add(&mut self, zone: &TimeZone, [before, time]: [i64; 2]) {
        let step = time.saturating_sub(before);
        if step < *DAILY.start() {
            return;
        }
        let day = |micros| local_datetime(zone, micros).map(|local| day_of(local.date()));
        let (Some(first), Some(last)) = (day(before), day(time)) else {
            return;
        };
        self.with_rows |= weekdays(first..first + 1) | weekdays(last..last + 1);
        let crossed = CrossedDays::of(first + 1..last);
        let (count, longest) = self.steps.entry(crossed).or_default();
        *count += 1;
        *longest = step.max(*longest);
    }

    /// Returns true if there are rows on every weekday.
    pub(super) fn are_none(&self) -> bool {
        self.with_rows == ALL_DAYS
    }

    /// Returns true if rows are daily but for weekdays without rows, which at least two steps cross, and but for holidays. These
    /// are at most three steps and a twelfth of all `steps`: few rows may be those of a season of holidays.
    pub(super) fn explain(&self, usual: i64, steps: u64) -> bool {
        let closed = self.closed(usual);
        let holidays = self.crossing(ALL_DAYS & !closed);
        closed != 0 && holidays * 12 <= steps + 36
    }

    /// Returns true if a step is over more open weekdays than a run of holidays has; none if rows are not daily or no weekday is
    /// closed.
    pub(super) fn find_hole(&self, usual: i64) -> Option<bool> {
        let closed = self.closed(usual);
        let mut steps = self.steps.keys();
        (closed != 0).then(|| steps.any(|days| days.open(closed) > u32::from(HOLIDAY_RUN)))
    }

    /// Counts steps over closed weekdays apart from those over other days; none if rows are not daily or no weekday is closed. With
    /// `has_holidays`, runs of holidays are closed, too.
    pub(super) fn split_steps(&self, usual: i64, has_holidays: bool) -> Option<StepsOverDays> {
        let closed = self.closed(usual);
        let most = if has_holidays { HOLIDAY_RUN } else { 0 };
        let mut found = StepsOverDays {
            open: 0,
            longest: 0,
            closed: 0,
            longest_closed: 0,
        };
        for (crossed, (count, longest)) in &self.steps {
            if crossed.open(closed) > u32::from(most) {
                found.open += count;
                found.longest = found.longest.max(*longest);
            } else if crossed.weekdays() != 0 {
                found.closed += count;
                found.longest_closed = found.longest_closed.max(*longest);
            }
        }
        (closed != 0).then_some(found)
    }

    /// Weekdays without rows that at least two steps cross; none if rows are not daily.
    fn closed(&self, usual: i64) -> u8 {
        let without = (0..7).map(|day| 1_u8 << day);
        let without = without.filter(|day| self.with_rows & day == 0 && self.crossing(*day) > 1);
        let closed = without.fold(0, |days, day| days | day);
        if DAILY.contains(&usual) { closed } else { 0 }
    }

    /// Steps that cross one of these days.
    fn crossing(&self, days: u8) -> u64 {
        let steps = self.steps.iter();
        let crossing = steps.filter(|(crossed, _)| crossed.weekdays() & days != 0);
        crossing.map(|(_, (count, _))| count).sum()
    }
}

/// Weekdays of days since 1970.
fn weekdays(days: Range<i64>) -> u8 {
    // The first of 1970 was a Thursday.
    days.take(7)
        .fold(0, |bits, day| bits | (1 << (day + 3).rem_euclid(7)))
}

/// Days since 1970.
fn day_of(date: Date) -> i64 {
    date.duration_since(EPOCH).as_secs() / SECONDS_OF_DAY
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * HOUR;

    /// Holidays of the exchange of Tokyo from April 2024 to January 2025, but for weekends.
    const HOLIDAYS: [(i8, i8); 14] = [
        (4, 29),
        (5, 3),
        (5, 6),
        (7, 15),
        (8, 12),
        (9, 16),
        (9, 23),
        (10, 14),
        (11, 4),
        (12, 31),
        (1, 1),
        (1, 2),
        (1, 3),
        (1, 13),
    ];

    /// Days without weekends and holidays from the 1st of April 2024 to the 31st of January 2025.
    fn business_days() -> Vec<i64> {
        let [first, last] = [Date::constant(2024, 4, 1), Date::constant(2025, 1, 31)];
        let is_open = |date: &Date| {
            !HOLIDAYS.contains(&(date.month(), date.day()))
                && date.weekday().to_monday_zero_offset() < 5
        };
        let dates = first.series(jiff::ToSpan::days(1));
        let dates = dates.take_while(|date| *date <= last).filter(is_open);
        dates.map(day_of).collect()
    }

    fn closed_days(days: &[i64]) -> ClosedDays {
        let mut closed = ClosedDays::default();
        for pair in days.windows(2) {
            closed.add(&TimeZone::UTC, [pair[0] * DAY, pair[1] * DAY]);
        }
        closed
    }

    fn are_explained(days: &[i64]) -> bool {
        closed_days(days).explain(DAY, days.len() as u64 - 1)
    }

    #[test]
    fn weekends_and_holidays_explain_long_steps_in_short_histories_too() {
        let days = business_days();
        assert_eq!(days.len(), 206);
        for length in [12, 15, 20, 30, 60, 120] {
            assert!(days.windows(length).all(are_explained), "{length}");
        }
        assert!(!closed_days(&days).are_none());
        // One weekend is no weekday without rows.
        assert!(!are_explained(&days[..10]));
    }

    #[test]
    fn missing_rows_are_neither_closed_days_nor_holidays() {
        let days = business_days();
        let every = |nth: usize| -> Vec<i64> {
            let days = days.iter().enumerate().filter(|(i, _)| i % nth != 2);
            days.map(|(_, day)| *day).collect()
        };
        assert!(!are_explained(&every(6)));
        assert!(are_explained(&every(40)));
        let daily: Vec<i64> = (0..100).filter(|day| day % 5 != 2).collect();
        assert!(!are_explained(&daily));
        assert!(closed_days(&daily).are_none());
        // Weekly rows are on one weekday.
        let weeks: Vec<i64> = (0..50).map(|week| week * 7).collect();
        assert!(!closed_days(&weeks).explain(7 * DAY, 49));
    }

    #[test]
    fn steps_over_weekends_are_counted_apart_from_those_over_missing_days() {
        // Mondays to Fridays of 50 weeks, without every other Tuesday and every sixth Friday.
        let is_left = |day: &i64| match ((day + 3) / 7, (day + 3) % 7) {
            (week, 1) => week % 2 == 0,
            (week, 4) => week % 6 != 0,
            (_, day) => day < 5,
        };
        let left: Vec<i64> = (4..354).filter(is_left).collect();
        let closed = closed_days(&left);
        assert!(!closed.explain(DAY, left.len() as u64 - 1));
        let found = closed.split_steps(DAY, false).unwrap();
        let over = |pair: &&[i64]| (pair[0] + 1..pair[1]).any(|day| (day + 3) % 7 < 5);
        let open: Vec<&[i64]> = left.windows(2).filter(over).collect();
        assert_eq!(found.open, open.len() as u64);
        assert_eq!([found.longest, found.longest_closed], [4 * DAY, 3 * DAY]);
        let weekends = left.windows(2).filter(|pair| pair[1] - pair[0] == 3);
        assert_eq!(found.closed, weekends.count() as u64);
        assert_eq!(closed.split_steps(7 * DAY, false), None);
        let daily: Vec<i64> = (0..100).filter(|day| day % 5 != 2).collect();
        assert_eq!(closed_days(&daily).split_steps(DAY, false), None);
    }

    #[test]
    fn days_without_rows_beyond_a_run_of_holidays_are_a_hole() {
        let days = business_days();
        let without = |hole: usize| {
            let days = days.iter().enumerate();
            let days = days.filter(|(i, _)| !(60..60 + hole).contains(i));
            closed_days(&days.map(|(_, day)| *day).collect::<Vec<i64>>())
        };
        for hole in 0..100 {
            assert_eq!(without(hole).find_hole(DAY), Some(hole > 6), "{hole}");
        }
        let closed = without(20);
        let found = closed.split_steps(DAY, true).unwrap();
        assert_eq!(found.open, 1);
        assert_eq!(found.longest, (days[80] - days[59]) * DAY);
        assert!(found.longest_closed < 12 * DAY, "{found:?}");
        // Holidays are open weekdays else.
        assert!(closed.split_steps(DAY, false).unwrap().open > 1);
        assert_eq!(closed.find_hole(7 * DAY), None);
    }

    #[test]
    fn days_are_those_of_the_zone() {
        let zone = TimeZone::get("Europe/London").unwrap();
        let mut closed = ClosedDays::default();
        // Midnights of Mondays to Fridays of 2024 are an hour before those of UTC in summer.
        let days = (19_723..20_089).filter(|day| (day + 3) % 7 < 5);
        let midnight = |day: i64| {
            let date = EPOCH.checked_add(jiff::ToSpan::days(day)).unwrap();
            let at = date.to_zoned(zone.clone()).unwrap().timestamp();
            at.as_microsecond()
        };
        let days: Vec<i64> = days.map(midnight).collect();
        for pair in days.windows(2) {
            closed.add(&zone, [pair[0], pair[1]]);
        }
        assert_eq!(closed.with_rows, 0b001_1111);
        assert!(closed.explain(DAY, days.len() as u64 - 1));
    }
}
