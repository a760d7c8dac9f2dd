//! One feature over one series, row by row: its value depends on that row and those before.

use std::collections::VecDeque;

use feedline_schemas::config::{CalendarPart, Closed};
use jiff::tz::TimeZone;

use super::{
    instant::local_datetime,
    two_stack::{Ends, Least, Moments, Most, Sum, TwoStack},
};

/// Distance that a feature looks back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Span {
    /// Rows of the entity.
    Rows(i64),
    /// Microseconds.
    Time(i64),
}

impl Span {
    fn length(self) -> i64 {
        match self {
            Self::Rows(length) | Self::Time(length) => length,
        }
    }

    /// Position of a row on the scale of the span.
    fn place(self, row: Row) -> i64 {
        match self {
            Self::Rows(_) => row.ordinal,
            Self::Time(_) => row.time,
        }
    }
}

/// A row of a series.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// Its place in the series.
    pub(super) ordinal: i64,
    /// Microseconds since 1970.
    pub(super) time: i64,
    /// The value that the feature is made of.
    pub(super) value: Option<f64>,
}

/// Value of a feature at a row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Said {
    /// The number, never NaN.
    pub(super) value: Option<f64>,
    /// Time of the oldest row that it is made of, if of any but this.
    pub(super) reach: Option<i64>,
}

impl Said {
    fn new(value: Option<f64>, reach: Option<i64>) -> Self {
        let value = value.filter(|value| !value.is_nan());
        Self { value, reach }
    }
}

/// A feature on its way through a series.
#[derive(Clone, Debug)]
pub(super) enum State {
    Mean(Rolling<Moments>),
    Deviation(Rolling<Moments>),
    Least(Rolling<Least>),
    Most(Rolling<Most>),
    Momentum(Rolling<Ends>),
    Lag(Lag),
    Difference(Difference),
    Fill(Fill),
    Calendar(CalendarPart, TimeZone),
}

impl State {
    /// Takes the next row.
    pub(super) fn step(&mut self, row: Row) -> Said {
        match self {
            Self::Mean(rolling) => rolling.step(row, Moments::mean),
            Self::Deviation(rolling) => rolling.step(row, Moments::deviation),
            Self::Least(rolling) => rolling.step(row, |least| Some(least.0)),
            Self::Most(rolling) => rolling.step(row, |most| Some(most.0)),
            Self::Momentum(rolling) => {
                rolling.step(row, |ends| ends.0.map(|[oldest, newest]| newest - oldest))
            }
            Self::Lag(lag) => {
                let found = lag.step(row);
                Said::new(
                    found.and_then(|found| found.value),
                    found.map(|found| found.time),
                )
            }
            Self::Difference(difference) => difference.step(row),
            Self::Fill(fill) => fill.step(row),
            Self::Calendar(part, zone) => Said::new(calendar(*part, zone, row.time), None),
        }
    }

    /// Begins a series.
    pub(super) fn restart(&mut self) {
        match self {
            Self::Mean(rolling) | Self::Deviation(rolling) => rolling.restart(),
            Self::Least(rolling) => rolling.restart(),
            Self::Most(rolling) => rolling.restart(),
            Self::Momentum(rolling) => rolling.restart(),
            Self::Lag(lag) => lag.seen.clear(),
            Self::Difference(difference) => {
                difference.lag.seen.clear();
                difference.before = Said::default();
            }
            Self::Fill(fill) => fill.seen = [None; 2],
            Self::Calendar(..) => {}
        }
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Mean(rolling) | Self::Deviation(rolling) => rolling.bytes(),
            Self::Least(rolling) => rolling.bytes(),
            Self::Most(rolling) => rolling.bytes(),
            Self::Momentum(rolling) => rolling.bytes(),
            Self::Lag(lag) => lag.bytes(),
            Self::Difference(difference) => difference.lag.bytes(),
            Self::Fill(_) | Self::Calendar(..) => 0,
        }
    }
}

/// A number over the values in a window.
#[derive(Clone, Debug)]
pub(super) struct Rolling<S> {
    stack: TwoStack<S>,
    /// Place and time of the values in the window, oldest first.
    seen: VecDeque<(i64, i64)>,
    span: Span,
    closed: Closed,
    /// Fewest values that make a number.
    least: usize,
}

impl<S: Sum> Rolling<S> {
    pub(super) const fn new(span: Span, closed: Closed, least: usize) -> Self {
        Self {
            stack: TwoStack::new(),
            seen: VecDeque::new(),
            span,
            closed,
            least,
        }
    }

