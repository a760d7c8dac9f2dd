//! Decoding the images of one thread.

use crate::{Format, Header, ImageError, Region, codecs, jpeg, raw, resize, scratch::Scratch};

/// Decodes images one after another, in memory that it reuses. Use one per thread.
#[derive(Debug, Default)]
pub struct Decoder {
    scratch: Scratch,
}

impl Decoder {
    /// Sets the colour, red, green and blue, that transparent pixels of later images are blended onto: each channel becomes
    /// `(level * alpha + background * (255 - alpha)) / 255`, rounded to nearest. `None`, the default, drops alpha, and
    /// the colours under it stay.
    pub fn set_background(&mut self, background: Option<[u8; 3]>) {
        self.scratch.background = background;
    }

    /// Returns true if the last decoded image has pixels that are not opaque.
    #[must_use]
    pub const fn is_transparent(&self) -> bool {
        self.scratch.is_transparent
    }

    /// Decodes the `region` of `encoded`, whose header is `header`, into `out`, u8 RGB `[height, width, 3]` of the
    /// region's target. `out` is undefined after an error.
    ///
    /// # Errors
    /// Those of [`ImageError`].
    ///
    /// # Panics
    /// If `out` does not have `height * width * 3` bytes. Third-party decoders may panic on
    /// malicious input; drop this decoder after a panic.
    pub fn decode(
        &mut self,
        encoded: &[u8],
        header: &Header,
        region: &Region,
        out: &mut [u8],
    ) -> Result<(), ImageError> {
        assert_eq!(
            out.len(),
            region.target.bytes(),
            "the slot has the size of the image"
        );
        let scratch = &mut self.scratch;
        scratch.is_transparent = false;
        let decoded = match header.format {
            Format::Jpeg => jpeg::decode(encoded, header, region, scratch),
            Format::Raw => raw::decode(encoded, scratch),
            _ => codecs::decode(encoded, header, scratch),
        };
        let result = decoded
            .and_then(|decoded| resize::resize(&decoded, region, header.orientation, scratch, out));
        scratch.shrink();
        result
    }
}
