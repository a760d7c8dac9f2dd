//! Memory for decoding images.

use fast_image_resize::Resizer;

#[cfg(feature = "turbojpeg")]
use crate::jpeg;

/// Memory of one thread that images are decoded in; grows to what the images need and is then used again.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Encoded bytes that had to be changed before decoding.
    pub(crate) encoded: Vec<u8>,
    /// Decoded pixels, before they are cropped and resized.
    pub(crate) pixels: Vec<u8>,
    /// Output of a decoder with another layout than RGB.
    pub(crate) raw: Vec<u8>,
    /// An image of the output's size.
    pub(crate) turned: Vec<u8>,
    pub(crate) resizer: Resizer,
    #[cfg(feature = "turbojpeg")]
    pub(crate) turbo: Option<jpeg::Turbo>,
}

/// Most bytes that each buffer of a scratch keeps from one image to the next.
const KEPT_BYTES: usize = 32 << 20;

impl Scratch {
    /// Gives back what one huge image took.
    pub(crate) fn shrink(&mut self) {
        for buffer in [&mut self.encoded, &mut self.pixels, &mut self.raw] {
            if buffer.capacity() > KEPT_BYTES {
                *buffer = Vec::new();
            }
        }
        if self.resizer.size_of_internal_buffers() > KEPT_BYTES {
            self.resizer.reset_internal_buffers();
        }
    }
}

/// The first `bytes` of a buffer, which grows to hold them and never shrinks: to clear it for each image would cost
/// more than a hundredth of the time. They hold what earlier images left.
pub(crate) fn room(buffer: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    if buffer.len() < bytes {
        buffer.resize(bytes, 0);
    }
    &mut buffer[..bytes]
}

/// Decoded pixels of a part of a stored image, u8 RGB, row-major from the start of [`Scratch::pixels`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decoded {
    /// Position of the first pixel in the (scaled) stored image.
    pub(crate) left: u32,
    pub(crate) top: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// The decoder shrank the image to this many eighths.
    pub(crate) eighths: u32,
}

impl Decoded {
    pub(crate) const fn bytes(&self) -> usize {
        self.width as usize * self.height as usize * 3
    }
}
