//! WebP: its first chunks.

use crate::{
    Format, Header, Orientation, PictureError, PictureLimits, codecs::decoder_bytes,
    tiff::exif_orientation,
};

/// Reads the first chunk after the container's header (RFC 9649, sections 2.4 to 2.7).
pub(crate) fn header(encoded: &[u8]) -> Result<Header, PictureError> {
    const BYTES: usize = 30;
    let Some(bytes) = encoded.get(..BYTES) else {
        let bytes = encoded.len();
        return Err(PictureError::truncated(format!(
            "it has `{bytes}` bytes and a WebP header needs `{BYTES}`"
        )));
    };
    let length = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    if u64::from(length) + 8 > encoded.len() as u64 {
        return Err(PictureError::truncated(format!(
            "it has `{}` bytes and its header says `{}`",
            encoded.len(),
            u64::from(length) + 8
        )));
    }
    let three = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], 0]);
    let two = |at: usize| u32::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]) & 0x3fff);
    let (width, height) = match &bytes[12..16] {
        b"VP8 " => (two(26), two(28)),
        b"VP8L" => {
            let bits = u32::from_le_bytes([bytes[21], bytes[22], bytes[23], bytes[24]]);
            ((bits & 0x3fff) + 1, ((bits >> 14) & 0x3fff) + 1)
        }
        b"VP8X" => (three(24) + 1, three(27) + 1),
        _ => return Err(PictureError::corrupt("its first chunk is no picture")),
    };
    Ok(Header {
        format: Format::WebP,
        width,
        height,
        orientation: Orientation::from_exif(webp_orientation(encoded)),
        // Lossless decoding keeps a second picture of four channels, lossy decoding the planes; and it takes memory for
        // a part of the data by its length of 24 bits before it reads it.
        decoder_bytes: decoder_bytes(width, height, 4)
            + u64::from(width) * u64::from(height) * 8
            + (16 << 20),
        limits: PictureLimits::DEFAULT,
        jpeg: None,
    })
}

/// The orientation in the chunk `EXIF`, 1 where there is none.
fn webp_orientation(encoded: &[u8]) -> u16 {
    let mut at = 12;
    while let Some(head) = encoded.get(at..at + 8) {
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        if &head[..4] == b"EXIF" {
            let body = encoded.get(at + 8..).unwrap_or_default();
            let body = &body[..length.min(body.len())];
            return exif_orientation(body.strip_prefix(b"Exif\0\0").unwrap_or(body));
        }
        at = at.saturating_add(8 + length.next_multiple_of(2));
    }
    1
}
