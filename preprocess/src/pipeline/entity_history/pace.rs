//! Times between the rows of an entity, which date the row that a window predicts.
//!
//! The last rows of a window's length decide, by the first of these rules that holds for them, in the
//! zone of the series: one row every so many months, on one day of the month or on the last one; one
//! row each day but for weekdays without rows, and few other days; one row every so many days; equal
//! times from row to row. Rows of the first three are at one time of the day. Equal times do not hold
//! over a pause of each day, as behind the closing hour of an exchange.

use std::collections::VecDeque;

use feedline_schemas::{count::counted, report::Warning};
use jiff::{
    SignedDuration,
    civil::{Date, DateTime},
    tz::TimeZone,
};

use crate::{
    operators::time_series::{self, Sequence, instant::local_datetime},
    schema::dataset_spec::DatasetSpec,
};

/// Newest rows that weekdays without rows are looked for in: they have at least two of each weekday
/// that a series has rows of, and two weekends.
const LEAST_HELD: usize = 13;

/// Earlier days that a daily pause is looked for in.
const PAUSE_DAYS: i64 = 7;

/// Newest rows that a daily pause is looked for in, at most: those of 8 days, one a minute.
const MOST_HELD: usize = 8 * 24 * 60;

const SECONDS_OF_DAY: i64 = 86_400;
const MICROS_OF_DAY: i64 = 1_000_000 * SECONDS_OF_DAY;
const EPOCH: Date = Date::constant(1970, 1, 1);

/// Times of the newest rows of an entity.
#[derive(Debug)]
pub(super) struct Pace {
    pub(super) entity: Vec<u8>,
    zone: TimeZone,
    /// Windows that the rows make, where they do.
    sequence: Option<Sequence>,
    /// Oldest first.
    times: VecDeque<RowTime>,
}

/// Time of a row.
#[derive(Clone, Copy, Debug)]
struct RowTime {
    /// Microseconds since 1970.
    micros: i64,
    /// In the zone of the series; `None` beyond the calendar.
    local: Option<DateTime>,
}

impl Pace {
    /// Pace of the rows of `spec`, which make windows of `sequence`, if any.
    pub(super) fn of(spec: &DatasetSpec, sequence: Option<Sequence>) -> Self {
        let series = spec.series.as_ref();
        let zone = series.map_or(TimeZone::UTC, |series| series.time_zone());
        Self::new(zone, sequence)
    }

    const fn new(zone: TimeZone, sequence: Option<Sequence>) -> Self {
        Self {
            entity: Vec::new(),
            zone,
            sequence,
            times: VecDeque::new(),
        }
    }

    pub(super) fn enter(&mut self, entity: &[u8]) {
        if self.entity != entity {
            self.entity.clear();
            self.entity.extend_from_slice(entity);
            self.times.clear();
        }
    }

    pub(super) fn step(&mut self, entity: &[u8], micros: i64) {
        self.enter(entity);
        if self.sequence.is_none() {
            return;
        }
        let oldest = micros.saturating_sub((PAUSE_DAYS + 1) * MICROS_OF_DAY);
        let (least, most) = (self.least_held(), self.least_held().max(MOST_HELD));
        let is_old = |row: &RowTime| row.micros < oldest;
        while self.times.len() >= most
            || (self.times.len() >= least && self.times.front().is_some_and(is_old))
        {
            self.times.pop_front();
        }
        let local = local_datetime(&self.zone, micros);
        self.times.push_back(RowTime { micros, local });
    }

    /// Rows that have to follow one of the rules.
    fn length(&self) -> usize {
        let length = self.sequence.map_or(0, |sequence| sequence.length);
        usize::try_from(length).unwrap_or(usize::MAX).max(2)
    }

    /// Newest rows that are held, however old they are.
    fn least_held(&self) -> usize {
        self.length().max(LEAST_HELD)
    }

    /// The time of the row that a window which ends with the last one predicts.
    pub(super) fn ahead(&self) -> Option<String> {
        let horizon = i64::from(self.sequence?.horizon);
        let last = self.times.back()?.micros;
        let at = match horizon {
            0 => Some(last),
            _ => self.micros_ahead(horizon),
        };
        at.map(time_series::shown)
    }

