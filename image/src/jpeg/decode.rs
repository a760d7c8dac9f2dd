//! Decoding by zune-jpeg, in its strict mode.

use zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions};
use zune_jpeg::{
    JpegDecoder,
    errors::{DecodeErrors, UnsupportedSchemes},
};

use super::{
    decoder_input::{patched, rows},
    segments::{Colour, JpegHeader},
};
use crate::{
    Header, ImageError, Region,
    pixel_buffer::{Decoded, room},
    scratch::Scratch,
};

/// Most scans of a progressive image. Encoders write about ten; each more costs a walk over all coefficients.
const MOST_SCANS: usize = 64;

/// Decodes what `region` needs into the scratch.
pub(crate) fn decode(
    encoded: &[u8],
    header: &Header,
    region: &Region,
    scratch: &mut Scratch,
) -> Result<Decoded, ImageError> {
    let Some(jpeg) = &header.jpeg else {
        return Err(ImageError::corrupt("its header was not read"));
    };
    #[cfg(feature = "turbojpeg")]
    if !jpeg.is_ink() {
        let mut turbo = match scratch.turbo.take() {
            Some(turbo) => turbo,
            None => super::Turbo::new()?,
        };
        let memory = (&mut scratch.encoded, &mut scratch.pixels);
        let decoded = turbo.decode(encoded, jpeg, region, memory);
        scratch.turbo = Some(turbo);
        return decoded;
    }
    whole_rows(encoded, jpeg, region, scratch)
}

/// Decodes the rows that `region` needs, and whole rows.
fn whole_rows(
    encoded: &[u8],
    jpeg: &JpegHeader,
    region: &Region,
    scratch: &mut Scratch,
) -> Result<Decoded, ImageError> {
    let rows = rows(jpeg, region.bottom());
    // zune-jpeg takes Adobe's transform of 0 for four inks, whatever the number of components.
    let ends = (jpeg.is_ink(), &NO_CODE[..]);
    let bytes = patched(encoded, jpeg, rows, ends, &mut scratch.encoded);
    let (width, height) = (usize::from(jpeg.width), usize::from(rows));
    match jpeg.colour {
        Colour::Cmyk { inverted: false } => {
            let inks = room(&mut scratch.raw, width * height * 4);
            run(bytes, ColorSpace::CMYK, inks)?;
            print(inks, room(&mut scratch.pixels, width * height * 3));
        }
        colour => {
            // An image that is RGB already is handed on as it is: to the decoder it is YCbCr, unless its ids say RGB.
            let output = match colour {
                Colour::Rgb if !jpeg.named_rgb => ColorSpace::YCbCr,
                _ => ColorSpace::RGB,
            };
            let pixels = room(&mut scratch.pixels, width * height * 3);
            run(bytes, output, pixels)?;
        }
    }
    Ok(Decoded {
        left: 0,
        top: 0,
        width: jpeg.width.into(),
        height: rows.into(),
        eighths: 8,
    })
}

/// Bits that no Huffman code consists of (T.81, annex C: the code of all ones is reserved), and the end marker. zune-jpeg
/// that arrives there early, as the scan was cut and then ended, stops with an error, where it would otherwise make up
/// the rest; with all its rows it never reads them.
const NO_CODE: [u8; 34] = {
    let mut bytes = [0; 34];
    let mut at = 0;
    while at < 32 {
        bytes[at] = 0xff;
        at += 2;
    }
    [bytes[32], bytes[33]] = [0xff, 0xd9];
    bytes
};

fn run(bytes: &[u8], output: ColorSpace, out: &mut [u8]) -> Result<(), ImageError> {
    let options = DecoderOptions::new_fast()
        .set_strict_mode(true)
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX))
        .jpeg_set_max_scans(MOST_SCANS)
        .jpeg_set_out_colorspace(output);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_into(out).map_err(error)
}

/// Inks on white paper: red is what cyan and black let through, and so on, as Pillow converts.
fn print(inks: &[u8], pixels: &mut [u8]) {
    for (ink, pixel) in inks
        .as_chunks::<4>()
        .0
        .iter()
        .zip(pixels.as_chunks_mut::<3>().0)
    {
        let paper = u32::from(255 - ink[3]);
        for (to, from) in pixel.iter_mut().zip(ink) {
            let product = u32::from(255 - from) * paper + 128;
            *to = u8::try_from((product + (product >> 8)) >> 8).unwrap_or(u8::MAX);
        }
    }
}

fn error(error: DecodeErrors) -> ImageError {
    let text = error.to_string();
    match error {
        DecodeErrors::ExhaustedData | DecodeErrors::IoErrors(_) => {
            ImageError::truncated("its data end before its last row")
        }
        DecodeErrors::FormatStatic(text) if text.starts_with("Premature end of buffer") => {
            ImageError::truncated("its data end before its last row")
        }
        DecodeErrors::Unsupported(scheme) => ImageError::unsupported(match scheme {
            UnsupportedSchemes::LosslessHuffman => "a lossless JPEG".to_owned(),
            _ => "an arithmetic-coded JPEG".to_owned(),
        }),
        DecodeErrors::Format(text) => ImageError::corrupt(text),
        DecodeErrors::FormatStatic(text) => ImageError::corrupt(text),
        _ => ImageError::corrupt(text),
    }
}
