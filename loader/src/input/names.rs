//! Names that columns have by custom, where the settings give none.

/// Encoded images.
pub(super) const IMAGES: &[&str] = &["image", "jpg", "jpeg", "png", "img"];
/// Token ids.
pub(super) const TOKENS: &[&str] = &["tokens", "input_ids"];
/// Targets.
pub(super) const TARGETS: &[&str] = &["y", "label", "target", "cls"];
/// Number of classes where the data does not give it: every class that fits in `int32`.
pub(super) const UNKNOWN_CLASSES: u32 = 1 << 31;