    fn step(&mut self, row: Row, number: impl Fn(S) -> Option<f64>) -> Said {
        let place = self.span.place(row);
        let first = place.saturating_sub(self.span.length());
        let first = match self.closed {
            Closed::Left => first,
            Closed::Right => {
                self.push(place, row);
                first.saturating_add(1)
            }
        };
        while self.seen.front().is_some_and(|(place, _)| *place < first) {
            self.seen.pop_front();
            self.stack.pop();
        }
        let reach = self.seen.front().map(|(_, time)| *time);
        let value = match self.seen.len() {
            0 => None,
            count if count < self.least => None,
            _ => number(self.stack.total()),
        };
        if self.closed == Closed::Left {
            self.push(place, row);
        }
        Said::new(value, reach)
    }

    fn push(&mut self, place: i64, row: Row) {
        if let Some(value) = row.value {
            self.seen.push_back((place, row.time));
            self.stack.push(value);
        }
    }

    fn restart(&mut self) {
        self.stack.clear();
        self.seen.clear();
    }

    fn bytes(&self) -> usize {
        self.stack.bytes() + self.seen.capacity() * size_of::<(i64, i64)>()
    }
}

/// The newest row that is at least so old.
#[derive(Clone, Debug)]
pub(super) struct Lag {
    seen: VecDeque<Row>,
    span: Span,
}

impl Lag {
    pub(super) const fn new(span: Span) -> Self {
        Self {
            seen: VecDeque::new(),
            span,
        }
    }

    fn step(&mut self, row: Row) -> Option<Row> {
        let latest = self.span.place(row).saturating_sub(self.span.length());
        let is_old = |seen: Option<&Row>| seen.is_some_and(|seen| self.span.place(*seen) <= latest);
        while is_old(self.seen.get(1)) {
            self.seen.pop_front();
        }
        let found = self.seen.front().copied();
        let found = found.filter(|found| self.span.place(*found) <= latest);
        self.seen.push_back(row);
        found
    }

    fn bytes(&self) -> usize {
        self.seen.capacity() * size_of::<Row>()
    }
}

/// A value minus its lag.
#[derive(Clone, Debug)]
pub(super) struct Difference {
    lag: Lag,
    closed: Closed,
    /// Value at the row before.
    before: Said,
}

impl Difference {
    pub(super) fn new(span: Span, closed: Closed) -> Self {
        Self {
            lag: Lag::new(span),
            closed,
            before: Said::default(),
        }
    }

    fn step(&mut self, row: Row) -> Said {
        let found = self.lag.step(row);
        let earlier = found.and_then(|found| found.value);
        let here = Said::new(
            row.value.zip(earlier).map(|(now, earlier)| now - earlier),
            found.map(|found| found.time),
        );
        match self.closed {
            Closed::Right => here,
            Closed::Left => std::mem::replace(&mut self.before, here),
        }
    }
}

/// The row's value, or a substitute.
#[derive(Clone, Debug)]
pub(super) struct Fill {
    /// The newest rows with a value, the newest first.
    seen: [Option<Row>; 2],
    /// Age beyond which no value is used.
    span: Option<Span>,
    is_line: bool,
}

impl Fill {
    pub(super) const fn new(span: Option<Span>, is_line: bool) -> Self {
        Self {
            seen: [None; 2],
            span,
            is_line,
        }
    }

    fn step(&mut self, row: Row) -> Said {
        if row.value.is_some() {
            self.seen = [Some(row), self.seen[0]];
            return Said::new(row.value, None);
        }
        let is_near = |seen: &Row| {
            let age = |span: Span| span.place(row).saturating_sub(span.place(*seen));
            self.span.is_none_or(|span| age(span) <= span.length())
        };
        match self.seen.map(|seen| seen.filter(is_near)) {
            [Some(newest), _] if !self.is_line => Said::new(newest.value, Some(newest.time)),
            [Some(newest), Some(earlier)] if self.is_line => {
                let values = newest.value.zip(earlier.value);
                let value = values.map(|(new, old)| {
                    let (ahead, apart) = (
                        seconds(row.time, newest.time),
                        seconds(newest.time, earlier.time),
                    );
                    new + (new - old) * (ahead / apart)
                });
                Said::new(value, Some(earlier.time))
            }
            _ => Said::default(),
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a ratio of spans needs no 53 bits"
)]
fn seconds(later: i64, earlier: i64) -> f64 {
    (i128::from(later) - i128::from(earlier)) as f64 / 1e6
}

fn calendar(part: CalendarPart, zone: &TimeZone, time: i64) -> Option<f64> {
    let at = local_datetime(zone, time)?;
    Some(match part {
        CalendarPart::Year => f64::from(at.year()),
        CalendarPart::Month => f64::from(at.month()),
        CalendarPart::Day => f64::from(at.day()),
        CalendarPart::DayOfYear => f64::from(at.day_of_year()),
        CalendarPart::Weekday => f64::from(at.weekday().to_monday_one_offset()),
        CalendarPart::Hour => f64::from(at.hour()),
        CalendarPart::Minute => f64::from(at.minute()),
        CalendarPart::Second => f64::from(at.second()),
    })
}
