//! Ordered cursor values of records, and the start of an incremental page run.

use std::{cmp::Ordering, time::Duration};

use feedline_readers::{
    calendar_time::{nanos_at, parse_nanos, utc_datetime},
    record::Record,
    value::{Value, shorten},
};
use feedline_schemas::{
    commit::{CommitEntry, CursorAhead, Interruption, PageRun, Position},
    config::{IncrementalConfig, Pagination, SourceConfig},
    count::counted,
    ids::Hash128,
    report::Warning,
};
use jiff::{
    ToSpan,
    civil::{Date, DateTime, Time},
    tz::Offset,
};

use crate::{error::Error, param::Param};

/// A value that records are ordered by, with its text as the source wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    kind: Kind,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Int(i64),
    /// Nanoseconds since 1970.
    Time(i128),
    Date(Date),
}

impl Mark {
    /// Reads an integer, an RFC 3339 time or a date.
    ///
    /// # Errors
    /// A message that quotes the beginning of `text`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let int = || text.parse().ok().map(Kind::Int);
        // The length distinguishes a time from its day.
        let date = || {
            let date = (text.len() == 10).then(|| text.parse().ok()).flatten();
            date.map(Kind::Date)
        };
        let time = || parse_nanos(text).map(Kind::Time);
        let kind = int().or_else(date).or_else(time).ok_or_else(|| {
            format!(
                "`{}` is no integer, no RFC 3339 time with a zone (`2026-03-01T12:00:00Z`) and no date (`2026-03-01`)",
                shorten(&text.escape_debug().to_string(), 60)
            )
        })?;
        let text = text.to_owned();
        Ok(Self { kind, text })
    }

    /// Reads the value at `path`, which `key` names, of a record; `None` if it is null or absent.
    ///
    /// # Errors
    /// Like [`Mark::parse`].
    pub(crate) fn of(record: &Value, path: &str, key: &str) -> Result<Option<Self>, String> {
        let wrong = |reason| format!("the value at `{path}` (`{key}`) of a record: {reason}");
        match record.at(path) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Int(number)) => Ok(Some(Self {
                kind: Kind::Int(*number),
                text: number.to_string(),
            })),
            Some(Value::Text(text)) => Self::parse(text).map(Some).map_err(wrong),
            Some(Value::Cell(text)) => Self::parse(text.trim()).map(Some).map_err(wrong),
            Some(other) => Err(wrong(format!("{} is no integer or time", other.kind()))),
        }
    }

    /// Returns true for an integer.
    pub(crate) fn is_integer(&self) -> bool {
        matches!(self.kind, Kind::Int(_))
    }

    /// The text as the source wrote it.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Seconds since 1970-01-01 UTC, of a time or of the beginning of a day; `None` for an integer,
    /// which has no known unit.
    pub(crate) fn unix_s(&self) -> Option<i64> {
        let nanos = match self.kind {
            Kind::Int(_) => return None,
            Kind::Time(nanos) => nanos,
            Kind::Date(date) => nanos_at(date.to_datetime(Time::midnight()), Offset::UTC)?,
        };
        i64::try_from(nanos.div_euclid(SECOND_NANOS)).ok()
    }

    /// Returns true for a time or date more than `ahead_s` seconds after `now`.
    fn is_ahead(&self, now: Duration, ahead_s: i64) -> bool {
        let zone = match self.kind {
            Kind::Date(_) => FIRST_ZONE,
            _ => 0,
        };
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let most = now.saturating_add(ahead_s).saturating_add(zone);
        self.unix_s().is_some_and(|at| at > most)
    }

    /// Order in time or number.
    ///
    /// # Errors
    /// A message when they are of different kinds.
    pub(crate) fn compare(&self, other: &Self) -> Result<Ordering, String> {
        match (self.kind, other.kind) {
            (Kind::Int(a), Kind::Int(b)) => Ok(a.cmp(&b)),
            (Kind::Time(a), Kind::Time(b)) => Ok(a.cmp(&b)),
            (Kind::Date(a), Kind::Date(b)) => Ok(a.cmp(&b)),
            _ => Err(format!(
                "`{}` and `{}` are of different kinds (integer, time or date) and have no order",
                self.text, other.text
            )),
        }
    }

    /// This mark in the kind of `other`: a date as the beginning of its day in UTC beside a time, and
    /// a time as its day in UTC beside a date.
    fn beside(&self, other: &Self) -> Self {
        let converted = match (self.kind, other.kind) {
            (Kind::Date(date), Kind::Time(_)) => {
                Some(format!("{}Z", date.to_datetime(Time::midnight())))
            }
            (Kind::Time(nanos), Kind::Date(_)) => {
                utc_datetime(nanos).map(|at| at.date().to_string())
            }
            _ => None,
        };
        let converted = converted.and_then(|text| Self::parse(&text).ok());
        converted.unwrap_or_else(|| self.clone())
    }

    /// Returns the mark `lookback` before this one, or the earliest one if that would be out of
    /// range.
    fn back(&self, lookback: Lookback) -> Result<Self, String> {
        let unit = "use a unit for times and dates (`6h`, `2d`), and none for integers";
        let wrong = || Err(format!("does not fit the cursor `{}`; {unit}", self.text));
        let text = match (self.kind, lookback) {
            (_, Lookback::Units(0)) => self.text.clone(),
            (Kind::Int(value), Lookback::Units(units)) => value.saturating_sub(units).to_string(),
            (Kind::Time(nanos), Lookback::Seconds(seconds)) => {
                let at = utc_datetime(nanos - i128::from(seconds) * SECOND_NANOS);
                format!("{}Z", at.unwrap_or(DateTime::MIN))
            }
            (Kind::Date(date), Lookback::Seconds(seconds)) if seconds % DAY == 0 => date
                .checked_sub((seconds / DAY).days())
                .unwrap_or(Date::MIN)
                .to_string(),
            _ => return wrong(),
        };
        Self::parse(&text)
    }
}

