//! Size that an image is stored in, and the part of it that is used.

use serde::{Deserialize, Serialize};

use crate::{ImageLimits, UprightBox, rounding::whole};

/// Rule for the size of an image. Sides are those of the upright image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sizing {
    /// The image keeps its size.
    Original,
    /// A larger image is shrunk until its shorter side has this many pixels; a smaller one stays as it is.
    ShorterSide(u32),
    /// The whole image gets these sides; its aspect ratio changes.
    Exact {
        /// Pixels, at least 1.
        width: u32,
        /// Pixels, at least 1.
        height: u32,
    },
    /// The image is resized, keeping its aspect ratio, until its shorter side has `shorter_side` pixels, and its centre
    /// is kept: `Resize` and `CenterCrop` of torchvision.
    Crop {
        /// Pixels, 1 to `shorter_side`.
        width: u32,
        /// Pixels, 1 to `shorter_side`.
        height: u32,
        /// Pixels.
        shorter_side: u32,
    },
    /// The image is resized, keeping its aspect ratio, as large as fits, and centred in a black
    /// one.
    Pad {
        /// Pixels, at least 1.
        width: u32,
        /// Pixels, at least 1.
        height: u32,
    },
}

/// Placement of an image's pixels in the stored one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Placement {
    /// The part that is used.
    pub(crate) from: UprightBox,
    /// Width and height that it is resized to.
    pub(crate) resized: [u32; 2],
    /// Width and height of the image that is stored.
    pub(crate) sides: [u32; 2],
}

impl Placement {
    /// Returns true if the stored image is the complete one, pixel for pixel.
    pub(crate) fn is_whole(&self, sides: [u32; 2]) -> bool {
        self.sides == sides && self.resized == sides && self.from == UprightBox::whole(sides)
    }

    /// Column and row of the first pixel in the stored image.
    pub(crate) fn corner(&self) -> [u32; 2] {
        [0, 1].map(|i: usize| (self.sides[i] - self.resized[i]) / 2)
    }
}

impl Sizing {
    /// Bytes of the largest possible result, as u8 RGB: only given sides enlarge an image.
    #[must_use]
    pub fn most_bytes(self, limits: &ImageLimits) -> u64 {
        let pixels = match self {
            Self::Original | Self::ShorterSide(_) => limits.pixels,
            Self::Exact { width, height }
            | Self::Crop { width, height, .. }
            | Self::Pad { width, height } => u64::from(width) * u64::from(height),
        };
        3 * pixels
    }

    /// For an image of these upright sides, width and height.
    pub(crate) fn place(self, sides: [u32; 2]) -> Placement {
        let [width, height] = sides;
        let shorter = width.min(height);
        let all = |resized: [u32; 2], sides: [u32; 2]| Placement {
            from: UprightBox::whole([width, height]),
            resized,
            sides,
        };
        match self {
            Self::ShorterSide(side) if side < shorter => {
                // Sides as torchvision's `Resize` gives them: the longer one without its fraction.
                let scaled = |side_of: u32| {
                    let product = u64::from(side_of) * u64::from(side) / u64::from(shorter);
                    u32::try_from(product).unwrap_or(side_of)
                };
                let resized = sides.map(scaled);
                all(resized, resized)
            }
            Self::Original | Self::ShorterSide(_) => all(sides, sides),
            Self::Exact { width, height } => all([width, height], [width, height]),
            Self::Crop {
                width,
                height,
                shorter_side,
            } => Placement {
                from: UprightBox::centre(sides, [width, height], shorter_side),
                resized: [width, height],
                sides: [width, height],
            },
            Self::Pad { width, height } => {
                let wanted = [width, height];
                let scale = |i: usize| f64::from(wanted[i]) / f64::from(sides[i]);
                let scale = scale(0).min(scale(1));
                let fitted = [0, 1].map(|i: usize| {
                    whole((f64::from(sides[i]) * scale).round()).clamp(1, wanted[i])
                });
                all(fitted, wanted)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sizing: Sizing, sides: [u32; 2], resized: [u32; 2], stored: [u32; 2]) {
        let found = sizing.place(sides);
        assert_eq!(
            (found.resized, found.sides),
            (resized, stored),
            "{sizing:?}"
        );
    }

    #[test]
    fn sides_are_those_that_were_asked_for() {
        check(Sizing::Original, [5, 7], [5, 7], [5, 7]);
        check(Sizing::ShorterSide(256), [500, 375], [341, 256], [341, 256]);
        check(Sizing::ShorterSide(256), [375, 500], [256, 341], [256, 341]);
        check(Sizing::ShorterSide(256), [256, 900], [256, 900], [256, 900]);
        check(Sizing::ShorterSide(256), [10, 9], [10, 9], [10, 9]);
        let (width, height) = (64, 48);
        check(
            Sizing::Exact { width, height },
            [9, 900],
            [64, 48],
            [64, 48],
        );
        check(
            Sizing::Pad { width, height },
            [100, 100],
            [48, 48],
            [64, 48],
        );
        check(Sizing::Pad { width, height }, [1000, 1], [64, 1], [64, 48]);
        check(Sizing::Pad { width, height }, [32, 24], [64, 48], [64, 48]);
        let shorter_side = 64;
        let crop = Sizing::Crop {
            width,
            height,
            shorter_side,
        };
        check(crop, [128, 640], [64, 48], [64, 48]);
    }

    #[test]
    fn a_image_that_is_small_enough_is_whole() {
        assert!(Sizing::ShorterSide(20).place([30, 20]).is_whole([30, 20]));
        assert!(!Sizing::ShorterSide(20).place([30, 21]).is_whole([30, 21]));
        let square = Sizing::Crop {
            width: 20,
            height: 20,
            shorter_side: 20,
        };
        assert!(!square.place([30, 20]).is_whole([30, 20]));
        let padded = Sizing::Pad {
            width: 30,
            height: 30,
        };
        assert_eq!(padded.place([30, 20]).corner(), [0, 5]);
        assert!(!padded.place([30, 20]).is_whole([30, 20]));
    }
}
