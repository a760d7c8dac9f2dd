//! Turning a picture upright.

/// How the stored rows and columns of a picture relate to the upright ones: the upright pixel (x, y) is the stored
/// pixel (x, y), or (y, x) where `transpose`, counted from the right where `flip_x` and from the bottom where `flip_y`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

    /// Writes the upright picture of `stored`, RGB with `width` columns, to `upright`. Both have the same length.
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

/// The orientation in EXIF data (TIFF, "Exif Version 2.32", tag 0x0112 of the first directory), 1 where there is none
/// or the data are damaged: many programs write broken EXIF, and the pixels are good all the same.
pub(crate) fn exif_orientation(tiff: &[u8]) -> u16 {
    find_orientation(tiff).unwrap_or(1)
}

fn find_orientation(tiff: &[u8]) -> Option<u16> {
    let little = match tiff.get(..4)? {
        b"II*\0" => true,
        b"MM\0*" => false,
        _ => return None,
    };
    let u16_at = |at: usize| -> Option<u16> {
        let bytes = tiff.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if little {
            u16::from_le_bytes(bytes)
        } else {
            u16::from_be_bytes(bytes)
        })
    };
    let first: [u8; 4] = tiff.get(4..8)?.try_into().ok()?;
    let directory = usize::try_from(if little {
        u32::from_le_bytes(first)
    } else {
        u32::from_be_bytes(first)
    })
    .ok()?;
    let entries = u16_at(directory)?;
    (0..usize::from(entries))
        .map(|entry| directory + 2 + entry * 12)
        .find(|at| u16_at(*at) == Some(0x0112))
        .and_then(|at| u16_at(at + 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upright_pictures_are_those_of_the_standard() {
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

    #[test]
    fn orientation_is_found_in_both_byte_orders_and_damage_means_upright() {
        let little = b"II*\0\x08\0\0\0\x02\0\
            \x10\x01\x02\0\x01\0\0\0\0\0\0\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
        assert_eq!(exif_orientation(little), 6);
        let big = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x08\0\0";
        assert_eq!(exif_orientation(big), 8);
        for end in 0..little.len() - 8 {
            assert!([1, 6].contains(&exif_orientation(&little[..end])));
        }
        assert_eq!(exif_orientation(b"II*\0\xff\xff\xff\xff"), 1);
    }
}
