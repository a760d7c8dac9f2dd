//! Exact sums of 64-bit floats and of their squares: the same bits for any order and any partitioning of the values.
//!
//! A finite `f64` is `±m · 2^(e-1074)` with an integer `m < 2^53` and `e` in `0..2046`. Values with equal `e` are added
//! as integers, in one bin per `e`: `Σ ±m` in 128 bits and `Σ m²` in 192 bits, which 2^64 values cannot overflow. Nothing
//! is rounded until the end, where the bins become two integers, `S = Σ x` and `Q = Σ x²` in units of 2^-1074 and
//! 2^-2148, and the results are rounded once:
//!
//! - mean `S / n`,
//! - variance `(n·Q - S²) / n²` (dividing by n). The textbook formula is unusable in floating point because it cancels;
//!   in integers it is exact, needs a single pass and no knowledge of the mean.
//!
//! Merging adds bins, so it is associative and commutative.
//!
//! Cost: per value a decode, a 64×64 bit product and two wide additions, no branch on the data but the page lookup:
//! about 5 ns on one core, with the range and the kinds of cells that a profile also takes; half of it for values that
//! 32 bits hold ([`Short`]).
//! Memory: pages of 64 bins (3 KiB) for the exponents that occur, usually one to three pages, at most 96 KiB.

mod integer;
mod short;
mod total;

use integer::{Natural, Scaled};
pub(crate) use short::Short;
pub(crate) use total::ExactTotal;

/// Bins of one page.
const PAGE: usize = 64;
/// Pages that cover every exponent.
const PAGES: usize = 2048 / PAGE;
/// Power of two of a subnormal's lowest bit.
const LOWEST: i64 = -1074;
/// Bytes of a bin in [`ExactMoments::to_bytes`]: exponent, sum, squares.
const BIN_BYTES: usize = 2 + 16 + 16 + 8;

/// Sums of the values of one exponent, in units of that exponent (its square for `squares`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bin {
    sum: i128,
    squares: u128,
    squares_high: u64,
}

impl Bin {
    #[inline]
    fn add_squares(&mut self, low: u128, high: u64) {
        let (sum, carry) = self.squares.overflowing_add(low);
        self.squares = sum;
        self.squares_high += high + u64::from(carry);
    }
}

/// Count, exact sum and exact sum of squares of finite values.
#[derive(Clone, Default)]
pub(crate) struct ExactMoments {
    count: u64,
    pages: [Option<Box<[Bin; PAGE]>>; PAGES],
}

/// Statistics of [`ExactMoments`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    /// Correctly rounded mean.
    pub(crate) mean: f64,
    /// Standard deviation, dividing by n; the root of the variance rounded to 53 bits, so it neither over- nor
    /// underflows where the variance itself would.
    pub(crate) deviation: f64,
}

impl ExactMoments {
    /// Adds a value.
    ///
    /// The value must be finite: the caller sets infinities and NaN aside.
    #[inline]
    pub(crate) fn add(&mut self, value: f64) {
        let (exponent, magnitude, signed) = decode(value);
        let bin = self.bin(exponent);
        bin.sum += signed;
        bin.add_squares(u128::from(magnitude) * u128::from(magnitude), 0);
        self.count += 1;
    }

    /// As [`Self::add`], into `short` where 32 bits hold the value. That is to be settled at last, and takes a bounded number
    /// of values.
    #[inline]
    pub(crate) fn add_beside(&mut self, short: &mut Short, value: f64) {
        if short.add(value) {
            self.count += 1;
        } else {
            self.add(value);
        }
    }

