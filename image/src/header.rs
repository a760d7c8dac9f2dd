//! Header of an image, and the check whether it may be decoded.

use crate::{Bound, Encoding, Format, ImageError, ImageLimits, Orientation, jpeg::JpegHeader};

/// Facts that decoding needs beforehand.
#[derive(Clone, Debug)]
pub struct Header {
    pub(crate) format: Format,
    /// Sides as stored, at least 1.
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) orientation: Orientation,
    /// A bound on what decoding the whole image takes.
    pub(crate) decoder_bytes: u64,
    /// Limits that the header was checked against.
    pub(crate) limits: ImageLimits,
    /// For a JPEG.
    pub(crate) jpeg: Option<JpegHeader>,
}

impl Header {
    /// Format of the file.
    #[must_use]
    pub const fn format(&self) -> Format {
        self.format
    }

    /// Upper bound on the memory in bytes for decoding the complete image.
    #[must_use]
    pub const fn decoder_bytes(&self) -> u64 {
        self.decoder_bytes
    }

    /// Width and height after turning upright, at least 1.
    ///
    /// ```
    /// use feedline_image::{Encoding, Format, Header, ImageLimits};
    ///
    /// let jpeg = Encoding::Jpeg { quality: 90 }.encode(&[128; 8 * 6 * 3], 8, 6)?;
    /// // EXIF data whose orientation is 6: turn by a quarter to the right.
    /// let exif = b"\xff\xe1\0\x22Exif\0\0MM\0*\0\0\0\x08\0\x01\
    ///              \x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
    /// let turned = [&jpeg[..2], exif, &jpeg[2..]].concat();
    /// let header = Header::read(&turned, Format::ALL, &ImageLimits::DEFAULT)?;
    /// assert_eq!(header.upright_sides(), (6, 8));
    /// # Ok::<(), feedline_image::ImageError>(())
    /// ```
    #[must_use]
    pub const fn upright_sides(&self) -> (u32, u32) {
        if self.orientation.transpose {
            (self.height, self.width)
        } else {
            (self.width, self.height)
        }
    }

    /// Returns true if the file is as `encoding` would write it: of that format, upright, and of
    /// colours that need no converting.
    pub(crate) fn is_as(&self, encoding: Encoding) -> bool {
        let format = match encoding {
            Encoding::Jpeg { .. } => Format::Jpeg,
            Encoding::Png => Format::Png,
            Encoding::Raw => Format::Raw,
        };
        let is_ink = self.jpeg.as_ref().is_some_and(JpegHeader::is_ink);
        self.format == format && self.orientation == Orientation::default() && !is_ink
    }

    /// Checks the sides and the memory that decoding takes.
    ///
    /// # Errors
    /// Those of [`ImageError`].
    pub(crate) fn check(self, limits: &ImageLimits) -> Result<Self, ImageError> {
        if self.width == 0 || self.height == 0 {
            let (width, height) = (self.width, self.height);
            return Err(ImageError::corrupt(format!(
                "its header says `{width}` times `{height}` pixels"
            )));
        }
        let side = self.width.max(self.height).into();
        at_most(Bound::Side, side, limits.side.into())?;
        let pixels = u64::from(self.width) * u64::from(self.height);
        at_most(Bound::Pixels, pixels, limits.pixels)?;
        let (bytes, limit) = (self.decoder_bytes, limits.decoder_bytes);
        at_most(Bound::DecoderBytes, bytes, limit)?;
        Ok(Self {
            limits: *limits,
            ..self
        })
    }
}

/// Refuses more than `limit` of something.
fn at_most(bound: Bound, found: u64, limit: u64) -> Result<(), ImageError> {
    if found <= limit {
        return Ok(());
    }
    Err(ImageError::TooLarge {
        bound,
        found,
        limit,
    })
}
