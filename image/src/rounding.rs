//! Number conversions with deliberate loss.

/// A number without its fraction. One below 0 becomes 0, and one that is too large the largest.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a conversion that saturates is what is meant"
)]
#[must_use]
pub const fn whole(value: f64) -> u32 {
    value as u32
}

/// The nearest f32.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a conversion that rounds is what is meant"
)]
#[must_use]
pub const fn narrow(value: f64) -> f32 {
    value as f32
}
