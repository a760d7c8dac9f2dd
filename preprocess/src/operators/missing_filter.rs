//! Rows with too many missing cells.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, StringArray},
    datatypes::DataType,
};
use datafusion::error::Result;
use feedline_schemas::count::counted;
use serde::{Deserialize, Serialize};

use crate::{
    engine::scalar_function::RowFunction,
    schema::reject_reason::{self, Reason},
};

/// Reason to reject a row, from its earlier reason, if any, and its features.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct MissingFilter {
    /// Largest share of the features that may be missing, as bits.
    share: u64,
}

impl MissingFilter {
    /// `share` is in 0 to 1.
    pub(crate) fn new(share: f64) -> Self {
        Self {
            share: share.to_bits(),
        }
    }

    /// Returns true if `missing` of `all` cells are too many.
    #[expect(
        clippy::cast_precision_loss,
        reason = "rows have fewer than 2^53 cells"
    )]
    pub(crate) fn is_too_many(&self, missing: usize, all: usize) -> bool {
        missing as f64 > f64::from_bits(self.share) * all as f64
    }
}

/// Describes a row without `missing` of `all` values, each a `noun`.
pub(crate) fn describe_missing(missing: usize, all: usize, noun: &str) -> String {
    let are = if missing == 1 { "is" } else { "are" };
    format!("{missing} of {} {are} missing", counted(all as u64, noun))
}

impl RowFunction for MissingFilter {
    const NAME: &'static str = "feedline_sparse";
    const RETURNS: DataType = DataType::Utf8;

    fn call(&self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let (reasons, cells) = columns.split_first().expect("reasons come before cells");
        let reasons = reasons.as_string::<i32>();
        let reason = |row: usize| {
            if reasons.is_valid(row) {
                return Some(reasons.value(row).to_owned());
            }
            let missing = cells.iter().filter(|cells| cells.is_null(row)).count();
            self.is_too_many(missing, cells.len()).then(|| {
                let reason = Reason {
                    reason: reject_reason::TOO_MANY_MISSING.to_owned(),
                    column: String::new(),
                    value: describe_missing(missing, cells.len(), "feature"),
                };
                reason.to_json()
            })
        };
        Ok(Arc::new((0..rows).map(reason).collect::<StringArray>()))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Float64Array;

    use super::*;

    #[test]
    fn missing_values_are_described_in_the_singular_and_the_plural() {
        for (missing, all, expected) in [
            (1, 1, "1 of 1 input is missing"),
            (1, 3, "1 of 3 inputs is missing"),
            (2, 3, "2 of 3 inputs are missing"),
        ] {
            assert_eq!(describe_missing(missing, all, "input"), expected);
        }
    }

    #[test]
    fn rows_that_lack_more_than_the_share_are_set_aside_and_old_reasons_stay() {
        let reasons: ArrayRef = Arc::new(StringArray::from(vec![None, None, None, Some("old")]));
        let a: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.0), None, None, None]));
        let b: ArrayRef = Arc::new(StringArray::from(vec![Some("x"), Some("x"), None, None]));
        let found = |share: f64| {
            let columns = [&reasons, &a, &b].map(Arc::clone);
            let found = MissingFilter::new(share).call(&columns, 4).unwrap();
            let found = found.as_string::<i32>().clone();
            found
                .iter()
                .map(|reason| reason.map(str::to_owned))
                .collect::<Vec<_>>()
        };
        let half = found(0.5);
        assert_eq!(half[..2], [None, None]);
        assert_eq!(
            Reason::from_json(half[2].as_deref().unwrap()).value,
            "2 of 2 features are missing"
        );
        assert_eq!(half[3].as_deref(), Some("old"));
        assert!(found(0.49)[1].is_some());
        assert!(found(0.0)[0].is_none());
        assert!(found(1.0)[2].is_none());
    }
}
