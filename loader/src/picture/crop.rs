//! Which part of a picture is used.

use super::{Crop, PictureConfig, SampleRandom, header::Header, rounding::whole};

/// Operation of [`SampleRandom`] that draws the box.
const OPERATION: u32 = 0;

/// A box in an upright picture, in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CropBox {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
    /// The filter sees pixels beside the box, as when a picture is resized before it is cropped.
    sees_beside: bool,
}

/// A box in a stored picture, in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Wanted {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) sees_beside: bool,
    /// Pixels beside the box that the filter may see, to the right and the left, above and below.
    margin: [f64; 2],
    stored: [u32; 2],
    #[cfg(feature = "turbojpeg")]
    transposed: bool,
}

/// Chooses the box for a picture of these upright sides.
pub(super) fn choose(
    config: &PictureConfig,
    (width, height): (u32, u32),
    random: &mut SampleRandom,
) -> CropBox {
    match config.crop {
        Crop::RandomResized { scale, ratio } => {
            random.begin(OPERATION);
            random_box([width, height], scale, ratio, random)
        }
        Crop::Center { shorter_side } => centre(config, [width, height], shorter_side),
        Crop::Whole => CropBox {
            left: 0.0,
            top: 0.0,
            width: width.into(),
            height: height.into(),
            sees_beside: false,
        },
    }
}

impl CropBox {
    fn whole_pixels([left, top, width, height]: [u32; 4]) -> Self {
        let [left, top, width, height] = [left, top, width, height].map(f64::from);
        Self {
            left,
            top,
            width,
            height,
            sees_beside: false,
        }
    }

    /// The same box in the stored picture.
    pub(super) fn stored(&self, config: &PictureConfig, header: &Header) -> Wanted {
        let turn = header.orientation;
        let (mut left, mut top, mut width, mut height) =
            (self.left, self.top, self.width, self.height);
        // The triangle's half-width is one output pixel when shrinking and one input pixel when enlarging.
        let reach = |side: f64, kept: u32| (side / f64::from(kept)).max(1.0) + 1.0;
        let mut margin = [reach(width, config.width), reach(height, config.height)];
        if turn.transpose {
            (left, top, width, height) = (top, left, height, width);
            margin.reverse();
        }
        if turn.flip_x {
            left = f64::from(header.width) - left - width;
        }
        if turn.flip_y {
            top = f64::from(header.height) - top - height;
        }
        Wanted {
            left,
            top,
            width,
            height,
            sees_beside: self.sees_beside,
            margin: if self.sees_beside { margin } else { [0.0; 2] },
            stored: [header.width, header.height],
            #[cfg(feature = "turbojpeg")]
            transposed: turn.transpose,
        }
    }
}

impl Wanted {
    /// First stored row below those that are needed.
    pub(super) fn bottom(&self) -> u32 {
        whole((self.top + self.height + self.margin[1]).ceil()).min(self.stored[1])
    }
}

#[cfg(feature = "turbojpeg")]
impl Wanted {
    /// How many eighths of the size suffice: the fewest of 1, 2, 4 and 8 at which the box has at least the pixels
    /// handed out.
    pub(super) fn eighths(&self, config: &PictureConfig) -> u32 {
        if !config.scaled_decoding {
            return 8;
        }
        let (mut width, mut height) = (f64::from(config.width), f64::from(config.height));
        if self.transposed {
            std::mem::swap(&mut width, &mut height);
        }
        let suffices = |n: &u32| {
            let scale = f64::from(*n) / 8.0;
            self.width * scale >= width && self.height * scale >= height
        };
        [1, 2, 4].into_iter().find(suffices).unwrap_or(8)
    }

    /// First and one past the last column of the scaled picture that are needed.
    pub(super) fn columns(&self, eighths: u32) -> [u32; 2] {
        Self::span(self.left, self.width, self.margin[0], eighths)
    }

    /// First and one past the last row of the scaled picture that are needed.
    pub(super) fn lines(&self, eighths: u32) -> [u32; 2] {
        Self::span(self.top, self.height, self.margin[1], eighths)
    }

    fn span(first: f64, length: f64, margin: f64, eighths: u32) -> [u32; 2] {
        let scale = f64::from(eighths) / 8.0;
        // A reduced box is no whole number of pixels, so the filter may see one more on each side.
        let more = if eighths == 8 { 0.0 } else { 1.0 };
        let (from, to) = (first - margin, first + length + margin);
        [
            whole((from * scale - more).floor().max(0.0)),
            whole((to * scale + more).ceil()),
        ]
    }
}

/// torchvision 0.29.2, `RandomResizedCrop.get_params`: the same distribution, drawn from another generator.
fn random_box(
    [width, height]: [u32; 2],
    scale: [f32; 2],
    ratio: [f32; 2],
    random: &mut SampleRandom,
) -> CropBox {
    let (full_width, full_height) = (f64::from(width), f64::from(height));
    let logarithms = ratio.map(f32::ln);
    for _ in 0..10 {
        let area = full_width * full_height * random.within(scale);
        let aspect = random.within(logarithms).exp();
        let (box_width, box_height) = (
            whole((area * aspect).sqrt().round_ties_even()),
            whole((area / aspect).sqrt().round_ties_even()),
        );
        if (1..=width).contains(&box_width) && (1..=height).contains(&box_height) {
            let top = random.below(height - box_height + 1);
            let left = random.below(width - box_width + 1);
            return CropBox::whole_pixels([left, top, box_width, box_height]);
        }
    }
    let aspect = full_width / full_height;
    let [least, most] = ratio.map(f64::from);
    let (mut box_width, mut box_height) = (width, height);
    if aspect < least {
        box_height = whole((full_width / least).round_ties_even()).clamp(1, height);
    } else if aspect > most {
        box_width = whole((full_height * most).round_ties_even()).clamp(1, width);
    }
    let (left, top) = ((width - box_width) / 2, (height - box_height) / 2);
    CropBox::whole_pixels([left, top, box_width, box_height])
}

/// torchvision's `Resize(shorter_side)` and `CenterCrop`: the box of the picture that the cropped part comes from.
fn centre(config: &PictureConfig, [width, height]: [u32; 2], shorter_side: u32) -> CropBox {
    let shorter = u64::from(width.min(height));
    let resized = |side: u32| u64::from(side) * u64::from(shorter_side) / shorter;
    let along = |side: u32, kept: u32| {
        let resized = resized(side) as f64;
        let first = ((resized - f64::from(kept)) / 2.0).round_ties_even();
        let step = f64::from(side) / resized;
        (first * step, f64::from(kept) * step)
    };
    let ((left, box_width), (top, box_height)) =
        (along(width, config.width), along(height, config.height));
    CropBox {
        left,
        top,
        width: box_width,
        height: box_height,
        sees_beside: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_of_a_box_is_as_likely() {
        let (mut lefts, mut tops) = ([0_u32; 3], [0_u32; 2]);
        for key in 0..3000 {
            let mut random = SampleRandom::new(4, 0, key);
            let third = [1.0 / 3.0; 2];
            let found = random_box([4, 3], third, [1.0; 2], &mut random);
            assert_eq!((whole(found.width), whole(found.height)), (2, 2));
            lefts[whole(found.left) as usize] += 1;
            tops[whole(found.top) as usize] += 1;
        }
        // Four standard deviations of a binomial count.
        assert!(lefts.iter().all(|n| n.abs_diff(1000) < 104), "{lefts:?}");
        assert!(tops.iter().all(|n| n.abs_diff(1500) < 110), "{tops:?}");
    }
}
