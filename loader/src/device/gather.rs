//! Kernels that build batches on the device, and their twins on the CPU: the reference for tests,
//! and the way to run without a GPU.
//!
//! - Rows and tokens: whole blocks go to the device once, into the slots of a window, and a kernel builds each batch
//!   from (slot, row) places. So the processor touches no row.
//! - Images: bytes go to the device, a quarter of what floats would take, and become normalised floats there, mixed
//!   with others of the batch where that is asked for.

use serde::{Deserialize, Serialize};

/// Layout of one column of the blocks in a window of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnLayout {
    /// Bytes from one slot to the next.
    pub slot_bytes: usize,
    /// Slots of the window.
    pub slots: u32,
    /// Start of the column in a slot, in bytes.
    pub offset: usize,
    /// Rows of a slot; tokens of a slot for tokens.
    pub rows: u32,
    /// Bytes of a row; of a token for tokens, 2 or 4.
    pub row_bytes: usize,
}

impl ColumnLayout {
    /// Bytes from the start of the window to behind the last row, `None` where the rows do not fit into a slot.
    #[must_use]
    pub fn end(&self) -> Option<usize> {
        let column = (self.rows as usize).checked_mul(self.row_bytes)?;
        let end = self.offset.checked_add(column)?;
        (end <= self.slot_bytes && self.row_bytes > 0)
            .then(|| (self.slots as usize).checked_mul(self.slot_bytes))?
    }

    fn row(&self, slot: u32, row: u32) -> Option<usize> {
        (slot < self.slots && row < self.rows)
            .then(|| slot as usize * self.slot_bytes + self.offset + row as usize * self.row_bytes)
    }
}

/// Position of a row of a batch: slot of the window, row of the slot.
pub type RowPlace = [u32; 2];

/// Some tokens of a batch: slot, first token in the slot, first place in the batch, end in the
/// batch. A slot number that the window does not have means padding.
pub type TokenPiece = [u32; 4];

/// The slot of padding.
pub const PADDING: u32 = u32::MAX;

/// Copies the rows at `places`, each `column.row_bytes` long, one behind another into `out`. A place outside the window
/// gives zeros.
///
/// # Panics
///
/// `window` or `out` is too short.
pub fn gather_rows(window: &[u8], column: &ColumnLayout, places: &[RowPlace], out: &mut [u8]) {
    let bytes = column.row_bytes;
    let out = &mut out[..places.len() * bytes];
    for (to, [slot, row]) in out.chunks_exact_mut(bytes).zip(places) {
        match column.row(*slot, *row) {
            Some(from) => to.copy_from_slice(&window[from..from + bytes]),
            None => to.fill(0),
        }
    }
}

/// Writes the tokens of `pieces` to `out`, as 32-bit ids, and `pad` where a piece is padding or leaves its slot.
///
/// # Panics
///
/// `window` is too short, or a token is neither 2 nor 4 bytes long.
pub fn gather_tokens(
    window: &[u8],
    column: &ColumnLayout,
    pieces: &[TokenPiece],
    pad: u32,
    out: &mut [u32],
) {
    for [slot, first, start, end] in pieces {
        for to in *start..*end {
            let Some(place) = out.get_mut(to as usize) else {
                break;
            };
            let token = first.checked_add(to - start);
            *place = match token.and_then(|token| column.row(*slot, token)) {
                Some(from) => token_at(&window[from..from + column.row_bytes]),
                None => pad,
            };
        }
    }
}

fn token_at(bytes: &[u8]) -> u32 {
    match *bytes {
        [a, b] => u16::from_le_bytes([a, b]).into(),
        [a, b, c, d] => u32::from_le_bytes([a, b, c, d]),
        _ => unreachable!("tokens are 2 or 4 bytes long"),
    }
}

/// Images of bytes, `[count, height, width, 3]`, and what is made of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normalize {
    /// Rows of pixels.
    pub height: u32,
    /// Pixels of a row.
    pub width: u32,
    /// Order of the result.
    pub order: ChannelOrder,
    /// By channel: what a byte is multiplied with.
    pub scale: [f32; 3],
    /// By channel: what is added then.
    pub bias: [f32; 3],
}

/// Order of the channels of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChannelOrder {
    /// `[count, 3, height, width]`.
    #[default]
    First,
    /// `[count, height, width, 3]`.
    Last,
}

