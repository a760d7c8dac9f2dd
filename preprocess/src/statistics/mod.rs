//! Exact statistics of columns, the same for any order and any partitioning of the rows.

pub(crate) mod aggregates;
pub(crate) mod exact_sum;
pub(crate) mod profile;
pub(crate) mod quantile;
pub(crate) mod target_leakage;
