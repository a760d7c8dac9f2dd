//! What a picture's header says, and whether it may be decoded.

use super::{
    PictureError, PictureLimits,
    jpeg::JpegHeader,
    orientation::{Orientation, exif_orientation},
    other, raw,
};

/// The format, told by the first bytes and never by a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Jpeg,
    Png,
    WebP,
    /// PGM or PPM.
    Raw,
}

/// What must be known before decoding.
#[derive(Clone, Debug)]
pub(super) struct Header {
    pub(super) format: Format,
    /// Sides as stored, at least 1.
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) orientation: Orientation,
    /// A bound on what decoding the whole picture takes.
    pub(super) decoder_bytes: u64,
    /// For a JPEG.
    pub(super) jpeg: Option<JpegHeader>,
}

impl Header {
    /// Width and height after turning upright.
    pub(super) const fn upright_sides(&self) -> (u32, u32) {
        if self.orientation.transpose {
            (self.height, self.width)
        } else {
            (self.width, self.height)
        }
    }

    fn check(self, limits: &PictureLimits) -> Result<Self, PictureError> {
        if self.width == 0 || self.height == 0 {
            let (width, height) = (self.width, self.height);
            return Err(PictureError::corrupt(format!(
                "its header says `{width}` times `{height}` pixels"
            )));
        }
        let side = self.width.max(self.height).into();
        at_most("pixels along a side", "side", side, limits.side.into())?;
        let pixels = u64::from(self.width) * u64::from(self.height);
        at_most("pixels", "pixels", pixels, limits.pixels)?;
        let (bytes, limit) = (self.decoder_bytes, limits.decoder_bytes);
        at_most("bytes to decode", "decoder_bytes", bytes, limit)?;
        Ok(self)
    }
}

/// Refuses more than `limit` of something.
fn at_most(
    what: &'static str,
    key: &'static str,
    found: u64,
    limit: u64,
) -> Result<(), PictureError> {
    if found <= limit {
        return Ok(());
    }
    Err(PictureError::TooLarge {
        what,
        key,
        found,
        limit,
    })
}

/// Reads the header of `encoded` and holds it to `limits`.
pub(super) fn read(encoded: &[u8], limits: &PictureLimits) -> Result<Header, PictureError> {
    if encoded.is_empty() {
        return Err(PictureError::Empty);
    }
    let (bytes, limit) = (encoded.len() as u64, limits.encoded_bytes.into());
    at_most("encoded bytes", "encoded_bytes", bytes, limit)?;
    match format(encoded)? {
        Format::Jpeg => jpeg(encoded)?.check(limits),
        Format::Png => other::png_header(encoded)?.check(limits),
        Format::WebP => other::webp_header(encoded)?.check(limits),
        Format::Raw => raw::header(encoded)?.check(limits),
    }
}

fn format(encoded: &[u8]) -> Result<Format, PictureError> {
    const MAGIC: &[(&[u8], Result<Format, &str>)] = &[
        (b"\xff\xd8", Ok(Format::Jpeg)),
        (b"\x89PNG\r\n\x1a\n", Ok(Format::Png)),
        (b"RIFF", Ok(Format::WebP)),
        (b"GIF8", Err("a GIF")),
        (b"BM", Err("a BMP")),
        (b"II*\0", Err("a TIFF")),
        (b"MM\0*", Err("a TIFF")),
        (b"P5", Ok(Format::Raw)),
        (b"P6", Ok(Format::Raw)),
        (b"\0\0\0\x0cJXL ", Err("a JPEG XL")),
        (b"\xff\x0a", Err("a JPEG XL")),
        (b"\0\0\0\x0cjP  ", Err("a JPEG 2000")),
    ];
    let is_container = encoded.get(4..8) == Some(b"ftyp");
    let known = MAGIC.iter().find(|(magic, _)| encoded.starts_with(magic));
    match known {
        Some((_, Ok(Format::WebP))) if encoded.get(8..12).is_some_and(|t| t != b"WEBP") => {
            Err(PictureError::unsupported("a RIFF file that is not WebP"))
        }
        Some((_, Ok(format))) => Ok(*format),
        Some((_, Err(name))) => Err(PictureError::unsupported(*name)),
        None if is_container => Err(PictureError::unsupported("an AVIF, HEIF or video")),
        None if MAGIC.iter().any(|(magic, _)| magic.starts_with(encoded)) => Err(
            PictureError::truncated(format!("it has `{}` bytes, no header", encoded.len())),
        ),
        None => Err(PictureError::unsupported(format!(
            "of no format known by its first bytes `{:02x?}`",
            &encoded[..encoded.len().min(8)]
        ))),
    }
}

fn jpeg(encoded: &[u8]) -> Result<Header, PictureError> {
    let jpeg = JpegHeader::read(encoded)?;
    let exif = jpeg
        .exif
        .clone()
        .map_or(1, |at| exif_orientation(&encoded[at]));
    Ok(Header {
        format: Format::Jpeg,
        width: jpeg.width.into(),
        height: jpeg.height.into(),
        orientation: Orientation::from_exif(exif),
        decoder_bytes: jpeg.decoder_bytes(),
        jpeg: Some(jpeg),
    })
}
