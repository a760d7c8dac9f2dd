//! Real and broken pictures through the public decoder.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers of a test are small"
)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use std::thread;

use feedline_loader::picture::{
    Augment, Crop, PictureConfig, PictureDecoder, PictureError, SampleRandom,
};
use image::ImageEncoder;

use crate::jpeg::{self, Options};

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

/// The settings with the pixels of a whole decode, whatever decodes.
fn unscaled(config: PictureConfig) -> PictureConfig {
    PictureConfig {
        scaled_decoding: false,
        ..config
    }
}

/// The whole picture, resized to `side` times `side`.
fn decode(encoded: &[u8], side: u32) -> Result<Vec<u8>, PictureError> {
    let config = unscaled(PictureConfig::new(side, side, Crop::Whole));
    let mut decoder = PictureDecoder::new(config).unwrap();
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
    ("broken_data_stream.png", "truncated", "it has no end chunk"),
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
    ("its_28c74d9284d9.jpg", "ok", ""),
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
    ("its_4838ece0d390.jpg", "ok", ""),
    (
        "its_5482a5465776.jpg",
        "corrupt",
        "four components and Adobe's transform `199`",
    ),
    ("its_5633ed9d0eb7.jpg", "corrupt", ""),
    ("its_59d3b529c78a.jpg", "truncated", "it has no end marker"),
    ("jpeg_ff00_header.jpg", "ok", ""),
    ("junk_jpeg_header.jpg", "ok", ""),
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
    ("truncated.png", "truncated", "it has no end chunk"),
    ("truncated_image.png", "truncated", "it has no end chunk"),
    ("zero_width.gif", "unsupported", "a GIF"),
];

#[test]
fn fault_23_every_odd_file_is_a_picture_or_one_named_error() {
    let Some(folder) = shared("odd") else { return };
    let mut names: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "manifest.csv" && name != "LICENSE")
        .collect();
    names.sort();
    assert_eq!(names.len(), ODD.len());
    let mut others = Vec::new();
    for (name, (expected_name, kind, message)) in names.iter().zip(ODD) {
        assert_eq!(name, expected_name);
        let (found, told) = match decode(&fs::read(folder.join(name)).unwrap(), 32) {
            Ok(_) => ("ok", String::new()),
            Err(error) => (error.kind(), error.to_string()),
        };
        if found != *kind || !told.contains(message) {
            others.push(format!("{name}: {found}, {told}"));
        }
    }
    assert!(others.is_empty(), "{others:#?}");
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

const PLAIN: Options = Options {
    quality: 90,
    halved_colour: true,
    restart: 0,
};

/// A smooth picture with something in every corner.
fn scene(width: usize, height: usize) -> Vec<u8> {
    (0..width * height)
        .flat_map(|i| {
            let (x, y) = (
                (i % width) as f32 / width as f32,
                (i / width) as f32 / height as f32,
            );
            let wave =
                |phase: f32| 127.0 + 90.0 * (7.0 * x + 3.0 * y + phase).sin() * (1.0 - 0.3 * y);
            [wave(0.0), wave(1.5), wave(4.0)].map(|v| v as u8)
        })
        .collect()
}

fn png(pixels: &[u8], width: u32, height: u32, colour: image::ExtendedColorType) -> Vec<u8> {
    let mut bytes = Vec::new();
    let encoder = image::codecs::png::PngEncoder::new(&mut bytes);
    encoder.write_image(pixels, width, height, colour).unwrap();
    bytes
}

fn webp(pixels: &[u8], width: u32, height: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let encoder = image::codecs::webp::WebPEncoder::new_lossless(&mut bytes);
    encoder
        .write_image(pixels, width, height, image::ExtendedColorType::Rgb8)
        .unwrap();
    bytes
}

/// Formats and kinds of JPEG, of the same scene.
fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let pixels = scene(70, 50);
    let jpeg = |options| jpeg::encode(&pixels, 70, 50, options);
    vec![
        ("4:2:0", jpeg(PLAIN)),
        (
            "4:4:4",
            jpeg(Options {
                halved_colour: false,
                ..PLAIN
            }),
        ),
        (
            "restarts",
            jpeg(Options {
                restart: 3,
                ..PLAIN
            }),
        ),
        ("png", png(&pixels, 70, 50, image::ExtendedColorType::Rgb8)),
        ("webp", webp(&pixels, 70, 50)),
    ]
}

