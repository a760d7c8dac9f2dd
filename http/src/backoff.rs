//! Waits before another try: random ones that a seed reproduces, below a bound that doubles.
//!
//! "Full jitter" is a random time up to the bound (M. Brooker, "Exponential Backoff And Jitter", AWS
//! Architecture Blog, 2015).

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A seeded generator of waits: the n-th draw is a hash of n.
///
/// ```
/// use feedline_http::backoff::Jitter;
///
/// let (mut one, mut other) = (Jitter::new(7), Jitter::new(7));
/// assert!((0..100).all(|_| one.up_to(9) <= 9));
/// assert_eq!(Jitter::new(7).up_to(1_000), other.up_to(1_000));
/// ```
#[derive(Debug)]
pub struct Jitter {
    seed: u64,
    draws: u64,
}

impl Jitter {
    /// Creates a generator whose draws depend on `seed` alone.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed, draws: 0 }
    }

    /// Seed of its draws.
    #[must_use]
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// A number from `0..=longest`.
    pub fn up_to(&mut self, longest: u64) -> u64 {
        self.draws += 1;
        let hash = xxh3_64_with_seed(&self.draws.to_le_bytes(), self.seed);
        let scaled = (u128::from(hash) * (u128::from(longest) + 1)) >> 64;
        u64::try_from(scaled).unwrap_or(longest)
    }
}

/// Returns `base`, doubled `times` times, but at most `cap`; all of one unit.
///
/// ```
/// use feedline_http::backoff::doubled;
///
/// assert_eq!([0, 1, 2, 99].map(|times| doubled(500, times, 1_500)), [500, 1_000, 1_500, 1_500]);
/// ```
#[must_use]
pub fn doubled(base: u64, times: u32, cap: u64) -> u64 {
    let factor = 1_u64.checked_shl(times).unwrap_or(u64::MAX);
    base.saturating_mul(factor).min(cap)
}
