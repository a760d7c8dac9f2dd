//! Counter-based random numbers: the i-th number of a stream is a pure function of the stream's key and i.
//!
//! So nothing needs saving, any thread can draw any part, and no process-wide state exists. The function is the
//! SplitMix64 finalizer over `key + i * golden ratio` (Steele, Lea, Flood 2014, "Fast Splittable Pseudorandom Number
//! Generators"), that is, SplitMix64 with random access.

use feedline_schemas::ids::{Seed, Step};
use xxhash_rust::xxh3::xxh3_64;

/// A stream of random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    key: u64,
}

impl Stream {
    /// The stream that initial weights are drawn from; it does not depend on the rank.
    pub(crate) fn initialization(seed: Seed) -> Self {
        Self::of(b"initialization", &[seed.get()])
    }

    /// The stream that one step's dropout is drawn from, on all ranks.
    pub(crate) fn dropout(seed: Seed, step: Step) -> Self {
        Self::of(b"dropout", &[seed.get(), step.get()])
    }

    /// The stream that tokens of a document are drawn from, each at its place in it.
    pub(crate) fn editing(seed: Seed, key: u64) -> Self {
        Self::of(b"editing", &[seed.get(), key])
    }

    /// The stream that the tokens of a generated text are drawn from, each at its place.
    pub(crate) fn generating(seed: Seed, text: u64) -> Self {
        Self::of(b"generating", &[seed.get(), text])
    }

    /// The stream that a trial of a search is drawn from.
    pub(crate) fn search(seed: Seed, trial: u64) -> Self {
        Self::of(b"search", &[seed.get(), trial])
    }

    /// The part of this stream with number `index`, such as one layer's.
    pub(crate) fn part(self, index: usize) -> Self {
        Self::of(b"part", &[self.key, index as u64])
    }

    fn of(purpose: &[u8], numbers: &[u64]) -> Self {
        let mut bytes = purpose.to_vec();
        bytes.extend(numbers.iter().flat_map(|n| n.to_le_bytes()));
        Self {
            key: xxh3_64(&bytes),
        }
    }

    /// The number that is finalized to the one at `index`.
    #[inline]
    pub(crate) const fn start(self, index: u64) -> u64 {
        let steps = index.wrapping_add(1);
        self.key
            .wrapping_add(steps.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// The number at `index`, all 64 bits random.
    #[inline]
    pub(crate) const fn bits(self, index: u64) -> u64 {
        let mut z = self.start(index);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// The number at `index`, uniform in `[0, 1)` with 53 bits.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are exact in an f64")]
    pub(crate) const fn uniform(self, index: u64) -> f64 {
        (self.bits(index) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_is_splitmix64() {
        // The first numbers of SplitMix64 seeded with 1234567, as published with Vigna's splitmix64.c.
        let stream = Stream { key: 1_234_567 };
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!([stream.bits(0), stream.bits(1), stream.bits(2)], expected);
    }

    #[test]
    fn streams_of_different_steps_and_purposes_differ() {
        let first = |s: Stream| s.bits(0);
        let (seed, step) = (Seed::new(1), Step::new(2));
        let mut seen = vec![
            first(Stream::initialization(seed)),
            first(Stream::dropout(seed, step)),
            first(Stream::dropout(seed, step.next())),
            first(Stream::dropout(Seed::new(2), step)),
            first(Stream::editing(seed, 2)),
            first(Stream::editing(seed, 3)),
            first(Stream::generating(seed, 2)),
            first(Stream::generating(seed, 3)),
            first(Stream::dropout(seed, step).part(0)),
            first(Stream::dropout(seed, step).part(1)),
        ];
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 10);
    }

    #[test]
    fn uniform_numbers_have_the_mean_and_variance_of_the_unit_interval() {
        let stream = Stream::initialization(Seed::new(7));
        let n = 100_000_u32;
        let values: Vec<f64> = (0..u64::from(n)).map(|i| stream.uniform(i)).collect();
        let mean = values.iter().sum::<f64>() / f64::from(n);
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / f64::from(n);
        assert!((mean - 0.5).abs() < 0.005, "{mean}");
        assert!((variance - 1.0 / 12.0).abs() < 0.002, "{variance}");
        assert!(values.iter().all(|v| (0.0..1.0).contains(v)));
    }
}
