//! Sketches: the set of a document, and a hash of each band of its MinHash signature.
//!
//! Row i of a signature is the least `a_i x + b_i mod 2^32` over the set, `a_i` odd (multiply-shift; Dietzfelbinger and
//! others 1997), over the upper halves of hashes that are mixed already: three instructions for as many rows as a register
//! holds, and no table.

use feedline_schemas::config::NearDupConfig;
use macerator::{AutoArch, Simd, WithSimd};

use super::shingles::{Shingler, mixed};

/// Most rows of a band: more than 8 find less at every similarity.
const LONGEST_BAND: usize = 8;

/// Share of the pairs at the threshold that must become candidates.
const RECALL: f64 = 0.92;

/// Raised when equal settings give other sketches than before.
const SEED: u64 = 2;

/// Rows that go over a set together: two registers of 256 bits of factors, of summands and of minima.
const LANES: usize = 16;

/// Numbers of bands and of rows in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheme {
    /// Bands, 14 at a threshold of 0.8 and 112 hashes.
    pub bands: usize,
    /// Rows of a band, 8 at a threshold of 0.8 and 112 hashes.
    pub rows: usize,
}

impl Scheme {
    /// The longest bands of `hashes` rows in all, so the fewest candidates, that still find 92 of 100 pairs whose
    /// similarity is `threshold`.
    #[must_use]
    pub fn new(threshold: f64, hashes: usize) -> Self {
        let mut schemes = (1..=LONGEST_BAND).rev().map(|rows| Self {
            bands: hashes / rows,
            rows,
        });
        schemes
            .find(|scheme| scheme.probability(threshold) >= RECALL)
            .unwrap_or(Self {
                bands: hashes,
                rows: 1,
            })
    }

    /// Probability that two documents of this similarity share a band: `1 - (1 - s^rows)^bands`.
    #[must_use]
    pub fn probability(self, similarity: f64) -> f64 {
        let exponent = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        let band = similarity.powi(exponent(self.rows));
        1.0 - (1.0 - band).powi(exponent(self.bands))
    }
}

/// A document as it is compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sketch {
    /// Hashes of its n-grams, sorted, each once.
    pub set: Vec<u64>,
    /// A hash of each band; none for an empty set, which is near to nothing.
    pub bands: Vec<u64>,
}

/// Makes sketches: a pure function of the settings and the text, usable from any number of threads.
#[derive(Clone, Debug)]
pub struct Signer {
    shingler: Shingler,
    scheme: Scheme,
    /// Factors and summands of the rows, band after band; the last are there to fill the lanes.
    rows: Vec<Lanes>,
}

/// `a` and `b` of rows that go over a set together.
#[derive(Clone, Debug)]
struct Lanes {
    factors: [u32; LANES],
    summands: [u32; LANES],
}

impl Signer {
    /// Creates a signer with these settings.
    #[must_use]
    pub fn new(config: &NearDupConfig) -> Self {
        let scheme = Scheme::new(config.threshold, config.hashes as usize);
        let draw = |i: usize| {
            let drawn = mixed(BASE_OF_DRAWS.wrapping_mul(i as u64 + 1).wrapping_add(SEED));
            upper(drawn)
        };
        let lanes = (0..scheme.bands * scheme.rows).step_by(LANES);
        let lanes = lanes.map(|first| Lanes {
            factors: std::array::from_fn(|lane| draw(2 * (first + lane)) | 1),
            summands: std::array::from_fn(|lane| draw(2 * (first + lane) + 1)),
        });
        Self {
            shingler: Shingler::new(config),
            scheme,
            rows: lanes.collect(),
        }
    }

    /// Its bands and rows.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The sketch of a text.
    #[must_use]
    pub fn sketch(&self, text: &str) -> Sketch {
        let set = self.shingler.shingles(text);
        let bands = if set.is_empty() {
            Vec::new()
        } else {
            self.bands(&set)
        };
        Sketch { set, bands }
    }

    fn bands(&self, set: &[u64]) -> Vec<u64> {
        let least = AutoArch::new().dispatch(Minima {
            rows: &self.rows,
            set,
        });
        let bands = (1..).zip(least.chunks_exact(self.scheme.rows));
        let bands = bands.take(self.scheme.bands);
        bands
            .map(|(band, rows)| {
                rows.iter()
                    .fold(mixed(band), |hash, least| mixed(hash ^ u64::from(*least)))
            })
            .collect()
    }
}

/// Step between the draws of a splitmix64 generator.
const BASE_OF_DRAWS: u64 = 0x9e37_79b9_7f4a_7c15;

/// The upper half.
const fn upper(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// Least value of each row over a set; the widest registers of the machine take many rows at a
/// time.
struct Minima<'a> {
    rows: &'a [Lanes],
    set: &'a [u64],
}