#[test]
fn each_format_shows_the_scene() {
    let expected = decode(&samples()[3].1, 32).unwrap();
    for (name, encoded) in samples() {
        let difference = mean_difference(&decode(&encoded, 32).unwrap(), &expected);
        assert!(difference < 2.0, "{name} differs by {difference}");
    }
}

#[test]
fn sixteen_bits_are_rounded_and_alpha_is_left_out() {
    let levels = [0_u16, 128, 129, 384, 385, 65_407, 65_406, 65_535, 1000];
    let rounded = [0, 0, 1, 1, 1, 255, 254, 255, 4];
    let bytes: Vec<u8> = levels.iter().flat_map(|v| v.to_ne_bytes()).collect();
    let encoded = png(&bytes, 3, 1, image::ExtendedColorType::Rgb16);
    let mut decoder = PictureDecoder::new(PictureConfig::new(1, 3, Crop::Whole)).unwrap();
    let mut out = [0; 9];
    let mut read = |encoded: &[u8]| {
        decoder
            .decode(encoded, &mut SampleRandom::new(0, 0, 0), &mut out)
            .unwrap();
        out
    };
    assert_eq!(read(&encoded), rounded);
    let with_alpha = [1, 2, 3, 0, 4, 5, 6, 128, 7, 8, 9, 255];
    let encoded = png(&with_alpha, 3, 1, image::ExtendedColorType::Rgba8);
    assert_eq!(read(&encoded), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let encoded = png(&[7, 0, 200], 3, 1, image::ExtendedColorType::L8);
    assert_eq!(read(&encoded), [7, 7, 7, 0, 0, 0, 200, 200, 200]);
}

#[test]
fn fault_23_every_cut_is_noticed_also_where_an_end_is_put_after_it() {
    for (name, encoded) in samples() {
        // Each cut of a JPEG; of the others, which carry checksums and lengths, every seventh.
        let is_jpeg = encoded.starts_with(b"\xff\xd8");
        for end in (0..encoded.len() - 1).step_by(if is_jpeg { 1 } else { 7 }) {
            let error = decode(&encoded[..end], 8).expect_err(name);
            let kinds: &[&str] = match end {
                0 => &["empty"],
                _ => &["truncated", "corrupt"],
            };
            assert!(
                kinds.contains(&error.kind()),
                "{name} cut to {end}: {error}"
            );
            // The last bytes of a scan may be nothing but the fill of its last byte.
            if !is_jpeg || end < 2 || end + 3 >= encoded.len() {
                continue;
            }
            let ended = [&encoded[..end], b"\xff\xd9"].concat();
            let error = decode(&ended, 8).expect_err(name);
            assert!(
                kinds.contains(&error.kind()),
                "{name} ended at {end}: {error}"
            );
        }
    }
}

#[test]
fn fault_23_limits_hold_before_anything_is_decoded() {
    let check = |encoded: &[u8], change: fn(&mut PictureConfig), message: &str| {
        let mut config = PictureConfig::new(8, 8, Crop::Whole);
        change(&mut config);
        let mut decoder = PictureDecoder::new(config).unwrap();
        let error = decoder
            .decode(encoded, &mut SampleRandom::new(0, 0, 0), &mut [0; 192])
            .unwrap_err();
        assert_eq!(error.kind(), "too_large");
        assert!(error.to_string().contains(message), "{error}");
    };
    for (_, encoded) in samples() {
        check(
            &encoded,
            |c| c.limits.encoded_bytes = 99,
            "encoded bytes and the limit is `99`",
        );
        check(
            &encoded,
            |c| c.limits.side = 69,
            "`70` pixels along a side and the limit is `69`",
        );
        check(
            &encoded,
            |c| c.limits.pixels = 3499,
            "`3500` pixels and the limit is `3499`",
        );
        check(
            &encoded,
            |c| c.limits.decoder_bytes = 9999,
            "bytes to decode",
        );
    }
    // Progressive, 13,300 times 13,300 pixels declared: the coefficients alone would take a gibibyte.
    let mut bomb =
        b"\xff\xd8\xff\xc2\0\x11\x08\x33\xf4\x33\xf4\x03\x01\x11\0\x02\x11\0\x03\x11\0".to_vec();
    bomb.extend(b"\xff\xda\0\x08\x01\x01\0\0\0\0\0\xff\xd9");
    check(&bomb, |_| {}, "`176890000` pixels");
    check(
        &bomb,
        |c| c.limits.pixels = 1 << 28,
        "raise `picture.limits.decoder_bytes`",
    );
}

/// Everything that is random.
fn everything() -> PictureConfig {
    let mut config = PictureConfig::training(40, 30);
    config.augment.extend([
        Augment::VerticalFlip { probability: 0.5 },
        Augment::Rotate {
            degrees: [-30.0, 30.0],
            fill: [9, 9, 9],
        },
        Augment::ColourJitter {
            brightness: [0.6, 1.4],
            contrast: [0.6, 1.4],
            saturation: [0.6, 1.4],
            hue: [-0.1, 0.1],
        },
        Augment::RandAugment {
            operations: 2,
            magnitude: 9,
            bins: 31,
            fill: [0; 3],
        },
        Augment::Cutout {
            probability: 0.5,
            side: 9,
            fill: [0; 3],
        },
    ]);
    config
}

#[test]
fn a_sample_is_augmented_the_same_on_any_thread_and_in_any_order() {
    let encoded = samples();
    let decode = |decoder: &mut PictureDecoder, key: u64| {
        let mut out = vec![0; decoder.config().bytes()];
        let (_, bytes) = &encoded[key as usize % encoded.len()];
        decoder
            .decode(bytes, &mut SampleRandom::new(5, 2, key), &mut out)
            .unwrap();
        out
    };
    let mut decoder = PictureDecoder::new(everything()).unwrap();
    let expected: Vec<_> = (0..60).map(|key| decode(&mut decoder, key)).collect();
    let distinct: std::collections::HashSet<_> = expected.iter().collect();
    assert_eq!(
        distinct.len(),
        60,
        "each sample is augmented in its own way"
    );
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (decode, expected) = (&decode, &expected);
            scope.spawn(move || {
                let mut decoder = PictureDecoder::new(everything()).unwrap();
                for step in 0..60 {
                    let key = (step * 7 + thread * 13) % 60;
                    assert_eq!(
                        decode(&mut decoder, key),
                        expected[key as usize],
                        "sample {key}"
                    );
                }
            });
        }
    });
}

