//! Splitting by order: of the characters of a document, or of rows as they landed.
//!
//! The training part comes first, then validation, then test, so a model is measured on later data
//! than it learnt from. Rows that look back (lags, windows) reach over the boundary: an embargo
//! rejects that many rows after it.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, StringArray, UInt8Array},
    datatypes::{DataType, UInt64Type},
};
use datafusion::error::Result as EngineResult;
use feedline_schemas::{
    config::{self, SplitConfig},
    manifest::Split,
};
use serde::{Deserialize, Serialize};

use crate::{
    engine::scalar_function::RowFunction,
    operators::split::code,
    schema::reject_reason::{self, Reason},
};

/// Ends of the training and validation parts, as fractions of all rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Ends([u64; 2]);

impl Ends {
    /// `config`'s fractions are in 0 to 1 and add up to 1.
    pub(crate) fn new(config: &SplitConfig) -> Self {
        // A split of share 0 must stay empty whatever the shares' rounding leaves at the end.
        let train = match config.validation > 0.0 || config.test > 0.0 {
            true => config.train,
            false => 1.0,
        };
        let validation = match config.test > 0.0 {
            true => config.train + config.validation,
            false => 1.0,
        };
        Self([train, validation].map(f64::to_bits))
    }

    /// The ends among `count`. The training part has one at least, as long as there is any.
    pub(crate) fn among(self, count: u64) -> [u64; 2] {
        let [train, validation] = self.0.map(|share| share_of(count, f64::from_bits(share)));
        let train = train.max(1).min(count);
        [train, validation.max(train)]
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts stay below 2^53, and a share is 0 to 1"
)]
fn share_of(count: u64, share: f64) -> u64 {
    ((count as f64 * share).floor() as u64).min(count)
}

/// Boundaries between splits among rows in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Borders {
    ends: [u64; 2],
    embargo: u64,
}

impl Borders {
    /// Among `rows`.
    pub(crate) fn new(config: &SplitConfig, rows: u64) -> Self {
        Self {
            ends: Ends::new(config).among(rows),
            embargo: match config.embargo() {
                config::Embargo::Count(rows) => rows,
                config::Embargo::Span(_) => 0,
            },
        }
    }

    /// The split of the row at `place`, from 0, and whether it is too near to the one before.
    fn split_of(self, place: u64) -> (Split, bool) {
        let [train, validation] = self.ends;
        let (split, start) = match place {
            _ if place < train => return (Split::Train, false),
            _ if place < validation => (Split::Validation, train),
            _ => (Split::Test, validation),
        };
        (split, place - start < self.embargo)
    }
}

/// Split of rows by their place, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct ByPlace(pub(crate) Borders);

impl RowFunction for ByPlace {
    const NAME: &'static str = "feedline_split_by_place";
    const RETURNS: DataType = DataType::UInt8;

    fn call(&self, columns: &[ArrayRef], _: usize) -> EngineResult<ArrayRef> {
        let places = columns[0].as_primitive::<UInt64Type>().values().iter();
        let codes = places.map(|place| code(self.0.split_of(place - 1).0));
        Ok(Arc::new(UInt8Array::from_iter_values(codes)))
    }
}

/// Reason to reject a row, from its earlier reason, if any, and its position, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Embargo(pub(crate) Borders);

impl RowFunction for Embargo {
    const NAME: &'static str = "feedline_embargo";
    const RETURNS: DataType = DataType::Utf8;

    fn call(&self, columns: &[ArrayRef], rows: usize) -> EngineResult<ArrayRef> {
        let reasons = columns[0].as_string::<i32>();
        let places = columns[1].as_primitive::<UInt64Type>();
        let reason = |row: usize| {
            if reasons.is_valid(row) {
                return Some(reasons.value(row).to_owned());
            }
            let (split, near) = self.0.split_of(places.value(row) - 1);
            let reason = Reason {
                reason: reject_reason::EMBARGO.to_owned(),
                column: String::new(),
                value: format!("among the first rows of the {split} split"),
            };
            near.then(|| reason.to_json())
        };
        Ok(Arc::new((0..rows).map(reason).collect::<StringArray>()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_behind_a_border_are_too_near_to_the_split_before() {
        let config = SplitConfig {
            train: 0.5,
            validation: 0.3,
            test: 0.2,
            by: config::SplitBy::Range { embargo: 2 },
            ..SplitConfig::default()
        };
        let borders = Borders::new(&config, 10);
        let splits: String = (0..10)
            .map(|place| match borders.split_of(place) {
                (Split::Train, false) => 't',
                (Split::Validation, false) => 'v',
                (Split::Test, false) => 'e',
                (Split::Train, true) => '!',
                (_, true) => '-',
            })
            .collect();
        assert_eq!(splits, "ttttt--v--");
    }
}
