//! TIFF: the tags of the first directory (TIFF 6.0, section 2), which EXIF data begin with too.

const ORIENTATION: u16 = 274;

/// Type of a number of 16 bits; what is of no type known here is read as such.
const SHORT: u16 = 3;
/// Type of a number of 32 bits.
const LONG: u16 = 4;

/// The first directory.
struct Directory<'a> {
    bytes: &'a [u8],
    little: bool,
    /// Place of the first entry.
    at: usize,
    entries: u16,
}

/// Numbers of one tag.
#[derive(Clone, Copy)]
struct Field {
    r#type: u16,
    /// Place of the first.
    at: usize,
}

/// The orientation in EXIF data ("Exif Version 2.32", tag 0x0112 of the first directory), 1 where there is none or the
/// data are damaged: many programs write broken EXIF, and the pixels are good all the same.
pub(crate) fn exif_orientation(tiff: &[u8]) -> u16 {
    let found = Directory::first(tiff).and_then(|directory| directory.number(ORIENTATION));
    found
        .and_then(|value| u16::try_from(value).ok())
        .unwrap_or(1)
}

impl<'a> Directory<'a> {
    fn first(bytes: &'a [u8]) -> Option<Self> {
        let little = match bytes.get(..4)? {
            b"II*\0" => true,
            b"MM\0*" => false,
            _ => return None,
        };
        let mut directory = Self {
            bytes,
            little,
            at: 0,
            entries: 0,
        };
        let start = usize::try_from(directory.four(4)?).ok()?;
        directory.entries = directory.two(start)?;
        directory.at = start + 2;
        Some(directory)
    }

    fn two(&self, at: usize) -> Option<u16> {
        let bytes = self.bytes.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if self.little {
            u16::from_le_bytes(bytes)
        } else {
            u16::from_be_bytes(bytes)
        })
    }

    fn four(&self, at: usize) -> Option<u32> {
        let bytes = self.bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(if self.little {
            u32::from_le_bytes(bytes)
        } else {
            u32::from_be_bytes(bytes)
        })
    }

    fn field(&self, tag: u16) -> Option<Field> {
        let mut entries = (0..usize::from(self.entries)).map(|entry| self.at + entry * 12);
        let at = entries.find(|at| self.two(*at) == Some(tag))?;
        let r#type = self.two(at + 2).unwrap_or(SHORT);
        let count = self.four(at + 4).map_or(1, |count| count as usize);
        let size = if r#type == LONG { 4 } else { 2 };
        // What does not fit into the entry is elsewhere.
        let at = if count.saturating_mul(size) <= 4 {
            at + 8
        } else {
            usize::try_from(self.four(at + 8)?).ok()?
        };
        Some(Field { r#type, at })
    }

    fn element(&self, field: Field, index: usize) -> Option<u32> {
        match field.r#type {
            LONG => self.four(field.at + index * 4),
            _ => self.two(field.at + index * 2).map(u32::from),
        }
    }

    /// The first number of a tag.
    fn number(&self, tag: u16) -> Option<u32> {
        self.field(tag).and_then(|field| self.element(field, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orientation_is_found_in_both_byte_orders_and_damage_means_upright() {
        let little = b"II*\0\x08\0\0\0\x02\0\
            \x10\x01\x02\0\x01\0\0\0\0\0\0\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
        assert_eq!(exif_orientation(little), 6);
        let big = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x08\0\0";
        assert_eq!(exif_orientation(big), 8);
        let long = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x04\0\0\0\x01\0\0\0\x03";
        assert_eq!(exif_orientation(long), 3);
        for end in 0..little.len() - 8 {
            assert!([1, 6].contains(&exif_orientation(&little[..end])));
        }
        assert_eq!(exif_orientation(b"II*\0\xff\xff\xff\xff"), 1);
    }
}
