//! Names that columns have by custom, where the settings give none, and names of the elements of a row.

use std::iter::repeat_n;

/// Encoded images.
pub(super) const IMAGES: &[&str] = &["image", "jpg", "jpeg", "png", "img"];
/// Token ids.
pub(super) const TOKENS: &[&str] = &["tokens", "input_ids"];
/// Targets.
pub(super) const TARGETS: &[&str] = &["y", "label", "target", "cls"];
/// Number of classes where the data does not give it: every class that fits in `int32`.
pub(super) const UNKNOWN_CLASSES: u32 = 1 << 31;

/// Names of the `width` elements of `x` that column `name` gives: its own if it is one number, none if it is a list.
pub(super) fn element_names(name: &str, width: usize) -> impl Iterator<Item = Option<String>> {
    repeat_n((width == 1).then(|| name.to_owned()), width)
}
