//! Random waits that a seed reproduces.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A seeded generator of waits: the n-th draw is a hash of n.
#[derive(Debug)]
pub(crate) struct Jitter {
    pub(super) seed: u64,
    draws: u64,
}

impl Jitter {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, draws: 0 }
    }

    /// A number from `0..=longest`.
    pub(crate) fn up_to(&mut self, longest: u64) -> u64 {
        self.draws += 1;
        let hash = xxh3_64_with_seed(&self.draws.to_le_bytes(), self.seed);
        let scaled = (u128::from(hash) * (u128::from(longest) + 1)) >> 64;
        u64::try_from(scaled).expect("below longest + 1")
    }
}
