//! A single exact sum, for a great number of instances: some 32 bytes for each exponent that
//! occurs, usually below ten.

use super::{LOWEST, Scaled, decode, signed_sum, with_sign};

/// Count and exact sum of finite values.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExactTotal {
    count: u64,
    /// Exponent and sum in units of it, by rising exponent.
    bins: Vec<(u16, i128)>,
}

impl ExactTotal {
    /// Adds a value, which must be finite.
    pub(crate) fn add(&mut self, value: f64) {
        let (exponent, _, signed) = decode(value);
        let exponent = u16::try_from(exponent).expect("an exponent has 11 bits");
        self.add_bin(exponent, signed);
        self.count += 1;
    }

    /// Adds everything `other` has seen.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (exponent, sum) in &other.bins {
            self.add_bin(*exponent, *sum);
        }
        self.count += other.count;
    }

    /// Number of values.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Their sum, correctly rounded (to nearest, ties to even); infinite when it exceeds the range of `f64`.
    pub(crate) fn sum(&self) -> f64 {
        let bins = self.bins.iter();
        let (positive, sum) =
            signed_sum(bins.map(|(exponent, sum)| (usize::from(*exponent), *sum)));
        with_sign(positive, Scaled::divide(&sum, LOWEST, &[]).to_f64())
    }

    fn add_bin(&mut self, exponent: u16, sum: i128) {
        match self
            .bins
            .binary_search_by_key(&exponent, |(exponent, _)| *exponent)
        {
            Ok(place) => self.bins[place].1 += sum,
            Err(place) => self.bins.insert(place, (exponent, sum)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::statistics::exact_sum::ExactMoments;

    proptest! {
        #[test]
        fn a_total_is_that_of_the_moments_however_it_is_merged(
            values in proptest::collection::vec(proptest::num::f64::NORMAL | proptest::num::f64::SUBNORMAL | proptest::num::f64::ZERO, 0..60),
            cut in 0_usize..60,
        ) {
            let mut moments = ExactMoments::default();
            values.iter().for_each(|value| moments.add(*value));
            let (mut first, mut second) = (ExactTotal::default(), ExactTotal::default());
            for (i, value) in values.iter().enumerate() {
                if i < cut { first.add(*value) } else { second.add(*value) }
            }
            second.merge(&first);
            prop_assert_eq!(second.sum().to_bits(), moments.sum().to_bits());
            prop_assert_eq!(second.count(), values.len() as u64);
        }
    }
}
