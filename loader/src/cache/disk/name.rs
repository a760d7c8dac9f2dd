//! Names and files of cached extents.
//!
//! ```text
//! file     the extent's bytes, then a trailer of 32 bytes, little-endian:
//!          CRC32C u32 of the bytes, length u64 of the bytes, name u128, "FLX1"
//! name     xxh3-128, as 32 hexadecimal digits, of (format, dataset fingerprint, range, CRC32C, path), or where the
//!          dataset's description has no CRC32C of (format, dataset fingerprint, range, version, folder's URL, path)
//! ```
//!
//! The bytes come first, so that they begin on a page of their own. A name covers all that the
//! bytes depend on: a file is never changed, only rewritten under a temporary name or removed.

use std::{fmt, path::PathBuf};

use feedline_schemas::ids::Hash128;

use crate::fetch::Extent;

/// Bytes behind those of the extent.
pub(super) const TRAILER_BYTES: usize = 32;

const MAGIC: [u8; 4] = *b"FLX1";
/// First bytes of names by version.
const MAGIC_VERSION: [u8; 4] = *b"FLV1";

/// Disks hand out space in pieces of this size.
pub(super) const DISK_BLOCK: u64 = 4096;

/// Name of an extent in the cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Name(u128);

impl Name {
    /// The name of `extent` of the dataset with `fingerprint`; `None` without a checksum.
    pub(super) fn of(fingerprint: Hash128, extent: &Extent) -> Option<Self> {
        let crc32c = extent.crc32c?;
        let mut text = Vec::with_capacity(64 + extent.path.len());
        text.extend(MAGIC);
        text.extend(fingerprint.get().to_le_bytes());
        text.extend(extent.range.start.to_le_bytes());
        text.extend(extent.range.end.to_le_bytes());
        text.extend(crc32c.to_le_bytes());
        text.extend(extent.path.as_bytes());
        Some(Self(Hash128::of(&text).get()))
    }

    /// The name of `extent` of a file that has `version` in the folder `url`.
    pub(super) fn of_version(
        fingerprint: Hash128,
        url: &str,
        extent: &Extent,
        version: &str,
    ) -> Self {
        let mut text = Vec::with_capacity(128 + extent.path.len());
        text.extend(MAGIC_VERSION);
        text.extend(fingerprint.get().to_le_bytes());
        text.extend(extent.range.start.to_le_bytes());
        text.extend(extent.range.end.to_le_bytes());
        for part in [version, url, &extent.path] {
            text.extend((part.len() as u64).to_le_bytes());
            text.extend(part.as_bytes());
        }
        Self(Hash128::of(&text).get())
    }

    /// Parses a name as it appears in a folder; `None` for any other text.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let value = u128::from_str_radix(text, 16).ok().map(Self)?;
        (value.to_string() == text).then_some(value)
    }

    /// Path of its file below the folder of extents: in one of 256 folders, since a million files
    /// in one are slow.
    pub(super) fn file(self) -> PathBuf {
        let text = self.to_string();
        PathBuf::from(&text[..2]).join(text)
    }

    /// Trailer that follows the extent's bytes in its file.
    pub(super) fn trailer(self, bytes: u64, crc32c: u32) -> [u8; TRAILER_BYTES] {
        let mut trailer = [0; TRAILER_BYTES];
        trailer[..4].copy_from_slice(&crc32c.to_le_bytes());
        trailer[4..12].copy_from_slice(&bytes.to_le_bytes());
        trailer[12..28].copy_from_slice(&self.0.to_le_bytes());
        trailer[28..].copy_from_slice(&MAGIC);
        trailer
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Bytes of the disk that the file of an extent of `bytes` bytes takes.
pub(super) const fn disk_bytes(bytes: u64) -> u64 {
    (bytes + TRAILER_BYTES as u64).next_multiple_of(DISK_BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetch::Identity;

    fn extent() -> Extent {
        Extent {
            path: "shards/train/00000.arrow".into(),
            range: 64..4096,
            crc32c: Some(7),
            identity: Identity::Checksum,
            first: 3,
        }
    }

    #[test]
    fn a_name_depends_on_all_that_the_bytes_depend_on_and_on_nothing_else() {
        let name = Name::of(Hash128::new(1), &extent()).unwrap();
        let changes: [fn(&mut Extent); 5] = [
            |e| e.path = "shards/train/00001.arrow".into(),
            |e| e.range.start = 65,
            |e| e.range.end = 4097,
            |e| e.crc32c = Some(8),
            |e| e.crc32c = None,
        ];
        for change in changes {
            let mut other = extent();
            change(&mut other);
            assert_ne!(Name::of(Hash128::new(1), &other), Some(name), "{other:?}");
        }
        assert_ne!(Name::of(Hash128::new(2), &extent()), Some(name));
        let later = Extent {
            first: 9,
            ..extent()
        };
        assert_eq!(Name::of(Hash128::new(1), &later), Some(name));
    }

    #[test]
    fn a_name_by_version_depends_on_version_and_place() {
        let of =
            |url, extent: &Extent, version| Name::of_version(Hash128::new(1), url, extent, version);
        let name = of("s3://a", &extent(), "10 \"1\"");
        let moved = Extent {
            range: 64..4097,
            ..extent()
        };
        for other in [
            of("s3://b", &extent(), "10 \"1\""),
            of("s3://a", &extent(), "10 \"2\""),
            of("s3://a", &moved, "10 \"1\""),
            of("1\"s3://a", &extent(), "10 \""),
            Name::of_version(Hash128::new(2), "s3://a", &extent(), "10 \"1\""),
            Name::of(Hash128::new(1), &extent()).unwrap(),
        ] {
            assert_ne!(other, name);
        }
        let checked = Extent {
            crc32c: Some(9),
            ..extent()
        };
        assert_eq!(
            of("s3://a", &checked, "10 \"1\""),
            name,
            "a checksum comes later"
        );
    }

    #[test]
    fn only_names_in_their_one_spelling_are_names() {
        let name = Name(0xabc);
        assert_eq!(Name::parse(&name.to_string()), Some(name));
        for text in ["", "abc", "+0000000000000000000000000000abc", "CURRENT"] {
            assert_eq!(Name::parse(text), None, "{text}");
        }
        assert_eq!(Name::parse(&name.to_string().to_uppercase()), None);
    }

    #[test]
    fn disk_space_counts_in_whole_blocks() {
        assert_eq!(disk_bytes(0), 4096);
        assert_eq!(disk_bytes(4064), 4096);
        assert_eq!(disk_bytes(4065), 8192);
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// A name for a number.
    pub(in super::super) fn name(number: u64) -> Name {
        Name(number.into())
    }
}
