//! Leases of extents being fetched, so that the other processes wait instead of fetching them too.
//!
//! ```text
//! lease    CRC32C u32 of the rest, "FLL1", holder u128, beat u64, disk bytes u64; little-endian
//! ```
//!
//! The holder counts `beat` up while it fetches. Whoever watches a lease compares beats with each other, never with a
//! clock: one that does not change for [`EXPIRY`] of the watcher's own monotonic time is stale and may be taken over.
//! The lease carries the bytes that were reserved for the extent, and they pass on with it.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt as _,
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use feedline_schemas::ids::Hash128;

use super::{folder, name::Name};

/// Interval of a holder's heartbeats.
pub(super) const BEAT: Duration = Duration::from_secs(1);
/// After how long without a beat a lease is stale.
pub(super) const EXPIRY: Duration = Duration::from_secs(10);

const MAGIC: [u8; 4] = *b"FLL1";
const BYTES: usize = 40;

/// Content of a lease file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) holder: Hash128,
    pub(super) beat: u64,
    pub(super) disk_bytes: u64,
}

/// A lease that this process holds.
#[derive(Debug)]
pub(super) struct ExtentLease {
    pub(super) name: Name,
    pub(super) holder: Hash128,
    pub(super) disk_bytes: u64,
    file: File,
    beat: AtomicU64,
}

impl Claim {
    /// Reads a lease file; `None` when it is missing. A torn or damaged file reads as a claim
    /// without a holder, which has no heartbeat and so expires; its bytes are found by the next
    /// count.
    pub(super) fn read(path: &Path) -> io::Result<Option<Self>> {
        match fs::read(path) {
            Ok(bytes) => Ok(Some(Self::parse(&bytes).unwrap_or(Self {
                holder: Hash128::new(0),
                beat: 0,
                disk_bytes: 0,
            }))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (crc, rest) = bytes.split_first_chunk::<4>()?;
        let rest: &[u8; BYTES - 4] = rest.try_into().ok()?;
        let good = u32::from_le_bytes(*crc) == crc32c::crc32c(rest) && rest[..4] == MAGIC;
        let holder = u128::from_le_bytes(*rest[4..].first_chunk()?);
        let claim = Self {
            holder: Hash128::new(holder),
            beat: u64::from_le_bytes(*rest[20..].first_chunk()?),
            disk_bytes: u64::from_le_bytes(*rest[28..].first_chunk()?),
        };
        good.then_some(claim)
    }

    fn encode(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[4..8].copy_from_slice(&MAGIC);
        bytes[8..24].copy_from_slice(&self.holder.get().to_le_bytes());
        bytes[24..32].copy_from_slice(&self.beat.to_le_bytes());
        bytes[32..].copy_from_slice(&self.disk_bytes.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}

impl ExtentLease {
    /// Writes a new lease. The folder must be locked, and a lease that is taken over be removed:
    /// its holder continues to write heartbeats to the old file.
    pub(super) fn take(
        path: &Path,
        name: Name,
        holder: Hash128,
        disk_bytes: u64,
    ) -> io::Result<Self> {
        let file = File::create_new(path)?;
        let lease = Self {
            name,
            holder,
            disk_bytes,
            file,
            beat: AtomicU64::new(0),
        };
        match lease.beat() {
            Ok(()) => Ok(lease),
            Err(error) => {
                folder::remove(path)?;
                Err(error)
            }
        }
    }

    /// Shows that the holder is alive.
    pub(super) fn beat(&self) -> io::Result<()> {
        let claim = Claim {
            holder: self.holder,
            beat: self.beat.fetch_add(1, Relaxed),
            disk_bytes: self.disk_bytes,
        };
        self.file.write_all_at(&claim.encode(), 0)
    }

    /// Returns true if the lease file is still this holder's. The folder must be locked for that to
    /// last.
    pub(super) fn is_held(&self, path: &Path) -> io::Result<bool> {
        Ok(Claim::read(path)?.is_some_and(|claim| claim.holder == self.holder))
    }
}
