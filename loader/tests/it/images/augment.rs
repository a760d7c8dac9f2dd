//! Random draws of an image follow from its sample alone.

use std::{collections::HashSet, thread};

use feedline_loader::image::{Augment, Crop, ImageConfig, ImageDecoder, SampleRandom};

use super::{png, samples};

/// Everything that is random.
fn everything() -> ImageConfig {
    let mut config = ImageConfig::training(40, 30);
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
    let decode = |decoder: &mut ImageDecoder, key: u64| {
        let mut out = vec![0; decoder.config().bytes()];
        let (_, bytes) = &encoded[key as usize % encoded.len()];
        decoder
            .decode(bytes, &mut SampleRandom::new(5, 2, key), &mut out)
            .unwrap();
        out
    };
    let mut decoder = ImageDecoder::new(everything()).unwrap();
    let expected: Vec<_> = (0..60).map(|key| decode(&mut decoder, key)).collect();
    let distinct: HashSet<_> = expected.iter().collect();
    assert_eq!(
        distinct.len(),
        60,
        "each sample is augmented in its own way"
    );
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (decode, expected) = (&decode, &expected);
            scope.spawn(move || {
                let mut decoder = ImageDecoder::new(everything()).unwrap();
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
        let config = ImageConfig {
            augment: augment.to_vec(),
            ..ImageConfig::training(40, 30)
        };
        let mut out = vec![0; config.bytes()];
        let mut decoder = ImageDecoder::new(config).unwrap();
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
    let mut config = ImageConfig::new(20, 20, Crop::Whole);
    config.augment = vec![jitter];
    let mut decoder = ImageDecoder::new(config).unwrap();
    let results: HashSet<_> = (0..200)
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
    let mut config = ImageConfig::new(30, 40, Crop::Whole);
    config.augment = vec![Augment::Cutout {
        probability: 1.0,
        side: 8,
        fill: [255; 3],
    }];
    let mut decoder = ImageDecoder::new(config).unwrap();
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
