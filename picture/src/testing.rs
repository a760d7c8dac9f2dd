//! What tests of several modules need.

use crate::{Decoder, Header, PictureError, PictureLimits, Target, UprightBox};

/// The whole picture, resized, u8 RGB `[height, width, 3]`.
pub(crate) fn decode_whole(
    encoded: &[u8],
    height: u32,
    width: u32,
) -> Result<Vec<u8>, PictureError> {
    let header = Header::read(encoded, &PictureLimits::DEFAULT)?;
    let (full_width, full_height) = header.upright_sides();
    let target = Target {
        width,
        height,
        scaled_decoding: false,
    };
    let whole = UprightBox::whole_pixels([0, 0, full_width, full_height]);
    let mut pixels = vec![0; target.bytes()];
    let region = whole.stored(&header, target);
    Decoder::default().decode(encoded, &header, &region, &mut pixels)?;
    Ok(pixels)
}
