//! Real, broken and mutated images through the public interface.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod allocations;
mod files;
mod mutations;
mod pillow;
mod tiff;

use feedline_image::{
    Encoding, Filter, ImageError, ImageLimits, Preparation, Prepared, Preparer, Sizing,
};
use feedline_schemas::pnm::Pnm;
use feedline_testkit::image_corpus;

/// Settings that store every image as its raw pixels.
fn raw(sizing: Sizing) -> Preparation {
    Preparation {
        sizing,
        filter: Filter::Bilinear,
        encoding: Some(Encoding::Raw),
        keep_original: false,
        limits: ImageLimits::DEFAULT,
        scaled_decoding: false,
        background: None,
        hashes: false,
    }
}

fn prepare(how: Preparation, file: &[u8]) -> Result<Prepared, ImageError> {
    Preparer::new(how).prepare(file)
}

/// Pixels of a raw file, u8 RGB.
fn pixels(prepared: &Prepared) -> Vec<u8> {
    let image = Pnm::parse(prepared.file.as_ref().unwrap()).unwrap();
    assert_eq!([image.width, image.height], prepared.sides);
    match image.channels {
        1 => image.pixels.iter().flat_map(|grey| [*grey; 3]).collect(),
        _ => image.pixels.to_vec(),
    }
}

fn mean_difference(a: &[u8], b: &[u8]) -> f64 {
    assert_eq!(a.len(), b.len());
    let differences = a.iter().zip(b).map(|(a, b)| u64::from(a.abs_diff(*b)));
    differences.sum::<u64>() as f64 / a.len() as f64
}
