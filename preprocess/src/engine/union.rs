//! Frames, put one below another.

use datafusion::prelude::DataFrame;

use crate::Error;

/// Rows of `below` after those `above`, if there are any.
pub(crate) fn append_rows(above: Option<DataFrame>, below: DataFrame) -> Result<DataFrame, Error> {
    Ok(match above {
        Some(above) => above.union(below)?,
        None => below,
    })
}