    fn micros_ahead(&self, horizon: i64) -> Option<i64> {
        let first = self.times.len().checked_sub(self.length())?;
        let recent: Vec<RowTime> = self.times.range(first..).copied().collect();
        self.local_ahead(&recent, horizon)
            .or_else(|| self.equally_ahead(&recent, horizon))
    }

    /// Time `horizon` steps behind the last one, if the `recent` rows are equally far apart, and no daily
    /// pause comes before it.
    fn equally_ahead(&self, recent: &[RowTime], horizon: i64) -> Option<i64> {
        let step = equal_step(recent.iter().map(|row| row.micros))?;
        let ahead = step.checked_mul(horizon)?;
        let rows = usize::try_from(horizon).ok()?;
        let at = recent.last()?.micros.checked_add(ahead)?;
        let is_paused =
            step < MICROS_OF_DAY && self.pauses(SignedDuration::from_micros(ahead), rows);
        (!is_paused).then_some(at)
    }

    /// Returns true if rows of at least two earlier days at the last one's time of day were all followed
    /// otherwise than by a row `ahead` that is `rows` behind.
    fn pauses(&self, ahead: SignedDuration, rows: usize) -> bool {
        let days = (1..=PAUSE_DAYS).filter_map(|days| self.pauses_before(days, ahead, rows));
        let days: Vec<bool> = days.collect();
        days.len() > 1 && !days.contains(&false)
    }

    /// Returns true if the day which is `days` before the last row pauses behind its time. `None` without
    /// a row at that time, or without one that is `rows` behind it.
    fn pauses_before(&self, days: i64, ahead: SignedDuration, rows: usize) -> Option<bool> {
        let last = self.times.back()?.local?;
        let before = SignedDuration::from_hours(24 * days);
        let earlier = last.checked_sub(before).ok()?;
        let at = self.zone.to_ambiguous_timestamp(earlier);
        let micros = at.compatible().ok()?.as_microsecond();
        let place = self
            .times
            .binary_search_by_key(&micros, |row| row.micros)
            .ok()?;
        let later = self.times.get(place.checked_add(rows)?)?.local?;
        Some(later != earlier.checked_add(ahead).ok()?)
    }

    /// The time by the calendar of the zone, where `recent` rows are at one time of the day.
    fn local_ahead(&self, recent: &[RowTime], horizon: i64) -> Option<i64> {
        let clock = recent.last()?.local?.time();
        let dates = recent.iter().map(|row| {
            let local = row.local.filter(|local| local.time() == clock)?;
            Some(local.date())
        });
        let dates: Vec<Date> = dates.collect::<Option<_>>()?;
        let date = months_ahead(&dates, horizon)
            .or_else(|| open_days_ahead(&dates, &self.closed_weekdays()?, horizon))
            .or_else(|| days_ahead(&dates, horizon))?;
        let local = DateTime::from_parts(date, clock);
        let at = self.zone.to_ambiguous_timestamp(local).compatible().ok()?;
        Some(at.as_microsecond())
    }

    /// Weekdays from Monday on without any row, which the newest rows skip at least twice; `None` for
    /// none.
    fn closed_weekdays(&self) -> Option<[bool; 7]> {
        let newest = self.times.len().saturating_sub(self.least_held());
        let dates = self.times.range(newest..).filter_map(|row| row.local);
        let days: Vec<i64> = dates.map(|local| day_of(local.date())).collect();
        let (mut has_rows, mut skipped) = ([false; 7], [0_u32; 7]);
        for day in &days {
            has_rows[weekday(*day)] = true;
        }
        for pair in days.windows(2) {
            for day in (pair[0] + 1..pair[1]).take(7) {
                skipped[weekday(day)] += 1;
            }
        }
        let closed: [bool; 7] = std::array::from_fn(|day| skipped[day] > 1 && !has_rows[day]);
        closed.contains(&true).then_some(closed)
    }
}

