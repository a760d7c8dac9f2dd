//! GIF: its blocks up to the end (GIF89a specification, sections 15 to 27). Of an animation the first frame is taken, on
//! a transparent screen.

use crate::{Format, Header, ImageError, ImageLimits, Orientation};

/// Signature, version and the description of the screen.
const BYTES: usize = 13;

/// Reads the sides of the screen and of the first frame, and walks over all blocks: a file without
/// its end block is truncated.
pub(crate) fn header(encoded: &[u8]) -> Result<Header, ImageError> {
    let Some(screen) = encoded.get(..BYTES) else {
        let bytes = encoded.len();
        return Err(ImageError::truncated(format!(
            "it has `{bytes}` bytes and a GIF header needs `{BYTES}`"
        )));
    };
    let (width, height) = (side(screen, 6), side(screen, 8));
    let [frame_width, frame_height] = first_frame(encoded, BYTES + table(screen[10]))?;
    let area = |width: u32, height: u32| u64::from(width) * u64::from(height);
    // Four channels of the screen and of a frame of another size, three of ours; the codes' tables, and what the
    // decoder keeps of comments.
    let decoder_bytes = area(width, height) * 7
        + area(frame_width, frame_height) * 4
        + encoded.len() as u64
        + (1 << 20);
    Ok(Header {
        format: Format::Gif,
        width,
        height,
        orientation: Orientation::default(),
        decoder_bytes,
        limits: ImageLimits::DEFAULT,
        jpeg: None,
    })
}

/// Walks over the blocks from `at`. The sides of the first frame.
fn first_frame(encoded: &[u8], mut at: usize) -> Result<[u32; 2], ImageError> {
    let cut = || ImageError::truncated("it has no end block");
    let mut first = None;
    loop {
        match encoded.get(at) {
            Some(0x3b) => {
                return first.ok_or_else(|| ImageError::corrupt("it has no frame"));
            }
            Some(0x21) => at = after_data(encoded, at + 2)?,
            Some(0x2c) => {
                let frame = encoded.get(at..at + 10).ok_or_else(cut)?;
                first = first.or(Some([side(frame, 5), side(frame, 7)]));
                // The byte before the data is the length of the first codes.
                at = after_data(encoded, at + 10 + table(frame[9]) + 1)?;
            }
            Some(other) => {
                return Err(ImageError::corrupt(format!(
                    "there is no block `{other:02x}` as at byte `{at}`"
                )));
            }
            None => return Err(cut()),
        }
    }
}

/// The place after the sub-blocks that begin at `at`.
fn after_data(encoded: &[u8], mut at: usize) -> Result<usize, ImageError> {
    loop {
        match encoded.get(at) {
            Some(0) => return Ok(at + 1),
            Some(length) => at += 1 + usize::from(*length),
            None => return Err(ImageError::truncated("it ends within a block")),
        }
    }
}

/// Bytes of the colour table that these flags announce.
fn table(flags: u8) -> usize {
    if flags & 0x80 == 0 {
        0
    } else {
        3 << ((flags & 7) + 1)
    }
}

fn side(bytes: &[u8], at: usize) -> u32 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]]).into()
}
