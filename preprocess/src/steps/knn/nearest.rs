//! The nearest so far of a missing cell.

/// At most `k` rows by distance, the nearest first, the earlier of two that are equally near.
#[derive(Clone, Debug)]
pub(super) struct Nearest {
    k: usize,
    /// Squares of distances, each divided by the columns that were shared, and rows.
    rows: Vec<(f64, usize)>,
}

impl Nearest {
    pub(super) fn new(k: usize) -> Self {
        Self {
            k,
            rows: Vec::new(),
        }
    }

    /// Only what is below can still become one of the nearest.
    pub(super) fn limit(&self) -> f64 {
        match self.rows.last() {
            Some((worst, _)) if self.rows.len() == self.k => *worst,
            _ => f64::INFINITY,
        }
    }

    /// Looks at a row behind all others it has seen.
    pub(super) fn see(&mut self, distance: f64, row: usize) {
        if self.rows.len() == self.k && distance >= self.limit() {
            return;
        }
        self.rows.truncate(self.k - 1);
        let at = self.rows.partition_point(|(other, _)| *other <= distance);
        self.rows.insert(at, (distance, row));
    }

    /// The distance of the nearest.
    pub(super) fn best(&self) -> Option<f64> {
        self.rows.first().map(|(distance, _)| *distance)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (f64, usize)> {
        self.rows.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_equally_near_rows_the_first_are_kept() {
        let mut nearest = Nearest::new(2);
        for (row, distance) in [3.0, 1.0, 1.0, 1.0, 0.5].into_iter().enumerate() {
            nearest.see(distance, row);
        }
        assert_eq!(nearest.iter().collect::<Vec<_>>(), [(0.5, 4), (1.0, 1)]);
        assert_eq!((nearest.limit(), nearest.best()), (1.0, Some(0.5)));
    }

    #[test]
    fn one_that_is_not_full_takes_any() {
        let mut nearest = Nearest::new(3);
        assert_eq!((nearest.limit(), nearest.best()), (f64::INFINITY, None));
        nearest.see(f64::INFINITY, 7);
        assert_eq!(nearest.iter().collect::<Vec<_>>(), [(f64::INFINITY, 7)]);
    }
}
