//! Region of an image that is decoded, and the size it gets.

use crate::{Filter, Header, rounding::whole};

/// Size that a region is resized to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Pixels, at least 1, of the upright image.
    pub width: u32,
    /// Pixels, at least 1, of the upright image.
    pub height: u32,
    /// Resampling filter.
    pub filter: Filter,
    /// True if a decoder that can may shrink a JPEG by 2, 4 or 8 while decoding, as long as the
    /// region keeps at least this size. Only libjpeg-turbo can (feature `turbojpeg`).
    pub scaled_decoding: bool,
}

impl Target {
    /// Bytes of the pixels, `height * width * 3`.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.height as usize * self.width as usize * 3
    }
}

/// A box in an upright image, in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UprightBox {
    /// From the left edge, at least 0.
    pub left: f64,
    /// From the top edge, at least 0.
    pub top: f64,
    /// Above 0.
    pub width: f64,
    /// Above 0.
    pub height: f64,
    /// The filter sees pixels beside the box, as when an image is resized before it is cropped. Otherwise the box is
    /// one of whole pixels.
    pub sees_beside: bool,
}

/// A box in a stored image, in pixels, and its target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Region {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) sees_beside: bool,
    pub(crate) target: Target,
    /// Pixels beside the box that the filter may see, to the right and the left, above and below.
    margin: [f64; 2],
    stored: [u32; 2],
    #[cfg(feature = "turbojpeg")]
    transposed: bool,
}

impl UprightBox {
    /// The complete image of this width and height.
    #[must_use]
    pub fn whole([width, height]: [u32; 2]) -> Self {
        Self::whole_pixels([0, 0, width, height])
    }

    /// Part of an image of this width and height that becomes the central pixels, `kept` of each
    /// side, after its shorter side is resized to `shorter_side`: `Resize` and `CenterCrop` of
    /// torchvision.
    #[must_use]
    pub fn centre([width, height]: [u32; 2], kept: [u32; 2], shorter_side: u32) -> Self {
        let shorter = u64::from(width.min(height));
        let resized = |side: u32| u64::from(side) * u64::from(shorter_side) / shorter;
        let along = |side: u32, kept: u32| {
            let resized = resized(side) as f64;
            let first = ((resized - f64::from(kept)) / 2.0).round_ties_even();
            let step = f64::from(side) / resized;
            (first * step, f64::from(kept) * step)
        };
        let ((left, box_width), (top, box_height)) =
            (along(width, kept[0]), along(height, kept[1]));
        Self {
            left,
            top,
            width: box_width,
            height: box_height,
            sees_beside: true,
        }
    }

    /// A box of whole pixels: left, top, width and height.
    #[must_use]
    pub fn whole_pixels([left, top, width, height]: [u32; 4]) -> Self {
        let [left, top, width, height] = [left, top, width, height].map(f64::from);
        Self {
            left,
            top,
            width,
            height,
            sees_beside: false,
        }
    }

    /// The same box in the stored image, to be resized to `target`.
    #[must_use]
    pub fn stored(&self, header: &Header, target: Target) -> Region {
        let turn = header.orientation;
        let (mut left, mut top, mut width, mut height) =
            (self.left, self.top, self.width, self.height);
        // The triangle's half-width is one output pixel when shrinking and one input pixel when enlarging; other filters
        // are wider.
        let lobes = target.filter.lobes();
        let reach = |side: f64, kept: u32| (side / f64::from(kept)).max(1.0) * lobes + 1.0;
        let mut margin = [reach(width, target.width), reach(height, target.height)];
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
        Region {
            left,
            top,
            width,
            height,
            sees_beside: self.sees_beside,
            target,
            margin: if self.sees_beside { margin } else { [0.0; 2] },
            stored: [header.width, header.height],
            #[cfg(feature = "turbojpeg")]
            transposed: turn.transpose,
        }
    }
}

impl Region {
    /// First stored row below those that are needed.
    pub(crate) fn bottom(&self) -> u32 {
        whole((self.top + self.height + self.margin[1]).ceil()).min(self.stored[1])
    }
}

#[cfg(feature = "turbojpeg")]
impl Region {
    /// Smallest sufficient scale in eighths: the least of 1, 2, 4 and 8 at which the box has at
    /// least the pixels of the target.
    pub(crate) fn eighths(&self) -> u32 {
        if !self.target.scaled_decoding {
            return 8;
        }
        let (mut width, mut height) = (f64::from(self.target.width), f64::from(self.target.height));
        if self.transposed {
            std::mem::swap(&mut width, &mut height);
        }
        let suffices = |n: &u32| {
            let scale = f64::from(*n) / 8.0;
            self.width * scale >= width && self.height * scale >= height
        };
        [1, 2, 4].into_iter().find(suffices).unwrap_or(8)
    }

    /// First and one past the last column of the scaled image that are needed.
    pub(crate) fn columns(&self, eighths: u32) -> [u32; 2] {
        Self::span(self.left, self.width, self.margin[0], eighths)
    }

    /// First and one past the last row of the scaled image that are needed.
    pub(crate) fn lines(&self, eighths: u32) -> [u32; 2] {
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
