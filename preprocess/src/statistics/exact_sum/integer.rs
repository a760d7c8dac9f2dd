//! The few operations on big integers that an exact mean and variance need. They run once per column.

use std::cmp::Ordering;

/// A natural number, least significant limb first, without leading zero limbs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Natural(Vec<u64>);

impl Natural {
    pub(super) fn from_u128(value: u128) -> Self {
        let mut limbs = vec![low(value), low(value >> 64)];
        trim(&mut limbs);
        Self(limbs)
    }

    /// Adds `other · 2^shift`.
    pub(super) fn add_shifted(&mut self, other: &Self, shift: usize) {
        let (limb, bit) = (shift / 64, shift % 64);
        let mut carry = 0u128;
        let mut spill = 0u64;
        for i in 0.. {
            let mine = other.0.get(i).copied().unwrap_or(0);
            if i >= other.0.len() && spill == 0 && carry == 0 {
                break;
            }
            let wide = u128::from(mine) << bit;
            if self.0.len() <= limb + i {
                self.0.resize(limb + i + 1, 0);
            }
            let slot = &mut self.0[limb + i];
            let sum = u128::from(*slot) + u128::from(low(wide) | spill) + carry;
            *slot = low(sum);
            carry = sum >> 64;
            spill = low(wide >> 64);
        }
        trim(&mut self.0);
    }

    /// Subtracts `other`, which must not be larger.
    pub(super) fn subtract(&mut self, other: &Self) {
        assert!(*self >= *other, "a natural number cannot go below zero");
        let mut borrow = false;
        for (i, slot) in self.0.iter_mut().enumerate() {
            let (first, under) = slot.overflowing_sub(other.0.get(i).copied().unwrap_or(0));
            let (second, under_again) = first.overflowing_sub(u64::from(borrow));
            *slot = second;
            borrow = under || under_again;
        }
        trim(&mut self.0);
    }

    /// Product, by the school method.
    pub(super) fn times(&self, other: &Self) -> Self {
        let mut limbs = vec![0u64; self.0.len() + other.0.len()];
        for (i, a) in self.0.iter().enumerate() {
            let mut carry = 0u128;
            for (j, b) in other.0.iter().enumerate() {
                let sum = u128::from(limbs[i + j]) + u128::from(*a) * u128::from(*b) + carry;
                limbs[i + j] = low(sum);
                carry = sum >> 64;
            }
            limbs[i + other.0.len()] = low(carry);
        }
        trim(&mut limbs);
        Self(limbs)
    }

    /// Divides in place and says whether anything was left over.
    fn divide(&mut self, divisor: u64) -> bool {
        let mut remainder = 0u128;
        for limb in self.0.iter_mut().rev() {
            let dividend = remainder << 64 | u128::from(*limb);
            *limb = low(dividend / u128::from(divisor));
            remainder = dividend % u128::from(divisor);
        }
        trim(&mut self.0);
        remainder != 0
    }

    /// Number of bits up to the highest one that is set.
    fn bits(&self) -> usize {
        self.0
            .last()
            .map_or(0, |top| self.0.len() * 64 - top.leading_zeros() as usize)
    }

    /// Bit `i`.
    fn bit(&self, i: usize) -> bool {
        self.0
            .get(i / 64)
            .is_some_and(|limb| limb >> (i % 64) & 1 == 1)
    }

    /// Returns true if any bit below `i` is set.
    fn any_below(&self, i: usize) -> bool {
        let whole = self.0.iter().take(i / 64).any(|limb| *limb != 0);
        whole
            || self
                .0
                .get(i / 64)
                .is_some_and(|limb| limb & ((1 << (i % 64)) - 1) != 0)
    }

    /// The bits from `i` on, at most 64.
    fn bits_from(&self, i: usize) -> u64 {
        let low_part = u128::from(self.0.get(i / 64).copied().unwrap_or(0));
        let high_part = u128::from(self.0.get(i / 64 + 1).copied().unwrap_or(0));
        low((high_part << 64 | low_part) >> (i % 64))
    }
}

impl PartialOrd for Natural {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Natural {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0
            .len()
            .cmp(&other.0.len())
            .then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }
}

/// `(quotient + something below 1, if inexact) · 2^exponent`.
#[derive(Clone, Debug)]
pub(super) struct Scaled {
    quotient: Natural,
    inexact: bool,
    exponent: i64,
}

impl Scaled {
    /// `number · 2^exponent` divided by every one of `divisors` (at most two).
    pub(super) fn divide(number: &Natural, exponent: i64, divisors: &[u64]) -> Self {
        // 192 more bits leave at least 64 significant ones after two divisions by 64 bits.
        let mut quotient = Natural::default();
        quotient.add_shifted(number, 192);
        let mut inexact = false;
        for divisor in divisors {
            // Dividing twice and rounding down equals dividing once by the product.
            inexact |= quotient.divide(*divisor);
        }
        Self {
            quotient,
            inexact,
            exponent: exponent - 192,
        }
    }

    /// The nearest `f64`, ties to even; infinite beyond the range.
    pub(super) fn to_f64(&self) -> f64 {
        let (integer, exponent) = self.round(-1074);
        times_power_of_two(integer, exponent)
    }