const DAY: i64 = 86_400;
/// Nanoseconds of a second.
const SECOND_NANOS: i128 = 1_000_000_000;
/// The earliest time zone on Earth begins a day this long before midnight UTC, in seconds.
const FIRST_ZONE: i64 = 14 * 3_600;
/// Maximum number of individually tracked records with a cursor ahead of now.
pub(crate) const MOST_AHEAD: usize = 200;
/// Longest lookback in seconds: a hundred centuries. Longer spans are none that jiff knows.
const MOST_SECONDS: i64 = 10_000 * 366 * DAY;

/// Distance from the newest cursor back to the start of a page run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lookback {
    /// Units of integers.
    Units(i64),
    /// Seconds of times and dates.
    Seconds(i64),
}

impl Lookback {
    fn parse(text: &str) -> Option<Self> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let number: i64 = digits.parse().ok().filter(|number| *number >= 0)?;
        let seconds = match &text[digits.len()..] {
            "" => return Some(Self::Units(number)),
            "s" => 1,
            "m" => 60,
            "h" => 3_600,
            "d" => DAY,
            _ => return None,
        };
        let seconds = number.checked_mul(seconds)?;
        (seconds <= MOST_SECONDS).then_some(Self::Seconds(seconds))
    }
}

/// `[source.incremental]`, checked.
#[derive(Clone, Debug)]
pub(crate) struct Incremental {
    path: String,
    param: String,
    start: Option<Mark>,
    lookback: Lookback,
    /// Maximum distance of a cursor ahead of now, in seconds.
    ahead_s: i64,
    /// True if all records of a first page may lack a cursor.
    is_optional: bool,
}

impl Incremental {
    /// # Errors
    /// [`Error::Config`].
    pub(crate) fn new(config: &IncrementalConfig) -> Result<Self, Error> {
        let wrong = |key: &str, reason: &str| Error::config(format!("incremental.{key}"), reason);
        if config.cursor.is_empty() {
            return Err(wrong(
                "cursor",
                "is empty; set it to the path of the cursor in a record",
            ));
        }
        if config.param.is_empty() {
            return Err(wrong(
                "param",
                "is empty; set it to the query parameter of the bound",
            ));
        }
        let lookback = Lookback::parse(&config.lookback).ok_or_else(|| {
            let reason = "is no whole number with `s`, `m`, `h` or `d` (for integers: without a unit), such as `6h`";
            wrong("lookback", reason)
        })?;
        let start = config.start.as_deref().map(Mark::parse).transpose();
        let start = start.map_err(|reason| wrong("start", &reason))?;
        if let Some(start) = &start {
            start
                .back(lookback)
                .map_err(|reason| wrong("lookback", &reason))?;
        }
        let Some(Lookback::Seconds(ahead_s)) = Lookback::parse(&config.max_ahead) else {
            let reason = "is no whole number with `s`, `m`, `h` or `d`, such as `5m`";
            return Err(wrong("max_ahead", reason));
        };
        Ok(Self {
            path: config.cursor.clone(),
            param: config.param.clone(),
            start,
            lookback,
            ahead_s,
            is_optional: false,
        })
    }

    /// Accepts pages whose records all lack a cursor: a value of a list may have a few records alone. A
    /// warning counts them.
    pub(crate) fn allow_pages_without(&mut self) {
        self.is_optional = true;
    }

