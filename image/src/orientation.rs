//! Turning an image upright.

use serde::{Deserialize, Serialize};

/// Mapping from the stored rows and columns of an image to the upright ones: the upright pixel (x,
/// y) is the stored pixel (x, y), or (y, x) where `transpose`, counted from the right where
/// `flip_x` and from the bottom where `flip_y`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orientation {
    pub(crate) transpose: bool,
    pub(crate) flip_x: bool,
    pub(crate) flip_y: bool,
}

impl Orientation {
    /// From the EXIF value 1 to 8; others, which files in the wild have, mean upright.
    pub(crate) const fn from_exif(value: u16) -> Self {
        let (transpose, flip_x, flip_y) = match value {
            2 => (false, true, false),
            3 => (false, true, true),
            4 => (false, false, true),
            5 => (true, false, false),
            6 => (true, false, true),
            7 => (true, true, true),
            8 => (true, true, false),
            _ => (false, false, false),
        };
        Self {
            transpose,
            flip_x,
            flip_y,
        }
    }

    /// Writes the upright image of `stored`, RGB with `width` columns, to `upright`. Both have the same length.
    pub(crate) fn apply(self, stored: &[u8], width: usize, upright: &mut [u8]) {
        let height = stored.len() / (width * 3);
        let upright_width = if self.transpose { height } else { width };
        for (y, row) in upright.chunks_exact_mut(upright_width * 3).enumerate() {
            for (x, pixel) in row.chunks_exact_mut(3).enumerate() {
                let (mut from_x, mut from_y) = if self.transpose { (y, x) } else { (x, y) };
                if self.flip_x {
                    from_x = width - 1 - from_x;
                }
                if self.flip_y {
                    from_y = height - 1 - from_y;
                }
                let from = (from_y * width + from_x) * 3;
                pixel.copy_from_slice(&stored[from..from + 3]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upright_images_are_those_of_the_standard() {
        // Stored, 3 columns and 2 rows: a b c / d e f. The stored first row and column are what EXIF names them.
        let stored: Vec<u8> = b"abcdef".iter().flat_map(|p| [*p; 3]).collect();
        let check = |value, expected: &[u8; 6]| {
            let mut upright = vec![0; 18];
            Orientation::from_exif(value).apply(&stored, 3, &mut upright);
            let found: Vec<u8> = upright.iter().step_by(3).copied().collect();
            assert_eq!(found, expected, "orientation {value}");
        };
        check(1, b"abcdef");
        check(2, b"cbafed");
        check(3, b"fedcba");
        check(4, b"defabc");
        check(5, b"adbecf");
        check(6, b"daebfc");
        check(7, b"fcebda");
        check(8, b"cfbead");
        check(0, b"abcdef");
    }
}
