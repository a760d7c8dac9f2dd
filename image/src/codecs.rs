//! Decoding of all but JPEG, by the image crate.
//!
//! Pixels become u8 RGB by these rules: grey is repeated; 16 bits become `round(v * 255 / 65535)`, those of alpha too; a
//! palette is looked up; one bit is 0 or 255; inks become `(255 - ink) * (255 - black) / 255`, rounded down; of an
//! animation, or of several pages, the first image is taken. Pixels with alpha are blended onto the background:
//! `round((level * alpha + background * (255 - alpha)) / 255)`. Without a background they lose their alpha, and the
//! colour under it stays. Alpha of a BMP that is 0 everywhere counts as none.

use std::{
    io::{self, Cursor},
    mem,
};

use image::{
    ColorType, ImageDecoder, ImageError as CodecError, Limits,
    codecs::{
        bmp::BmpDecoder, gif::GifDecoder, png::PngDecoder, tiff::TiffDecoder, webp::WebPDecoder,
    },
};

use crate::{
    Format, Header, ImageError,
    pixel_buffer::{Decoded, room},
    scratch::Scratch,
    tiff::Palette,
};

/// Output of the decoder, and ours of three channels.
pub(crate) fn decoder_bytes(width: u32, height: u32, bytes_per_pixel: u64) -> u64 {
    let pixels = u64::from(width) * u64::from(height);
    // Rows, the inflate window, Huffman groups.
    pixels
        .saturating_mul(bytes_per_pixel + 3)
        .saturating_add(u64::from(width) * 32 + (4 << 20))
}

/// Decodes the whole image into the scratch.
pub(crate) fn decode(
    encoded: &[u8],
    header: &Header,
    scratch: &mut Scratch,
) -> Result<Decoded, ImageError> {
    let mut limits = Limits::default();
    limits.max_image_width = Some(header.limits.side);
    limits.max_image_height = Some(header.limits.side);
    limits.max_alloc = Some(match header.format {
        // The header shows the memory that these take, and so a bound on all of it.
        Format::Gif | Format::Tiff => header.decoder_bytes,
        _ => header.limits.decoder_bytes,
    });
    let stream = Cursor::new(encoded);
    match header.format {
        Format::WebP => limited(WebPDecoder::new(stream), limits, header, scratch),
        Format::Gif => limited(GifDecoder::new(stream), limits, header, scratch),
        Format::Bmp => limited(BmpDecoder::new(stream), limits, header, scratch),
        Format::Tiff => tiff(encoded, limits, header, scratch),
        Format::Png | Format::Jpeg | Format::Raw => {
            let decoder = PngDecoder::with_limits(stream, limits).map_err(error)?;
            read(decoder, header, scratch)
        }
    }
}

fn tiff(
    encoded: &[u8],
    limits: Limits,
    header: &Header,
    scratch: &mut Scratch,
) -> Result<Decoded, ImageError> {
    let Some(palette) = Palette::read(encoded)? else {
        let decoder = TiffDecoder::new(Cursor::new(encoded));
        return limited(decoder, limits, header, scratch);
    };
    let mut grey = mem::take(&mut scratch.encoded);
    grey.clear();
    grey.extend_from_slice(encoded);
    palette.make_grey(&mut grey);
    let decoder = TiffDecoder::new(Cursor::new(grey.as_slice()));
    let decoded = limited(decoder, limits, header, scratch);
    scratch.encoded = grey;
    let decoded = decoded?;
    palette.look_up(&mut scratch.pixels[..decoded.bytes()]);
    Ok(decoded)
}

fn limited<D: ImageDecoder>(
    decoder: Result<D, CodecError>,
    limits: Limits,
    header: &Header,
    scratch: &mut Scratch,
) -> Result<Decoded, ImageError> {
    let mut decoder = decoder.map_err(error)?;
    decoder.set_limits(limits).map_err(error)?;
    read(decoder, header, scratch)
}

fn read(
    decoder: impl ImageDecoder,
    header: &Header,
    scratch: &mut Scratch,
) -> Result<Decoded, ImageError> {
    let (width, height) = decoder.dimensions();
    if (width, height) != (header.width, header.height) {
        return Err(ImageError::corrupt("its parts give different sizes"));
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
        let is_unused = is_unused_alpha(header.format, colour, raw);
        let background = scratch.background.filter(|_| !is_unused);
        let is_transparent = to_rgb(colour, raw, rgb, background)?;
        scratch.is_transparent = is_transparent && !is_unused;
    }
    Ok(Decoded {
        left: 0,
        top: 0,
        width,
        height,
        eighths: 8,
    })
}

