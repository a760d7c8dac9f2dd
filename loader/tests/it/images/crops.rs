//! Choice of the part of an image, and independence of all other parts.

use feedline_loader::image::{Crop, ImageConfig, ImageDecoder, SampleRandom};

#[cfg(feature = "turbojpeg")]
use super::mean_difference;
use super::{PLAIN, png, scene, unscaled};
use crate::jpeg::{self, Options};

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
        let whole = ImageConfig::new(height as u32, width as u32, Crop::Whole);
        let mut full = vec![0; whole.bytes()];
        let mut random = SampleRandom::new(0, 0, 0);
        ImageDecoder::new(whole)
            .unwrap()
            .decode(&encoded, &mut random, &mut full)
            .unwrap();
        let lossless = png(
            &full,
            width as u32,
            height as u32,
            image::ExtendedColorType::Rgb8,
        );
        let config = unscaled(ImageConfig::training(24, 24));
        let mut decoder = ImageDecoder::new(config).unwrap();
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

/// A crop of the scaled image shows the same part as one of the full image: in this scene, a shift
/// of a tenth of a pixel would show.
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
        let scaled = ImageConfig::training(24, 24);
        let mut whole = ImageDecoder::new(unscaled(scaled.clone())).unwrap();
        let mut scaled = ImageDecoder::new(scaled).unwrap();
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

/// torchvision's parameters, measured on the boxes themselves: every pixel of the image encodes its
/// position.
#[test]
fn random_boxes_have_the_distribution_of_torchvision() {
    // Red is the column and green the row, so the corners of the crop give the box.
    let (width, height) = (240_u32, 180_u32);
    let pixels: Vec<u8> = (0..height)
        .flat_map(|y| (0..width).flat_map(move |x| [x as u8, y as u8, 0]))
        .collect();
    let encoded = png(&pixels, width, height, image::ExtendedColorType::Rgb8);
    let config = ImageConfig {
        augment: Vec::new(),
        ..ImageConfig::training(16, 16)
    };
    let mut decoder = ImageDecoder::new(config).unwrap();
    let (mut areas, mut ratios, mut centres) = (Vec::new(), Vec::new(), [0.0; 2]);
    let count = 4000;
    for key in 0..count {
        let mut out = [0; 768];
        decoder
            .decode(&encoded, &mut SampleRandom::new(8, 0, key), &mut out)
            .unwrap();
        // The second and the last but one of 16 steps: at the edge the filter is truncated, which
        // moves its mean.
        let span = |a: u8, b: u8| (f64::from(b) - f64::from(a)) * 16.0 / 13.0;
        let (w, h) = (span(out[3], out[42]), span(out[49], out[673]));
        areas.push(w * h / f64::from(width * height));
        ratios.push((w / h).ln());
        centres[0] += (f64::from(out[3]) + f64::from(out[42])) / 2.0 / f64::from(width);
        centres[1] += (f64::from(out[49]) + f64::from(out[673])) / 2.0 / f64::from(height);
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / count as f64;
    // 20,000 boxes of torchvision 0.29.2's `get_params` for 240 x 180: mean area 0.4357, mean logarithm 0.0315. The area
    // is below (0.08 + 1) / 2 as boxes that do not fit are redrawn. The bounds are about three
    // standard errors.
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
