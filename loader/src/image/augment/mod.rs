//! Augmentations of a cropped image, u8 RGB `[height, width, 3]`, in place.

mod affine;
mod colour;
mod flip;
mod level;
mod randaugment;
mod shift;

use feedline_image::rounding::narrow;
use serde::{Deserialize, Serialize};

use self::affine::{Affine, transform};
use super::{random::SampleRandom, ranges};
use crate::Error;

/// Operations of [`SampleRandom`] before this number belong to the crop.
const FIRST_OPERATION: u32 = 16;

/// A random change of a cropped image.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Augment {
    /// Moved by up to `padding` pixels each way: `RandomCrop` of torchvision to the size that the image has.
    RandomCrop {
        /// Pixels on each side, 1 to 8,192.
        padding: u32,
        /// Colour of what nothing is moved into. Default black.
        #[serde(default)]
        fill: [u8; 3],
    },
    /// Left and right change places.
    HorizontalFlip {
        /// Probability, 0 to 1. Default 0.5.
        #[serde(default = "half")]
        probability: f32,
    },
    /// Top and bottom change places.
    VerticalFlip {
        /// Probability, 0 to 1. Default 0.5.
        #[serde(default = "half")]
        probability: f32,
    },
    /// Turned around its centre, keeping its size, by bilinear interpolation.
    Rotate {
        /// Least and most angle, counter-clockwise, -360 to 360.
        degrees: [f32; 2],
        /// Colour of the corners that nothing is turned into. Default black.
        #[serde(default)]
        fill: [u8; 3],
    },
    /// Changes of colour in a random order: `ColorJitter` of torchvision. `[1, 1]`, and `[0, 0]` for the hue, change
    /// nothing and are the defaults.
    ColourJitter {
        /// Least and most factor, 0 (black) to 10.
        #[serde(default = "unchanged")]
        brightness: [f32; 2],
        /// Least and most factor, 0 (the mean grey) to 10.
        #[serde(default = "unchanged")]
        contrast: [f32; 2],
        /// Least and most factor, 0 (grey) to 10.
        #[serde(default = "unchanged")]
        saturation: [f32; 2],
        /// Least and most turn of the hue, -0.5 to 0.5 of the circle.
        #[serde(default)]
        hue: [f32; 2],
    },
    /// Some of 14 operations, each drawn independently: RandAugment with torchvision's magnitudes,
    /// but that turned, sheared and moved images are interpolated.
    RandAugment {
        /// Number of operations in a row, 1 to 16. Default 2.
        #[serde(default = "usual_operations")]
        operations: u32,
        /// Strength, 0 to `bins - 1`. Default 9.
        #[serde(default = "usual_magnitude")]
        magnitude: u32,
        /// Number of strengths, 2 to 1,000. Default 31.
        #[serde(default = "usual_bins")]
        bins: u32,
        /// Colour of what nothing is moved into. Default black.
        #[serde(default)]
        fill: [u8; 3],
    },
    /// A square is painted over, with its centre anywhere in the image, so that it may hang over the edge: DeVries
    /// and Taylor, "Improved Regularization of Convolutional Neural Networks with Cutout" (2017).
    Cutout {
        /// Probability, 0 to 1. Default 1.
        #[serde(default = "always")]
        probability: f32,
        /// Side of the square in pixels, 1 to 8,192.
        side: u32,
        /// Its colour. Default black.
        #[serde(default)]
        fill: [u8; 3],
    },
}

const fn unchanged() -> [f32; 2] {
    [1.0, 1.0]
}

const fn half() -> f32 {
    0.5
}

const fn always() -> f32 {
    1.0
}

const fn usual_operations() -> u32 {
    2
}

const fn usual_magnitude() -> u32 {
    9
}

const fn usual_bins() -> u32 {
    31
}

impl Augment {
    /// Checks that every number is in its range.
    pub(super) fn check(&self) -> Result<(), Error> {
        let often =
            |probability| ranges::range("image.augment.probability", [probability; 2], 0.0, 1.0);
        match *self {
            Self::RandomCrop { padding, .. } => {
                ranges::within("image.augment.padding", padding.into(), 1, 8192)
            }
            Self::HorizontalFlip { probability } | Self::VerticalFlip { probability } => {
                often(probability)
            }
            Self::Rotate { degrees, .. } => {
                ranges::range("image.augment.degrees", degrees, -360.0, 360.0)
            }
            Self::ColourJitter {
                brightness,
                contrast,
                saturation,
                hue,
            } => {
                ranges::range("image.augment.brightness", brightness, 0.0, 10.0)?;
                ranges::range("image.augment.contrast", contrast, 0.0, 10.0)?;
                ranges::range("image.augment.saturation", saturation, 0.0, 10.0)?;
                ranges::range("image.augment.hue", hue, -0.5, 0.5)
            }
            Self::RandAugment {
                operations,
                magnitude,
                bins,
                ..
            } => {
                ranges::within("image.augment.operations", operations.into(), 1, 16)?;
                ranges::within("image.augment.bins", bins.into(), 2, 1000)?;
                let most = u64::from(bins) - 1;
                ranges::within("image.augment.magnitude", magnitude.into(), 0, most)
            }
            Self::Cutout {
                probability, side, ..
            } => {
                ranges::within("image.augment.side", side.into(), 1, 8192)?;
                often(probability)
            }
        }
    }

