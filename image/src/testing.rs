//! Helpers for tests of several modules.

use crate::{Decoder, Filter, Format, Header, ImageError, ImageLimits, Target, UprightBox};

/// The whole image, resized, u8 RGB `[height, width, 3]`.
pub(crate) fn decode_whole(encoded: &[u8], height: u32, width: u32) -> Result<Vec<u8>, ImageError> {
    let header = Header::read(encoded, Format::ALL, &ImageLimits::DEFAULT)?;
    let (full_width, full_height) = header.upright_sides();
    let target = Target {
        width,
        height,
        filter: Filter::Bilinear,
        scaled_decoding: false,
    };
    let whole = UprightBox::whole_pixels([0, 0, full_width, full_height]);
    let mut pixels = vec![0; target.bytes()];
    let region = whole.stored(&header, target);
    Decoder::default().decode(encoded, &header, &region, &mut pixels)?;
    Ok(pixels)
}

/// A smooth image with something in every corner, u8 RGB `[height, width, 3]`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "levels are held to their range"
)]
pub(crate) fn scene(width: u32, height: u32) -> Vec<u8> {
    let places = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
    places
        .flat_map(|(x, y)| {
            let (x, y) = (x as f32 / width as f32, y as f32 / height as f32);
            let wave =
                |phase: f32| 127.0 + 90.0 * (7.0 * x + 3.0 * y + phase).sin() * (1.0 - 0.3 * y);
            [wave(0.0), wave(1.5), wave(4.0)].map(|v| v as u8)
        })
        .collect()
}
