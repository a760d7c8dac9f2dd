//! Counts as indices into memory.

const _: () = assert!(
    usize::BITS >= u64::BITS,
    "sample counts are used as indices"
);

/// `count` as an index.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the assertion above refuses targets on which it could truncate"
)]
pub(crate) const fn index(count: u64) -> usize {
    count as usize
}
