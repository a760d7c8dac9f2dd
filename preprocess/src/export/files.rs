//! Formats as writers of parts.

use arrow::array::{Array as _, RecordBatch};

use super::out::StoredFile;
use crate::Error;

/// Writes the rows of a part. Its functions block the thread.
pub(super) trait PartWriter: Send {
    /// Writes rows with the columns of the table.
    fn write(&mut self, rows: &RecordBatch) -> Result<(), Error>;

    /// Writes the rest.
    fn finish(self: Box<Self>) -> Result<PartFiles, Error>;
}

/// Files of a part.
#[derive(Debug, Default)]
pub(super) struct PartFiles {
    /// Files with rows, complete.
    pub(super) files: Vec<StoredFile>,
    /// Files that name these, with their content; to be written once all parts are complete.
    pub(super) closing: Vec<(String, Vec<u8>)>,
    /// Numbers that are not finite, where the format has no standard way to write them.
    pub(super) not_finite: u64,
}

/// Sizes of files.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileLimits {
    /// Rows of a file, at most.
    pub(super) rows: u64,
    /// Bytes of a file; the row or the group of rows that reaches them is its last.
    pub(super) bytes: u64,
}

impl FileLimits {
    /// Rows of `rows` from `at` on that a file with `written` rows takes next, at least one. In memory they have the bytes of a
    /// file at most, about.
    pub(super) fn next_rows(&self, written: u64, rows: &RecordBatch, at: usize) -> usize {
        let left = usize::try_from(self.rows - written).unwrap_or(usize::MAX);
        left.min(rows.num_rows() - at).min(self.rows_of_file(rows))
    }

    /// Rows like these that have the bytes of a file, about, at least one.
    fn rows_of_file(&self, rows: &RecordBatch) -> usize {
        let columns = rows.columns().iter();
        let bytes = columns.map(|column| column.to_data().get_slice_memory_size());
        let bytes: usize = bytes.map(Result::unwrap_or_default).sum();
        let row = (bytes / rows.num_rows().max(1)).max(1) as u64;
        usize::try_from(self.bytes / row)
            .unwrap_or(usize::MAX)
            .max(1)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array};

    use super::*;

    #[test]
    fn rows_that_are_written_together_are_bounded_by_the_rows_and_bytes_of_a_file() {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
        let rows = RecordBatch::try_from_iter([("a", column)]).unwrap();
        let limits = |rows, bytes| FileLimits { rows, bytes };
        assert_eq!(limits(u64::MAX, u64::MAX).next_rows(0, &rows, 0), 1000);
        assert_eq!(limits(u64::MAX, u64::MAX).next_rows(7, &rows, 990), 10);
        assert_eq!(limits(100, u64::MAX).next_rows(60, &rows, 0), 40);
        assert_eq!(limits(100, 80).next_rows(0, &rows, 0), 10);
        assert_eq!(limits(100, 1).next_rows(0, &rows, 0), 1);
    }
}