    /// Name of its request parameter.
    pub(crate) fn param(&self) -> &str {
        &self.param
    }

    /// Request parameter with the bound of a run.
    pub(crate) fn query(&self, run: &PageRun) -> Option<Param<'_>> {
        let value = run.since.clone()?;
        let is_number = Mark::parse(&value).is_ok_and(|mark| mark.is_integer());
        Some(Param {
            name: &self.param,
            value,
            is_number,
        })
    }

    /// The first run of pages.
    pub(crate) fn first_run(&self) -> PageRun {
        PageRun {
            since: self.start.as_ref().map(|start| start.text.clone()),
            ..PageRun::default()
        }
    }

    /// Returns the page run after `done`, as requested at `now`. `highs` are the highest cursors in
    /// the log.
    ///
    /// # Errors
    /// [`Error::Config`] if the lookback does not fit the landed cursors.
    pub(crate) fn next_run(
        &self,
        done: &PageRun,
        highs: &[String],
        now: Duration,
    ) -> Result<PageRun, Error> {
        let wrong = |reason| Error::config("incremental.lookback", reason);
        let high = self
            .right(done.high.as_deref(), highs, now)
            .map_err(wrong)?;
        let since = match choose_bound_cursor(high.as_deref(), done.interrupted.as_ref()) {
            None => self.start.clone(),
            Some(newest) => Some(self.bound(newest).map_err(wrong)?),
        };
        let mut ahead = done.ahead.clone();
        // Records before the bound are not returned again.
        ahead.retain(|ahead| !is_before(&ahead.cursor, since.as_ref()));
        Ok(PageRun {
            number: done.number + 1,
            since: since.map(|mark| mark.text),
            high,
            ahead,
            ..PageRun::default()
        })
    }

    /// Returns `high`, unless it is ahead of `now`: then the highest of `highs` that is not.
    fn right(
        &self,
        high: Option<&str>,
        highs: &[String],
        now: Duration,
    ) -> Result<Option<String>, String> {
        let Some(text) = high else { return Ok(None) };
        if !self.is_ahead(text, now) {
            return Ok(Some(text.to_owned()));
        }
        let mut right: Option<Mark> = None;
        for mark in highs.iter().map(|high| Mark::parse(high)) {
            let mark = mark?;
            let is_higher = match &right {
                Some(right) => mark.compare(right)? == Ordering::Greater,
                None => true,
            };
            if is_higher && !mark.is_ahead(now, self.ahead_s) {
                right = Some(mark);
            }
        }
        Ok(right.map(|mark| mark.text))
    }

    /// Returns true for a time or date that is further ahead of `now` than allowed.
    pub(crate) fn is_ahead(&self, cursor: &str, now: Duration) -> bool {
        Mark::parse(cursor).is_ok_and(|mark| mark.is_ahead(now, self.ahead_s))
    }

    /// The newest cursor less the lookback, and not before the start.
    fn bound(&self, high: &str) -> Result<Mark, String> {
        let bound = Mark::parse(high)?.back(self.lookback)?;
        let start = self.start.as_ref().map(|start| start.beside(&bound));
        match start {
            Some(start) if bound.compare(&start)? == Ordering::Less => Ok(start),
            _ => Ok(bound),
        }
    }

    /// Records the cursors of a page of `run` that arrived at `now`: the highest of those that may
    /// move the bound, and the records whose cursor is ahead of now.
    ///
    /// # Errors
    /// A message if a cursor cannot be ordered, or no record so far has one.
    pub(crate) fn note(
        &self,
        run: &mut PageRun,
        records: &[Record],
        now: Duration,
    ) -> Result<(), String> {
        let mut highest = run.high.as_deref().map(Mark::parse).transpose()?;
        if let Some(ahead) = highest.take_if(|high| high.is_ahead(now, self.ahead_s)) {
            add_ahead(&mut run.ahead, ahead.text, None)?;
            highest = run.since.as_deref().map(Mark::parse).transpose()?;
        }
        let (mut seen, mut found) = (0, 0);
        for record in records {
            let Some(record) = record.value() else {
                continue;
            };
            seen += 1;
            let Some(mark) = Mark::of(&record, &self.path, "incremental.cursor")? else {
                continue;
            };
            found += 1;
            if let Some(highest) = &highest {
                mark.compare(highest)?;
            }
            if mark.is_ahead(now, self.ahead_s) {
                let (form, has_faults) = record.canonical_and_faults();
                let hash = (!has_faults).then(|| Hash128::of(form.as_bytes()));
                add_ahead(&mut run.ahead, mark.text, hash)?;
                continue;
            }
            let is_higher = match &highest {
                Some(highest) => mark.compare(highest)? == Ordering::Greater,
                None => true,
            };
            if is_higher {
                highest = Some(mark);
            }
        }
        if seen > 0 && found == 0 && run.high.is_none() && !self.is_optional {
            return Err(format!(
                "none of its records has a value at `{}`; check `incremental.cursor`",
                self.path
            ));
        }
        run.high = highest.map(|mark| mark.text);
        Ok(())
    }
}

