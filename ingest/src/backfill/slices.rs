//! `[source.slices]`, checked.

use std::time::Duration;

use feedline_schemas::{
    commit::Interval,
    config::{SliceClock, SlicesConfig, UpperEnd},
};

use super::{
    intervals::Intervals,
    slice_format::{Scale, Step, seconds},
};
use crate::{error::Error, param::Param};

/// The slices of a range.
#[derive(Clone, Debug)]
pub(super) struct Slices {
    scale: Scale,
    from_param: String,
    to_param: Option<String>,
    start: i64,
    end: Option<i64>,
    lag_s: i64,
    step: Step,
    is_inclusive: bool,
    asks_server: bool,
}

impl Slices {
    /// # Errors
    /// [`Error::Config`].
    pub(super) fn new(config: &SlicesConfig) -> Result<Self, Error> {
        let wrong = |key: &str, reason: String| Error::config(format!("slices.{key}"), reason);
        let at = |key: &'static str| move |reason| wrong(key, reason);
        let to_param = config.to_param.clone();
        if config.from_param.is_empty() || to_param.as_ref().is_some_and(String::is_empty) {
            let key = if config.from_param.is_empty() {
                "from_param"
            } else {
                "to_param"
            };
            return Err(wrong(
                key,
                "is empty; set it to the query parameter of this end".into(),
            ));
        }
        if to_param.as_ref() == Some(&config.from_param) {
            let reason =
                "equals `slices.from_param`; set another parameter for the upper end, or none";
            return Err(wrong("to_param", reason.into()));
        }
        let scale = Scale::new(&config.format).map_err(at("format"))?;
        let start = scale.read(&config.start).map_err(at("start"))?;
        let end = config.end.as_deref().map(|end| scale.read(end)).transpose();
        let end = end.map_err(at("end"))?;
        match end {
            None if scale == Scale::Integer => {
                let reason = "is missing; `integer` has no now that the range could end at";
                return Err(wrong("end", reason.into()));
            }
            Some(end) if end <= start => {
                return Err(wrong(
                    "end",
                    format!("`{}` is not after `slices.start`", scale.show(end)),
                ));
            }
            _ => {}
        }
        let step = scale.step(&config.step).map_err(at("step"))?;
        if to_param.is_none() && step != Step::Units(1) {
            let reason = "must be the smallest unit of `slices.format` if no `slices.to_param` limits a slice";
            return Err(wrong("step", reason.into()));
        }
        let lag_s = seconds(&config.lag).ok_or_else(|| {
            let reason = "is no whole number with `s`, `m`, `h`, `d` or `w`, such as `6h`";
            wrong("lag", reason.into())
        })?;
        if lag_s > 0 && scale == Scale::Integer {
            return Err(wrong("lag", "is for timestamps only; remove it".into()));
        }
        Ok(Self {
            scale,
            from_param: config.from_param.clone(),
            to_param,
            start,
            end,
            lag_s,
            step,
            is_inclusive: config.upper == UpperEnd::Inclusive,
            asks_server: config.clock == SliceClock::Earlier,
        })
    }

    /// Returns true if the API includes records at the upper end, which the next slice returns
    /// again.
    pub(super) fn shares_ends(&self) -> bool {
        self.is_inclusive && !self.scale.is_whole() && self.to_param.is_some()
    }

    /// Parses an end of a range.
    ///
    /// # Errors
    /// A message that quotes `text`.
    pub(super) fn read(&self, text: &str) -> Result<i64, String> {
        self.scale.read(text)
    }

    /// Names of the parameters.
    pub(super) fn params(&self) -> impl Iterator<Item = &str> {
        [Some(self.from_param.as_str()), self.to_param.as_deref()]
            .into_iter()
            .flatten()
    }

    /// Returns true if the server's clock also limits the end of the range.
    pub(super) fn asks_server(&self) -> bool {
        self.asks_server
    }

    /// Beginning of the range.
    pub(super) fn start(&self) -> i64 {
        self.start
    }

    /// The last unit that is over at a time, whatever the range; none for integers.
    pub(super) fn over_at(&self, unix: Duration) -> Option<i64> {
        self.scale.before(unix, 0)
    }

    /// Wanted range at a Unix time.
    pub(super) fn range_at(&self, unix: Duration) -> Interval {
        self.range(self.scale.before(unix, self.lag_s))
    }

    /// Wanted range up to the number `most`, or up to the configured end.
    pub(super) fn range(&self, most: Option<i64>) -> Interval {
        let ends = [self.end, most].into_iter().flatten();
        [self.start, ends.min().unwrap_or(self.start).max(self.start)]
    }

    /// Configured end of the range.
    pub(super) fn end(&self) -> Option<i64> {
        self.end
    }

