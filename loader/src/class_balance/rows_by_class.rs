//! The rows of a block in the order of their classes.

/// Rows in the order of their classes, and within a class in stored order. Rows whose class is none
/// of the dataset's are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ByClass {
    rows: Box<[u32]>,
    counts: Vec<(u32, u32)>,
}

impl ByClass {
    /// Sorts rows that have these classes, of `classes` that there are.
    pub(crate) fn new(labels: &[i32], classes: u32) -> Self {
        let mut rows: Vec<(u32, u32)> = (labels.iter().zip(0..))
            .filter_map(|(label, row)| Some((u32::try_from(*label).ok()?, row)))
            .filter(|(class, _)| *class < classes)
            .collect();
        rows.sort_unstable();
        let of_classes = rows.chunk_by(|a, b| a.0 == b.0);
        Self {
            counts: of_classes
                .map(|same| (same[0].0, u32::try_from(same.len()).unwrap_or(u32::MAX)))
                .collect(),
            rows: rows.into_iter().map(|(_, row)| row).collect(),
        }
    }

    /// Classes and how many rows each has, in ascending order.
    pub(crate) fn counts(&self) -> &[(u32, u32)] {
        &self.counts
    }

    /// The row at an index of the order, modulo its length: a block that replaces another may have
    /// fewer rows of classes. `None` when there are none.
    pub(crate) fn row(&self, rank: u32) -> Option<u32> {
        let rank = (rank as usize).checked_rem(self.rows.len())?;
        Some(self.rows[rank])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_in_the_order_of_their_classes_and_those_of_none_are_left_out() {
        let by_class = ByClass::new(&[3, 0, -1, 3, 9, 0, 0], 9);
        assert_eq!(by_class.counts(), [(0, 3), (3, 2)]);
        let rows = (0..7).map(|rank| by_class.row(rank).unwrap());
        assert_eq!(rows.collect::<Vec<_>>(), [1, 5, 6, 0, 3, 1, 5]);
        assert_eq!(ByClass::new(&[-1], 9).row(0), None);
    }
}
