//! A keyed pseudorandom permutation of `0..n` that is computed, not stored, and can be inverted.
//!
//! An alternating Feistel network of four rounds over two digits of mixed radix, `a * b >= n` with `a` and `b` about
//! `sqrt(n)` (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002, section 4), with cycle walking: a value
//! outside `0..n` is sent through the network again, which happens to one in `sqrt(n)`. The round functions are random
//! functions, kept as tables of `sqrt(n)` values, so that a round is a look-up in the processor's nearest cache and a
//! sum; four rounds of random functions make a strong pseudorandom permutation (Luby and Rackoff, 1988). It mixes well
//! enough to shuffle and is no cipher. All tables take `16 sqrt(n)` bytes.
//!
//! Up to 256 values there are too few round functions to reach most permutations: those are shuffled in a table
//! (Fisher and Yates).

use std::ops::Range;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::index::index;

/// The most values that are shuffled in a table.
const MOST_IN_TABLE: u64 = 256;

/// Key of a [`Permutation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PermutationKey(u64);

impl PermutationKey {
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
    kind: PermutationKind,
}

#[derive(Clone, Debug)]
enum PermutationKind {
    Identity,
    /// Image of each value.
    Table(Box<[u16]>),
    Network(Network),
}

/// A value for each argument.
type Function = Box<[u32]>;

/// Value `x` has the digits `x % a` and `x / a`.
#[derive(Clone, Debug)]
struct Network {
    a: u32,
    b: u32,
    /// Addend of the low digit for each high digit, and then of the high digit for each low digit.
    rounds: [(Function, Function); 2],
}

impl Permutation {
    /// The permutation of `0..n` that `key` names; `n` may be 0 or 1.
    pub(crate) fn new(n: u64, key: PermutationKey) -> Self {
        let kind = if n <= MOST_IN_TABLE {
            PermutationKind::Table(shuffled(n, key))
        } else {
            PermutationKind::Network(Network::new(n, key))
        };
        Self { n, kind }
    }

    /// The permutation of `0..n` that leaves everything where it is.
    pub(crate) const fn identity(n: u64) -> Self {
        Self {
            n,
            kind: PermutationKind::Identity,
        }
    }

    /// Position that `index` moves to.
    ///
    /// # Panics
    /// When `index` is not below `n`: walking from outside might never end.
    #[cfg(test)]
    pub(crate) fn forward(&self, index: u64) -> u64 {
        let mut result = 0;
        self.for_each(index..index + 1, |value| result = value);
        result
    }

    /// Calls `take` with where each of `indices` goes, in order. Much cheaper for each than [`Permutation::forward`].
    ///
    /// # Panics
    /// When an index is not below `n`.
    #[inline]
    pub(crate) fn for_each(&self, indices: Range<u64>, mut take: impl FnMut(u64)) {
        let n = self.n;
        assert!(
            indices.start <= indices.end && indices.end <= n,
            "{indices:?} is outside a permutation of {n}"
        );
        match &self.kind {
            PermutationKind::Identity => indices.for_each(take),
            PermutationKind::Table(table) => table[index(indices.start)..index(indices.end)]
                .iter()
                .for_each(|value| take((*value).into())),
            PermutationKind::Network(network) => {
                let mut digits = network.digits(indices.start);
                for _ in indices {
                    let mut value = network.encrypt(digits);
                    while network.value(value) >= n {
                        value = network.encrypt(value);
                    }
                    take(network.value(value));
                    digits = network.next(digits);
                }
            }
        }
    }

    /// Index that moves to position `index`.
    ///
    /// # Panics
    /// When `index` is not below `n`.
    pub(crate) fn inverse(&self, index: u64) -> u64 {
        assert!(
            index < self.n,
            "index {index} is outside a permutation of {}",
            self.n
        );
        match &self.kind {
            PermutationKind::Identity => index,
            PermutationKind::Table(table) => {
                let at = table.iter().position(|value| u64::from(*value) == index);
                at.expect("a table holds every value below `n`") as u64
            }
            PermutationKind::Network(network) => {
                let mut value = network.decrypt(network.digits(index));
                while network.value(value) >= self.n {
                    value = network.decrypt(value);
                }
                network.value(value)
            }
        }
    }
}

fn round_key(key: PermutationKey, round: u64) -> u64 {
    xxh3_64_with_seed(&key.0.to_le_bytes(), round)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "values of a table are below 257, draws below their bound"
)]
fn shuffled(n: u64, key: PermutationKey) -> Box<[u16]> {
    let mut table: Box<[u16]> = (0..n as u16).collect();
    for last in (1..table.len()).rev() {
        let draw = round_key(key, last as u64) >> 32;
        table.swap(last, ((draw * (last as u64 + 1)) >> 32) as usize);
    }
    table
}

