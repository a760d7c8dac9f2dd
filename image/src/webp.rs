//! WebP: its first chunks.

use crate::{
    Format, Header, ImageError, ImageLimits, Orientation, codecs::decoder_bytes,
    tiff::exif_orientation,
};

/// Reads the first chunk after the container's header (RFC 9649, sections 2.4 to 2.7).
pub(crate) fn header(encoded: &[u8]) -> Result<Header, ImageError> {
    const BYTES: usize = 30;
    let Some(bytes) = encoded.get(..BYTES) else {
        let bytes = encoded.len();
        return Err(ImageError::truncated(format!(
            "it has `{bytes}` bytes and a WebP header needs `{BYTES}`"
        )));
    };
    let length = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    if u64::from(length) + 8 > encoded.len() as u64 {
        return Err(ImageError::truncated(format!(
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
        _ => return Err(ImageError::corrupt("its first chunk is no image")),
    };
    check_frames(encoded, [width, height])?;
    Ok(Header {
        format: Format::WebP,
        width,
        height,
        orientation: Orientation::from_exif(webp_orientation(encoded)),
        // Lossless decoding keeps a second image of four channels, lossy decoding the planes; and it takes memory for
        // a part of the data by its length of 24 bits before it reads it.
        decoder_bytes: decoder_bytes(width, height, 4)
            + u64::from(width) * u64::from(height) * 8
            + (16 << 20),
        limits: ImageLimits::DEFAULT,
        jpeg: None,
    })
}

/// Refuses frames that are larger than the image, wherever they are: their decoder takes memory by what they say (RFC 6386,
/// section 9.1) before anybody compares.
fn check_frames(encoded: &[u8], sides: [u32; 2]) -> Result<(), ImageError> {
    const START: [u8; 3] = [0x9d, 0x01, 0x2a];
    let heads = encoded.windows(18);
    let lossy = heads.filter(|head| head.starts_with(b"VP8 ") && head[11..14] == START);
    for head in lossy {
        let side = |at: usize| u32::from(u16::from_le_bytes([head[at], head[at + 1]]) & 0x3fff);
        let frame = [side(14), side(16)];
        if frame[0] > sides[0] || frame[1] > sides[1] {
            return Err(ImageError::corrupt(format!(
                "a frame has `{} x {}` pixels and the image `{} x {}`",
                frame[0], frame[1], sides[0], sides[1]
            )));
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of 16 x 16 pixels with a lossy frame of `sides` in it.
    fn file(sides: [u16; 2]) -> Vec<u8> {
        let mut bytes = b"RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00".to_vec();
        bytes.extend([0; 4]);
        bytes.extend([15, 0, 0, 15, 0, 0]);
        bytes.extend(b"VP8 \x0a\x00\x00\x00\x00\x00\x00\x9d\x01\x2a");
        bytes.extend(sides.map(u16::to_le_bytes).as_flattened());
        let length = u32::try_from(bytes.len() - 8).unwrap();
        bytes[4..8].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    #[test]
    fn a_frame_larger_than_the_image_is_refused_by_its_head() {
        let read = header(&file([16, 16])).unwrap();
        assert_eq!((read.width, read.height), (16, 16));
        for sides in [[17, 16], [16, 17], [16_383, 16_383]] {
            let error = header(&file(sides)).unwrap_err();
            assert_eq!(error.code(), "corrupt");
            assert!(error.to_string().contains("a frame has"), "{error}");
        }
    }
}
