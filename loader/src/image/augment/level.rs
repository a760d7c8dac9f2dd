//! Levels of a colour.

use feedline_image::rounding::whole;

/// The level below or at `value`, held to the range.
pub(super) fn level(value: f64) -> u8 {
    u8::try_from(whole(value.clamp(0.0, 255.0))).unwrap_or(u8::MAX)
}

/// A count, rounded with ties to even.
pub(super) fn level_count(value: f64) -> u32 {
    whole(value.round_ties_even())
}
