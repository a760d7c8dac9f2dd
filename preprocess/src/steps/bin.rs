//! `bin`: numbers replaced by the number of their bin.
//!
//! The boundaries are those of scikit-learn's `KBinsDiscretizer` (1.9, `quantile_method = "linear"`):
//! quantiles are interpolated linearly, and a value equal to a boundary is in the bin above it.
//! pandas' `qcut` puts such a value in the bin below. Two differences from scikit-learn: boundaries
//! are merged only where they are equal, not where they are within 1e-8, and a missing value stays
//! missing instead of being refused.

use std::sync::Arc;

use feedline_schemas::{
    steps::{BinStrategy, Binning, FittedBin},
    transform::FittedStep,
};

use super::{ColumnWarning, FittedColumn, NumberFormat};
use crate::{Error, fit::Fit, quantile::Wanted, transform::CellOp};

/// Quantiles of one search, which bounds its memory.
const AT_ONCE: usize = 20;

impl Fit {
    pub(super) async fn bin(
        &self,
        names: &[String],
        step: Binning,
    ) -> Result<Vec<FittedBin>, Error> {
        let bins = step.bins.get();
        let boundaries = match step.strategy {
            BinStrategy::Quantile => self.quantile_boundaries(names, bins).await?,
            BinStrategy::Uniform => self.uniform_boundaries(names, bins).await?,
        };
        let fitted = names.iter().zip(boundaries);
        let fitted = fitted.map(|(name, boundaries)| FittedBin {
            name: name.clone(),
            strategy: step.strategy,
            bins,
            boundaries: merged(boundaries),
        });
        Ok(fitted.collect())
    }

    async fn quantile_boundaries(
        &self,
        names: &[String],
        bins: u32,
    ) -> Result<Vec<Vec<f64>>, Error> {
        let shares = (0..=bins).map(|i| Wanted::Percentile(f64::from(i) / f64::from(bins)));
        let shares: Vec<Wanted> = shares.collect();
        let parts = names.iter().flat_map(|name| {
            let parts = shares.chunks(AT_ONCE);
            parts.map(|part| (self.cell(name), part.to_vec()))
        });
        let found = self.rows.quantiles(parts.collect()).await?;
        let of_column = found.chunks(shares.len().div_ceil(AT_ONCE));
        let columns = names.iter().zip(of_column).map(|(name, parts)| {
            let parts = parts.iter().map(|part| part.quantiles.as_deref());
            let parts: Option<Vec<_>> = parts.collect();
            let parts = parts.ok_or_else(|| self.nothing_to_fit("bin", name))?;
            Ok(parts.concat().iter().map(|found| found.value).collect())
        });
        columns.collect()
    }

    async fn uniform_boundaries(
        &self,
        names: &[String],
        bins: u32,
    ) -> Result<Vec<Vec<f64>>, Error> {
        let profiles = self.profiles(names).await?;
        let columns = names.iter().zip(profiles).map(|(name, profile)| {
            let range = profile.range();
            let (min, max) = range.ok_or_else(|| self.nothing_to_fit("bin", name))?;
            Ok(even(min, max, bins))
        });
        columns.collect()
    }
}

/// Boundaries of `bins` bins of the same width, as numpy's `linspace` computes them.
fn even(min: f64, max: f64, bins: u32) -> Vec<f64> {
    let count = f64::from(bins);
    let width = (max - min) / count;
    let boundary = |i: u32| match i {
        0 => min,
        _ if i == bins => max,
        _ if width.is_finite() => f64::from(i) * width + min,
        // The range is beyond the largest float.
        _ => min * (1.0 - f64::from(i) / count) + max * (f64::from(i) / count),
    };
    (0..=bins).map(boundary).collect()
}

/// Each boundary once; interpolation in floats may leave two out of order by a rounding.
fn merged(mut boundaries: Vec<f64>) -> Vec<f64> {
    boundaries.iter_mut().for_each(|boundary| *boundary += 0.0);
    boundaries.sort_by(f64::total_cmp);
    boundaries.dedup_by(|a, b| *a <= *b);
    boundaries
}

/// Boundaries of the bins of a column, for its operation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BinBoundaries(Arc<[f64]>);

impl BinBoundaries {
    /// Smallest and largest training value; NaN of no boundaries.
    pub(crate) fn range(&self) -> (f64, f64) {
        let end = |end: Option<&f64>| end.copied().unwrap_or(f64::NAN);
        (end(self.0.first()), end(self.0.last()))
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

impl FittedColumn for FittedBin {
    fn name(&self) -> &str {
        &self.name
    }

    fn label(&self) -> &'static str {
        "bin"
    }

    fn operation(&self) -> Option<CellOp> {
        let boundaries = self.boundaries.as_slice().into();
        Some(CellOp::Bin(BinBoundaries(boundaries)))
    }

    fn is_constant(&self) -> bool {
        self.boundaries.len() < 2
    }

    fn warning(&self) -> Option<ColumnWarning> {
        let (found, wanted) = (self.boundaries.len().saturating_sub(1), self.bins);
        let is_merged = found > 0 && found < wanted as usize;
        is_merged.then(|| ColumnWarning {
            code: "bins_merged",
            problem: "equal boundaries of `bin` were merged, since many rows have one value",
            figures: format!("{found} of {wanted} bins"),
            advice: "a column of 1 bin is constant; set fewer `bins`, or `strategy = \"uniform\"`",
        })
    }

    fn describe(&self, _: &FittedStep, number: NumberFormat) -> Vec<String> {
        let (name, bins) = (&self.name, self.boundaries.len().saturating_sub(1));
        let strategy = match self.strategy {
            BinStrategy::Quantile => "quantiles",
            BinStrategy::Uniform => "equal width",
        };
        let boundaries = self.boundaries.iter().map(|boundary| number(*boundary));
        let boundaries: Vec<String> = boundaries.collect();
        vec![
            format!("{name}: {bins} of {} bins by {strategy}", self.bins),
            format!("  boundaries {}", boundaries.join(", ")),
        ]
    }
}

#[cfg(test)]
mod tests;
