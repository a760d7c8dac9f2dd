//! Real and broken images through the public decoder.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers of a test are small"
)]

mod augment;
mod crops;
mod pillow;

use feedline_loader::image::{Crop, ImageConfig, ImageDecoder, ImageError, SampleRandom};
use feedline_testkit::{
    image_corpus::{REJECTED, images, shared},
    jpeg::{self, Options},
};
use image::ImageEncoder;

/// The settings with the pixels of a whole decode, whatever decodes.
fn unscaled(config: ImageConfig) -> ImageConfig {
    ImageConfig {
        scaled_decoding: false,
        ..config
    }
}

/// The whole image, resized to `side` times `side`.
fn decode(encoded: &[u8], side: u32) -> Result<Vec<u8>, ImageError> {
    let config = unscaled(ImageConfig::new(side, side, Crop::Whole));
    let mut decoder = ImageDecoder::new(config).unwrap();
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

#[test]
fn fault_23_every_odd_file_is_an_image_or_one_named_error() {
    let Some(folder) = shared("odd") else { return };
    let mut others = Vec::new();
    for (name, file) in images(&folder) {
        let (kind, message) = expected(&name);
        let (found, told) = match decode(&file, 32) {
            Ok(_) => ("ok", String::new()),
            Err(error) => (error.code(), error.to_string()),
        };
        if found != kind || !told.contains(message) {
            others.push(format!("{name}: {found}, {told}"));
        }
    }
    assert!(others.is_empty(), "{others:#?}");
}

/// Result for an odd file: `ok`, or the kind of error and a part of its message. Shards hold no
/// GIF, BMP and TIFF.
fn expected(name: &str) -> (&'static str, &'static str) {
    let foreign = [(".gif", "a GIF"), (".bmp", "a BMP"), (".tiff", "a TIFF")];
    let foreign = foreign.iter().find(|(end, _)| name.ends_with(end));
    let rejected = REJECTED.iter().find(|(file, ..)| *file == name);
    match (foreign, rejected) {
        (Some((_, format)), _) => ("unsupported", format),
        (None, Some((_, kind, message))) => (kind, message),
        (None, None) => ("ok", ""),
    }
}

#[test]
fn all_orientations_come_out_the_same() {
    let Some(folder) = shared("orientation") else {
        return;
    };
    let files = images(&folder);
    let upright: Vec<_> = (1..=8)
        .map(|n| decode(&files[&format!("landscape_{n}.jpg")], 96).unwrap())
        .collect();
    // The first was rendered with other colours than the rest, which hides no turn: unturned they differ by over 30.
    for (n, image) in (1..).zip(&upright) {
        let difference = mean_difference(&upright[1], image);
        let most = if n == 1 { 20.0 } else { 2.0 };
        assert!(difference < most, "orientation {n} differs by {difference}");
    }
}

const PLAIN: Options = Options {
    quality: 90,
    halved_colour: true,
    restart: 0,
};

/// A smooth image with something in every corner.
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
    let mut decoder = ImageDecoder::new(ImageConfig::new(1, 3, Crop::Whole)).unwrap();
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
                kinds.contains(&error.code()),
                "{name} cut to {end}: {error}"
            );
            // The last bytes of a scan may be nothing but the fill of its last byte.
            if !is_jpeg || end < 2 || end + 3 >= encoded.len() {
                continue;
            }
            let ended = [&encoded[..end], b"\xff\xd9"].concat();
            let error = decode(&ended, 8).expect_err(name);
            assert!(
                kinds.contains(&error.code()),
                "{name} ended at {end}: {error}"
            );
        }
    }
}

#[test]
fn fault_23_limits_hold_before_anything_is_decoded() {
    let check = |encoded: &[u8], change: fn(&mut ImageConfig), message: &str| {
        let mut config = ImageConfig::new(8, 8, Crop::Whole);
        change(&mut config);
        let mut decoder = ImageDecoder::new(config).unwrap();
        let error = decoder
            .decode(encoded, &mut SampleRandom::new(0, 0, 0), &mut [0; 192])
            .unwrap_err();
        assert_eq!(error.code(), "too_large");
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
        "raise `images.limits.decoder_bytes` of the loader",
    );
}

/// A sequence of numbers that looks random.
fn next(state: &mut u64) -> usize {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}

#[test]
fn fault_24_twenty_thousand_mutations_give_images_or_errors_and_no_panic() {
    let samples = samples();
    let mut config = ImageConfig::training(16, 16);
    // So that no mutation of a header can take much memory or time.
    config.limits.decoder_bytes = 32 << 20;
    config.limits.pixels = 1 << 20;
    let mut decoder = ImageDecoder::new(config).unwrap();
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
    assert!(good > 500 && bad > 10_000, "{good} images, {bad} errors");
}
