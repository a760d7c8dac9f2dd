//! Real and broken pictures through the public decoder.

use std::{
    fs,
    path::{Path, PathBuf},
};

use feedline_loader::picture::{Crop, PictureConfig, PictureDecoder, PictureError, SampleRandom};

/// A folder of the shared pictures, or `None` (with a message) where it is absent.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn shared(folder: &str) -> Option<PathBuf> {
    let data = std::env::var_os("FEEDLINE_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data"),
        PathBuf::from,
    );
    let path = data.join("images").join(folder);
    if path.is_dir() {
        return Some(path);
    }
    eprintln!("skipped: the pictures `{folder}` are not in `FEEDLINE_DATA`");
    None
}

/// The whole picture, resized to `side` times `side`.
fn decode(encoded: &[u8], side: u32) -> Result<Vec<u8>, PictureError> {
    let mut decoder = PictureDecoder::new(PictureConfig::new(side, side, Crop::Whole)).unwrap();
    let mut out = vec![0; decoder.config().bytes()];
    decoder.decode(encoded, &mut SampleRandom::new(0, 0, 0), &mut out)?;
    Ok(out)
}

fn mean_difference(a: &[u8], b: &[u8]) -> f64 {
    let sum: u64 = a
        .iter()
        .zip(b)
        .map(|(a, b)| u64::from(a.abs_diff(*b)))
        .sum();
    sum as f64 / a.len() as f64
}

/// Files, and what comes of them: `ok`, or the kind of error and a part of its message.
const ODD: &[(&str, &str, &str)] = &[
    ("16-bit-grey-alpha.png", "ok", ""),
    ("anim.webp", "ok", ""),
    ("animated-loop-3.gif", "unsupported", "a GIF"),
    ("ball.png", "ok", ""),
    ("basi2c08.png", "ok", ""),
    ("basn2c16.png", "ok", ""),
    ("basn6a16.png", "ok", ""),
    ("big-height.webp", "ok", ""),
    (
        "broken_data_stream.png",
        "corrupt",
        "Format error decoding Png: CRC error: expected 0xf41025f1 have 0xfa3fba12 while decoding ChunkType { type: IDAT, critical: true, private: false, reserved: false, safecopy: false } chunk.",
    ),
    ("cat.jpg", "ok", ""),
    ("channel_digital_image_cmyk_color_no_profile.jpg", "ok", ""),
    ("decompression_bomb.gif", "unsupported", "a GIF"),
    ("decompression_bomb_extents.gif", "unsupported", "a GIF"),
    ("exif-dpi-zerodivision.jpg", "ok", ""),
    ("flower.jpg", "ok", ""),
    ("grey-8bit-alpha.png", "ok", ""),
    ("hopper.bmp", "unsupported", "a BMP"),
    ("hopper_16bit.pgm", "unsupported", "a PGM"),
    ("hopper_gray.jpg", "ok", ""),
    ("icc-after-sof.jpg", "ok", ""),
    ("invalid-exif.jpg", "ok", ""),
    (
        "its_138d3b9e0d9f.jpg",
        "corrupt",
        "there is no marker at byte `2`",
    ),
    ("its_1cbb1bb37d62.jpg", "ok", ""),
    (
        "its_21a84b8472f6.jpg",
        "corrupt",
        "there is no marker at byte `2`",
    ),
    (
        "its_255015e07b6f.jpg",
        "corrupt",
        "there is no marker at byte `2`",
    ),
    (
        "its_28c74d9284d9.jpg",
        "corrupt",
        "there is no marker at byte `465`",
    ),
    ("its_316be81dfdee.jpg", "ok", ""),
    (
        "its_39f43f280b31.jpg",
        "corrupt",
        "there is no marker at byte `2`",
    ),
    (
        "its_3cc4a7fc6481.jpg",
        "corrupt",
        "there is no marker at byte `2`",
    ),
    (
        "its_3ef055013150.jpg",
        "corrupt",
        "there is no marker at byte `2`",
    ),
    (
        "its_46e5ac4a62d7.jpg",
        "corrupt",
        "there is no marker at byte `2`",
    ),
    (
        "its_4838ece0d390.jpg",
        "corrupt",
        "[strict-mode]: Extra bytes between headers",
    ),
    (
        "its_5482a5465776.jpg",
        "corrupt",
        "there is no marker at byte `4467`",
    ),
    (
        "its_5633ed9d0eb7.jpg",
        "corrupt",
        "there is no marker at byte `260`",
    ),
    (
        "its_59d3b529c78a.jpg",
        "corrupt",
        "there is no marker at byte `20`",
    ),
    (
        "jpeg_ff00_header.jpg",
        "corrupt",
        "there is no marker at byte `21793`",
    ),
    (
        "junk_jpeg_header.jpg",
        "corrupt",
        "there is no marker at byte `81`",
    ),
    ("l1.tiff", "unsupported", "a TIFF"),
    ("large-gif-anim-combine.gif", "unsupported", "a GIF"),
    ("mixed-disposal.gif", "unsupported", "a GIF"),
    ("no-dpi-in-exif.jpg", "ok", ""),
    ("pil_sample_cmyk.jpg", "ok", ""),
    ("portrait_2.jpg", "ok", ""),
    ("simple-rgb.webp", "ok", ""),
    ("simple.webp", "ok", ""),
    ("tbbn3p08.png", "ok", ""),
    ("test.jpg", "ok", ""),
    ("testimgari.jpg", "unsupported", "an arithmetic-coded JPEG"),
    ("truncated.jpg", "truncated", "it has no end marker"),
    (
        "truncated.png",
        "truncated",
        "its data end before its last row",
    ),
    (
        "truncated_image.png",
        "truncated",
        "its data end before its last row",
    ),
    ("zero_width.gif", "unsupported", "a GIF"),
];

#[test]
fn every_odd_file_is_a_picture_or_one_named_error() {
    let Some(folder) = shared("odd") else { return };
    let mut names: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "manifest.csv" && name != "LICENSE")
        .collect();
    names.sort();
    assert_eq!(names.len(), ODD.len());
    for (name, (expected_name, kind, message)) in names.iter().zip(ODD) {
        assert_eq!(name, expected_name);
        match decode(&fs::read(folder.join(name)).unwrap(), 32) {
            Ok(_) => assert_eq!(*kind, "ok", "{name}"),
            Err(error) => {
                assert_eq!(error.kind(), *kind, "{name}: {error}");
                assert!(error.to_string().contains(message), "{name}: {error}");
            }
        }
    }
}

#[test]
fn all_orientations_come_out_the_same() {
    let Some(folder) = shared("orientation") else {
        return;
    };
    let pictures: Vec<_> = (1..=8)
        .map(|n| {
            decode(
                &fs::read(folder.join(format!("landscape_{n}.jpg"))).unwrap(),
                96,
            )
            .unwrap()
        })
        .collect();
    // The first was rendered with other colours than the rest, which hides no turn: unturned they differ by over 30.
    for (n, picture) in (1..).zip(&pictures) {
        let difference = mean_difference(&pictures[1], picture);
        let most = if n == 1 { 20.0 } else { 2.0 };
        assert!(difference < most, "orientation {n} differs by {difference}");
    }
}