/// Mix of an image with another of its batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// The other image's place in the batch. One that the batch does not have leaves the image as it is.
    pub partner: u32,
    /// Share of the image itself outside the box, 0 to 1. Mixup has an empty box, cutmix a weight of 1.
    pub weight: f32,
    /// Rows of the box, from `top` to below `bottom`, in which the partner is taken alone.
    pub rows: [u32; 2],
    /// Pixels of the box, from left to before right.
    pub pixels: [u32; 2],
}

impl Mix {
    /// Bytes of one on the device.
    pub const BYTES: usize = 24;

    /// Leaves the image as it is.
    pub const NONE: Self = Self {
        partner: u32::MAX,
        weight: 1.0,
        rows: [0; 2],
        pixels: [0; 2],
    };

    /// As the device reads it.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let words = [
            self.partner,
            self.weight.to_bits(),
            self.rows[0],
            self.rows[1],
            self.pixels[0],
            self.pixels[1],
        ];
        bytemuck::cast(words)
    }
}

impl Normalize {
    /// `(byte / 255 - mean) / deviation` by channel, with mean and standard deviation of values from 0 to 1.
    #[must_use]
    pub fn new(
        height: u32,
        width: u32,
        order: ChannelOrder,
        mean: [f32; 3],
        deviation: [f32; 3],
    ) -> Self {
        Self {
            height,
            width,
            order,
            scale: deviation.map(|d| 1.0 / (255.0 * d)),
            bias: std::array::from_fn(|c| -mean[c] / deviation[c]),
        }
    }

    /// Values of one image.
    #[must_use]
    pub fn values(&self) -> usize {
        self.height as usize * self.width as usize * 3
    }

    /// Normalises images `[count, height, width, 3]` to f32. `mixes` is empty or has one for each image.
    ///
    /// Each value is one fused multiply-add, as on the device, and so is each mix: results are equal bit for bit.
    ///
    /// # Panics
    ///
    /// `out` is not as long as `images`, or `mixes` not as the number of images.
    pub fn apply(&self, images: &[u8], mixes: &[Mix], out: &mut [f32]) {
        assert_eq!(images.len(), out.len());
        let (values, width) = (self.values(), self.width as usize);
        let count = images.len() / values;
        assert!(mixes.is_empty() || mixes.len() == count);
        let value = |n: usize, pixel: usize, c: usize| {
            f32::from(images[n * values + pixel * 3 + c]).mul_add(self.scale[c], self.bias[c])
        };
        for (i, to) in out.iter_mut().enumerate() {
            let (n, rest) = (i / values, i % values);
            let (pixel, c) = match self.order {
                ChannelOrder::First => (rest % (values / 3), rest / (values / 3)),
                ChannelOrder::Last => (rest / 3, rest % 3),
            };
            *to = value(n, pixel, c);
            let mix = mixes.get(n).copied().unwrap_or(Mix::NONE);
            if (mix.partner as usize) < count {
                let other = value(mix.partner as usize, pixel, c);
                let weight = mix.weight_at(pixel / width, pixel % width);
                *to = weight.mul_add(*to - other, other);
            }
        }
    }
}

impl Mix {
    fn weight_at(&self, row: usize, pixel: usize) -> f32 {
        let within =
            |at: usize, [start, end]: [u32; 2]| (start as usize..end as usize).contains(&at);
        if within(row, self.rows) && within(pixel, self.pixels) {
            0.0
        } else {
            self.weight
        }
    }
}

