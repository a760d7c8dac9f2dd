//! PNG: its first chunk and its last.

use crate::{
    Format, Header, ImageError, ImageLimits, Orientation, codecs::decoder_bytes,
    tiff::exif_orientation,
};

/// Reads the first chunk, which must be the header (PNG, section 11.2.2).
pub(crate) fn header(encoded: &[u8]) -> Result<Header, ImageError> {
    const BYTES: usize = 33;
    let Some(chunk) = encoded.get(8..BYTES) else {
        let bytes = encoded.len();
        return Err(ImageError::truncated(format!(
            "it has `{bytes}` bytes and a PNG header needs `{BYTES}`"
        )));
    };
    if &chunk[..8] != b"\0\0\0\x0dIHDR" {
        return Err(ImageError::corrupt("its first chunk is not its header"));
    }
    let exif = chunks(encoded)?;
    let side =
        |at: usize| u32::from_be_bytes([chunk[at], chunk[at + 1], chunk[at + 2], chunk[at + 3]]);
    let (width, height) = (side(8), side(12));
    let wide = if chunk[16] == 16 { 2 } else { 1 };
    let channels = match chunk[17] {
        0 => 1,
        4 => 2,
        // A palette becomes RGB, or RGBA where it has transparent entries.
        _ => 4,
    };
    Ok(Header {
        format: Format::Png,
        width,
        height,
        orientation: Orientation::from_exif(exif.map_or(1, exif_orientation)),
        decoder_bytes: decoder_bytes(width, height, channels * wide),
        limits: ImageLimits::DEFAULT,
        jpeg: None,
    })
}

/// The EXIF data (PNG, third edition, section 11.3.4.6). The last chunk must be there: decoders do not miss it when the
/// pixels are complete.
fn chunks(encoded: &[u8]) -> Result<Option<&[u8]>, ImageError> {
    let (mut at, mut exif) = (8_usize, None);
    while let Some(head) = encoded.get(at..at.saturating_add(8)) {
        let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let end = at.saturating_add(length).saturating_add(12);
        match &head[4..] {
            b"IEND" if end <= encoded.len() => return Ok(exif),
            b"eXIf" => exif = exif.or_else(|| encoded.get(at + 8..end.saturating_sub(4))),
            _ => {}
        }
        at = end;
    }
    Err(ImageError::truncated("it has no end chunk"))
}