    /// Root of the value rounded to 53 bits.
    pub(super) fn square_root(&self) -> f64 {
        let (integer, exponent) = self.round(i64::MIN);
        // An even exponent can be halved; twice an integer of 53 bits is still exact.
        let odd = exponent & 1;
        let root = if odd == 1 { integer * 2.0 } else { integer }.sqrt();
        times_power_of_two(root, (exponent - odd) / 2)
    }

    /// An integer of at most 53 bits (2^53 after rounding up) and the power of two it is a multiple of, which is at
    /// least `lowest`.
    fn round(&self, lowest: i64) -> (f64, i64) {
        let bits = i64::try_from(self.quotient.bits()).expect("a few thousand bits");
        let unit = (bits - 53 + self.exponent).max(lowest);
        // Quotients have 64 significant bits or are zero, so the unit is never below the quotient's own.
        let Ok(dropped) = usize::try_from(unit - self.exponent) else {
            return (0.0, 0);
        };
        let mut integer = self.quotient.bits_from(dropped);
        if dropped > 0 && self.quotient.bit(dropped - 1) {
            let above_half = self.inexact || self.quotient.any_below(dropped - 1);
            integer += u64::from(above_half || integer & 1 == 1);
        }
        #[expect(clippy::cast_precision_loss, reason = "at most 2^53")]
        let exact = integer as f64;
        (exact, unit)
    }
}

/// `value · 2^exponent`, exact unless the result leaves the range.
fn times_power_of_two(value: f64, exponent: i64) -> f64 {
    if exponent >= -1022 {
        return [
            exponent.clamp(0, 1000),
            (exponent - 1000).max(0),
            exponent.min(0),
        ]
        .into_iter()
        .fold(value, |product, part| product * power_of_two(part));
    }
    // Below the smallest normal power: shift down in two steps; only the last can round.
    let part = exponent.max(-2000) / 2;
    value * power_of_two(part) * power_of_two((exponent - part).max(-1022))
}

/// 2^exponent for exponents from -1022; infinite above 1023.
fn power_of_two(exponent: i64) -> f64 {
    u64::try_from(exponent + 1023).map_or(0.0, |biased| f64::from_bits(biased.min(2047) << 52))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "keeping the low limb is the purpose"
)]
fn low(value: u128) -> u64 {
    value as u64
}

fn trim(limbs: &mut Vec<u64>) {
    while limbs.last() == Some(&0) {
        limbs.pop();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn natural(value: u128) -> Natural {
        Natural::from_u128(value)
    }

    #[test]
    fn a_carry_runs_through_every_limb() {
        let mut number = Natural(vec![u64::MAX; 5]);
        number.add_shifted(&natural(1), 0);
        assert_eq!(number, Natural(vec![0, 0, 0, 0, 0, 1]));
        number.subtract(&natural(1));
        assert_eq!(number, Natural(vec![u64::MAX; 5]));
    }

    #[test]
    fn powers_of_two_reach_both_ends_of_the_range() {
        let check = |value: f64, exponent: i64, expected: f64| {
            assert_eq!(
                times_power_of_two(value, exponent).to_bits(),
                expected.to_bits(),
                "{value} {exponent}"
            );
        };
        check(1.0, -1074, 5e-324);
        check(1.0, -1075, 0.0);
        check(9_007_199_254_740_991.0, 971, f64::MAX);
        check(9_007_199_254_740_992.0, 971, f64::INFINITY);
        check(4_503_599_627_370_496.0, -1074, f64::MIN_POSITIVE);
    }

    #[test]
    fn a_remainder_below_a_tie_rounds_up() {
        // The bits of 2^192 / d² end in a tie, and the division leaves a remainder that belongs above it.
        let d = 15_862_967_780_764_492_216;
        assert_eq!(
            Scaled::divide(&natural(1), 0, &[d, d]).to_f64().to_bits(),
            3.974_029_766_130_173e-39f64.to_bits()
        );
    }

    proptest! {
        #[test]
        fn arithmetic_agrees_with_128_bits(a in any::<u64>(), b in any::<u64>(), d in 1u64.., shift in 0usize..64) {
            let (wide_a, wide_b) = (u128::from(a), u128::from(b));
            prop_assert_eq!(natural(wide_a).times(&natural(wide_b)), natural(wide_a * wide_b));
            let mut sum = natural(wide_a);
            sum.add_shifted(&natural(wide_b), shift);
            prop_assert_eq!(&sum, &natural(wide_a + (wide_b << shift)));
            let inexact = sum.divide(d);
            prop_assert_eq!(sum, natural((wide_a + (wide_b << shift)) / u128::from(d)));
            prop_assert_eq!(inexact, (wide_a + (wide_b << shift)) % u128::from(d) != 0);
        }

        #[test]
        fn quotients_of_exact_floats_round_like_the_processor(a in 0u64..1 << 53, d in 1u64..1 << 53) {
            #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
            let expected = a as f64 / d as f64;
            prop_assert_eq!(Scaled::divide(&natural(u128::from(a)), 0, &[d]).to_f64().to_bits(), expected.to_bits());
            #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
            let root = (a as f64).sqrt();
            prop_assert_eq!(Scaled::divide(&natural(u128::from(a)), 0, &[]).square_root().to_bits(), root.to_bits());
        }
    }
}
