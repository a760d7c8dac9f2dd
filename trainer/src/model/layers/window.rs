//! Windows that move over images.

/// Size of a window that moves over an image, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlidingWindow {
    pub(super) size: usize,
    pub(super) stride: usize,
    pub(super) padding: usize,
}

impl SlidingWindow {
    /// Padded by `size / 2`.
    pub(super) const fn centred([size, stride]: [usize; 2]) -> Self {
        Self {
            size,
            stride,
            padding: size / 2,
        }
    }

    /// Without padding.
    pub(super) const fn inside([size, stride]: [usize; 2]) -> Self {
        Self {
            size,
            stride,
            padding: 0,
        }
    }

    /// Places of the window along a side, `(side + 2 padding - size) / stride + 1`; the side must hold one.
    pub(super) const fn places(self, side: usize) -> usize {
        (side + 2 * self.padding - self.size) / self.stride + 1
    }
}
