//! The file as decoders get it: without what they do not need, and ending at the last row that a crop needs.

use super::segments::{JpegHeader, SOI, Segment};

/// Rows to decode so that those above `bottom` are what they are in the whole image: a unit's last rows take colour
/// from the unit below.
pub(super) fn rows(jpeg: &JpegHeader, bottom: u32) -> u16 {
    if !jpeg.one_pass {
        return jpeg.height;
    }
    let rows = bottom.next_multiple_of(jpeg.unit_rows) + jpeg.unit_rows;
    u16::try_from(rows).map_or(jpeg.height, |rows| rows.min(jpeg.height))
}

/// The file for decoders: the segments that they need and the scans, without the bytes between. The
/// height is `rows`, so that the decoder stops there, and `end` comes last. Adobe's segment is
/// dropped unless `adobe`.
pub(super) fn patched<'a>(
    encoded: &[u8],
    jpeg: &JpegHeader,
    rows: u16,
    (adobe, end): (bool, &[u8]),
    copy: &'a mut Vec<u8>,
) -> &'a [u8] {
    copy.clear();
    copy.extend_from_slice(&SOI);
    let kept = jpeg.kept.iter().filter(|kept| adobe || !kept.is_adobe());
    for Segment { marker, body } in kept.clone() {
        copy.extend_from_slice(&[0xff, *marker]);
        copy.extend_from_slice(&encoded[body.start - 2..body.end]);
    }
    // Length, precision, height.
    let before = kept.take_while(|kept| !kept.is_frame());
    let frame_at: usize = before.map(|kept| kept.body.len() + 4).sum();
    let height_at = SOI.len() + frame_at + 5;
    copy[height_at..height_at + 2].copy_from_slice(&rows.to_be_bytes());
    copy.extend_from_slice(&encoded[jpeg.scans.clone()]);
    copy.extend_from_slice(end);
    copy
}