    /// Adds everything `other` has seen.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        for (exponent, bin) in other.bins() {
            let mine = self.bin(exponent);
            mine.sum += bin.sum;
            mine.add_squares(bin.squares, bin.squares_high);
        }
    }

    /// The sum, correctly rounded (to nearest, ties to even); infinite when it exceeds the range of `f64`.
    #[cfg(test)]
    pub(crate) fn sum(&self) -> f64 {
        let (positive, magnitude) = self.exact_sum();
        with_sign(positive, Scaled::divide(&magnitude, LOWEST, &[]).to_f64())
    }

    /// Number of values.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Mean and deviation; `None` without values.
    pub(crate) fn summary(&self) -> Option<Summary> {
        if self.count == 0 {
            return None;
        }
        let (positive, sum) = self.exact_sum();
        let mean = with_sign(
            positive,
            Scaled::divide(&sum, LOWEST, &[self.count]).to_f64(),
        );
        // n·Q ≥ S² by Cauchy and Schwarz, so the difference is a natural number.
        let mut spread = self
            .exact_squares()
            .times(&Natural::from_u128(u128::from(self.count)));
        spread.subtract(&sum.times(&sum));
        let variance = Scaled::divide(&spread, 2 * LOWEST, &[self.count, self.count]);
        Some(Summary {
            mean,
            deviation: variance.square_root(),
        })
    }

    /// Non-empty bins in order; equal contents give equal bytes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.count.to_le_bytes().to_vec();
        for (exponent, bin) in self.bins().filter(|(_, bin)| **bin != Bin::default()) {
            bytes.extend(
                u16::try_from(exponent)
                    .expect("an exponent has 11 bits")
                    .to_le_bytes(),
            );
            bytes.extend(bin.sum.to_le_bytes());
            bytes.extend(bin.squares.to_le_bytes());
            bytes.extend(bin.squares_high.to_le_bytes());
        }
        bytes
    }

    /// Reads what [`Self::to_bytes`] wrote; `None` for other bytes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (count, bins) = bytes.split_first_chunk::<8>()?;
        let mut moments = Self {
            count: u64::from_le_bytes(*count),
            ..Self::default()
        };
        let bins = bins.chunks_exact(BIN_BYTES);
        if !bins.remainder().is_empty() {
            return None;
        }
        for bin in bins {
            let (exponent, bin) = bin.split_first_chunk::<2>()?;
            let (sum, bin) = bin.split_first_chunk::<16>()?;
            let (squares, bin) = bin.split_first_chunk::<16>()?;
            let exponent = usize::from(u16::from_le_bytes(*exponent));
            if exponent >= PAGE * PAGES {
                return None;
            }
            *moments.bin(exponent) = Bin {
                sum: i128::from_le_bytes(*sum),
                squares: u128::from_le_bytes(*squares),
                squares_high: u64::from_le_bytes(bin.try_into().ok()?),
            };
        }
        Some(moments)
    }

    /// Bytes held.
    pub(crate) fn size(&self) -> usize {
        size_of::<Self>() + self.pages.iter().flatten().count() * size_of::<[Bin; PAGE]>()
    }

    #[inline]
    fn bin(&mut self, exponent: usize) -> &mut Bin {
        let page =
            self.pages[exponent / PAGE].get_or_insert_with(|| Box::new([Bin::default(); PAGE]));
        &mut page[exponent % PAGE]
    }

    fn bins(&self) -> impl Iterator<Item = (usize, &Bin)> {
        self.pages
            .iter()
            .enumerate()
            .filter_map(|(i, page)| page.as_ref().map(|page| (i * PAGE, page)))
            .flat_map(|(base, page)| page.iter().enumerate().map(move |(i, bin)| (base + i, bin)))
    }

    /// Returns true for a positive or zero `Σ x`, and `|Σ x|` in units of 2^-1074.
    fn exact_sum(&self) -> (bool, Natural) {
        signed_sum(self.bins().map(|(exponent, bin)| (exponent, bin.sum)))
    }

    /// `Σ x²` in units of 2^-2148.
    fn exact_squares(&self) -> Natural {
        let mut total = Natural::default();
        for (exponent, bin) in self.bins() {
            total.add_shifted(&Natural::from_u128(bin.squares), 2 * exponent);
            total.add_shifted(
                &Natural::from_u128(u128::from(bin.squares_high)),
                2 * exponent + 128,
            );
        }
        total
    }
}

impl std::fmt::Debug for ExactMoments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExactMoments")
            .field("count", &self.count)
            .field("summary", &self.summary())
            .finish()
    }
}

/// Exponent of a finite value, its magnitude in units of that, and the same with its sign.
#[inline]
fn decode(value: f64) -> (usize, u64, i128) {
    debug_assert!(value.is_finite());
    let bits = value.to_bits();
    let exponent = usize::try_from(bits >> 52 & 0x7ff).expect("11 bits fit");
    let fraction = bits & ((1 << 52) - 1);
    // Subnormals share the unit of the smallest normal exponent and lack the hidden bit.
    let magnitude = fraction | u64::from(exponent > 0) << 52;
    let signed = i128::from(magnitude);
    let signed = if bits >> 63 == 1 { -signed } else { signed };
    (exponent.saturating_sub(1), magnitude, signed)
}

