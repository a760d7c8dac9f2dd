//! Sums of values that fit into 32 bits, in machine words.
//!
//! Such a value is `±m · 2^(e-150)` with `m < 2^24`, so that 2^16 of them can be summed in 64 bits,
//! squares too. The sums then move to the bins of 64-bit floats, whose units are 2^29 times finer:
//! the same sums, bin by bin, as if each value had gone there. The value itself is never converted:
//! its bits show whether anything would be lost.

use super::ExactMoments;

/// Exponent of the smallest normal value of 32 bits, as one of 64 bits has it.
const LEAST: u64 = 1023 - 126;
/// The bin of 64-bit floats in whose units the smallest of these values are.
const BIN: usize = 1023 - 126 - 1;
/// Exponents of normal values.
const EXPONENTS: u64 = 254;
/// Bits of a 64-bit float that one of 32 lacks.
const FINER: u32 = 52 - 23;

/// Sums of at most [`Self::MOST`] values by exponent: 4 KiB.
#[derive(Debug)]
pub(crate) struct Short {
    bins: [(i64, u64); 256],
}

impl Short {
    /// Values that are surely summed without an overflow.
    pub(crate) const MOST: usize = 1 << 16;

    /// With fewer values it is quicker to go without.
    const FEWEST: usize = 256;

    /// Sums of none.
    pub(crate) const EMPTY: Self = Self {
        bins: [(0, 0); 256],
    };

    /// Returns true if summing `values` this way is likely faster, judged by some of them.
    pub(crate) fn suits(values: &[f64]) -> bool {
        const LOOKED_AT: usize = 8;
        let some = values.iter().take(LOOKED_AT);
        values.len() >= Self::FEWEST
            && some.filter(|x| is_short(x.to_bits())).count() >= LOOKED_AT / 2
    }

    /// Adds a value that 32 bits hold; false, and nothing is done, for most others.
    #[inline]
    pub(super) fn add(&mut self, value: f64) -> bool {
        let bits = value.to_bits();
        if !is_short(bits) {
            return false;
        }
        let magnitude = (bits >> FINER & ((1 << 23) - 1) | 1 << 23).cast_signed();
        // All ones for a negative value: a branch on the sign could not be foreseen.
        let sign = bits.cast_signed() >> 63;
        let bin = &mut self.bins[((bits >> 52).wrapping_sub(LEAST) & 0xff) as usize];
        bin.0 += (magnitude ^ sign) - sign;
        bin.1 += (magnitude * magnitude).cast_unsigned();
        true
    }

    /// Moves the sums to `moments`, which has counted the values.
    pub(crate) fn settle(&self, moments: &mut ExactMoments) {
        for (place, (sum, squares)) in self.bins.iter().enumerate() {
            if (*sum, *squares) != (0, 0) {
                // The unit of a bin is that of the smallest value with its exponent.
                let bin = moments.bin(place + BIN);
                bin.sum += i128::from(*sum) << FINER;
                bin.add_squares(u128::from(*squares) << (2 * FINER), 0);
            }
        }
    }
}

/// Returns true if the value is also a normal one of 32 bits.
#[inline]
fn is_short(bits: u64) -> bool {
    let exponent = bits >> 52 & 0x7ff;
    bits & ((1 << FINER) - 1) == 0 && exponent.wrapping_sub(LEAST) < EXPONENTS
}
