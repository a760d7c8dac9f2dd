//! Metrics by name, and a metric as text.

use std::collections::BTreeMap;

/// Metrics by name.
pub(crate) type Metrics = BTreeMap<String, f64>;

/// Metrics of these names.
pub(super) fn named<const N: usize>(values: [(&str, f64); N]) -> Metrics {
    values
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// A metric with five significant digits or so; a whole number as it is.
pub(crate) fn metric(value: f64) -> String {
    match value.abs() {
        m if m.fract() == 0.0 && m < 1e9 => format!("{value:.0}"),
        m if m >= 1e7 || (m > 0.0 && m < 1e-3) => format!("{value:.4e}"),
        m if m >= 1_000.0 => format!("{value:.1}"),
        _ => format!("{value:.4}"),
    }
}