/// Rounds to bfloat16, ties to even; NaN stays NaN.
#[must_use]
pub fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = if value.is_nan() {
        bits | 0x40_0000
    } else {
        bits.wrapping_add(0x7FFF + ((bits >> 16) & 1))
    };
    let [_, _, low, high] = rounded.to_le_bytes();
    u16::from_le_bytes([low, high])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Window byte i is i, so that a wrong row shows at sight.
    fn window() -> (Vec<u8>, ColumnLayout) {
        let column = ColumnLayout {
            slot_bytes: 40,
            slots: 3,
            offset: 8,
            rows: 4,
            row_bytes: 4,
        };
        ((0..120).collect(), column)
    }

    #[test]
    fn rows_come_from_their_slot_and_row() {
        let (window, column) = window();
        assert_eq!(column.end(), Some(120));
        let mut out = [9; 16];
        gather_rows(
            &window,
            &column,
            &[[0, 0], [2, 3], [3, 0], [1, 4]],
            &mut out,
        );
        assert_eq!(
            out,
            [8, 9, 10, 11, 100, 101, 102, 103, 0, 0, 0, 0, 0, 0, 0, 0]
        );
    }

    #[test]
    fn a_column_that_leaves_its_slot_is_no_column() {
        let (_, column) = window();
        let end = |change: fn(&mut ColumnLayout)| {
            let mut column = column;
            change(&mut column);
            column.end()
        };
        assert_eq!(end(|c| c.rows = 8), Some(120));
        assert_eq!(end(|c| c.rows = 9), None);
        assert_eq!(end(|c| c.row_bytes = 0), None);
        assert_eq!(end(|c| c.offset = usize::MAX), None);
    }

    #[test]
    fn tokens_are_widened_and_padded() {
        let (window, mut column) = window();
        column.row_bytes = 2;
        let mut out = [7; 8];
        let pieces = [[1, 1, 0, 2], [0, 3, 2, 5], [PADDING, 0, 5, 7]];
        gather_tokens(&window, &column, &pieces, 50_000, &mut out);
        let id = |low: u32| low + ((low + 1) << 8);
        // The second piece leaves its slot of four tokens.
        assert_eq!(
            out,
            [id(50), id(52), id(14), 50_000, 50_000, 50_000, 50_000, 7]
        );
        column.row_bytes = 4;
        gather_tokens(&window, &column, &[[2, 0, 7, 9]], 0, &mut out);
        assert_eq!(out[7], u32::from_le_bytes([88, 89, 90, 91]));
    }

    fn check_normalize(
        order: ChannelOrder,
        mixes: &[Mix],
        expected: impl Fn(usize, usize, usize, usize) -> f64,
    ) {
        let (mean, deviation) = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
        let (height, width) = (3, 5);
        let normalize = Normalize::new(3, 5, order, mean, deviation);
        let images: Vec<u8> = (0..2 * normalize.values())
            .map(|i| (i * 37 % 256).to_le_bytes()[0])
            .collect();
        let mut out = vec![0.0; images.len()];
        normalize.apply(&images, mixes, &mut out);
        for n in 0..2 {
            for y in 0..height {
                for x in 0..width {
                    for c in 0..3 {
                        let at = match order {
                            ChannelOrder::First => ((n * 3 + c) * height + y) * width + x,
                            ChannelOrder::Last => ((n * height + y) * width + x) * 3 + c,
                        };
                        let byte = expected(n, y, x, c);
                        let value = (byte / 255.0 - f64::from(mean[c])) / f64::from(deviation[c]);
                        assert!((f64::from(out[at]) - value).abs() < 2e-6, "{n} {y} {x} {c}");
                    }
                }
            }
        }
    }

    fn byte(n: usize, y: usize, x: usize, c: usize) -> f64 {
        f64::from(u8::try_from((((n * 3 + y) * 5 + x) * 3 + c) * 37 % 256).unwrap())
    }

    #[test]
    fn images_are_normalised_in_either_order() {
        check_normalize(ChannelOrder::First, &[], byte);
        check_normalize(ChannelOrder::Last, &[], byte);
    }

    #[test]
    fn mixup_weighs_and_cutmix_pastes() {
        let mixup = Mix {
            partner: 1,
            weight: 0.25,
            ..Mix::NONE
        };
        let cutmix = Mix {
            partner: 0,
            rows: [1, 3],
            pixels: [0, 2],
            ..Mix::NONE
        };
        check_normalize(
            ChannelOrder::First,
            &[mixup, cutmix],
            |n, y, x, c| match n {
                0 => 0.25 * byte(0, y, x, c) + 0.75 * byte(1, y, x, c),
                _ if y >= 1 && x < 2 => byte(0, y, x, c),
                _ => byte(1, y, x, c),
            },
        );
    }

    #[test]
    fn bf16_rounds_to_the_nearest_and_to_even() {
        let check = |bits: u32, expected: u16| {
            assert_eq!(to_bf16(f32::from_bits(bits)), expected, "{bits:#x}");
        };
        check(0x3F80_0000, 0x3F80);
        check(0x3F80_8000, 0x3F80);
        check(0x3F81_8000, 0x3F82);
        check(0x3F80_8001, 0x3F81);
        check(0x7F7F_FFFF, 0x7F80);
        check(0xFF80_0000, 0xFF80);
        check(0x7F80_0001, 0x7FC0);
    }
}
