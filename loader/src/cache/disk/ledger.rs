//! Bytes of the budget in use, in a file that all jobs share.
//!
//! ```text
//! ledger   CRC32C u32 of the rest, "FLC1", bytes in use u64, changes u64; little-endian
//! ```
//!
//! The count rises before a file or lease is made and falls after it is removed. So a crash in
//! between leaves it too high, never too low, until the folder is counted again: by a cache that
//! opens the folder alone, or when the file is damaged.

use std::{fs, io, path::Path};

use super::folder::write_in_place;

const MAGIC: [u8; 4] = *b"FLC1";
const BYTES: usize = 24;

/// Content of the ledger. The folder must be locked from reading it to writing it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ledger {
    /// Disk bytes of all extents and of those being fetched.
    pub(super) used: u64,
    /// Extents ever added: a change shows a process that there may be some it does not know.
    pub(super) added: u64,
}

impl Ledger {
    /// Reads it; `None` when there is none or it is damaged.
    pub(super) fn read(path: &Path) -> io::Result<Option<Self>> {
        match fs::read(path) {
            Ok(bytes) => Ok(Self::parse(&bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes it in place. A torn write is seen by its checksum.
    pub(super) fn write(self, path: &Path) -> io::Result<()> {
        let mut bytes = [0; BYTES];
        bytes[4..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.used.to_le_bytes());
        bytes[16..].copy_from_slice(&self.added.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        write_in_place(path, &bytes)
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (crc, rest) = bytes.split_first_chunk::<4>()?;
        let rest: &[u8; BYTES - 4] = rest.try_into().ok()?;
        let good = u32::from_le_bytes(*crc) == crc32c::crc32c(rest) && rest[..4] == MAGIC;
        let number = |at: usize| {
            let bytes = rest[at..].first_chunk::<8>();
            bytes.map(|bytes| u64::from_le_bytes(*bytes))
        };
        let (used, added) = (number(4)?, number(12)?);
        good.then_some(Self { used, added })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_is_read_as_written_and_never_when_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        assert_eq!(Ledger::read(&path).unwrap(), None);
        let ledger = Ledger { used: 77, added: 3 };
        ledger.write(&path).unwrap();
        assert_eq!(Ledger::read(&path).unwrap(), Some(ledger));
        let good = fs::read(&path).unwrap();
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, bytes).unwrap();
            assert_eq!(Ledger::read(&path).unwrap(), None, "bit {bit}");
        }
        fs::write(&path, &good[..BYTES - 1]).unwrap();
        assert_eq!(Ledger::read(&path).unwrap(), None);
    }
}
