//! PNG and WebP, by the image crate.
//!
//! Pixels become u8 RGB by these rules: grey is repeated; alpha is left out, the colour under it stays; 16 bits become
//! `round(v * 255 / 65535)`; a palette is looked up; of an animation the first picture is taken.

use std::io::{self, Cursor};

use image::{
    ColorType, ImageDecoder, ImageError, Limits,
    codecs::{png::PngDecoder, webp::WebPDecoder},
};

use crate::{
    Format, Header, Orientation, PictureError, PictureLimits,
    orientation::exif_orientation,
    scratch::{Decoded, Scratch, room},
};

/// Reads the first chunk, which must be the header (PNG, section 11.2.2).
pub(crate) fn png_header(encoded: &[u8]) -> Result<Header, PictureError> {
    const BYTES: usize = 33;
    let Some(chunk) = encoded.get(8..BYTES) else {
        let bytes = encoded.len();
        return Err(PictureError::truncated(format!(
            "it has `{bytes}` bytes and a PNG header needs `{BYTES}`"
        )));
    };
    if &chunk[..8] != b"\0\0\0\x0dIHDR" {
        return Err(PictureError::corrupt("its first chunk is not its header"));
    }
    check_chunks(encoded)?;
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
        orientation: Orientation::default(),
        decoder_bytes: decoder_bytes(width, height, channels * wide),
        limits: PictureLimits::DEFAULT,
        jpeg: None,
    })
}

/// The last chunk must be there: decoders do not miss it when the pixels are complete.
fn check_chunks(encoded: &[u8]) -> Result<(), PictureError> {
    let mut at = 8_usize;
    while let Some(head) = encoded.get(at..at.saturating_add(8)) {
        let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let end = at.saturating_add(length).saturating_add(12);
        if &head[4..] == b"IEND" && end <= encoded.len() {
            return Ok(());
        }
        at = end;
    }
    Err(PictureError::truncated("it has no end chunk"))
}

/// Reads the first chunk after the container's header (RFC 9649, sections 2.4 to 2.7).
pub(crate) fn webp_header(encoded: &[u8]) -> Result<Header, PictureError> {
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
        // Lossless decoding keeps a second picture of four channels, lossy decoding the planes.
        decoder_bytes: decoder_bytes(width, height, 4) + u64::from(width) * u64::from(height) * 8,
        limits: PictureLimits::DEFAULT,
        jpeg: None,
    })
}

/// Output of the decoder, and ours of three channels.
fn decoder_bytes(width: u32, height: u32, bytes_per_pixel: u64) -> u64 {
    let pixels = u64::from(width) * u64::from(height);
    // Rows, the inflate window, Huffman groups.
    pixels * (bytes_per_pixel + 3) + u64::from(width) * 32 + (4 << 20)
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

/// Decodes the whole picture into the scratch.
pub(crate) fn decode(
    encoded: &[u8],
    header: &Header,
    scratch: &mut Scratch,
) -> Result<Decoded, PictureError> {
    let mut limits = Limits::default();
    limits.max_image_width = Some(header.limits.side);
    limits.max_image_height = Some(header.limits.side);
    limits.max_alloc = Some(header.limits.decoder_bytes);
    let stream = Cursor::new(encoded);
    match header.format {
        Format::WebP => {
            let mut decoder = WebPDecoder::new(stream).map_err(error)?;
            decoder.set_limits(limits).map_err(error)?;
            read(decoder, header, scratch)
        }
        _ => {
            let decoder = PngDecoder::with_limits(stream, limits).map_err(error)?;
            read(decoder, header, scratch)
        }
    }
}

fn read(
    decoder: impl ImageDecoder,
    header: &Header,
    scratch: &mut Scratch,
) -> Result<Decoded, PictureError> {
    let (width, height) = decoder.dimensions();
    if (width, height) != (header.width, header.height) {
        return Err(PictureError::corrupt("its parts give different sizes"));
    }
    let pixels = width as usize * height as usize;
    let colour = decoder.color_type();
    let rgb = room(&mut scratch.pixels, pixels * 3);
    if colour == ColorType::Rgb8 {
        decoder.read_image(rgb).map_err(error)?;
    } else {
        let bytes = pixels * usize::from(colour.bytes_per_pixel());
        let raw = room(&mut scratch.raw, bytes);
        decoder.read_image(raw).map_err(error)?;
        to_rgb(colour, raw, rgb)?;
    }
    Ok(Decoded {
        left: 0,
        top: 0,
        width,
        height,
        eighths: 8,
    })
}

fn to_rgb(colour: ColorType, raw: &[u8], pixels: &mut [u8]) -> Result<(), PictureError> {
    let pixels = pixels.as_chunks_mut::<3>().0;
    let wide = |from: &[u8], channel: usize| {
        let value = u16::from_ne_bytes([from[channel * 2], from[channel * 2 + 1]]);
        // round(v * 255 / 65535) = round(v / 257), which has no ties.
        u8::try_from((u32::from(value) + 128) / 257).unwrap_or(u8::MAX)
    };
    let from = raw.chunks_exact(usize::from(colour.bytes_per_pixel()));
    let each = pixels.iter_mut().zip(from);
    match colour {
        ColorType::L8 | ColorType::La8 => each.for_each(|(to, from)| *to = [from[0]; 3]),
        ColorType::Rgba8 => each.for_each(|(to, from)| to.copy_from_slice(&from[..3])),
        ColorType::L16 | ColorType::La16 => each.for_each(|(to, from)| *to = [wide(from, 0); 3]),
        ColorType::Rgb16 | ColorType::Rgba16 => {
            each.for_each(|(to, from)| *to = [0, 1, 2].map(|c| wide(from, c)));
        }
        _ => {
            return Err(PictureError::unsupported(format!(
                "of colour type {colour:?}"
            )));
        }
    }
    Ok(())
}

fn error(error: ImageError) -> PictureError {
    let ends = PictureError::truncated("its data end before its last row");
    match error {
        ImageError::IoError(e) if e.kind() == io::ErrorKind::UnexpectedEof => ends,
        ImageError::Limits(e) => PictureError::corrupt(format!("it needs more than it says: {e}")),
        ImageError::Unsupported(e) => PictureError::unsupported(e.to_string()),
        other => {
            let text = other.to_string();
            if text.to_lowercase().contains("unexpected end") || text.contains("EOF") {
                ends
            } else {
                PictureError::corrupt(text)
            }
        }
    }
}
