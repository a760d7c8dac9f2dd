//! Reading of rows in one format.

use super::{assembly::Assembly, names::Named};

/// Reads rows of one format. Wanted columns are known by their place: the inputs, then those that are carried along.
pub(super) trait RowReader: Send {
    /// Columns of the file, if it lists them beforehand.
    fn columns(&self) -> Option<&Named>;

    /// Delimiter that was detected in place of the usual one.
    fn detected_delimiter(&self) -> Option<char> {
        None
    }

    /// Adds some rows, good or bad; `false` at the end.
    ///
    /// # Errors
    /// The reason why the rest is unreadable.
    fn fill(&mut self, rows: &mut Assembly) -> Result<bool, String>;
}
