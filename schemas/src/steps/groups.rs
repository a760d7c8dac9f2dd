//! Groups of rows with separate statistics, for `winsorize` and `standardize`.

use crate::config::{bounded::Bounded, tagged::KeyError};

/// Groups by a categorical column, each with separate statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    /// The column.
    pub by: String,
    /// Fewest finite training values of a group with separate statistics.
    pub min_count: Bounded<u64, 1, { u64::MAX }>,
}

impl Groups {
    /// Groups of `by` with the default of `min_count`.
    #[must_use]
    pub fn new(by: String) -> Self {
        let min_count = Bounded::literal::<30>();
        Self { by, min_count }
    }

    pub(super) fn read(
        by: Option<String>,
        min_count: Option<Bounded<u64, 1, { u64::MAX }>>,
    ) -> Result<Option<Self>, KeyError> {
        match (by, min_count) {
            (Some(by), min_count) => {
                let plain = Self::new(by);
                let min_count = min_count.unwrap_or(plain.min_count);
                Ok(Some(Self { min_count, ..plain }))
            }
            (None, Some(_)) => {
                let reason = "this key counts the values of a group: name the column of groups with `by`, or remove it";
                Err(KeyError::new("min_count", reason))
            }
            (None, None) => Ok(None),
        }
    }
}
