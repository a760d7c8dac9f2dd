//! Conversions of numbers that lose nothing that matters.

/// A count, as a float: rows, steps and sizes stay far below 2^53, up to which every integer has one.
#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
pub(crate) const fn exact(count: u64) -> f64 {
    count as f64
}

/// [`exact`] of a length.
pub(crate) const fn exact_len(length: usize) -> f64 {
    exact(length as u64)
}

/// The nearest f32.
#[expect(
    clippy::cast_possible_truncation,
    reason = "rounding to f32 is what is wanted"
)]
pub(crate) const fn single(value: f64) -> f32 {
    value as f32
}