/// Date `horizon` steps behind the last one, if the steps are equal numbers of months: on one day of the month, or, where a
/// month is shorter or all dates are, on its last day.
fn months_ahead(dates: &[Date], horizon: i64) -> Option<Date> {
    let step = equal_step(dates.iter().map(|date| month_of(*date)))?;
    let is_last = |date: &Date| date.day() == date.days_in_month();
    let day = match dates.iter().all(is_last) {
        true => 31,
        false => dates.iter().map(|date| date.day()).max()?,
    };
    let is_on_day = |date: &Date| date.day() == day.min(date.days_in_month());
    if !dates.iter().all(is_on_day) {
        return None;
    }
    let month = month_of(*dates.last()?).checked_add(step.checked_mul(horizon)?)?;
    let year = i16::try_from(month.div_euclid(12)).ok()?;
    let month = i8::try_from(month.rem_euclid(12) + 1).ok()?;
    let first = Date::new(year, month, 1).ok()?;
    Date::new(year, month, day.min(first.days_in_month())).ok()
}

/// Date `horizon` days that are not `closed` behind the last one, if that is how the dates follow one another. Fewer than a
/// tenth of the steps may be longer, as over holidays.
fn open_days_ahead(dates: &[Date], closed: &[bool; 7], horizon: i64) -> Option<Date> {
    let is_closed = |day: i64| closed[weekday(day)];
    let is_longer = |pair: &&[Date]| {
        let [before, after] = [pair[0], pair[1]].map(day_of);
        !(before + 1..after).all(is_closed)
    };
    let longer = dates.windows(2).filter(is_longer).count();
    let is_in_order = dates.windows(2).all(|pair| pair[0] < pair[1]);
    if !is_in_order || longer * 10 >= dates.len() {
        return None;
    }
    let open = (0..7).filter(|day| !is_closed(*day)).count();
    let open = i64::try_from(open).ok().filter(|open| *open > 0)?;
    let mut day = day_of(*dates.last()?) + 7 * (horizon / open);
    for _ in 0..horizon % open {
        day += 1;
        while is_closed(day) {
            day += 1;
        }
    }
    date_of(day)
}

/// Date `horizon` steps behind the last one, if the steps are equal numbers of days.
fn days_ahead(dates: &[Date], horizon: i64) -> Option<Date> {
    let step = equal_step(dates.iter().map(|date| day_of(*date)))?;
    let ahead = step.checked_mul(horizon)?;
    date_of(day_of(*dates.last()?).checked_add(ahead)?)
}

/// Difference from each number to the next, if it is one, and above 0.
fn equal_step(numbers: impl Iterator<Item = i64> + Clone) -> Option<i64> {
    let pairs = numbers.clone().zip(numbers.skip(1));
    let mut steps = pairs.map(|(before, after)| after.checked_sub(before));
    let step = steps.next()??;
    (step > 0 && steps.all(|other| other == Some(step))).then_some(step)
}

/// Months since the year 0.
fn month_of(date: Date) -> i64 {
    i64::from(date.year()) * 12 + i64::from(date.month()) - 1
}

/// Days since 1970.
fn day_of(date: Date) -> i64 {
    date.duration_since(EPOCH).as_secs() / SECONDS_OF_DAY
}

fn date_of(day: i64) -> Option<Date> {
    let since = SignedDuration::from_secs(day.checked_mul(SECONDS_OF_DAY)?);
    EPOCH.checked_add(since).ok()
}

/// Index of the weekday of a day since 1970, a Thursday, from Monday on.
fn weekday(day: i64) -> usize {
    usize::try_from((day + 3).rem_euclid(7)).unwrap_or_default()
}

