//! PGM and PPM: raw pixels behind a header. Grey is repeated.

use feedline_schemas::pnm::{Pnm, PnmError};

use crate::{
    Format, Header, Orientation, PictureError, PictureLimits,
    scratch::{Decoded, Scratch, room},
};

/// Reads the header, and checks that there are as many pixels as it says.
pub(crate) fn header(encoded: &[u8]) -> Result<Header, PictureError> {
    let picture = Pnm::parse(encoded).map_err(error)?;
    Ok(Header {
        format: Format::Raw,
        width: picture.width,
        height: picture.height,
        orientation: Orientation::default(),
        decoder_bytes: u64::from(picture.width) * u64::from(picture.height) * 3,
        limits: PictureLimits::DEFAULT,
        jpeg: None,
    })
}

/// Copies the pixels into the scratch, as RGB.
pub(crate) fn decode(encoded: &[u8], scratch: &mut Scratch) -> Result<Decoded, PictureError> {
    let picture = Pnm::parse(encoded).map_err(error)?;
    let pixels = picture.width as usize * picture.height as usize;
    let rgb = room(&mut scratch.pixels, pixels * 3);
    if picture.channels == 3 {
        rgb.copy_from_slice(picture.pixels);
    } else {
        let each = rgb.as_chunks_mut::<3>().0.iter_mut().zip(picture.pixels);
        each.for_each(|(rgb, grey)| *rgb = [*grey; 3]);
    }
    Ok(Decoded {
        left: 0,
        top: 0,
        width: picture.width,
        height: picture.height,
        eighths: 8,
    })
}

fn error(error: PnmError) -> PictureError {
    let reason = error.to_string();
    match error {
        PnmError::Unsupported(_) => PictureError::unsupported(reason),
        PnmError::Truncated => PictureError::truncated(reason),
        PnmError::Corrupt(_) => PictureError::corrupt(reason),
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
    fn a_file_that_is_not_whole_is_no_picture() {
        let file = [pnm::header(3, 2, 1).as_bytes(), &[0; 6]].concat();
        let short = decode(&file[..file.len() - 1], 2, 3).unwrap_err();
        assert_eq!(short.kind(), "truncated");
        let long = decode(&[&file[..], b"x"].concat(), 2, 3).unwrap_err();
        assert_eq!(long.kind(), "corrupt");
        let wide = decode(b"P5\n1 1\n65535\nxx", 1, 1).unwrap_err();
        assert_eq!(wide.kind(), "unsupported");
    }
}
