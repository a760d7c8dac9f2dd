//! Encoding of numbers between ranks, and their division among ranks.

use std::ops::Range;

use feedline_schemas::config::Compression;
use half::{bf16, slice::HalfFloatSliceExt as _};

// Numbers are sent little-endian, as they are stored in memory.
const _: () = assert!(cfg!(target_endian = "little"));

/// Encoding of numbers on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    /// As they are.
    Full,
    /// Rounded to bf16, to the nearest and halves to even. Sums are taken in f32 and rounded again, also on the rank that
    /// takes them, so that all ranks have the same numbers.
    Bf16,
}

impl Wire {
    /// Encoding of gradients.
    pub(crate) const fn of_gradients(compression: Compression) -> Self {
        match compression {
            Compression::None => Self::Full,
            Compression::Bf16 => Self::Bf16,
        }
    }

    /// Bytes of so many numbers.
    pub(super) const fn bytes(self, len: usize) -> usize {
        match self {
            Self::Full => 4 * len,
            Self::Bf16 => 2 * len,
        }
    }

    pub(super) fn encode(self, values: &[f32]) -> Vec<u8> {
        match self {
            Self::Full => bytemuck::cast_slice(values).to_vec(),
            Self::Bf16 => {
                let mut short = vec![bf16::ZERO; values.len()];
                short.convert_from_f32_slice(values);
                let bits: &[u16] = short.reinterpret_cast();
                bytemuck::cast_slice(bits).to_vec()
            }
        }
    }

    /// The numbers of what [`encode`](Self::encode) made.
    pub(super) fn decode(self, bytes: &[u8]) -> Vec<f32> {
        match self {
            Self::Full => {
                let (words, _) = bytes.as_chunks::<4>();
                words.iter().map(|word| f32::from_le_bytes(*word)).collect()
            }
            Self::Bf16 => {
                let (words, _) = bytes.as_chunks::<2>();
                let short = words.iter().map(|word| bf16::from_le_bytes(*word));
                short.map(bf16::to_f32).collect()
            }
        }
    }

    /// The numbers as they arrive elsewhere.
    pub(super) fn rounded(self, values: Vec<f32>) -> Vec<f32> {
        match self {
            Self::Full => values,
            Self::Bf16 => self.decode(&self.encode(&values)),
        }
    }
}

/// Shares of some numbers: contiguous, in rank order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RankBounds(Vec<usize>);

impl RankBounds {
    /// Shares of `len` numbers that are as even as can be.
    pub(crate) fn even(len: usize, world: usize) -> Self {
        Self((0..=world).map(|rank| rank * len / world).collect())
    }

    /// Shares that end there, the last one at the end of all.
    pub(crate) fn ending_at(ends: impl IntoIterator<Item = usize>) -> Self {
        Self(std::iter::once(0).chain(ends).collect())
    }

    /// Those of a rank.
    pub(crate) fn of(&self, rank: usize) -> Range<usize> {
        self.0[rank]..self.0[rank + 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::uniform;

    #[test]
    fn short_numbers_are_rounded_to_the_nearest_and_halves_to_even() {
        let one = 1.0_f32.to_bits();
        for (bits, expected) in [
            (one, one),
            (one + 0x7fff, one),
            (one + 0x8000, one),
            (one + 0x8001, one + 0x1_0000),
            (one + 0x1_8000, one + 0x2_0000),
            (0xff80_0000, 0xff80_0000),
        ] {
            let rounded = Wire::Bf16.rounded(vec![f32::from_bits(bits)]);
            assert_eq!(rounded[0].to_bits(), expected, "{bits:x}");
        }
        assert!(Wire::Bf16.rounded(vec![f32::NAN])[0].is_nan());
        let values = uniform(1000, 1);
        let rounded = Wire::Bf16.rounded(values.clone());
        assert_eq!(Wire::Bf16.rounded(rounded.clone()), rounded);
        for (value, rounded) in values.iter().zip(&rounded) {
            assert!((value - rounded).abs() <= value.abs() / 256.0);
        }
    }

    #[test]
    fn numbers_survive_their_journey() {
        let values = uniform(1001, 1);
        let bytes = Wire::Full.encode(&values);
        assert_eq!(bytes.len(), Wire::Full.bytes(values.len()));
        assert_eq!(Wire::Full.decode(&bytes), values);
        let bytes = Wire::Bf16.encode(&values);
        assert_eq!(bytes.len(), Wire::Bf16.bytes(values.len()));
    }

    #[test]
    fn shares_cover_everything_once() {
        for (len, world) in [(10, 3), (0, 4), (2, 5)] {
            let borders = RankBounds::even(len, world);
            let all = (0..world).flat_map(|rank| borders.of(rank));
            assert!(all.eq(0..len));
        }
        let borders = RankBounds::ending_at([4, 4, 9]);
        assert_eq!([0, 1, 2].map(|rank| borders.of(rank)), [0..4, 4..4, 4..9]);
    }
}
