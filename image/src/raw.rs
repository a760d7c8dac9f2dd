//! PGM and PPM: raw pixels after a header. Grey is repeated.

use feedline_schemas::pnm::{Pnm, PnmError};

use crate::{
    Format, Header, ImageError, ImageLimits, Orientation,
    pixel_buffer::{Decoded, room},
    scratch::Scratch,
};

/// Reads the header, and checks that there are as many pixels as it says.
pub(crate) fn header(encoded: &[u8]) -> Result<Header, ImageError> {
    let image = Pnm::parse(encoded).map_err(error)?;
    Ok(Header {
        format: Format::Raw,
        width: image.width,
        height: image.height,
        orientation: Orientation::default(),
        decoder_bytes: u64::from(image.width) * u64::from(image.height) * 3,
        limits: ImageLimits::DEFAULT,
        jpeg: None,
    })
}

/// Copies the pixels into the scratch, as RGB.
pub(crate) fn decode(encoded: &[u8], scratch: &mut Scratch) -> Result<Decoded, ImageError> {
    let image = Pnm::parse(encoded).map_err(error)?;
    let pixels = image.width as usize * image.height as usize;
    let rgb = room(&mut scratch.pixels, pixels * 3);
    if image.channels == 3 {
        rgb.copy_from_slice(image.pixels);
    } else {
        let each = rgb.as_chunks_mut::<3>().0.iter_mut().zip(image.pixels);
        each.for_each(|(rgb, grey)| *rgb = [*grey; 3]);
    }
    Ok(Decoded {
        left: 0,
        top: 0,
        width: image.width,
        height: image.height,
        eighths: 8,
    })
}

fn error(error: PnmError) -> ImageError {
    let reason = error.to_string();
    match error {
        PnmError::Unsupported(_) => ImageError::unsupported(reason),
        PnmError::Truncated => ImageError::truncated(reason),
        PnmError::Corrupt(_) => ImageError::corrupt(reason),
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::pnm;

    use crate::testing::decode_whole as decode;

    #[test]
    fn pixels_of_the_size_asked_for_are_handed_out_as_they_are() {
        let grey = [pnm::header(3, 2, 1).as_bytes(), &[0, 1, 2, 253, 254, 255]].concat();
        let expected = [0, 1, 2, 253, 254, 255].map(|value| [value; 3]);
        assert_eq!(decode(&grey, 2, 3).unwrap(), expected.as_flattened());
        let colours: Vec<u8> = (10..28).collect();
        let colour = [pnm::header(3, 2, 3).as_bytes(), &colours].concat();
        assert_eq!(decode(&colour, 2, 3).unwrap(), colours);
        assert_eq!(decode(&grey, 1, 1).unwrap(), [128; 3], "its mean, rounded");
    }

    #[test]
    fn a_file_that_is_not_whole_is_no_image() {
        let file = [pnm::header(3, 2, 1).as_bytes(), &[0; 6]].concat();
        let short = decode(&file[..file.len() - 1], 2, 3).unwrap_err();
        assert_eq!(short.code(), "truncated");
        let long = decode(&[&file[..], b"x"].concat(), 2, 3).unwrap_err();
        assert_eq!(long.code(), "corrupt");
        let wide = decode(b"P5\n1 1\n65535\nxx", 1, 1).unwrap_err();
        assert_eq!(wide.code(), "unsupported");
    }
}