    /// Changes `pixels`, rows of `width` pixels; `other` is memory to work in.
    fn apply(
        &self,
        pixels: &mut [u8],
        other: &mut Vec<u8>,
        width: usize,
        random: &mut SampleRandom,
    ) {
        match *self {
            Self::RandomCrop { padding, fill } => {
                let mut first = || random.below(2 * padding + 1) as usize;
                let at = [first(), first()];
                other.clear();
                other.extend_from_slice(pixels);
                shift::padded(other, pixels, width, (at, padding as usize), fill);
            }
            Self::HorizontalFlip { probability } => {
                if random.happens(probability) {
                    flip::horizontal(pixels, width);
                }
            }
            Self::VerticalFlip { probability } => {
                if random.happens(probability) {
                    flip::vertical(pixels, width);
                }
            }
            Self::Rotate { degrees, fill } => {
                let height = pixels.len() / (width * 3);
                let map = Affine::rotation(random.within(degrees), width as f64, height as f64);
                other.clear();
                other.extend_from_slice(pixels);
                transform(other, pixels, width, map, fill);
            }
            Self::ColourJitter {
                brightness,
                contrast,
                saturation,
                hue,
            } => jitter(pixels, [brightness, contrast, saturation, hue], random),
            Self::RandAugment {
                operations,
                magnitude,
                bins,
                fill,
            } => {
                for _ in 0..operations {
                    let memory = (&mut *pixels, &mut *other);
                    randaugment::one(memory, width, [magnitude, bins], fill, random);
                }
            }
            Self::Cutout {
                probability,
                side,
                fill,
            } => {
                if random.happens(probability) {
                    cut(pixels, width, side as usize, fill, random);
                }
            }
        }
    }
}

/// Applies `augments` in their order to `pixels`, rows of `width` pixels. The numbers that one draws do not depend on
/// those before it, only on its place in the list.
pub(super) fn apply(
    augments: &[Augment],
    pixels: &mut [u8],
    other: &mut Vec<u8>,
    width: usize,
    random: &mut SampleRandom,
) {
    for (operation, augment) in (FIRST_OPERATION..).zip(augments) {
        random.begin(operation);
        augment.apply(pixels, other, width, random);
    }
}

fn jitter(pixels: &mut [u8], ranges: [[f32; 2]; 4], random: &mut SampleRandom) {
    let amounts = ranges.map(|range| narrow(random.within(range)));
    let mut order = [0, 1, 2, 3];
    for last in (1..4).rev() {
        let other = random.below(last + 1) as usize;
        order.swap(last as usize, other);
    }
    for change in order {
        let amount = amounts[change];
        match change {
            0 => colour::brightness(pixels, amount),
            1 => colour::contrast(pixels, amount),
            2 => colour::saturation(pixels, amount),
            _ => colour::hue(pixels, amount),
        }
    }
}

fn cut(pixels: &mut [u8], width: usize, side: usize, fill: [u8; 3], random: &mut SampleRandom) {
    let height = pixels.len() / (width * 3);
    let mut span = |length: usize| {
        let centre = random.below(u32::try_from(length).unwrap_or(u32::MAX)) as usize;
        let first = centre.saturating_sub(side / 2);
        (first, (centre + side.div_ceil(2)).min(length))
    };
    let (rows, columns) = (span(height), span(width));
    for row in pixels.chunks_exact_mut(width * 3).take(rows.1).skip(rows.0) {
        row.as_chunks_mut::<3>().0[columns.0..columns.1].fill(fill);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_are_left_out_have_the_defaults_of_a_pipeline() {
        for (text, expected) in [
            (
                r#"{"kind": "vertical_flip"}"#,
                Augment::VerticalFlip { probability: 0.5 },
            ),
            (
                r#"{"kind": "rand_augment"}"#,
                Augment::RandAugment {
                    operations: 2,
                    magnitude: 9,
                    bins: 31,
                    fill: [0; 3],
                },
            ),
            (
                r#"{"kind": "cutout", "side": 8}"#,
                Augment::Cutout {
                    probability: 1.0,
                    side: 8,
                    fill: [0; 3],
                },
            ),
        ] {
            let read: Augment = serde_json::from_str(text).unwrap();
            assert_eq!(read, expected, "{text}");
        }
    }
}