impl Network {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the root of a 64-bit number has 32 bits, and so have remainders by it"
    )]
    fn new(n: u64, key: PermutationKey) -> Self {
        let root = n.isqrt();
        let a = (root + u64::from(root * root < n)).min(u64::from(u32::MAX)) as u32;
        let b = n.div_ceil(a.into()).min(u64::from(u32::MAX)) as u32;
        let round = |number: u64| {
            (
                function(round_key(key, 2 * number), b, a),
                function(round_key(key, 2 * number + 1), a, b),
            )
        };
        Self {
            a,
            b,
            rounds: [round(0), round(1)],
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "both are below 32-bit radices"
    )]
    fn digits(&self, value: u64) -> (u32, u32) {
        let a = u64::from(self.a);
        ((value % a) as u32, (value / a) as u32)
    }

    #[inline]
    fn value(&self, (low, high): (u32, u32)) -> u64 {
        u64::from(low) + u64::from(self.a) * u64::from(high)
    }

    #[inline]
    fn next(&self, (low, high): (u32, u32)) -> (u32, u32) {
        if low + 1 == self.a {
            (0, high + 1)
        } else {
            (low + 1, high)
        }
    }

    #[inline]
    fn encrypt(&self, (mut low, mut high): (u32, u32)) -> (u32, u32) {
        for (to_low, to_high) in &self.rounds {
            low = add(low, to_low[high as usize], self.a);
            high = add(high, to_high[low as usize], self.b);
        }
        (low, high)
    }

    fn decrypt(&self, (mut low, mut high): (u32, u32)) -> (u32, u32) {
        for (to_low, to_high) in self.rounds.iter().rev() {
            high = add(high, self.b - to_high[low as usize], self.b);
            low = add(low, self.a - to_low[high as usize], self.a);
        }
        (low, high)
    }
}

/// The sum of `x < radix` and `y <= radix`, modulo `radix`.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "it is below a 32-bit radix"
)]
fn add(x: u32, y: u32, radix: u32) -> u32 {
    let (sum, radix) = (u64::from(x) + u64::from(y), u64::from(radix));
    let less = sum.wrapping_sub(radix);
    (if sum >= radix { less } else { sum }) as u32
}

/// A random function from `0..arguments` to `0..radix`: SplitMix64 from `key` on, the high half reduced.
fn function(key: u64, arguments: u32, radix: u32) -> Function {
    let mut state = key;
    let value = |_| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let high = (z ^ (z >> 31)) >> 32;
        ((high * u64::from(radix)) >> 32) as u32
    };
    (0..arguments).map(value).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn permutation(n: u64, seed: u64) -> Permutation {
        Permutation::new(n, PermutationKey::derive(seed, "test", &[]))
    }

    #[test]
    fn every_small_domain_is_permuted_and_inverted() {
        for n in (0..600).chain([65_535, 65_536, 65_537]) {
            let p = permutation(n, n);
            let mut seen = vec![false; index(n)];
            let mut i = 0;
            p.for_each(0..n, |j| {
                assert!(
                    !std::mem::replace(&mut seen[index(j)], true),
                    "{n}: {j} twice"
                );
                if n < 600 || i % 997 == 0 {
                    assert_eq!((p.inverse(j), p.forward(i)), (i, j));
                }
                i += 1;
            });
            assert_eq!(i, n);
        }
    }

    proptest! {
        #[test]
        fn large_domains_are_inverted(n in 1u64..1 << 34, seed: u64, index: u64) {
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

    /// Pairs of neighbours go to every pair of places about equally often, also just above the table's size.
    #[test]
    fn a_network_sends_neighbours_anywhere() {
        const CELLS: usize = 10;
        let n = 400;
        let mut counts = [[0.0f64; CELLS]; CELLS];
        for seed in 0..50_000 {
            let p = permutation(n, seed);
            let cell = |x| index(p.forward(x) * CELLS as u64 / n);
            counts[cell(200)][cell(201)] += 1.0;
        }
        let expected =
            |i, j| 50_000.0 * 40.0 * (if i == j { 39.0 } else { 40.0 }) / (400.0 * 399.0);
        let chi_square: f64 = (0..CELLS)
            .flat_map(|i| (0..CELLS).map(move |j| (i, j)))
            .map(|(i, j)| (counts[i][j] - expected(i, j)).powi(2) / expected(i, j))
            .sum();
        // 99 degrees of freedom: above 149 in one of a thousand keyings.
        assert!(chi_square < 149.0, "{chi_square}");
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

    /// Part of the order's definition: when this fails, raise `ORDER_VERSION`.
    #[test]
    fn permutations_of_order_version_2_are_what_they_were() {
        let first = |n| {
            let p = permutation(n, 42);
            [0, 1, 2, n - 1].map(|i| p.forward(i))
        };
        assert_eq!(
            [256, 257, 80_000, 10_000_000_000].map(first),
            [
                [99, 61, 117, 217],
                [215, 217, 65, 11],
                [78_619, 64_048, 39_965, 65_874],
                [5_660_353_511, 2_583_997_623, 9_826_589_896, 4_273_846_322]
            ]
        );
    }

    #[test]
    fn labels_and_numbers_make_different_keys() {
        let keys = [
            PermutationKey::derive(1, "deal", &[0]),
            PermutationKey::derive(1, "deal", &[1]),
            PermutationKey::derive(2, "deal", &[0]),
            PermutationKey::derive(1, "tail", &[0]),
            PermutationKey::derive(1, "deal", &[0, 0]),
        ];
        for (i, a) in keys.iter().enumerate() {
            assert!(keys[i + 1..].iter().all(|b| a != b));
        }
    }
}
