//! Reading the header of an image of any format.

use crate::{
    Format, Header, ImageError, ImageLimits, Orientation, bmp, gif,
    jpeg::JpegHeader,
    png, raw,
    tiff::{self, exif_orientation},
    webp,
};

impl Header {
    /// Reads the header of `encoded`, of one of these formats, and checks it against `limits`.
    /// Nothing is decoded, but the end of the file is checked against its format.
    ///
    /// # Errors
    /// Those of [`ImageError`].
    pub fn read(
        encoded: &[u8],
        formats: &[Format],
        limits: &ImageLimits,
    ) -> Result<Self, ImageError> {
        if encoded.is_empty() {
            return Err(ImageError::Empty);
        }
        limits.check_encoded(encoded)?;
        let format = Format::of(encoded)?;
        if !formats.contains(&format) {
            return Err(ImageError::unsupported(format.name()));
        }
        let header = match format {
            Format::Jpeg => jpeg(encoded),
            Format::Png => png::header(encoded),
            Format::WebP => webp::header(encoded),
            Format::Gif => gif::header(encoded),
            Format::Bmp => bmp::header(encoded),
            Format::Tiff => tiff::header(encoded),
            Format::Raw => raw::header(encoded),
        }?;
        header.check(limits)
    }
}

fn jpeg(encoded: &[u8]) -> Result<Header, ImageError> {
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
        limits: ImageLimits::DEFAULT,
        jpeg: Some(jpeg),
    })
}
