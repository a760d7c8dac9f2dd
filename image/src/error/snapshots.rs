//! Texts of this crate's errors.

use std::path::Path;

use feedline_testkit::error_texts::{Texts, variants};

use super::ImageError;
use crate::Bound;

#[test]
fn the_texts_of_all_errors_are_those_of_the_snapshot() {
    let large = |bound, found, limit| ImageError::TooLarge {
        bound,
        found,
        limit,
    };
    let samples = [
        ImageError::Empty,
        large(Bound::EncodedBytes, 70_000_000, 67_108_864),
        large(Bound::Side, 20_000, 16_384),
        large(Bound::Pixels, 70_000_000, 64_000_000),
        large(Bound::DecoderBytes, 600_000_000, 536_870_912),
        ImageError::truncated("it ends after 12 bytes, and a PNG header has 33"),
        ImageError::unsupported("a PNG of 16 bits a channel"),
        ImageError::corrupt("its header says 0 pixels"),
    ];
    let mut texts = Texts::default();
    let variants = variants!(ImageError: Empty, TooLarge, Truncated, Unsupported, Corrupt);
    texts.add_variants("ImageError", &variants, &samples);
    texts.check(
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")),
        "image",
    );
}
