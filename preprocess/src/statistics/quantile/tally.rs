//! Counts of the cells of a column that are ordinary numbers, and of those that are not.

/// Counts by kind; every cell is of exactly one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Finite values: the ones statistics are made of.
    pub(crate) finite: u64,
    /// Null or NaN.
    pub(crate) missing: u64,
    /// Negative infinities.
    pub(crate) low_infinite: u64,
    /// Positive infinities.
    pub(crate) high_infinite: u64,
}

impl Tally {
    /// Bytes of [`Self::to_bytes`].
    pub(crate) const BYTES: usize = 32;

    /// Counts `values` and hands on the finite ones.
    #[inline]
    pub(crate) fn add_all(&mut self, values: &[f64], mut finite: impl FnMut(f64)) {
        for value in values {
            if value.is_finite() {
                self.finite += 1;
                finite(*value);
            } else if value.is_nan() {
                self.missing += 1;
            } else if *value < 0.0 {
                self.low_infinite += 1;
            } else {
                self.high_infinite += 1;
            }
        }
    }

    /// All cells.
    pub(crate) fn cells(&self) -> u64 {
        self.finite + self.missing + self.low_infinite + self.high_infinite
    }

    /// Adds the counts of another part of the column.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.finite += other.finite;
        self.missing += other.missing;
        self.low_infinite += other.low_infinite;
        self.high_infinite += other.high_infinite;
    }

    /// The four counts, little-endian.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let counts = [
            self.finite,
            self.missing,
            self.low_infinite,
            self.high_infinite,
        ];
        counts.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    /// Reads what [`Self::to_bytes`] wrote, and returns the bytes after it.
    pub(crate) fn take(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (own, rest) = bytes.split_first_chunk::<{ Self::BYTES }>()?;
        let count = |i: usize| u64::from_le_bytes(std::array::from_fn(|byte| own[8 * i + byte]));
        Some((
            Self {
                finite: count(0),
                missing: count(1),
                low_infinite: count(2),
                high_infinite: count(3),
            },
            rest,
        ))
    }
}
