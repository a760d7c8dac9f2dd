//! Bands of documents, sorted by their hashes outside memory: 20 bytes each in a file, little endian,
//! `band u64 | key u64 | document u32`.

use crate::engine::external_sort::{self, ExternalSort, Record};

/// All bands, in the order of their hashes.
pub(super) type Sorted = external_sort::Sorted<Band>;

/// Takes bands in any order.
pub(super) type Bands = ExternalSort<Band>;

/// A band of a document. Records of one band are in the order of the documents' keys, whatever order they came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Band {
    pub(super) hash: u64,
    /// Key of the document.
    pub(super) key: u64,
    pub(super) document: u32,
}

impl Record for Band {
    type Bytes = [u8; 20];

    const NAME: &'static str = "bands";

    fn to_bytes(self) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&self.hash.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.key.to_le_bytes());
        bytes[16..].copy_from_slice(&self.document.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; 20]) -> Self {
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        Self {
            hash: long(0),
            key: long(8),
            document: u32::from_le_bytes(std::array::from_fn(|i| bytes[16 + i])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_band_is_the_same_after_a_file() {
        let band = Band {
            hash: 0x0102_0304_0506_0708,
            key: u64::MAX - 1,
            document: 77,
        };
        assert_eq!(Band::from_bytes(&band.to_bytes()), band);
        let lesser = Band { hash: 1, ..band };
        assert!(lesser < band);
    }
}
