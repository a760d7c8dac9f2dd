//! Walk over the rows of two sources in the order of time: each row of one finds the latest earlier
//! row of the other.

use arrow::{
    array::{Array, AsArray, RecordBatch},
    datatypes::{Int64Type, UInt64Type},
};
use feedline_schemas::{config::JoinDuplicates, ids::Origin};

use crate::{Error, operators::time_series::shown, schema::system_columns::column};

/// `utf8`, the key; null for none.
pub(super) const KEY: &str = "_join_key";
/// `i64`, microseconds since 1970; null where the time cannot be read.
pub(super) const TIME: &str = "_join_time";
/// `bool`, whether the row is one of the joined source.
pub(super) const THEIRS: &str = "_join_theirs";
/// `u64`, [`Origin`] within its source.
pub(super) const ORIGIN: &str = "_join_origin";

/// Rule that decides which rows of the joined source match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    /// Greatest age, in microseconds.
    pub(super) tolerance: Option<i64>,
    /// True if a row with the same time counts.
    pub(super) exact: bool,
    pub(super) duplicates: JoinDuplicates,
    /// The joined source.
    pub(super) source: String,
    /// Key that decides between several matches.
    pub(super) key: String,
}

impl Rule {
    fn fits(&self, age: i64) -> bool {
        let is_before = age > 0 || (self.exact && age == 0);
        is_before && self.tolerance.is_none_or(|most| age <= most)
    }

    fn twice(&self, key: &str, time: i64, origins: [u64; 2]) -> Error {
        let [one, other] = origins.map(|origin| {
            let origin = Origin::from_packed(origin);
            format!("row {} of batch {}", origin.row(), origin.sequence())
        });
        let of_key = match key {
            "" => String::new(),
            key => format!(" of `{key}`"),
        };
        let reason = format!(
            "two rows{of_key} in source `{}` are at {} ({one} and {other}), so neither is the newest; say which of them is \
             taken, the `first` or the `last`, or land one of them",
            self.source,
            shown(time)
        );
        Error::config(self.key.clone(), reason)
    }
}

/// A row of the dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Its place in the batch.
    pub(super) row: usize,
    /// Position of its partner, and the partner's age in microseconds.
    pub(super) partner: Option<(Place, i64)>,
}

/// Position of a row of the joined source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In a batch before this one.
    Before,
    /// In this one.
    Here(usize),
}

/// The newest row of the joined source that has come by.
#[derive(Clone, Debug)]
struct Newest {
    key: String,
    time: i64,
    origin: u64,
    place: Place,
    is_used: bool,
}

/// Goes over the rows of both sources, sorted by key and time.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    rule: Rule,
    newest: Option<Newest>,
    /// Rows of the dataset that found a partner so far.
    pub(super) matched: u64,
    /// Rows of the joined source that were one.
    pub(super) used: u64,
    /// Rows of the joined source with a key and a time.
    pub(super) placed: u64,
}

impl Walk {
    pub(super) const fn new(rule: Rule) -> Self {
        Self {
            rule,
            newest: None,
            matched: 0,
            used: 0,
            placed: 0,
        }
    }

    /// The rows of the dataset in `batch`, in its order.
    ///
    /// # Errors
    /// [`Error::Config`] for two rows of the joined source at one time, where none of them is to be taken.
    pub(super) fn over(&mut self, batch: &RecordBatch) -> Result<Vec<Found>, Error> {
        let keys = column(batch, KEY).as_string::<i32>();
        let times = column(batch, TIME).as_primitive::<Int64Type>();
        let theirs = column(batch, THEIRS).as_boolean();
        let origins = column(batch, ORIGIN).as_primitive::<UInt64Type>();
        let mut found = Vec::new();
        for row in 0..batch.num_rows() {
            let key = keys.is_valid(row).then(|| keys.value(row));
            let time = times.is_valid(row).then(|| times.value(row));
            let at = key.zip(time);
            if !theirs.value(row) {
                let partner = at.and_then(|(key, time)| self.partner(key, time));
                found.push(Found { row, partner });
            } else if let Some((key, time)) = at {
                self.placed += 1;
                self.pass(key, time, origins.value(row), row)?;
            }
        }
        Ok(found)
    }

    /// The place in the batch that just went by of a row that rows of later ones may find.
    pub(super) fn carry(&mut self) -> Option<usize> {
        let newest = self.newest.as_mut()?;
        match std::mem::replace(&mut newest.place, Place::Before) {
            Place::Here(row) => Some(row),
            Place::Before => None,
        }
    }

    fn pass(&mut self, key: &str, time: i64, origin: u64, row: usize) -> Result<(), Error> {
        let place = Place::Here(row);
        match &mut self.newest {
            Some(newest) if newest.key == key => {
                if newest.time == time && self.rule.duplicates == JoinDuplicates::Error {
                    return Err(self.rule.twice(key, time, [newest.origin, origin]));
                }
                (newest.time, newest.origin) = (time, origin);
                (newest.place, newest.is_used) = (place, false);
            }
            other => {
                *other = Some(Newest {
                    key: key.to_owned(),
                    time,
                    origin,
                    place,
                    is_used: false,
                });
            }
        }
        Ok(())
    }

    fn partner(&mut self, key: &str, time: i64) -> Option<(Place, i64)> {
        let newest = self.newest.as_mut().filter(|newest| newest.key == key)?;
        let age = time.saturating_sub(newest.time);
        if !self.rule.fits(age) {
            return None;
        }
        self.matched += 1;
        self.used += u64::from(!newest.is_used);
        newest.is_used = true;
        Some((newest.place, age))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_older_is_never_taken_whatever_the_order_of_rows() {
        for (exact, tolerance, expected) in [
            (false, None, [false, false, true, true]),
            (true, None, [false, true, true, true]),
            (true, Some(1), [false, true, true, false]),
        ] {
            let rule = Rule {
                tolerance,
                exact,
                duplicates: JoinDuplicates::Error,
                source: "b".into(),
                key: "dataset.join.0.duplicates".into(),
            };
            assert_eq!([-1, 0, 1, 2].map(|age| rule.fits(age)), expected);
        }
    }
}
