//! Duplicates: equal rows, rows equal but for their target, near-duplicate texts.

pub(crate) mod conflicts;
pub(crate) mod content_hash;
pub(crate) mod duplicate_samples;
pub(crate) mod near;
