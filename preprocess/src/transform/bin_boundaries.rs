//! Boundaries of the bins of a column, and the bin of a cell.

use std::sync::Arc;

/// Boundaries of the bins of a column, for its operation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BinBoundaries(Arc<[f64]>);

impl BinBoundaries {
    /// Takes boundaries in ascending order.
    pub(crate) fn new(boundaries: Arc<[f64]>) -> Self {
        Self(boundaries)
    }

    /// Number of the bin of `cell`, from 0: that of the boundaries between bins up to it. A missing
    /// cell stays missing.
    #[inline]
    pub(crate) fn bin_of(&self, cell: f64) -> f64 {
        if cell.is_nan() {
            return cell;
        }
        let between = self.0.get(1..self.0.len().saturating_sub(1));
        let below = between.map_or(0, |all| all.partition_point(|boundary| *boundary <= cell));
        as_float(below)
    }

    /// Middle of the bin whose number is nearest to `bin`.
    pub(crate) fn middle_of(&self, bin: f64) -> f64 {
        let Some(last) = self.0.len().checked_sub(2) else {
            return self.0.first().copied().unwrap_or(bin);
        };
        if bin.is_nan() {
            return bin;
        }
        let mut above = (1..=last).rev();
        let at = above.find(|at| bin >= as_float(*at) - 0.5).unwrap_or(0);
        f64::midpoint(self.0[at], self.0[at + 1])
    }

    /// Number of boundaries.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Appends the boundaries, little-endian.
    pub(crate) fn append_to(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.0.iter().flat_map(|boundary| boundary.to_le_bytes()));
    }

    /// Reads `count` boundaries and returns the bytes after them.
    pub(crate) fn take(bytes: &[u8], count: usize) -> Option<(Self, &[u8])> {
        let (own, rest) = bytes.split_at_checked(count.checked_mul(8)?)?;
        let (own, _) = own.as_chunks::<8>();
        let boundaries = own.iter().map(|boundary| f64::from_le_bytes(*boundary));
        Some((Self(boundaries.collect()), rest))
    }
}

/// A number of bins, at most 100, as a float.
fn as_float(bins: usize) -> f64 {
    u32::try_from(bins).map_or(f64::INFINITY, f64::from)
}
