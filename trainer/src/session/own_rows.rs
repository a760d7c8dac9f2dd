//! Rows of a batch that hold their own samples.
//!
//! A loader gives another sample in the place of one that cannot be used. To train on it twice does little harm; measured or
//! predicted, it would be taken for the other.

use std::{borrow::Cow, ops::Range};

use crate::data::samples::RankBatch;

/// Rows of a batch that hold the samples that the order names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnRows {
    /// Rows of the batch.
    rows: usize,
    /// Rows that hold their own samples, in order.
    ranges: Vec<Range<usize>>,
}

impl OwnRows {
    /// Those of a batch.
    pub(crate) fn of(batch: &impl RankBatch) -> Self {
        Self::without(batch.samples().rows(), &batch.substituted())
    }

    /// Those of `rows` that are not among `substituted`, which are in order.
    fn without(rows: usize, substituted: &[usize]) -> Self {
        let mut ranges = Vec::new();
        let mut first = 0;
        for &row in substituted {
            if first < row {
                ranges.push(first..row);
            }
            first = row + 1;
        }
        if first < rows || substituted.is_empty() {
            ranges.push(first..rows);
        }
        Self { rows, ranges }
    }

    /// Returns true if no row holds another sample.
    pub(super) fn are_all(&self) -> bool {
        self.substituted() == 0
    }

    /// Rows that hold another sample.
    pub(super) fn substituted(&self) -> usize {
        self.rows - self.ranges.iter().map(Range::len).sum::<usize>()
    }

    /// Ranges of rows that hold their own samples.
    pub(super) fn ranges(&self) -> &[Range<usize>] {
        &self.ranges
    }

    /// The values of some of the rows; each row has equally many.
    pub(super) fn part<'v, T>(&self, values: &'v [T], rows: &Range<usize>) -> &'v [T] {
        if self.are_all() {
            return values;
        }
        let width = values.len() / self.rows.max(1);
        &values[rows.start * width..rows.end * width]
    }

    /// The values of these rows.
    pub(crate) fn select<'v, T: Clone>(&self, values: &'v [T]) -> Cow<'v, [T]> {
        if self.are_all() {
            return Cow::Borrowed(values);
        }
        let parts = self.ranges.iter().map(|rows| self.part(values, rows));
        Cow::Owned(parts.collect::<Vec<_>>().concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_with_another_sample_are_left_out_wherever_they_are() {
        let check = |substituted: &[usize], expected: &[u32]| {
            let own = OwnRows::without(4, substituted);
            assert_eq!(*own.select(&[0, 1, 2, 3]), *expected, "{substituted:?}");
            let pairs = own.select(&[0, 0, 1, 1, 2, 2, 3, 3]);
            assert_eq!(pairs.len(), 2 * expected.len());
            assert_eq!(own.substituted(), substituted.len());
            assert!(own.ranges().iter().all(|rows| !rows.is_empty()));
        };
        check(&[], &[0, 1, 2, 3]);
        check(&[0], &[1, 2, 3]);
        check(&[1, 2], &[0, 3]);
        check(&[0, 3], &[1, 2]);
        check(&[0, 1, 2, 3], &[]);
    }
}
