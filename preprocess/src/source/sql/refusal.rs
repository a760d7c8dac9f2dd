//! Refusal of a query, by its key in the configuration.

use crate::Error;

/// Key of the query in the configuration.
pub(super) const KEY: &str = "dataset.sql";

/// A query that is refused for `reason`.
pub(super) fn refuse(reason: String) -> Error {
    Error::config(KEY, reason)
}