/// Adds a record with a cursor ahead of now. Records over the limit are merged into one without a
/// hash, with the highest cursor.
fn add_ahead(
    all: &mut Vec<CursorAhead>,
    cursor: String,
    hash: Option<Hash128>,
) -> Result<(), String> {
    if hash.is_some() && all.iter().any(|known| known.hash == hash) {
        return Ok(());
    }
    if hash.is_some() && all.len() < MOST_AHEAD {
        all.push(CursorAhead { cursor, hash });
        return Ok(());
    }
    match all.iter_mut().find(|known| known.hash.is_none()) {
        Some(rest) => {
            if Mark::parse(&cursor)?.compare(&Mark::parse(&rest.cursor)?)? == Ordering::Greater {
                rest.cursor = cursor;
            }
        }
        None => all.push(CursorAhead { cursor, hash: None }),
    }
    Ok(())
}

/// Notes that a process resumes the incremental page run of the source `config` at `position`. Records of the
/// pages before it may have changed since, except in pages that are ordered by the cursor: there a changed
/// record moves to a later page. A further interruption changes nothing.
pub(crate) fn note_interruption(config: &SourceConfig, position: &mut Position) {
    let (Some(incremental), Position::Page { page, run, .. }) = (&config.incremental, position)
    else {
        return;
    };
    let way = &config.pagination.way;
    let is_ordered =
        matches!(way, Pagination::Keyset(keys) if keys.time_path == incremental.cursor);
    if *page > 0 && !is_ordered && run.interrupted.is_none() {
        let high = run.high.clone();
        run.interrupted = Some(Interruption { high });
    }
}

/// Returns the cursor that the bound after a page run follows: the newest one, `high`, or in an interrupted
/// page run the newest one from before the interruption.
pub(crate) fn choose_bound_cursor<'a>(
    high: Option<&'a str>,
    interrupted: Option<&'a Interruption>,
) -> Option<&'a str> {
    let Some(interruption) = interrupted else {
        return high;
    };
    let (high, before) = (high?, interruption.high.as_deref()?);
    let compared = Mark::parse(high).and_then(|high| high.compare(&Mark::parse(before)?));
    // Without an order, the older one loses nothing.
    Some(if compared == Ok(Ordering::Less) {
        high
    } else {
        before
    })
}

/// Returns true if a cursor is before a bound.
fn is_before(cursor: &str, bound: Option<&Mark>) -> bool {
    let compared = bound.map(|bound| Mark::parse(cursor)?.compare(bound));
    matches!(compared, Some(Ok(Ordering::Less)))
}

/// Collects the highest cursors in a log, each once.
pub(crate) fn highs(entries: &[CommitEntry]) -> Vec<String> {
    let runs = entries
        .iter()
        .filter_map(|entry| entry.state.position.run());
    let mut highs: Vec<String> = runs.filter_map(|run| run.high.clone()).collect();
    highs.dedup();
    highs
}

/// Builds a warning about the records of a run whose cursor was ahead of now when they arrived.
pub(crate) fn warn_of_ahead(run: &PageRun) -> Option<Warning> {
    let since = run.high.as_deref().unwrap_or("the beginning");
    let end = format!("the bound, so later runs request records after `{since}`");
    ahead_warning(&run.ahead, &end)
}

/// The same warning with another `end`, which begins with the bound that the records do not move.
pub(crate) fn ahead_warning(ahead: &[CursorAhead], end: &str) -> Option<Warning> {
    let marks = ahead
        .iter()
        .filter_map(|ahead| Mark::parse(&ahead.cursor).ok());
    let highest = marks.max_by(|a, b| a.compare(b).unwrap_or(Ordering::Equal))?;
    let least = match ahead.iter().any(|ahead| ahead.hash.is_none()) {
        true => "at least ",
        false => "",
    };
    let records = counted(ahead.len() as u64, "record");
    let (have, they) = match ahead.len() {
        1 => ("has", "it has landed and does"),
        _ => ("have", "they have landed and do"),
    };
    let message = format!(
        "{least}{records} {have} a cursor ahead of now, the highest `{}`: {they} not move {end}",
        highest.text
    );
    Some(Warning::new("cursor_in_future", message).with_key("incremental.max_ahead"))
}

#[cfg(test)]
mod tests;
