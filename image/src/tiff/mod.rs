//! TIFF: the tags of a directory (TIFF 6.0, section 2), which EXIF data begin with too.

mod layout;
mod palette;

use std::ops::Range;

use crate::ImageError;

pub(crate) use layout::header;
pub(crate) use palette::Palette;

const ORIENTATION: u16 = 274;

/// Type of a number of 16 bits; what is of no type known here is read as such.
const SHORT: u16 = 3;
/// Type of a number of 32 bits.
const LONG: u16 = 4;
/// Bytes of an entry: tag, type, count, and the values or their place.
const ENTRY: usize = 12;

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
    count: u32,
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

    /// Places of the entries.
    fn places(&self) -> impl Iterator<Item = usize> {
        let first = self.at;
        (0..usize::from(self.entries)).map(move |entry| first + entry * ENTRY)
    }

    fn field(&self, tag: u16) -> Option<Field> {
        let at = self.places().find(|at| self.two(*at) == Some(tag))?;
        let r#type = self.two(at + 2).unwrap_or(SHORT);
        let count = self.four(at + 4).unwrap_or(1);
        let size = if r#type == LONG { 4 } else { 2 };
        // What does not fit into the entry is elsewhere.
        let at = if (count as usize).saturating_mul(size) <= 4 {
            at + 8
        } else {
            usize::try_from(self.four(at + 8)?).ok()?
        };
        Some(Field { r#type, count, at })
    }

    fn element(&self, field: Field, index: u32) -> Option<u32> {
        if index >= field.count {
            return None;
        }
        let index = index as usize;
        match field.r#type {
            LONG => self.four(field.at.checked_add(index * 4)?),
            _ => self.two(field.at.checked_add(index * 2)?).map(u32::from),
        }
    }

    /// The first number of a tag.
    fn number(&self, tag: u16) -> Option<u32> {
        self.field(tag).and_then(|field| self.element(field, 0))
    }

    /// All numbers of a field.
    fn numbers(&self, field: Field) -> Option<Vec<u32>> {
        (0..field.count)
            .map(|index| self.element(field, index))
            .collect()
    }

    /// Holds entries, what they point to and the next directory to the length of the file, and tags to coming once:
    /// what is read of a tag here must be what the decoder reads of it.
    fn check(&self) -> Result<(), ImageError> {
        let outside = |what: String| {
            let bytes = self.bytes.len();
            ImageError::truncated(format!("it has `{bytes}` bytes and {what} not among them"))
        };
        let end = self.at + usize::from(self.entries) * ENTRY;
        let next = self.four(end);
        let next = next.ok_or_else(|| outside("the end of its directory is".into()))?;
        if next as usize >= self.bytes.len() {
            return Err(outside("its next directory is".into()));
        }
        let mut tags: Vec<u16> = self.places().filter_map(|at| self.two(at)).collect();
        for (at, tag) in self.places().zip(&tags) {
            let values = self.values(at);
            if values.is_some_and(|values| values.end > self.bytes.len() as u64) {
                return Err(outside(format!("the values of its tag `{tag}` are")));
            }
        }
        tags.sort_unstable();
        match tags.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(ImageError::corrupt(format!(
                "its tag `{}` comes twice",
                pair[0]
            ))),
            None => Ok(()),
        }
    }

    /// Position of the values of the entry at `at`, if outside it and of a type in the standard.
    fn values(&self, at: usize) -> Option<Range<u64>> {
        let size = match self.two(at + 2)? {
            1 | 2 | 6 | 7 => 1,
            3 | 8 => 2,
            4 | 9 | 11 | 13 => 4,
            5 | 10 | 12 => 8,
            _ => return None,
        };
        let bytes = u64::from(self.four(at + 4)?) * size;
        let start = u64::from(self.four(at + 8)?);
        (bytes > 4).then_some(start..start + bytes)
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
