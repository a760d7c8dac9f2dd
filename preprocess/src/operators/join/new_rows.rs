//! Joins of new rows, whose keys and times have been read from their file.
//!
//! The key of a new row is a string and its time a timestamp, each in a column of the join's own.
//! So two joins may read one column of the file in two ways.

use super::{
    asof_times::Timed,
    resolved_join::{Join, RESERVED},
};
use crate::{Error, operators::time_series::Instant};

/// Columns of new rows that a join reads: none where an earlier join adds them.
#[derive(Clone, Debug)]
pub(crate) struct LookupColumns {
    /// Index of the join in the configuration.
    pub(crate) index: usize,
    /// Column of the key.
    pub(crate) key: Option<String>,
    /// Columns of the time.
    pub(crate) time: Option<LookupTime>,
}

/// Columns of the time of new rows, and their format.
#[derive(Clone, Debug)]
pub(crate) struct LookupTime {
    pub(crate) column: String,
    /// Column of the time of day.
    pub(crate) clock: Option<String>,
    pub(crate) instant: Instant,
}

impl LookupColumns {
    /// Names of the columns.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let time = self.time.iter();
        let times = time.flat_map(|time| std::iter::once(&time.column).chain(&time.clock));
        self.key.iter().chain(times).map(String::as_str)
    }
}

/// Column with the keys that the join at `index` looks up.
pub(crate) fn key_column(index: usize) -> String {
    format!("{RESERVED}new_key_{index}")
}

/// Column with the times that the join at `index` looks up.
pub(crate) fn time_column(index: usize) -> String {
    format!("{RESERVED}new_time_{index}")
}

impl Join {
    /// Makes the join of new rows with keys in [`key_column`] and times in [`time_column`], and
    /// returns the columns of the rows that these are read from. `is_joined` returns true for a
    /// column that an earlier join adds.
    ///
    /// # Errors
    /// [`Error::Config`] where the rows have only one of a date and a time of day.
    pub(crate) fn for_new_rows(
        &self,
        is_joined: impl Fn(&str) -> bool,
    ) -> Result<(Self, LookupColumns), Error> {
        let mut join = self.clone();
        let mut columns = LookupColumns {
            index: self.index,
            key: None,
            time: None,
        };
        if self.left.as_ref().is_some_and(|left| !is_joined(left)) {
            columns.key = join.left.replace(key_column(self.index));
        }
        let Some(asof) = &mut join.asof else {
            return Ok((join, columns));
        };
        let time = &asof.time;
        let is_own = !is_joined(&time.column);
        if time.clock.as_ref().is_some_and(|c| is_joined(c) == is_own) {
            let reason = "one of `column` and `clock` is joined and the other is not, so times of new rows cannot be read; \
                          give the rows with the joined columns";
            return Err(Error::config(
                format!("dataset.join.{}.time", self.index),
                reason,
            ));
        }
        if is_own {
            columns.time = Some(LookupTime {
                column: time.column.clone(),
                clock: time.clock.clone(),
                instant: time.instant.clone(),
            });
            asof.time = Timed::of_timestamps(time_column(self.index));
        }
        Ok((join, columns))
    }

    /// Returns true for a join by key and time.
    pub(crate) fn is_asof(&self) -> bool {
        self.asof.is_some()
    }

    /// Columns of the rows that the join needs: those of its key and its time.
    pub(crate) fn needed(&self) -> impl Iterator<Item = &str> {
        let times = self.asof.iter();
        let times = times.flat_map(|a| std::iter::once(&a.time.column).chain(&a.time.clock));
        self.left.iter().chain(times).map(String::as_str)
    }
}
