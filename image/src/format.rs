//! Format of an image file, recognized by its first bytes and never by a name.

use crate::ImageError;

/// A supported format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JPEG.
    Jpeg,
    /// PNG.
    Png,
    /// WebP.
    WebP,
    /// GIF.
    Gif,
    /// BMP.
    Bmp,
    /// TIFF.
    Tiff,
    /// PGM or PPM.
    Raw,
}

impl Format {
    /// Formats that shards hold and loaders read.
    pub const TRAINED_ON: &[Self] = &[Self::Jpeg, Self::Png, Self::WebP, Self::Raw];
    /// All formats.
    pub const ALL: &[Self] = &[
        Self::Jpeg,
        Self::Png,
        Self::WebP,
        Self::Gif,
        Self::Bmp,
        Self::Tiff,
        Self::Raw,
    ];

    /// Name of such a file in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jpeg => "a JPEG",
            Self::Png => "a PNG",
            Self::WebP => "a WebP",
            Self::Gif => "a GIF",
            Self::Bmp => "a BMP",
            Self::Tiff => "a TIFF",
            Self::Raw => "a PGM or PPM",
        }
    }

    /// Recognizes the format of a file.
    ///
    /// ```
    /// use feedline_image::{Format, ImageError};
    ///
    /// assert_eq!(Format::of(b"\xff\xd8\xff\xe0")?, Format::Jpeg);
    /// assert_eq!(Format::of(b"P5 2 1 255\n\x00\xff")?.name(), "a PGM or PPM");
    /// assert!(matches!(Format::of(b"%PDF-1.7"), Err(ImageError::Unsupported { .. })));
    /// # Ok::<(), ImageError>(())
    /// ```
    ///
    /// # Errors
    /// [`ImageError::Empty`], [`ImageError::Unsupported`] for another format, and [`ImageError::Truncated`] for
    /// the beginning of a format's first bytes.
    pub fn of(encoded: &[u8]) -> Result<Self, ImageError> {
        const MAGIC: &[(&[u8], Result<Format, &str>)] = &[
            (b"\xff\xd8", Ok(Format::Jpeg)),
            (b"\x89PNG\r\n\x1a\n", Ok(Format::Png)),
            (b"RIFF", Ok(Format::WebP)),
            (b"GIF8", Ok(Format::Gif)),
            (b"BM", Ok(Format::Bmp)),
            (b"II*\0", Ok(Format::Tiff)),
            (b"MM\0*", Ok(Format::Tiff)),
            (b"P5", Ok(Format::Raw)),
            (b"P6", Ok(Format::Raw)),
            (b"\0\0\0\x0cJXL ", Err("a JPEG XL")),
            (b"\xff\x0a", Err("a JPEG XL")),
            (b"\0\0\0\x0cjP  ", Err("a JPEG 2000")),
        ];
        if encoded.is_empty() {
            return Err(ImageError::Empty);
        }
        let is_container = encoded.get(4..8) == Some(b"ftyp");
        let known = MAGIC.iter().find(|(magic, _)| encoded.starts_with(magic));
        match known {
            Some((_, Ok(Self::WebP))) if encoded.get(8..12).is_some_and(|t| t != b"WEBP") => {
                Err(ImageError::unsupported("a RIFF file that is not WebP"))
            }
            Some((_, Ok(format))) => Ok(*format),
            Some((_, Err(name))) => Err(ImageError::unsupported(*name)),
            None if is_container => Err(ImageError::unsupported("an AVIF, HEIF or video")),
            None if MAGIC.iter().any(|(magic, _)| magic.starts_with(encoded)) => Err(
                ImageError::truncated(format!("it has `{}` bytes, no header", encoded.len())),
            ),
            None => Err(ImageError::unsupported(format!(
                "of no format known by its first bytes `{:02x?}`",
                &encoded[..encoded.len().min(8)]
            ))),
        }
    }
}