#[test]
fn an_augmentation_is_drawn_by_its_place_in_the_list_and_by_nothing_before_it() {
    let (_, encoded) = &samples()[0];
    let decode = |augment: &[Augment], random: &mut SampleRandom| {
        let config = PictureConfig {
            augment: augment.to_vec(),
            ..PictureConfig::training(40, 30)
        };
        let mut out = vec![0; config.bytes()];
        let mut decoder = PictureDecoder::new(config).unwrap();
        decoder.decode(encoded, random, &mut out).unwrap();
        out
    };
    let cutout = Augment::Cutout {
        probability: 1.0,
        side: 5,
        fill: [255, 0, 255],
    };
    // Both change nothing; the first draws one number and the second seven.
    let flip = Augment::HorizontalFlip { probability: 0.0 };
    let jitter = Augment::ColourJitter {
        brightness: [1.0; 2],
        contrast: [1.0; 2],
        saturation: [1.0; 2],
        hue: [0.0; 2],
    };
    let mut moved = 0;
    for key in 0..20 {
        let mut random = SampleRandom::new(5, 2, key);
        let expected = decode(&[flip, cutout], &mut random);
        assert!(
            decode(&[jitter, cutout], &mut random) == expected,
            "sample {key}"
        );
        moved += u32::from(decode(&[cutout], &mut random) != expected);
    }
    assert!(moved > 10, "{moved} of 20 places are others");
}

#[test]
fn changes_of_colour_come_in_any_order() {
    let (_, encoded) = &samples()[3];
    let jitter = Augment::ColourJitter {
        brightness: [1.5; 2],
        contrast: [0.5; 2],
        saturation: [2.0; 2],
        hue: [0.2; 2],
    };
    let mut config = PictureConfig::new(20, 20, Crop::Whole);
    config.augment = vec![jitter];
    let mut decoder = PictureDecoder::new(config).unwrap();
    let results: std::collections::HashSet<_> = (0..200)
        .map(|key| {
            let mut out = vec![0; 1200];
            let mut random = SampleRandom::new(5, 2, key);
            decoder.decode(encoded, &mut random, &mut out).unwrap();
            out
        })
        .collect();
    assert!(
        (12..=24).contains(&results.len()),
        "{} orders",
        results.len()
    );
}

