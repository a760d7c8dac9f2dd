//! BMP: the file header and the sides in the header after it.

use crate::{Format, Header, ImageError, ImageLimits, Orientation, codecs::decoder_bytes};

/// The file header, and the part of the next with the sides.
const BYTES: usize = 34;
/// Length of the oldest header, whose sides have 16 bits.
const CORE: u32 = 12;

/// Reads the sides, and checks where rows are not compressed that all of them are there.
pub(crate) fn header(encoded: &[u8]) -> Result<Header, ImageError> {
    let Some(bytes) = encoded.get(..BYTES) else {
        let bytes = encoded.len();
        return Err(ImageError::truncated(format!(
            "it has `{bytes}` bytes and a BMP header needs `{BYTES}`"
        )));
    };
    let four =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let two = |at: usize| u32::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let (width, height, bits, compression) = if four(14) == CORE {
        (two(18), two(20), two(24), 0)
    } else {
        // Rows come from the top where the height is negative.
        let width = four(18).cast_signed();
        let width = u32::try_from(width)
            .map_err(|_| ImageError::corrupt(format!("its header says `{width}` columns")))?;
        (
            width,
            four(22).cast_signed().unsigned_abs(),
            two(28),
            four(30),
        )
    };
    let compressed = matches!(compression, 1 | 2 | 4 | 5);
    let row = (u64::from(width) * u64::from(bits)).div_ceil(32) * 4;
    let end = row
        .saturating_mul(height.into())
        .saturating_add(four(10).into());
    if !compressed && end > encoded.len() as u64 {
        return Err(ImageError::truncated(format!(
            "it has `{}` bytes and its rows end at `{end}`",
            encoded.len()
        )));
    }
    Ok(Header {
        format: Format::Bmp,
        width,
        height,
        orientation: Orientation::default(),
        decoder_bytes: decoder_bytes(width, height, 4),
        limits: ImageLimits::DEFAULT,
        jpeg: None,
    })
}
