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
    /// Colour that transparent pixels are blended onto; `None` drops their alpha.
    pub(crate) background: Option<[u8; 3]>,
    /// True if the last image has pixels that are not opaque.
    pub(crate) is_transparent: bool,
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