#[test]
fn a_square_is_cut_off_at_the_edges() {
    let black = png(&[0; 40 * 30 * 3], 40, 30, image::ExtendedColorType::Rgb8);
    let mut config = PictureConfig::new(30, 40, Crop::Whole);
    config.augment = vec![Augment::Cutout {
        probability: 1.0,
        side: 8,
        fill: [255; 3],
    }];
    let mut decoder = PictureDecoder::new(config).unwrap();
    let (mut left, mut right, mut inside) = (99, 99, 0);
    for key in 0..1000 {
        let mut out = vec![0; 3600];
        let mut random = SampleRandom::new(5, 2, key);
        decoder.decode(&black, &mut random, &mut out).unwrap();
        let columns: Vec<usize> = (0..40)
            .filter(|x| (0..30).any(|y| out[(y * 40 + x) * 3] == 255))
            .collect();
        let (first, last, width) = (columns[0], columns[columns.len() - 1], columns.len());
        if first == 0 {
            left = left.min(width);
        } else if last == 39 {
            right = right.min(width);
        } else {
            assert_eq!(width, 8, "sample {key}");
            inside += 1;
        }
    }
    // Half of it, and at the right the pixel of its centre, are the least that is seen.
    assert_eq!((left, right), (4, 5));
    assert!(inside > 700);
}

#[test]
fn rows_below_the_crop_change_nothing() {
    // A PNG of all the JPEG's pixels is decoded whole, whatever the crop.
    let (width, height) = (96, 160);
    let pixels = scene(width, height);
    for halved_colour in [false, true] {
        let encoded = jpeg::encode(
            &pixels,
            width,
            height,
            Options {
                halved_colour,
                ..PLAIN
            },
        );
        let whole = PictureConfig::new(height as u32, width as u32, Crop::Whole);
        let mut full = vec![0; whole.bytes()];
        let mut random = SampleRandom::new(0, 0, 0);
        PictureDecoder::new(whole)
            .unwrap()
            .decode(&encoded, &mut random, &mut full)
            .unwrap();
        let lossless = png(
            &full,
            width as u32,
            height as u32,
            image::ExtendedColorType::Rgb8,
        );
        let config = unscaled(PictureConfig::training(24, 24));
        let mut decoder = PictureDecoder::new(config).unwrap();
        let (mut from_jpeg, mut from_png) = (vec![0; 1728], vec![0; 1728]);
        for key in 0..200 {
            let random = || SampleRandom::new(3, 0, key);
            decoder
                .decode(&encoded, &mut random(), &mut from_jpeg)
                .unwrap();
            decoder
                .decode(&lossless, &mut random(), &mut from_png)
                .unwrap();
            assert!(from_jpeg == from_png, "sample {key}");
        }
    }
}

/// A crop of the scaled picture lies where it lies in the whole one: of this scene, a tenth of a pixel would show.
#[cfg(feature = "turbojpeg")]
#[test]
fn a_scaled_decode_shows_the_same_crop() {
    let (width, height) = (403, 301);
    let pixels = scene(width, height);
    for halved_colour in [false, true] {
        let options = Options {
            halved_colour,
            ..PLAIN
        };
        let encoded = jpeg::encode(&pixels, width, height, options);
        let scaled = PictureConfig::training(24, 24);
        let mut whole = PictureDecoder::new(unscaled(scaled.clone())).unwrap();
        let mut scaled = PictureDecoder::new(scaled).unwrap();
        let (mut a, mut b) = (vec![0; 1728], vec![0; 1728]);
        let mut different = 0;
        for key in 0..200 {
            let random = || SampleRandom::new(3, 0, key);
            whole.decode(&encoded, &mut random(), &mut a).unwrap();
            scaled.decode(&encoded, &mut random(), &mut b).unwrap();
            let difference = mean_difference(&a, &b);
            assert!(difference < 2.0, "sample {key} differs by {difference}");
            different += u32::from(a != b);
        }
        assert!(different > 150, "{different} of 200 were decoded scaled");
    }
}

/// A sequence of numbers that looks random.
fn next(state: &mut u64) -> usize {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}

