//! A keyed pseudorandom permutation of `0..n` that is computed, not stored, and can be inverted.
//!
//! An alternating Feistel network of six rounds over the fewest bits that hold `n` (at least eight), with cycle
//! walking (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002, section 3): a value outside `0..n` is
//! sent through the network again. The network's domain is below `2n`, so fewer than two walks are needed on average
//! for `n` over 128. It mixes well enough to shuffle and is no cipher.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

const ROUNDS: usize = 6;

/// Below this many bits a network has too few round functions to reach most permutations, so small `n` walk instead.
const FEWEST_BITS: u32 = 8;

/// Key of a [`Permutation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(u64);

impl Key {
    /// Derives the key of one use: xxh3-64 of `label`, a zero byte, `seed` and `numbers` (little endian).
    pub(crate) fn derive(seed: u64, label: &str, numbers: &[u64]) -> Self {
        let mut bytes = Vec::with_capacity(label.len() + 9 + 8 * numbers.len());
        bytes.extend_from_slice(label.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(&seed.to_le_bytes());
        for number in numbers {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        Self(xxh3_64(&bytes))
    }
}

/// A permutation of `0..n`.
#[derive(Clone, Debug)]
pub(crate) struct Permutation {
    n: u64,
    left_mask: u64,
    right_mask: u64,
    right_bits: u32,
    keys: [u64; ROUNDS],
}

impl Permutation {
    /// The permutation of `0..n` that `key` names; `n` may be 0 or 1.
    pub(crate) fn new(n: u64, key: Key) -> Self {
        let bits = (u64::BITS - n.saturating_sub(1).leading_zeros()).max(FEWEST_BITS);
        let left_bits = bits / 2;
        let right_bits = bits - left_bits;
        let mut keys = [0; ROUNDS];
        for (round, slot) in (0..).zip(&mut keys) {
            *slot = xxh3_64_with_seed(&key.0.to_le_bytes(), round);
        }
        Self {
            n,
            left_mask: (1 << left_bits) - 1,
            right_mask: (1 << right_bits) - 1,
            right_bits,
            keys,
        }
    }

    /// Where `index` goes.
    ///
    /// # Panics
    /// When `index` is not below `n`: walking from outside might never end.
    pub(crate) fn forward(&self, index: u64) -> u64 {
        assert!(
            index < self.n,
            "index {index} is outside a permutation of {}",
            self.n
        );
        let mut value = self.encrypt(index);
        while value >= self.n {
            value = self.encrypt(value);
        }
        value
    }

    /// What goes to `index`.
    #[cfg(test)]
    pub(crate) fn inverse(&self, index: u64) -> u64 {
        assert!(
            index < self.n,
            "index {index} is outside a permutation of {}",
            self.n
        );
        let mut value = self.decrypt(index);
        while value >= self.n {
            value = self.decrypt(value);
        }
        value
    }

    fn encrypt(&self, value: u64) -> u64 {
        let (mut left, mut right) = (value >> self.right_bits, value & self.right_mask);
        for pair in self.keys.chunks_exact(2) {
            left ^= mix(pair[0], right) & self.left_mask;
            right ^= mix(pair[1], left) & self.right_mask;
        }
        left << self.right_bits | right
    }

    #[cfg(test)]
    fn decrypt(&self, value: u64) -> u64 {
        let (mut left, mut right) = (value >> self.right_bits, value & self.right_mask);
        for pair in self.keys.chunks_exact(2).rev() {
            right ^= mix(pair[1], left) & self.right_mask;
            left ^= mix(pair[0], right) & self.left_mask;
        }
        left << self.right_bits | right
    }
}

/// Round function: the finalizer of SplitMix64 without its last shift, of which the high half is used.
fn mix(key: u64, half: u64) -> u64 {
    let z = (half ^ key).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (z ^ (z >> 32)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn permutation(n: u64, seed: u64) -> Permutation {
        Permutation::new(n, Key::derive(seed, "test", &[]))
    }

    #[test]
    fn every_small_domain_is_permuted_and_inverted() {
        for n in 0..600 {
            let p = permutation(n, n);
            let mut seen = vec![false; usize::try_from(n).unwrap()];
            for i in 0..n {
                let j = p.forward(i);
                assert!(
                    !std::mem::replace(&mut seen[usize::try_from(j).unwrap()], true),
                    "{n}: {j} twice"
                );
                assert_eq!(p.inverse(j), i);
            }
        }
    }

    proptest! {
        #[test]
        fn large_domains_are_inverted(n in 1u64.., seed: u64, index: u64) {
            let p = permutation(n, seed);
            let index = index % n;
            prop_assert!(p.forward(index) < n);
            prop_assert_eq!(p.inverse(p.forward(index)), index);
            prop_assert_eq!(p.forward(p.inverse(index)), index);
        }
    }

    #[test]
    fn all_permutations_of_four_are_about_equally_frequent() {
        let mut counts = std::collections::BTreeMap::<Vec<u64>, f64>::new();
        for seed in 0..24_000 {
            let p = permutation(4, seed);
            *counts
                .entry((0..4).map(|i| p.forward(i)).collect())
                .or_default() += 1.0;
        }
        let chi_square: f64 = counts
            .values()
            .map(|count| (count - 1000.0f64).powi(2) / 1000.0)
            .sum();
        assert_eq!(counts.len(), 24);
        // 23 degrees of freedom: above 49.7 in one of a thousand keyings.
        assert!(chi_square < 49.7, "{chi_square}");
    }

    #[test]
    fn neighbours_land_far_apart() {
        let p = permutation(1_000_003, 1);
        let near = (0..10_000)
            .filter(|i| p.forward(*i).abs_diff(p.forward(i + 1)) < 10_000)
            .count();
        // Two random places are within 1 % of each other with probability 2 %.
        assert!((100..300).contains(&near), "{near}");
    }

    #[test]
    fn labels_and_numbers_make_different_keys() {
        let keys = [
            Key::derive(1, "deal", &[0]),
            Key::derive(1, "deal", &[1]),
            Key::derive(2, "deal", &[0]),
            Key::derive(1, "tail", &[0]),
            Key::derive(1, "deal", &[0, 0]),
        ];
        for (i, a) in keys.iter().enumerate() {
            assert!(keys[i + 1..].iter().all(|b| a != b));
        }
    }
}
