//! Cells of a column between edges, counted.

/// Mergeable counts: bin i holds the values greater than edge i-1 and at most edge i, the first and
/// the last the values outside.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bins {
    edges: Vec<f64>,
    counts: Vec<u64>,
    missing: u64,
}

impl Bins {
    /// Empty bins between `edges`, which ascend.
    pub(crate) fn new(edges: Vec<f64>) -> Self {
        Self {
            counts: vec![0; edges.len() + 1],
            edges,
            missing: 0,
        }
    }

    /// As [`Self::new`], from little-endian floats; `None` for other bytes.
    pub(crate) fn from_edges(bytes: &[u8]) -> Option<Self> {
        let (edges, rest) = bytes.as_chunks::<8>();
        let edges: Vec<f64> = edges.iter().map(|edge| f64::from_le_bytes(*edge)).collect();
        let ascend = edges.windows(2).all(|pair| pair[0] < pair[1]);
        (rest.is_empty() && ascend && edges.iter().all(|e| !e.is_nan())).then(|| Self::new(edges))
    }

    /// Cells of each bin.
    pub(crate) fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Cells without a number.
    pub(crate) fn missing(&self) -> u64 {
        self.missing
    }

    /// All cells.
    pub(crate) fn cells(&self) -> u64 {
        self.missing + self.counts.iter().sum::<u64>()
    }

    /// Looks at values; NaN is missing.
    pub(crate) fn add_all(&mut self, values: &[f64]) {
        for value in values {
            if value.is_nan() {
                self.missing += 1;
            } else {
                let bin = self.edges.partition_point(|edge| edge < value);
                self.counts[bin] += 1;
            }
        }
    }

    /// Looks at `count` missing cells.
    pub(crate) fn add_missing(&mut self, count: u64) {
        self.missing += count;
    }

    /// Bytes held.
    pub(crate) fn size(&self) -> usize {
        size_of::<Self>() + 8 * (self.edges.len() + self.counts.len())
    }

    /// The counts as bytes: missing cells, then the bins.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let counts = std::iter::once(&self.missing).chain(&self.counts);
        counts.flat_map(|count| count.to_le_bytes()).collect()
    }

    /// Adds another part's counts; `None` when `bytes` are not those of these bins.
    pub(crate) fn merge_bytes(&mut self, bytes: &[u8]) -> Option<()> {
        let (counts, rest) = bytes.as_chunks::<8>();
        let (missing, counts) = counts.split_first()?;
        if !rest.is_empty() || counts.len() != self.counts.len() {
            return None;
        }
        self.missing += u64::from_le_bytes(*missing);
        for (own, other) in self.counts.iter_mut().zip(counts) {
            *own += u64::from_le_bytes(*other);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_value_on_an_edge_belongs_below_it_and_infinities_to_the_ends() {
        let mut bins = Bins::new(vec![0.0, 1.0]);
        bins.add_all(&[
            f64::NEG_INFINITY,
            -0.0,
            0.5,
            1.0,
            1.5,
            f64::INFINITY,
            f64::NAN,
        ]);
        bins.add_missing(2);
        assert_eq!(bins.counts(), [2, 2, 2]);
        assert_eq!((bins.missing(), bins.cells()), (3, 9));
    }

    #[test]
    fn edges_that_do_not_ascend_and_other_bytes_are_refused() {
        let edges =
            |edges: &[f64]| -> Vec<u8> { edges.iter().flat_map(|e| e.to_le_bytes()).collect() };
        assert_eq!(Bins::from_edges(&edges(&[])), Some(Bins::new(vec![])));
        assert!(Bins::from_edges(&edges(&[1.0, 1.0])).is_none());
        assert!(Bins::from_edges(&edges(&[f64::NAN])).is_none());
        assert!(Bins::from_edges(&[0; 9]).is_none());
        let mut bins = Bins::new(vec![1.0]);
        assert!(bins.merge_bytes(&Bins::new(vec![]).to_bytes()).is_none());
        assert!(bins.merge_bytes(&[]).is_none());
    }

    proptest! {
        #[test]
        fn parts_merge_to_the_whole(values: Vec<f64>, cut: prop::sample::Index, mut edges: Vec<f64>) {
            edges.retain(|edge| !edge.is_nan());
            edges.sort_by(f64::total_cmp);
            edges.dedup_by(|a, b| *a <= *b);
            let cut = cut.index(values.len() + 1);
            let of = |values: &[f64]| {
                let mut bins = Bins::new(edges.clone());
                bins.add_all(values);
                bins
            };
            let mut merged = of(&values[..cut]);
            merged.merge_bytes(&of(&values[cut..]).to_bytes()).unwrap();
            prop_assert_eq!(&merged, &of(&values));
            prop_assert_eq!(merged.cells(), values.len() as u64);
        }
    }
}
