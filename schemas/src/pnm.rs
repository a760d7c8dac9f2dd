//! Binary PGM and PPM images (netpbm `P5` and `P6`): plain 8-bit pixels, after a header that holds
//! their sides.
//!
//! Raw images are kept as such files in the landing zone and in shards: nothing has to be decoded, and any tool opens
//! them. Layout: `P5` (grey) or `P6` (RGB), width, height and the largest value (255) as decimal numbers with white
//! space or `#` comments between, one white space, then the rows from the top, each pixel 1 or 3 bytes.

use crate::{Classified, ErrorKind};

/// An image in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pnm<'a> {
    /// Pixels, at least 1.
    pub width: u32,
    /// Pixels, at least 1.
    pub height: u32,
    /// 1 (grey) or 3 (RGB).
    pub channels: u32,
    /// `[height, width, channels]`.
    pub pixels: &'a [u8],
}

/// Reason that bytes are no such image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PnmError {
    /// They begin otherwise, or hold another kind of it.
    #[error("{0}")]
    Unsupported(&'static str),
    /// They end too early.
    #[error("it ends before its last pixel")]
    Truncated,
    /// The header makes no sense, or there is more than it says.
    #[error("{0}")]
    Corrupt(&'static str),
}

impl Classified for PnmError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Data
    }
}

/// The header of an image with these sides; its pixels follow.
#[must_use]
pub fn header(width: u32, height: u32, channels: u32) -> String {
    let kind = if channels == 1 { "P5" } else { "P6" };
    format!("{kind}\n{width} {height}\n255\n")
}

/// Returns true if `bytes` begin as such an image does.
#[must_use]
pub fn is_pnm(bytes: &[u8]) -> bool {
    bytes.starts_with(b"P5") || bytes.starts_with(b"P6")
}

impl<'a> Pnm<'a> {
    /// Reads a whole image; nothing is copied.
    ///
    /// # Errors
    /// [`PnmError`], also when bytes follow the last pixel.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PnmError> {
        let channels = match bytes.get(..2) {
            Some(b"P5") => 1,
            Some(b"P6") => 3,
            _ => return Err(PnmError::Unsupported("no PGM or PPM")),
        };
        let mut rest = &bytes[2..];
        let width = number(&mut rest)?;
        let height = number(&mut rest)?;
        let largest = number(&mut rest)?;
        if largest != 255 {
            return Err(PnmError::Unsupported(
                "a PGM or PPM with another largest value than 255",
            ));
        }
        let [b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c, pixels @ ..] = rest else {
            return Err(PnmError::Truncated);
        };
        if width == 0 || height == 0 {
            return Err(PnmError::Corrupt("a side of it has no pixels"));
        }
        let expected = u64::from(width) * u64::from(height);
        match (pixels.len() as u64).cmp(&expected.saturating_mul(channels.into())) {
            std::cmp::Ordering::Less => Err(PnmError::Truncated),
            std::cmp::Ordering::Greater => {
                Err(PnmError::Corrupt("bytes follow after its last pixel"))
            }
            std::cmp::Ordering::Equal => Ok(Self {
                width,
                height,
                channels,
                pixels,
            }),
        }
    }
}

/// The next number of a header, behind white space and comments.
fn number(rest: &mut &[u8]) -> Result<u32, PnmError> {
    let start = *rest;
    loop {
        match rest {
            [b'#', ..] => {
                let end = rest.iter().position(|byte| *byte == b'\n');
                *rest = end.map_or(&[], |end| &rest[end..]);
            }
            [byte, after @ ..] if byte.is_ascii_whitespace() || *byte == 0x0b => *rest = after,
            _ => break,
        }
    }
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (text, after) = rest.split_at(digits);
    if digits == 0 && after.is_empty() {
        return Err(PnmError::Truncated);
    }
    *rest = after;
    let number = std::str::from_utf8(text).ok();
    number
        .filter(|_| start.len() > after.len() + digits)
        .and_then(|number| number.parse().ok())
        .ok_or(PnmError::Corrupt("its header makes no sense"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_header_says_is_read_back() {
        for (width, height, channels) in [(3, 2, 1), (1, 5, 3)] {
            let pixels: Vec<u8> = (0..u8::try_from(width * height * channels).unwrap()).collect();
            let file = [header(width, height, channels).as_bytes(), &pixels].concat();
            let expected = Pnm {
                width,
                height,
                channels,
                pixels: &pixels,
            };
            assert_eq!(Pnm::parse(&file), Ok(expected));
            assert_eq!(
                Pnm::parse(&file[..file.len() - 1]),
                Err(PnmError::Truncated)
            );
            for end in 2..file.len() {
                assert!(Pnm::parse(&file[..end]).is_err());
            }
            let long = [&file[..], &[0]].concat();
            assert_eq!(
                Pnm::parse(&long),
                Err(PnmError::Corrupt("bytes follow after its last pixel"))
            );
        }
    }

    #[test]
    fn comments_and_any_white_space_are_read_over() {
        let file = b"P5 # by hand\n#\n2\t1 #255\n255\n\n ";
        assert_eq!(Pnm::parse(file).unwrap().pixels, b"\n ");
    }

    #[test]
    fn other_bytes_are_refused() {
        let refused = |bytes: &[u8]| Pnm::parse(bytes).unwrap_err().to_string();
        assert_eq!(refused(b""), "no PGM or PPM");
        assert_eq!(refused(b"P2\n1 1\n255\n0"), "no PGM or PPM");
        assert!(refused(b"P5\n1 1\n65535\n00").starts_with("a PGM or PPM with another"));
        assert_eq!(refused(b"P5\n0 1\n255\n"), "a side of it has no pixels");
        assert_eq!(refused(b"P5\nx 1\n255\n"), "its header makes no sense");
        assert_eq!(refused(b"P51 1\n255\n0"), "its header makes no sense");
        let huge = b"P6\n4294967295 4294967295\n255\n0";
        assert_eq!(refused(huge), "it ends before its last pixel");
        assert_eq!(
            refused(b"P5\n4294967296 1\n255\n0"),
            "its header makes no sense"
        );
    }
}
