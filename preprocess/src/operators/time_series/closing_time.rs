//! Time of day or weekday at which most long steps of an entity begin, as at the close of an exchange.
//!
//! Rows that are missing at random begin anywhere in a day and a week, if a day has at least six rows or a week has at least
//! four days: nine in ten of six or more long steps then begin at one time by chance in fewer than 1 in 1,000 entities.

use std::{collections::BTreeMap, fmt};

use jiff::{
    civil::{DateTime, Weekday},
    tz::TimeZone,
};

use super::instant::local_datetime;

const HOUR: i64 = 3_600_000_000;

/// Longest usual step of rows that are at many times of a day.
const LONGEST_OF_DAY: i64 = 4 * HOUR;

/// Longest usual step of rows that are on many weekdays.
const LONGEST_OF_WEEK: i64 = 36 * HOUR;

/// Minutes of a change of clocks, after which a time of day of a market is another one in UTC.
const CHANGE: i32 = 60;

const MINUTES_OF_DAY: i32 = 24 * 60;

/// Time at which most long steps of an entity begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClosingTime {
    /// Minute of the day at which most begin; the others begin an hour earlier or later.
    Daily(i32),
    Weekly(Weekday),
}

impl fmt::Display for ClosingTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Daily(minute) => write!(f, "{:02}:{:02}", minute / 60, minute % 60),
            Self::Weekly(day) => write!(f, "{day:?}"),
        }
    }
}

impl ClosingTime {
    /// Finds the time at which at least nine in ten of `long` steps begin, and the number of those that do. `steps` are the times
    /// of the rows around them, in microseconds since 1970, and the usual step is `usual` long; days are those of `zone`.
    pub(super) fn find(
        zone: &TimeZone,
        usual: i64,
        long: u64,
        steps: impl Iterator<Item = [i64; 2]>,
    ) -> Option<(Self, u64)> {
        let local = |[before, time]: [i64; 2]| {
            let before = local_datetime(zone, before)?;
            Some([before, local_datetime(zone, time)?])
        };
        let steps: Vec<[DateTime; 2]> = steps.filter_map(local).collect();
        let daily = (usual <= LONGEST_OF_DAY).then(|| most_at_a_minute(&steps));
        let weekly = (usual <= LONGEST_OF_WEEK).then(|| most_on_a_weekday(&steps));
        let mut found = daily.into_iter().chain(weekly).flatten();
        found.find(|(_, count)| count * 10 >= long * 9)
    }
}

/// Minute of the day at which most `steps` begin, with an hour behind it, and their number.
fn most_at_a_minute(steps: &[[DateTime; 2]]) -> Option<(ClosingTime, u64)> {
    let mut minutes: BTreeMap<i32, u64> = BTreeMap::new();
    for [before, _] in steps {
        let minute = i32::from(before.hour()) * 60 + i32::from(before.minute());
        *minutes.entry(minute).or_default() += 1;
    }
    let counts = minutes.iter().map(|(minute, count)| {
        let later = (minute + CHANGE) % MINUTES_OF_DAY;
        let at_later = minutes.get(&later).copied().unwrap_or_default();
        let shown = if at_later > *count { later } else { *minute };
        (ClosingTime::Daily(shown), count + at_later)
    });
    counts.max_by_key(|(_, count)| *count)
}

/// Weekday on which most `steps` to another day begin, and their number.
fn most_on_a_weekday(steps: &[[DateTime; 2]]) -> Option<(ClosingTime, u64)> {
    let mut days: BTreeMap<i8, (Weekday, u64)> = BTreeMap::new();
    let steps = steps
        .iter()
        .filter(|[before, time]| before.date() != time.date());
    for [before, _] in steps {
        let day = before.weekday();
        let (_, count) = days.entry(day.to_monday_zero_offset()).or_insert((day, 0));
        *count += 1;
    }
    let counts = days.into_values();
    let counts = counts.map(|(day, count)| (ClosingTime::Weekly(day), count));
    counts.max_by_key(|(_, count)| *count)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * HOUR;

    fn find(usual: i64, steps: &[[i64; 2]]) -> Option<(ClosingTime, u64)> {
        let long = steps.len() as u64;
        ClosingTime::find(&TimeZone::UTC, usual, long, steps.iter().copied())
    }

    #[test]
    fn nights_begin_at_one_time_of_day_also_where_clocks_change() {
        let night = |day: i64, hour: i64| [day * DAY + hour * HOUR, (day + 1) * DAY + 9 * HOUR];
        let mut nights: Vec<[i64; 2]> = (0..20).map(|day| night(day, 20)).collect();
        nights.extend((20..30).map(|day| night(day, 21)));
        let (at, count) = find(HOUR / 12, &nights).unwrap();
        assert_eq!((at.to_string().as_str(), count), ("20:00", 30));
        // Two of 32 are missing rows.
        nights.extend([[3 * HOUR, 5 * HOUR], [DAY + 4 * HOUR, DAY + 6 * HOUR]]);
        assert_eq!(find(HOUR / 12, &nights), Some((at, 30)));
        // Few rows of a day have few times of the day.
        assert_eq!(find(DAY / 2, &nights), None);
    }

    #[test]
    fn weekends_begin_on_one_weekday() {
        // The first of 1970 was a Thursday.
        let weekend = |week: i64| {
            let friday = (7 * week + 1) * DAY + week % 5 * 3 * HOUR;
            [friday, friday + 2 * DAY]
        };
        let weekends: Vec<[i64; 2]> = (0..20).map(weekend).collect();
        let (at, count) = find(HOUR, &weekends).unwrap();
        assert_eq!((at.to_string().as_str(), count), ("Friday", 20));
        // Gaps within one weekday are no days without rows.
        let within = weekends.iter().map(|[before, _]| [*before, before + HOUR]);
        assert_eq!(find(HOUR / 4, &within.collect::<Vec<_>>()), None);
    }

    #[test]
    fn gaps_at_any_time_have_no_closing_time() {
        let gaps: Vec<[i64; 2]> = (0..200)
            .map(|gap| gap * 31 * HOUR)
            .map(|at| [at, at + 2 * HOUR])
            .collect();
        assert_eq!(find(HOUR, &gaps), None);
    }
}
