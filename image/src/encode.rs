//! Pixels to files.

use feedline_schemas::pnm;
use image::{
    ExtendedColorType, ImageEncoder, ImageError as CodecError,
    codecs::{jpeg::JpegEncoder, png::PngEncoder},
};
use serde::{Deserialize, Serialize};

use crate::{Bound, ImageError};

/// Format that an image is stored in. If all pixels are grey, so is the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Encoding {
    /// Baseline JPEG; colour has as many pixels as brightness (4:4:4).
    Jpeg {
        /// 1 to 100, on libjpeg's scale.
        quality: u8,
    },
    /// PNG of 8 bits.
    Png,
    /// PPM or PGM: the pixels after a header.
    Raw,
}

impl Encoding {
    /// Encodes `pixels`, u8 RGB `[height, width, 3]`, as a file; a pure function of its arguments.
    ///
    /// # Errors
    /// [`ImageError::TooLarge`] for a side that a JPEG cannot have.
    ///
    /// # Panics
    /// If the number of pixels is not `width * height`.
    pub fn encode(self, pixels: &[u8], width: u32, height: u32) -> Result<Vec<u8>, ImageError> {
        let (triples, rest) = pixels.as_chunks::<3>();
        assert!(
            rest.is_empty() && triples.len() == width as usize * height as usize,
            "as many pixels as the sides say"
        );
        if triples.iter().all(|[r, g, b]| r == g && g == b) {
            let grey: Vec<u8> = triples.iter().map(|[value, ..]| *value).collect();
            return self.write(&grey, (width, height), ExtendedColorType::L8);
        }
        self.write(pixels, (width, height), ExtendedColorType::Rgb8)
    }

    fn write(
        self,
        pixels: &[u8],
        (width, height): (u32, u32),
        colour: ExtendedColorType,
    ) -> Result<Vec<u8>, ImageError> {
        let mut file = Vec::new();
        match self {
            Self::Jpeg { quality } => JpegEncoder::new_with_quality(&mut file, quality)
                .encode(pixels, width, height, colour)
                .map_err(|error| refused(&error, width.max(height)))?,
            Self::Png => PngEncoder::new(&mut file)
                .write_image(pixels, width, height, colour)
                .map_err(|error| refused(&error, width.max(height)))?,
            Self::Raw => {
                let channels = u32::from(colour.channel_count());
                let header = pnm::header(width, height, channels);
                file.reserve_exact(header.len() + pixels.len());
                file.extend_from_slice(header.as_bytes());
                file.extend_from_slice(pixels);
            }
        }
        Ok(file)
    }
}

/// Writing to memory fails for nothing but the sides.
fn refused(error: &CodecError, side: u32) -> ImageError {
    debug_assert!(
        side > u32::from(u16::MAX),
        "an encoder refused an image: {error}"
    );
    ImageError::TooLarge {
        bound: Bound::Side,
        found: side.into(),
        limit: u16::MAX.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{decode_whole, scene};

    const WIDTH: u32 = 61;
    const HEIGHT: u32 = 40;

    fn back(encoding: Encoding, pixels: &[u8]) -> Vec<u8> {
        let file = encoding.encode(pixels, WIDTH, HEIGHT).unwrap();
        decode_whole(&file, HEIGHT, WIDTH).unwrap()
    }

    #[test]
    fn png_and_raw_give_back_the_pixels_and_jpeg_nearly() {
        let colours = scene(WIDTH, HEIGHT);
        let grey: Vec<u8> = colours.chunks(3).flat_map(|p| [p[0]; 3]).collect();
        for pixels in [&colours, &grey] {
            assert!(back(Encoding::Png, pixels) == *pixels);
            assert!(back(Encoding::Raw, pixels) == *pixels);
            let jpeg = back(Encoding::Jpeg { quality: 95 }, pixels);
            let most = jpeg.iter().zip(pixels).map(|(a, b)| a.abs_diff(*b)).max();
            assert!(most.is_some_and(|most| most <= 12), "{most:?}");
        }
    }

    #[test]
    fn grey_images_are_stored_with_one_channel() {
        let grey = vec![77; (WIDTH * HEIGHT * 3) as usize];
        let file = Encoding::Raw.encode(&grey, WIDTH, HEIGHT).unwrap();
        assert_eq!(pnm::Pnm::parse(&file).unwrap().channels, 1);
        let mut nearly = grey.clone();
        nearly[100] ^= 1;
        let file = Encoding::Raw.encode(&nearly, WIDTH, HEIGHT).unwrap();
        assert_eq!(pnm::Pnm::parse(&file).unwrap().channels, 3);
    }

    #[test]
    fn a_lower_quality_takes_fewer_bytes_and_a_side_that_jpeg_lacks_is_refused() {
        let pixels = scene(WIDTH, HEIGHT);
        let bytes = |quality| {
            let file = Encoding::Jpeg { quality }.encode(&pixels, WIDTH, HEIGHT);
            file.unwrap().len()
        };
        assert!(bytes(50) < bytes(75) && bytes(75) < bytes(95));
        let line = vec![1; 70_000 * 3];
        let error = Encoding::Jpeg { quality: 75 }.encode(&line, 70_000, 1);
        assert_eq!(error.unwrap_err().code(), "too_large");
        assert!(Encoding::Png.encode(&line, 70_000, 1).is_ok());
    }
}
