//! Reasons for rows that cannot become features.

/// A numeric cell is missing and no step filled it.
pub(crate) const MISSING_VALUE: &str = "missing_value";
/// A cell or the target is infinite after all steps.
pub(crate) const NOT_FINITE: &str = "not_finite";
/// A cell or the target is finite but beyond the range of 32-bit floats.
pub(crate) const TOO_LARGE: &str = "too_large";
/// The target is missing.
pub(crate) const TARGET_MISSING: &str = "target_missing";
/// A category does not occur in the training split, and its step rejects such rows.
pub(crate) const UNKNOWN_CATEGORY: &str = "unknown_category";
/// The class does not occur in the training split.
pub(crate) const UNKNOWN_CLASS: &str = "unknown_class";
