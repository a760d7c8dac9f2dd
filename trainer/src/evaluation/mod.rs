//! Measurement of a model on a split: metrics, beside those of a baseline.

pub(crate) mod baseline;
pub(crate) mod evaluate;
pub(crate) mod metrics;
