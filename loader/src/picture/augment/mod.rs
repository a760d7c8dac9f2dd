//! Augmentations of a cropped picture, u8 RGB `[height, width, 3]`, in place.

mod flip;

use serde::{Deserialize, Serialize};

use super::{SampleRandom, config};
use crate::Error;

/// Operations of [`SampleRandom`] before this number belong to the crop.
const FIRST_OPERATION: u32 = 16;

/// A random change of a cropped picture.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Augment {
    /// Left and right change places.
    HorizontalFlip {
        /// How often, 0 to 1.
        probability: f32,
    },
    /// Top and bottom change places.
    VerticalFlip {
        /// How often, 0 to 1.
        probability: f32,
    },
}

impl Augment {
    /// Checks that every number is in its range.
    pub(super) fn check(&self) -> Result<(), Error> {
        match *self {
            Self::HorizontalFlip { probability } | Self::VerticalFlip { probability } => {
                let pair = [probability; 2];
                config::range("picture.augment.probability", pair, 0.0, 1.0)
            }
        }
    }
}

/// Applies `augments` in their order to `pixels`, rows of `width` pixels. The numbers that one draws do not depend on
/// those before it, only on its place in the list.
pub(super) fn apply(
    augments: &[Augment],
    pixels: &mut [u8],
    width: usize,
    random: &mut SampleRandom,
) {
    for (operation, augment) in (FIRST_OPERATION..).zip(augments) {
        random.begin(operation);
        match *augment {
            Augment::HorizontalFlip { probability } => {
                if random.happens(probability) {
                    flip::horizontal(pixels, width);
                }
            }
            Augment::VerticalFlip { probability } => {
                if random.happens(probability) {
                    flip::vertical(pixels, width);
                }
            }
        }
    }
}
