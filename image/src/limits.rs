//! Limits on the images that are decoded.

use serde::{Deserialize, Serialize};

use crate::ImageError;

/// Limits that an image's header is checked against before anything is decoded.
///
/// ```
/// use feedline_image::{Bound, Encoding, Format, Header, ImageError, ImageLimits};
///
/// let file = Encoding::Png.encode(&[0; 8 * 6 * 3], 8, 6)?;
/// let limits = ImageLimits { side: 7, ..ImageLimits::DEFAULT };
/// let error = Header::read(&file, Format::ALL, &limits).unwrap_err();
/// assert_eq!(error, ImageError::TooLarge { bound: Bound::Side, found: 8, limit: 7 });
/// assert_eq!(error.code(), "too_large");
/// # Ok::<(), ImageError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ImageLimits {
    /// Most encoded bytes, 1 to 1 GiB. Default 64 MiB.
    pub encoded_bytes: u32,
    /// Most pixels of a side, 1 to 16,384. Default 16,384.
    pub side: u32,
    /// Most pixels, 1 to 268,435,456. Default 64 million.
    pub pixels: u64,
    /// Most bytes that decoding may take, by a bound computed from the header: 3 a pixel for a baseline JPEG, up to 12
    /// for a progressive one, 7 to 20 for PNG and WebP. Each decoding thread may take as much. Default 512 MiB.
    pub decoder_bytes: u64,
}

impl ImageLimits {
    /// The defaults.
    pub const DEFAULT: Self = Self {
        encoded_bytes: 64 << 20,
        side: 1 << 14,
        pixels: 64_000_000,
        decoder_bytes: 512 << 20,
    };

    /// Checks the size of a file in bytes.
    ///
    /// # Errors
    /// [`ImageError::TooLarge`].
    pub fn check_encoded(&self, encoded: &[u8]) -> Result<(), ImageError> {
        let (found, limit) = (encoded.len() as u64, u64::from(self.encoded_bytes));
        if found <= limit {
            return Ok(());
        }
        Err(ImageError::TooLarge {
            bound: Bound::EncodedBytes,
            found,
            limit,
        })
    }
}

impl Default for ImageLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// One of the [`ImageLimits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bound {
    /// [`ImageLimits::encoded_bytes`].
    EncodedBytes,
    /// [`ImageLimits::side`].
    Side,
    /// [`ImageLimits::pixels`].
    Pixels,
    /// [`ImageLimits::decoder_bytes`].
    DecoderBytes,
}

impl Bound {
    /// Its key in the limits.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::EncodedBytes => "encoded_bytes",
            Self::Side => "side",
            Self::Pixels => "pixels",
            Self::DecoderBytes => "decoder_bytes",
        }
    }

    /// Key of `[dataset.image]` for the images that a dataset is built from.
    #[must_use]
    pub const fn dataset_key(self) -> &'static str {
        match self {
            Self::EncodedBytes => "max_bytes",
            Self::Side => "max_side",
            Self::Pixels => "max_pixels",
            Self::DecoderBytes => "max_decoder_bytes",
        }
    }

    /// Name of the counted quantity.
    #[must_use]
    pub const fn what(self) -> &'static str {
        match self {
            Self::EncodedBytes => "encoded bytes",
            Self::Side => "pixels along a side",
            Self::Pixels => "pixels",
            Self::DecoderBytes => "bytes to decode",
        }
    }
}