impl WithSimd for Minima<'_> {
    type Output = Vec<u32>;

    #[inline(always)]
    fn with_simd<S: Simd>(self) -> Vec<u32> {
        self.rows
            .iter()
            .flat_map(|rows| minima(rows, self.set))
            .collect()
    }
}

#[inline(always)]
fn minima(rows: &Lanes, set: &[u64]) -> [u32; LANES] {
    let mut least = [u32::MAX; LANES];
    for hash in set {
        let hash = upper(*hash);
        let lines = rows.factors.iter().zip(&rows.summands);
        for (least, (factor, summand)) in least.iter_mut().zip(lines) {
            *least = (*least).min(factor.wrapping_mul(hash).wrapping_add(*summand));
        }
    }
    least
}

/// Jaccard similarity of two sorted sets without repeats; 0 when one is empty.
#[expect(
    clippy::cast_precision_loss,
    reason = "sets have fewer than 2^53 members"
)]
pub(super) fn jaccard(a: &[u64], b: &[u64]) -> f64 {
    let (mut i, mut j, mut shared) = (0, 0, 0_usize);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        shared += usize::from(x == y);
        i += usize::from(x <= y);
        j += usize::from(y <= x);
    }
    let all = a.len() + b.len() - shared;
    if all == 0 {
        0.0
    } else {
        shared as f64 / all as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_keep_the_recall_whatever_the_threshold() {
        let scheme = |threshold| {
            let scheme = Scheme::new(threshold, 112);
            (scheme.bands, scheme.rows)
        };
        assert_eq!(scheme(0.8), (14, 8));
        assert_eq!(scheme(0.9), (14, 8));
        assert_eq!(scheme(1.0), (14, 8));
        assert_eq!(scheme(0.7), (22, 5));
        assert_eq!(scheme(0.5), (37, 3));
        for percent in 20..=100 {
            let threshold = f64::from(percent) / 100.0;
            let scheme = Scheme::new(threshold, 112);
            assert!(
                scheme.probability(threshold) >= 0.92,
                "{threshold} {scheme:?}"
            );
            assert!(
                scheme.probability((threshold + 0.05).min(1.0)) >= 0.97,
                "{threshold} {scheme:?}"
            );
        }
        assert!(Scheme::new(0.8, 112).probability(0.85) >= 0.98);
        assert!(Scheme::new(0.8, 256).probability(0.8) >= 0.997);
        assert_eq!(
            Scheme::new(0.8, 16),
            Scheme { bands: 5, rows: 3 },
            "fewer hashes make shorter bands"
        );
    }

    #[test]
    fn jaccard_counts_members_once() {
        let check = |a: &[u64], b: &[u64], expected: f64| {
            assert_eq!(jaccard(a, b).to_bits(), expected.to_bits());
            assert_eq!(jaccard(b, a).to_bits(), expected.to_bits());
        };
        check(&[1, 2, 3, 4, 5], &[1, 2, 3, 4], 0.8);
        check(&[1, 5, 9], &[2, 5, 8], 0.2);
        check(&[7], &[7], 1.0);
        check(&[], &[7], 0.0);
        check(&[], &[], 0.0);
    }

    #[test]
    fn a_row_agrees_as_often_as_the_sets_are_alike() {
        let signer = Signer::new(&NearDupConfig {
            threshold: 0.2,
            ..NearDupConfig::default()
        });
        assert!(signer.scheme.rows == 1 && signer.rows.len() * LANES == 112);
        // 200 of 300 members shared, so two rows of three agree; ten pairs of sets make 1,120 rows.
        let sets = |pair: u64| {
            let member = |i: u64| mixed(pair * 1000 + i);
            let mut sets: [Vec<u64>; 2] = [
                (0..250).map(member).collect(),
                (50..300).map(member).collect(),
            ];
            sets.iter_mut().for_each(|set| set.sort_unstable());
            sets
        };
        let agree = |pair: u64| {
            let [a, b] = sets(pair).map(|set| signer.bands(&set));
            a.iter().zip(&b).filter(|(a, b)| a == b).count()
        };
        let agreeing: usize = (0..10).map(agree).sum();
        // Five standard deviations of the binomial.
        assert!(agreeing.abs_diff(747) < 80, "{agreeing}");
    }

    #[test]
    fn a_sketch_does_not_change_in_silence() {
        let sketch =
            Signer::new(&NearDupConfig::default()).sketch("The quick brown fox jumps over it.");
        assert_eq!((sketch.set.len(), sketch.bands.len()), (3, 14));
        assert_eq!(
            sketch.bands[..2],
            [2_868_631_495_645_662_562, 15_055_910_427_954_856_063]
        );
    }
}