#[test]
fn fault_24_twenty_thousand_mutations_give_pictures_or_errors_and_no_panic() {
    let samples = samples();
    let mut config = PictureConfig::training(16, 16);
    // So that no mutation of a header can take much memory or time.
    config.limits.decoder_bytes = 32 << 20;
    config.limits.pixels = 1 << 20;
    let mut decoder = PictureDecoder::new(config).unwrap();
    let (mut state, mut good, mut bad) = (1, 0, 0);
    for round in 0..20_000 {
        let mut bytes = samples[round % samples.len()].1.clone();
        for _ in 0..1 + next(&mut state) % 4 {
            let at = next(&mut state) % bytes.len();
            match next(&mut state) % 6 {
                0 => bytes[at] ^= 1 << (next(&mut state) % 8),
                1 => bytes[at] = next(&mut state).to_le_bytes()[0],
                2 => bytes.truncate(at.max(1)),
                3 => {
                    let end = (at + next(&mut state) % 64).min(bytes.len());
                    bytes.drain(at..end);
                    bytes.push(0);
                }
                4 => {
                    let other = &samples[next(&mut state) % samples.len()].1;
                    let from = next(&mut state) % other.len();
                    let to = (from + next(&mut state) % 200).min(other.len());
                    bytes.splice(at..at, other[from..to].iter().copied());
                }
                _ => bytes[at..].iter_mut().take(4).for_each(|b| *b = 0xff),
            }
        }
        let mut random = SampleRandom::new(0, 0, round as u64);
        match decoder.decode(&bytes, &mut random, &mut [0; 768]) {
            Ok(()) => good += 1,
            Err(_) => bad += 1,
        }
    }
    assert!(good > 500 && bad > 10_000, "{good} pictures, {bad} errors");
}

/// What Pillow makes of a picture by each of the calls.
const PILLOW: &str = r#"
import sys
from PIL import Image, ImageEnhance
image = Image.open(sys.argv[1])
results = [
    image.resize((60, 45), Image.BILINEAR),
    image.resize((200, 30), Image.BILINEAR),
    image.resize((70, 50), Image.BILINEAR).crop((15, 5, 55, 45)),
    ImageEnhance.Brightness(image).enhance(1.3),
    ImageEnhance.Contrast(image).enhance(0.6),
    ImageEnhance.Color(image).enhance(1.7),
    image.rotate(30, Image.BILINEAR, fillcolor=(9, 9, 9)),
]
hue, saturation, value = image.convert('HSV').split()
turned = hue.point(lambda v: (v + 64) % 256)
results.append(Image.merge('HSV', (turned, saturation, value)).convert('RGB'))
with open(sys.argv[2], 'wb') as out:
    for result in results:
        out.write(result.tobytes())
"#;

#[test]
fn sizes_and_colours_are_those_of_pillow() {
    let folder = tempfile::tempdir().unwrap();
    let (width, height) = (140, 100);
    let encoded = png(
        &scene(width, height),
        140,
        100,
        image::ExtendedColorType::Rgb8,
    );
    let (picture, results) = (folder.path().join("a.png"), folder.path().join("results"));
    fs::write(&picture, &encoded).unwrap();
    if !pillow(&picture, &results) {
        return;
    }
    let expected = fs::read(results).unwrap();
    let same = |augment| PictureConfig {
        augment: vec![augment],
        ..PictureConfig::new(100, 140, Crop::Whole)
    };
    let jitter = |amounts: [f32; 4]| {
        let [brightness, contrast, saturation, hue] = amounts.map(|amount| [amount; 2]);
        same(Augment::ColourJitter {
            brightness,
            contrast,
            saturation,
            hue,
        })
    };
    let rotate = Augment::Rotate {
        degrees: [30.0, 30.0],
        fill: [9; 3],
    };
    // Settings, the most levels that a value may differ by, and on average. Pillow rotates in another fixed point and
    // fills where a neighbour is outside; its hue has 256 steps.
    let cases = [
        ("shrunk", PictureConfig::new(45, 60, Crop::Whole), 1, 0.2),
        (
            "stretched",
            PictureConfig::new(30, 200, Crop::Whole),
            1,
            0.2,
        ),
        (
            "centre",
            PictureConfig::new(40, 40, Crop::Center { shorter_side: 50 }),
            1,
            0.2,
        ),
        ("brightness", jitter([1.3, 1.0, 1.0, 0.0]), 1, 0.1),
        ("contrast", jitter([1.0, 0.6, 1.0, 0.0]), 1, 0.1),
        ("saturation", jitter([1.0, 1.0, 1.7, 0.0]), 1, 0.1),
        ("rotation", same(rotate), 255, 1.0),
        ("hue", jitter([1.0, 1.0, 1.0, 0.25]), 12, 3.0),
    ];
    let mut rest = expected.as_slice();
    for (name, config, most, average) in cases {
        let mut out = vec![0; config.bytes()];
        let mut decoder = PictureDecoder::new(config).unwrap();
        decoder
            .decode(&encoded, &mut SampleRandom::new(0, 0, 0), &mut out)
            .unwrap();
        let pillow;
        (pillow, rest) = rest.split_at(out.len());
        let largest = out.iter().zip(pillow).map(|(a, b)| a.abs_diff(*b)).max();
        assert!(largest <= Some(most), "{name} differs by up to {largest:?}");
        let difference = mean_difference(&out, pillow);
        assert!(
            difference < average,
            "{name} differs by {difference} on average"
        );
    }
    assert!(rest.is_empty());
}

