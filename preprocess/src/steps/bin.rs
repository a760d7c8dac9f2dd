//! `bin`: numbers replaced by the number of their bin.
//!
//! The boundaries are those of scikit-learn's `KBinsDiscretizer` (1.9, `quantile_method = "linear"`):
//! quantiles are interpolated linearly, and a value equal to a boundary is in the bin above it.
//! pandas' `qcut` puts such a value in the bin below. Two differences from scikit-learn: boundaries
//! are merged only where they are equal, not where they are within 1e-8, and a missing value stays
//! missing instead of being refused.

use feedline_schemas::{
    steps::{BinStrategy, Binning, FittedBin},
    transform::FittedStep,
};

use super::fitted_column::{ColumnWarning, FittedColumn, NumberFormat};
use crate::{
    Error,
    fit::Fit,
    statistics::quantile::Wanted,
    transform::{BinBoundaries, CellOp},
};

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

impl FittedColumn for FittedBin {
    fn name(&self) -> &str {
        &self.name
    }

    fn label(&self) -> &'static str {
        "bin"
    }

    fn operation(&self) -> Option<CellOp> {
        let boundaries = self.boundaries.as_slice().into();
        Some(CellOp::Bin(BinBoundaries::new(boundaries)))
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