/// Warning of `undated` of `rows` forecasts without the time of the predicted row.
pub(super) fn undated_warning(undated: u64, rows: u64, sequence: Sequence) -> Option<Warning> {
    let last = counted(u64::from(sequence.length.max(2)), "row");
    (undated > 0).then(|| {
        let message = format!(
            "`target_time` is empty for {undated} of {}: the last {last} before it are neither equally far apart nor follow \
             days, weekdays or months of the calendar, as where rows are missing, or earlier days pause behind them; such a forecast is of the row that comes {} \
             behind its window, whenever that is: land the missing rows, if there are any, or date it by a calendar of your own",
            counted(rows, "forecast"),
            counted(u64::from(sequence.horizon), "row"),
        );
        Warning::new("target_time_unknown", message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::time_series::Instant;

    /// The time of the row that follows `rows` at `horizon`, by windows of `length` rows.
    fn check(zone: &str, rows: &[&str], [length, horizon]: [u32; 2], expected: Option<&str>) {
        let sequence = Sequence::testing(length, horizon, None);
        let mut pace = Pace::new(TimeZone::get(zone).unwrap(), Some(sequence));
        let reader: Instant = serde_json::from_value(serde_json::json!({
            "format": null, "unit": null, "zone": zone, "is_later": false
        }))
        .unwrap();
        pace.step(&[9], 5);
        for row in rows {
            pace.step(&[1], reader.of_text(row).unwrap());
        }
        assert_eq!(pace.ahead().as_deref(), expected, "{rows:?}");
    }

    #[test]
    fn rows_that_are_equally_far_apart_are_followed_by_such_rows() {
        let hours = ["2024-03-30 22:00", "2024-03-30 23:00", "2024-03-31 00:00"];
        let at = Some("2024-03-31T01:00:00Z");
        check("Europe/Rome", &hours, [3, 2], at);
        let at = Some("2024-03-31T02:00:00Z");
        check("UTC", &hours, [3, 2], at);
        check("UTC", &hours, [3, 0], Some("2024-03-31T00:00:00Z"));
        check("UTC", &hours, [4, 1], None);
        let gap = ["2024-03-30 20:00", "2024-03-30 22:00", "2024-03-30 23:00"];
        check("UTC", &gap, [3, 1], None);
        check("UTC", &gap, [2, 1], Some("2024-03-31T00:00:00Z"));
        // Times of one day of UTC, which clocks show differently.
        let utc = [
            "2024-03-29 00:00Z",
            "2024-03-30 00:00Z",
            "2024-03-31 00:00Z",
        ];
        let later = [
            "2024-03-30 00:00Z",
            "2024-03-31 00:00Z",
            "2024-04-01 00:00Z",
        ];
        check("UTC", &utc, [3, 1], Some("2024-04-01T00:00:00Z"));
        check("Europe/Rome", &later, [3, 1], Some("2024-04-02T00:00:00Z"));
    }

    #[test]
    fn days_are_those_of_the_zone() {
        let days = ["2024-03-28", "2024-03-29", "2024-03-30", "2024-03-31"];
        let at = Some("2024-03-31T22:00:00Z");
        check("Europe/Rome", &days, [3, 1], at);
        check("Europe/Rome", &days[..3], [3, 2], at);
        check("UTC", &days, [3, 1], Some("2024-04-01T00:00:00Z"));
        let weeks = ["2024-10-14", "2024-10-21"];
        let at = Some("2024-10-27T23:00:00Z");
        check("Europe/Rome", &weeks, [2, 1], at);
        // Clocks skip this time on the next day.
        let nights = ["2024-03-29 02:30", "2024-03-30 02:30"];
        let at = Some("2024-03-31T01:30:00Z");
        check("Europe/Rome", &nights, [2, 1], at);
    }

    #[test]
    fn months_are_those_of_the_calendar() {
        let months = ["2024-12-01", "2025-01-01", "2025-02-01"];
        check("UTC", &months, [3, 1], Some("2025-03-01T00:00:00Z"));
        check("UTC", &months, [2, 12], Some("2026-02-01T00:00:00Z"));
        let ends = ["2024-01-31", "2024-02-29", "2024-03-31", "2024-04-30"];
        check("UTC", &ends, [4, 1], Some("2024-05-31T00:00:00Z"));
        check("UTC", &ends, [2, 10], Some("2025-02-28T00:00:00Z"));
        let quarters = ["2023-09-30", "2023-12-31", "2024-03-31"];
        check(
            "Europe/Rome",
            &quarters,
            [3, 1],
            Some("2024-06-29T22:00:00Z"),
        );
        let on_30 = ["2023-12-30", "2024-01-30", "2024-02-29"];
        check("UTC", &on_30, [3, 1], Some("2024-03-30T00:00:00Z"));
        let days = ["2024-01-31", "2024-02-01", "2024-02-02"];
        check("UTC", &days, [2, 1], Some("2024-02-03T00:00:00Z"));
        check(
            "UTC",
            &["2024-01-01", "2024-02-03"],
            [2, 1],
            Some("2024-03-07T00:00:00Z"),
        );
    }

    #[test]
    fn weekdays_without_rows_are_skipped() {
        let business: Vec<String> = [19, 20, 21, 22, 23, 26, 27, 28, 29, 30]
            .map(|day| format!("2024-08-{day}"))
            .into_iter()
            .chain((2..7).map(|day| format!("2024-09-{day:02}")))
            .collect();
        let business: Vec<&str> = business.iter().map(String::as_str).collect();
        for length in [2, 5, 6, 15] {
            let [next, week] = ["2024-09-09T00:00:00Z", "2024-09-16T00:00:00Z"];
            check("UTC", &business, [length, 1], Some(next));
            check("UTC", &business, [length, 6], Some(week));
        }
        // A day without trade is no weekday without rows, and must be rare.
        let holiday: Vec<&str> = [&business[..12], &business[13..]].concat();
        check("UTC", &holiday, [2, 1], Some("2024-09-09T00:00:00Z"));
        check("UTC", &holiday, [5, 1], None);
        check("UTC", &holiday, [14, 1], Some("2024-09-09T00:00:00Z"));
        // Without a weekend in them, rows are daily.
        check("UTC", &business[10..], [5, 1], Some("2024-09-07T00:00:00Z"));
    }

    /// Hours of an exchange on these days.
    fn bars(days: &[&str]) -> Vec<String> {
        let mut rows = Vec::new();
        for day in days {
            rows.extend((9..16).map(|hour| format!("{day} {hour:02}:30")));
        }
        rows
    }

    fn check_texts(zone: &str, rows: &[String], window: [u32; 2], expected: Option<&str>) {
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        check(zone, &rows, window, expected);
    }

    #[test]
    fn equal_steps_do_not_hold_over_a_daily_pause() {
        // From Monday to Friday.
        let week = [
            "2024-08-19",
            "2024-08-20",
            "2024-08-21",
            "2024-08-22",
            "2024-08-23",
        ];
        let rows = bars(&week);
        for (length, horizon) in [(2, 1), (2, 3), (7, 1)] {
            check_texts("UTC", &rows, [length, horizon], None);
        }
        let [closing, at] = [&rows[..34], &rows[..31]];
        check_texts("UTC", closing, [2, 1], Some("2024-08-23T15:30:00Z"));
        check_texts("UTC", closing, [2, 2], None);
        check_texts("UTC", at, [2, 4], Some("2024-08-23T15:30:00Z"));
        check_texts("UTC", at, [2, 5], None);
        // One earlier day is no pattern.
        let two = bars(&week[..2]);
        check_texts("UTC", &two, [2, 1], Some("2024-08-20T16:30:00Z"));
        check_texts("UTC", &bars(&week[..3]), [2, 1], None);
        // A pause is one by the clocks of the zone, which change on a Sunday.
        let spring = bars(&["2024-03-06", "2024-03-07", "2024-03-08", "2024-03-11"]);
        check_texts("America/New_York", &spring, [2, 1], None);
        // A missing row of one day is no pause.
        let hour = |hour: i64| format!("2024-08-{:02} {:02}:00", 19 + hour / 24, hour % 24);
        let hours: Vec<String> = (0..86).filter(|at| *at != 62).map(hour).collect();
        check_texts("UTC", &hours, [3, 1], Some("2024-08-22T14:00:00Z"));
    }

    #[test]
    fn forecasts_without_a_time_are_counted() {
        let sequence = Sequence::testing(24, 6, None);
        assert_eq!(undated_warning(0, 4, sequence), None);
        let found = undated_warning(3, 4, sequence).unwrap();
        let expected = "`target_time` is empty for 3 of 4 forecasts: the last 24 rows before it";
        assert!(found.message.starts_with(expected), "{}", found.message);
    }
}
