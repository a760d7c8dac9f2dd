//! The first bytes of image files.

/// Valid header sizes of a BMP.
const BMP_HEADERS: [u8; 7] = [12, 40, 52, 56, 64, 108, 124];

/// Name of the image format by the signature of `bytes`; `None` without a known signature.
pub fn image_format(bytes: &[u8]) -> Option<&'static str> {
    let has = |at: usize, mark: &[u8]| bytes.get(at..at + mark.len()) == Some(mark);
    let is_bmp = || {
        let size = bytes.get(14).is_some_and(|size| BMP_HEADERS.contains(size));
        has(0, b"BM") && size && has(15, &[0; 3])
    };
    match () {
        () if has(0, b"\xff\xd8\xff") => Some("JPEG"),
        () if has(0, b"\x89PNG\r\n\x1a\n") => Some("PNG"),
        () if has(0, b"GIF87a") || has(0, b"GIF89a") => Some("GIF"),
        () if has(0, b"RIFF") && has(8, b"WEBP") => Some("WebP"),
        () if has(0, b"II*\0") || has(0, b"MM\0*") => Some("TIFF"),
        () if is_bmp() => Some("BMP"),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_files_are_known_by_their_first_bytes() {
        let mut bmp = b"BM\0\0\0\0\0\0\0\0\0\0\0\0\x28\0\0\0".to_vec();
        for (bytes, expected) in [
            (&b"\xff\xd8\xff\xe0"[..], Some("JPEG")),
            (b"\x89PNG\r\n\x1a\n", Some("PNG")),
            (b"GIF89a", Some("GIF")),
            (b"RIFF\0\0\0\0WEBP", Some("WebP")),
            (b"MM\0*", Some("TIFF")),
            (&bmp, Some("BMP")),
            (b"RIFF\0\0\0\0WAVE", None),
            (b"BMW and other cars are text", None),
            (b"\x89PN", None),
            (b"", None),
        ] {
            assert_eq!(image_format(bytes), expected, "{bytes:?}");
        }
        bmp[14] = 41;
        assert_eq!(image_format(&bmp), None);
    }
}
