//! Fuzz targets: image files, which are decoded or refused.
//!
//! They are built for tests, which replay `fuzz/corpus/`, and for `cargo fuzz`, which sets
//! `cfg(fuzzing)`.

use crate::{
    Encoding, Filter, Format, Header, ImageError, ImageLimits, Preparation, Prepared, Preparer,
    Sizing,
};

/// Limits that keep one input cheap.
const LIMITS: ImageLimits = ImageLimits {
    pixels: 1 << 18,
    decoder_bytes: 16 << 20,
    ..ImageLimits::DEFAULT
};

fn how(sizing: Sizing) -> Preparation {
    Preparation {
        sizing,
        filter: Filter::Bilinear,
        encoding: Some(Encoding::Png),
        keep_original: false,
        limits: LIMITS,
        scaled_decoding: false,
        background: Some([255; 3]),
        hashes: true,
    }
}

/// A JPEG file.
pub fn jpeg(data: &[u8]) {
    check(data, Format::Jpeg);
}

/// A PNG file.
pub fn png(data: &[u8]) {
    check(data, Format::Png);
}

/// A TIFF file.
pub fn tiff(data: &[u8]) {
    check(data, Format::Tiff);
}

/// An image file of another format: GIF, BMP, WebP, PGM or PPM.
pub fn image(data: &[u8]) {
    check(data, Format::WebP);
}

/// Checks that a header that is read keeps to the limits, that a second decoding gives the same
/// pixels in memory that was used, and that stored pixels are read as they were.
fn check(data: &[u8], format: Format) {
    match Header::read(data, &[format], &LIMITS) {
        Ok(header) => {
            let (width, height) = header.upright_sides();
            assert_eq!(header.format(), format);
            assert!(u64::from(width) * u64::from(height) <= LIMITS.pixels);
            assert!(header.decoder_bytes() <= LIMITS.decoder_bytes);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let small = Sizing::Crop {
        width: 8,
        height: 6,
        shorter_side: 8,
    };
    let mut preparer = Preparer::new(how(small));
    let cropped = seen(preparer.prepare(data));
    assert_eq!(seen(preparer.prepare(data)), cropped);
    if let Ok(cropped) = cropped {
        assert_eq!(cropped.sides, [8, 6]);
    }
    let Ok(whole) = Preparer::new(how(Sizing::Original)).prepare(data) else {
        return;
    };
    let stored = whole.file.as_deref().expect("it is encoded");
    let again = Preparer::new(how(Sizing::Original)).prepare(stored);
    let again = again.expect("it was encoded by us");
    assert_eq!((again.sides, again.sums), (whole.sides, whole.sums));
    assert_eq!(again.hashes, whole.hashes);
}

/// The result, with the text of an error.
fn seen(result: Result<Prepared, ImageError>) -> Result<Prepared, String> {
    result.map_err(|error| {
        let text = error.to_string();
        assert!(!text.contains("resized"), "an error of ours: {text}");
        text
    })
}

#[cfg(test)]
mod tests {
    feedline_testkit::fuzz_replay::replays! { image jpeg png tiff }
}