/// Returns true for a positive or zero sum of `bins`, exponent and sum in units of that, and its
/// magnitude in units of 2^-1074.
fn signed_sum(bins: impl Iterator<Item = (usize, i128)>) -> (bool, Natural) {
    let (mut positive, mut negative) = (Natural::default(), Natural::default());
    for (exponent, sum) in bins {
        let side = if sum < 0 {
            &mut negative
        } else {
            &mut positive
        };
        side.add_shifted(&Natural::from_u128(sum.unsigned_abs()), exponent);
    }
    if positive >= negative {
        positive.subtract(&negative);
        (true, positive)
    } else {
        negative.subtract(&positive);
        (false, negative)
    }
}

/// A sum of zero is +0.0.
fn with_sign(positive: bool, magnitude: f64) -> f64 {
    if positive { magnitude } else { -magnitude }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn moments(values: &[f64]) -> ExactMoments {
        let mut moments = ExactMoments::default();
        for value in values {
            moments.add(*value);
        }
        moments
    }

    fn sum(values: &[f64]) -> f64 {
        moments(values).sum()
    }

    fn summary(values: &[f64]) -> Summary {
        moments(values).summary().unwrap()
    }

    /// Plain reference: two passes over values of ordinary size, error far below 1e-12.
    fn naive(values: &[f64]) -> (f64, f64) {
        #[expect(clippy::cast_precision_loss, reason = "a test has few values")]
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        (mean, variance.sqrt())
    }

    fn same(a: f64, b: f64) {
        assert_eq!(a.to_bits(), b.to_bits(), "{a:e} is not {b:e}");
    }

    #[test]
    fn small_terms_survive_large_ones_that_cancel() {
        same(sum(&[1e16, 1.0, -1e16]), 1.0);
        same(sum(&[1e300, 5e-324, -1e300]), 5e-324);
        same(sum(&[1e300, 1e-300, -1e300, 1.0]), 1.0);
        same(sum(&[0.1; 10]), 1.0);
        same(sum(&[f64::MAX, f64::MAX, -f64::MAX]), f64::MAX);
    }

    #[test]
    fn a_sum_is_rounded_to_nearest_with_ties_to_even() {
        let half_ulp = 1.110_223_024_625_156_5e-16;
        same(sum(&[1.0, half_ulp]), 1.0);
        same(sum(&[1.0, half_ulp, 5e-324]), 1.000_000_000_000_000_2);
        same(
            sum(&[1.000_000_000_000_000_2, half_ulp]),
            1.000_000_000_000_000_4,
        );
        same(sum(&[-1.0, -half_ulp, -5e-324]), -1.000_000_000_000_000_2);
    }

    #[test]
    fn an_empty_or_zero_sum_is_positive_zero() {
        same(sum(&[]), 0.0);
        same(sum(&[-0.0, -0.0]), 0.0);
        same(sum(&[3.5, -3.5]), 0.0);
    }

    #[test]
    fn a_sum_beyond_the_range_is_infinite_but_its_mean_is_not() {
        same(sum(&[f64::MAX, f64::MAX]), f64::INFINITY);
        same(summary(&[f64::MAX; 3]).mean, f64::MAX);
        same(summary(&[-f64::MAX; 3]).mean, -f64::MAX);
    }

    #[test]
    fn as_many_large_values_of_32_bits_as_may_be_summed_do_not_overflow() {
        let largest = f64::from(f32::from_bits(0x40ff_ffff));
        for value in [largest, -largest] {
            let (mut beside, mut short) = (ExactMoments::default(), Short::EMPTY);
            (0..Short::MOST).for_each(|_| beside.add_beside(&mut short, value));
            short.settle(&mut beside);
            let one_by_one = moments(&vec![value; Short::MOST]);
            assert_eq!(beside.to_bytes(), one_by_one.to_bytes());
        }
    }

    #[test]
    fn subnormal_values_keep_every_bit() {
        same(sum(&[5e-324; 3]), 1.5e-323);
        same(summary(&[5e-324, 1.5e-323]).mean, 1e-323);
        same(summary(&[5e-324, 1.5e-323]).deviation, 5e-324);
    }

    #[test]
    fn the_deviation_neither_overflows_nor_cancels() {
        same(summary(&[1e300, -1e300]).deviation, 1e300);
        same(summary(&[f64::MAX, -f64::MAX]).deviation, f64::MAX);
        same(summary(&[1e9, 1e9 + 2.0]).deviation, 1.0);
        same(
            summary(&[1e16, 1e16 + 2.0, 1e16 + 4.0]).deviation,
            (8.0f64 / 3.0).sqrt(),
        );
        same(summary(&[0.1; 1000]).deviation, 0.0);
        same(summary(&[0.1; 1000]).mean, 0.1);
        same(
            summary(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).deviation,
            2.0,
        );
    }

    #[test]
    fn squares_of_billions_of_values_do_not_overflow() {
        // Merging a state with itself doubles it: 2^33 copies of the longest mantissas, of either sign.
        let (a, b) = (2f64.next_down(), 0.5);
        let mut many = moments(&[a, -a, b, -b]);
        for _ in 0..31 {
            many.merge(&ExactMoments::from_bytes(&many.to_bytes()).unwrap());
        }
        assert_eq!(many.count, 1 << 33);
        assert_eq!(many.summary().unwrap(), summary(&[a, -a, b, -b]));
    }

    #[test]
    fn bytes_of_another_length_or_exponent_are_refused() {
        let bytes = moments(&[1.5, -2e40]).to_bytes();
        assert!(ExactMoments::from_bytes(&bytes).is_some());
        assert!(ExactMoments::from_bytes(&bytes[..bytes.len() - 1]).is_none());
        assert!(ExactMoments::from_bytes(&[]).is_none());
        let mut wrong = bytes;
        wrong[8..10].copy_from_slice(&2048u16.to_le_bytes());
        assert!(ExactMoments::from_bytes(&wrong).is_none());
    }

    fn any_finite() -> impl Strategy<Value = f64> {
        any::<u64>()
            .prop_map(f64::from_bits)
            .prop_filter("finite", |x| x.is_finite())
    }

    proptest! {
        #[test]
        fn any_partitioning_gives_the_same_bytes(values in prop::collection::vec((any_finite(), 0usize..4), 0..80)) {
            let all: Vec<f64> = values.iter().map(|(x, _)| *x).collect();
            let mut merged = ExactMoments::default();
            for part in (0..4).rev() {
                let own: Vec<f64> = values.iter().rev().filter(|(_, p)| *p == part).map(|(x, _)| *x).collect();
                merged.merge(&ExactMoments::from_bytes(&moments(&own).to_bytes()).unwrap());
            }
            prop_assert_eq!(merged.to_bytes(), moments(&all).to_bytes());
        }

        #[test]
        fn values_of_32_bits_go_to_the_bins_that_they_go_to_one_by_one(
            values in prop::collection::vec(prop_oneof![
                any::<u32>().prop_map(|bits| f64::from(f32::from_bits(bits))),
                any_finite(),
                (-3i8..3).prop_map(f64::from),
                Just(-0.0),
            ], 0..300),
        ) {
            let values: Vec<f64> = values.into_iter().filter(|x| x.is_finite()).collect();
            let (mut beside, mut short) = (ExactMoments::default(), Short::EMPTY);
            values.iter().for_each(|value| beside.add_beside(&mut short, *value));
            short.settle(&mut beside);
            prop_assert_eq!(beside.to_bytes(), moments(&values).to_bytes());
        }

        #[test]
        fn ordinary_values_agree_with_the_naive_two_passes(values in prop::collection::vec(-1e6f64..1e6, 1..200)) {
            let (mean, deviation) = naive(&values);
            let exact = summary(&values);
            prop_assert!((exact.mean - mean).abs() <= 1e-9);
            prop_assert!((exact.deviation - deviation).abs() <= 1e-9 * deviation.max(1e-3));
        }

        #[test]
        fn integers_agree_with_integer_arithmetic(values in prop::collection::vec(-(1i64 << 53)..(1i64 << 53), 1..60)) {
            #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
            let floats: Vec<f64> = values.iter().map(|x| *x as f64).collect();
            let total: i128 = values.iter().map(|x| i128::from(*x)).sum();
            // Rust's conversion rounds to nearest, ties to even.
            #[expect(clippy::cast_precision_loss, reason = "the rounding is what is compared")]
            let expected = total as f64;
            prop_assert_eq!(sum(&floats).to_bits(), expected.to_bits());
        }
    }
}