/// Runs [`PILLOW`], or says why not and returns false.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn pillow(picture: &Path, results: &Path) -> bool {
    let python = std::env::var_os("FEEDLINE_PYTHON").unwrap_or_else(|| "python3".into());
    let run = |arguments: &[&std::ffi::OsStr]| Command::new(&python).args(arguments).output();
    let has = run(&["-c".as_ref(), "import PIL".as_ref()]);
    if !has.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no Python with Pillow; install it and set FEEDLINE_PYTHON");
        return false;
    }
    let output = run(&[
        "-c".as_ref(),
        PILLOW.as_ref(),
        picture.as_ref(),
        results.as_ref(),
    ]);
    let output = output.unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    true
}

/// torchvision's parameters, from the boxes themselves: a picture that tells its place shows which box was taken.
#[test]
fn random_boxes_have_the_distribution_of_torchvision() {
    // Red is the column and green the row, so the corners of the crop tell the box.
    let (width, height) = (240_u32, 180_u32);
    let pixels: Vec<u8> = (0..height)
        .flat_map(|y| (0..width).flat_map(move |x| [x as u8, y as u8, 0]))
        .collect();
    let encoded = png(&pixels, width, height, image::ExtendedColorType::Rgb8);
    let config = PictureConfig {
        augment: Vec::new(),
        ..PictureConfig::training(16, 16)
    };
    let mut decoder = PictureDecoder::new(config).unwrap();
    let (mut areas, mut ratios, mut centres) = (Vec::new(), Vec::new(), [0.0; 2]);
    let count = 4000;
    for key in 0..count {
        let mut out = [0; 768];
        decoder
            .decode(&encoded, &mut SampleRandom::new(8, 0, key), &mut out)
            .unwrap();
        // The second and the last but one of 16 steps: at the edge the filter is cut off, which moves its mean.
        let span = |a: u8, b: u8| (f64::from(b) - f64::from(a)) * 16.0 / 13.0;
        let (w, h) = (span(out[3], out[42]), span(out[49], out[673]));
        areas.push(w * h / f64::from(width * height));
        ratios.push((w / h).ln());
        centres[0] += (f64::from(out[3]) + f64::from(out[42])) / 2.0 / f64::from(width);
        centres[1] += (f64::from(out[49]) + f64::from(out[673])) / 2.0 / f64::from(height);
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / count as f64;
    // 20,000 boxes of torchvision 0.29.2's `get_params` for 240 x 180: mean area 0.4357, mean logarithm 0.0315. The area
    // is below (0.08 + 1) / 2 as boxes that do not fit are drawn anew. The bounds are about three standard errors.
    let (area, ratio) = (mean(&areas), mean(&ratios));
    assert!((area - 0.4357).abs() < 0.011, "area {area}");
    assert!((ratio - 0.0315).abs() < 0.008, "ratio {ratio}");
    assert!(areas.iter().all(|a| (0.06..1.02).contains(a)));
    assert!(ratios.iter().all(|r| r.abs() < 0.36));
    assert!(
        centres
            .iter()
            .all(|c| (c / count as f64 - 0.5).abs() < 0.01),
        "{centres:?}"
    );
}