    /// The first slice of a gap.
    pub(super) fn first(&self, gap: Interval) -> Interval {
        self.scale.first(gap, self.step)
    }

    /// Request parameters of a slice.
    pub(super) fn query(&self, [from, to]: Interval) -> Vec<Param<'_>> {
        let is_number = matches!(self.scale, Scale::Integer | Scale::Unix(_));
        let param = |name, end| Param {
            name,
            value: self.scale.write(end),
            is_number,
        };
        let mut query = vec![param(self.from_param.as_str(), from)];
        if let Some(name) = &self.to_param {
            let is_last = self.is_inclusive && self.scale.is_whole();
            query.push(param(name, if is_last { to - 1 } else { to }));
        }
        query
    }

    /// Number of slices that the intervals are read in.
    pub(super) fn count(&self, intervals: &Intervals) -> u64 {
        self.scale.count(intervals, self.step)
    }

    /// Formats a slice for messages.
    pub(super) fn show(&self, [from, to]: Interval) -> String {
        format!("{} to {}", self.scale.show(from), self.scale.show(to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(format: &str, start: &str, end: Option<&str>, step: &str) -> SlicesConfig {
        SlicesConfig {
            from_param: "from".into(),
            to_param: Some("to".into()),
            start: start.into(),
            end: end.map(ToOwned::to_owned),
            lag: "0s".into(),
            step: step.into(),
            format: format.into(),
            upper: UpperEnd::Exclusive,
            clock: Default::default(),
        }
    }

    #[test]
    fn settings_that_cannot_work_name_their_key() {
        let days = || config("%Y-%m-%d", "2026-01-01", None, "1d");
        let check = |change: &dyn Fn(&mut SlicesConfig), key: &str| {
            let mut config = days();
            change(&mut config);
            match Slices::new(&config) {
                Err(Error::Config { key: found, .. }) => assert_eq!(found, format!("slices.{key}")),
                other => panic!("{key}: {other:?}"),
            }
        };
        assert!(Slices::new(&days()).is_ok());
        check(&|c| c.from_param.clear(), "from_param");
        check(&|c| c.to_param = Some(String::new()), "to_param");
        check(&|c| c.to_param = Some("from".into()), "to_param");
        check(&|c| c.format = "%Y".into(), "format");
        check(&|c| c.start = "then".into(), "start");
        check(&|c| c.end = Some("2025-12-31".into()), "end");
        check(&|c| c.end = Some("2026-01-01".into()), "end");
        check(&|c| c.step = "1h".into(), "step");
        check(&|c| (c.to_param, c.step) = (None, "2d".into()), "step");
        check(&|c| c.lag = "soon".into(), "lag");
        let integer = |c: &mut SlicesConfig| *c = config("integer", "0", None, "10");
        check(&integer, "end");
        let lag = |c: &mut SlicesConfig| {
            *c = config("integer", "0", Some("9"), "10");
            c.lag = "1d".into();
        };
        check(&lag, "lag");
    }

    #[test]
    fn a_slice_is_asked_for_by_its_ends() {
        let check = |format: &str, upper: UpperEnd, expected: [&str; 2], shares: bool| {
            let mut config = config(format, "1970-01-01", None, "1d");
            config.upper = upper;
            let slices = Slices::new(&config).unwrap();
            let slice = slices.first([0, i64::MAX]);
            let query: Vec<String> = slices
                .query(slice)
                .into_iter()
                .map(|param| param.value)
                .collect();
            assert_eq!(query, expected);
            assert_eq!(slices.shares_ends(), shares);
        };
        use UpperEnd::{Exclusive, Inclusive};
        check("%Y-%m-%d", Exclusive, ["1970-01-01", "1970-01-02"], false);
        check("%Y-%m-%d", Inclusive, ["1970-01-01", "1970-01-01"], false);
        check("unix_s", Exclusive, ["0", "86400"], false);
        check("unix_s", Inclusive, ["0", "86400"], true);
    }

    #[test]
    fn the_range_ends_now_at_the_latest() {
        let check = |end: Option<&str>, lag: &str, days: u64, expected: Interval| {
            let mut config = config("%Y-%m-%d", "1970-01-11", end, "1d");
            config.lag = lag.into();
            let unix = Duration::from_secs(days * 86_400 + 7);
            assert_eq!(Slices::new(&config).unwrap().range_at(unix), expected);
        };
        check(None, "0s", 20, [10, 20]);
        check(None, "3d", 20, [10, 17]);
        check(None, "0s", 5, [10, 10]);
        check(Some("1970-01-16"), "0s", 20, [10, 15]);
        check(Some("1970-01-31"), "0s", 20, [10, 20]);
        let numbers = Slices::new(&config("integer", "3", Some("9"), "2")).unwrap();
        assert_eq!(numbers.range_at(Duration::ZERO), [3, 9]);
    }
}