/// Converts pixels of `colour` to u8 RGB, on `background` where they have alpha. Returns true if one of them is not opaque.
fn to_rgb(
    colour: ColorType,
    raw: &[u8],
    pixels: &mut [u8],
    background: Option<[u8; 3]>,
) -> Result<bool, ImageError> {
    let pixels = pixels.as_chunks_mut::<3>().0;
    let wide = |from: &[u8], channel: usize| {
        let value = u16::from_ne_bytes([from[channel * 2], from[channel * 2 + 1]]);
        // round(v * 255 / 65535) = round(v / 257), which has no ties.
        u8::try_from((u32::from(value) + 128) / 257).unwrap_or(u8::MAX)
    };
    let from = raw.chunks_exact(usize::from(colour.bytes_per_pixel()));
    let mut blended = Blended::on(background);
    let each = pixels.iter_mut().zip(from);
    match colour {
        ColorType::L8 => each.for_each(|(to, from)| *to = [from[0]; 3]),
        ColorType::L16 => each.for_each(|(to, from)| *to = [wide(from, 0); 3]),
        ColorType::Rgb16 => each.for_each(|(to, from)| *to = [0, 1, 2].map(|c| wide(from, c))),
        ColorType::La8 => each.for_each(|(to, from)| *to = blended.pixel([from[0]; 3], from[1])),
        ColorType::Rgba8 => each.for_each(|(to, from)| {
            *to = blended.pixel([from[0], from[1], from[2]], from[3]);
        }),
        ColorType::La16 => each.for_each(|(to, from)| {
            *to = blended.pixel([wide(from, 0); 3], wide(from, 1));
        }),
        ColorType::Rgba16 => each.for_each(|(to, from)| {
            *to = blended.pixel([0, 1, 2].map(|c| wide(from, c)), wide(from, 3));
        }),
        _ => {
            return Err(ImageError::unsupported(format!(
                "of colour type {colour:?}"
            )));
        }
    }
    Ok(blended.least_alpha < u8::MAX)
}

/// Returns true for a BMP whose alpha is 0 everywhere: many programs write such files, and mean opaque pixels.
fn is_unused_alpha(format: Format, colour: ColorType, raw: &[u8]) -> bool {
    let mut pixels = raw.as_chunks::<4>().0.iter();
    format == Format::Bmp && colour == ColorType::Rgba8 && pixels.all(|pixel| pixel[3] == 0)
}

/// Pixels with straight alpha on a background.
struct Blended {
    background: Option<[u8; 3]>,
    /// The least alpha of them.
    least_alpha: u8,
}

impl Blended {
    const fn on(background: Option<[u8; 3]>) -> Self {
        Self {
            background,
            least_alpha: u8::MAX,
        }
    }

    /// Returns a pixel on the background. One that is opaque, and any without a background, keeps its levels.
    fn pixel(&mut self, levels: [u8; 3], alpha: u8) -> [u8; 3] {
        self.least_alpha = self.least_alpha.min(alpha);
        match self.background {
            Some(under) => [0, 1, 2].map(|c: usize| blend(levels[c], alpha, under[c])),
            None => levels,
        }
    }
}

/// Returns `round((level * alpha + under * (255 - alpha)) / 255)`, which has no ties.
fn blend(level: u8, alpha: u8, under: u8) -> u8 {
    let [level, alpha, under] = [level, alpha, under].map(u32::from);
    let sum = level * alpha + under * (255 - alpha);
    u8::try_from((sum + 127) / 255).unwrap_or(u8::MAX)
}

fn error(error: CodecError) -> ImageError {
    let ends = ImageError::truncated("its data end before its last row");
    match error {
        CodecError::IoError(e) if e.kind() == io::ErrorKind::UnexpectedEof => ends,
        CodecError::Limits(e) => ImageError::corrupt(format!("it needs more than it says: {e}")),
        CodecError::Unsupported(e) => ImageError::unsupported(e.to_string()),
        other => {
            let text = other.to_string();
            if text.to_lowercase().contains("unexpected end") || text.contains("EOF") {
                ends
            } else {
                ImageError::corrupt(text)
            }
        }
    }
}

#[cfg(test)]
mod tests;
