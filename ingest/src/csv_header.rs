//! Names in the header of a CSV file.

use feedline_readers::{
    file_format::Kind,
    rows::{Layout, Rows},
};

/// Code of the warning about a file without a column of the files read before it.
pub(crate) const NO_COMMON_COLUMN: &str = "no_common_column";

/// Returns true if the columns of a file have the names in its first line.
pub(crate) fn has_header(layout: &Layout) -> bool {
    matches!(layout.kind, Kind::Csv { .. }) && layout.csv.header && layout.csv.columns.is_empty()
}

/// Names in the header line of a CSV file; none of other files.
///
/// # Errors
/// Those of the reader.
pub(crate) fn header_of(rows: &mut dyn Rows, layout: &Layout) -> Result<Vec<String>, String> {
    match has_header(layout) {
        true => Ok(rows.columns()?.unwrap_or_default()),
        false => Ok(Vec::new()),
    }
}
