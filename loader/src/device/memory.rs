//! Page-aligned memory for slabs, page-locked as far as the system allows.
//!
//! When locking is refused, less is locked, in this order: fewer slabs, but at least two; two slabs
//! with only the front locked; none, and the device copies through the driver's own staging memory,
//! which is slower.

use std::{ops::Range, sync::Arc};

use bytes::BytesMut;
use serde::Serialize;

use super::{HostLock, LockRefused};

/// Alignment of slabs, in bytes: a multiple of every page size in use.
pub(super) const ALIGNMENT: usize = 64 << 10;
/// A ring cannot go round with fewer slabs.
const LEAST_SLABS: usize = 2;
/// Locking less than this of a slab, in bytes, gains nothing.
const LEAST_LOCKED: usize = 1 << 20;

/// Extent of page-locking of the slabs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pinning {
    /// Not requested.
    #[default]
    NotAsked,
    /// All slabs, whole.
    Whole,
    /// Fewer slabs than were asked for, whole.
    Fewer,
    /// Fewer slabs, and only the front of each.
    Part,
    /// None: the system refused, and copies to the device are slower.
    Refused,
}

/// The memory of one slab.
#[derive(Debug)]
pub struct SlabMemory {
    /// Zeroed and aligned to 64 KiB. It may be split, moved and dropped in any order.
    pub bytes: BytesMut,
    /// To be kept for as long as a device may read the memory. None where nothing is locked.
    pub registration: Option<Registration>,
}

/// Memory that is page-locked, until this is dropped. It keeps the memory allocated, so that it is always unlocked
/// before it is freed.
#[derive(Debug)]
pub struct Registration {
    lock: Arc<dyn HostLock>,
    locked: Range<usize>,
    /// A piece of the same allocation, which is freed with its last piece.
    _keep: BytesMut,
}

impl Registration {
    /// Returns true if all of `bytes`, a part of the slab, is locked.
    #[must_use]
    pub fn covers(&self, bytes: &[u8]) -> bool {
        let start = bytes.as_ptr().addr();
        self.locked.start <= start && start + bytes.len() <= self.locked.end
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.lock.unlock(self.locked.start);
    }
}

/// Allocates `count` slabs of `bytes` bytes, fewer where `lock` refuses some, and locks them. Says in a warning when it
/// got less than it asked for.
///
/// The loader does this itself; it is for rings of one's own.
#[must_use]
pub fn allocate_slabs(
    count: u32,
    bytes: usize,
    lock: Option<&Arc<dyn HostLock>>,
) -> (Vec<SlabMemory>, Pinning) {
    let count = count as usize;
    let Some(lock) = lock else {
        return (plain(count, bytes), Pinning::NotAsked);
    };
    let refused = match lock_slabs(count, bytes, usize::MAX, lock) {
        Ok(slabs) => return (slabs, Pinning::Whole),
        Err((slabs, refused)) if slabs.len() >= LEAST_SLABS.min(count) => {
            tracing::warn!(
                asked = count, got = slabs.len(), slab_bytes = bytes, reason = %refused,
                "page-locked memory was refused: the loader runs with fewer slabs; raise the limit on locked memory \
                 (`ulimit -l`, or `memlock` of the container)"
            );
            return (slabs, Pinning::Fewer);
        }
        Err((_, refused)) => refused,
    };
    if let Some((slabs, locked)) = lock_fronts(LEAST_SLABS.min(count), bytes, lock) {
        tracing::warn!(
            asked = count, got = slabs.len(), slab_bytes = bytes, locked_bytes = locked, reason = %refused,
            "page-locked memory was refused: the loader runs with fewer slabs, locked in part; raise the limit on \
             locked memory (`ulimit -l`, or `memlock` of the container)"
        );
        return (slabs, Pinning::Part);
    }
    tracing::warn!(
        slabs = count, slab_bytes = bytes, reason = %refused,
        "PAGE-LOCKED MEMORY WAS REFUSED: copies to the device go through pageable memory, are slower and hold up the \
         training step; raise the limit on locked memory (`ulimit -l`, or `memlock` of the container)"
    );
    (plain(count, bytes), Pinning::Refused)
}

/// Tries ever smaller fronts of `count` slabs.
fn lock_fronts(
    count: usize,
    bytes: usize,
    lock: &Arc<dyn HostLock>,
) -> Option<(Vec<SlabMemory>, usize)> {
    let mut front = round_up(bytes) / 2;
    while front >= LEAST_LOCKED {
        let locked = round_up(front);
        if let Ok(slabs) = lock_slabs(count, bytes, locked, lock) {
            return Some((slabs, locked));
        }
        front /= 2;
    }
    None
}

fn plain(count: usize, bytes: usize) -> Vec<SlabMemory> {
    let plain = |_| SlabMemory {
        bytes: aligned(bytes).0,
        registration: None,
    };
    (0..count).map(plain).collect()
}

/// Locks the first `most` bytes of each of `count` slabs; gives back what was locked before the first refusal.
fn lock_slabs(
    count: usize,
    bytes: usize,
    most: usize,
    lock: &Arc<dyn HostLock>,
) -> Result<Vec<SlabMemory>, (Vec<SlabMemory>, LockRefused)> {
    let mut slabs = Vec::with_capacity(count);
    for _ in 0..count {
        let (bytes, keep) = aligned(bytes);
        let start = bytes.as_ptr().expose_provenance();
        let length = round_up(bytes.len()).min(most);
        if let Err(refused) = lock.lock(start, length) {
            return Err((slabs, refused));
        }
        slabs.push(SlabMemory {
            bytes,
            registration: Some(Registration {
                lock: Arc::clone(lock),
                locked: start..start + length,
                _keep: keep,
            }),
        });
    }
    Ok(slabs)
}

/// Zeroed memory that starts at a multiple of [`ALIGNMENT`] and may be locked up to the next one after its end; and the
/// rest of its allocation, which is never empty.
fn aligned(bytes: usize) -> (BytesMut, BytesMut) {
    let mut whole = BytesMut::zeroed(round_up(bytes) + ALIGNMENT);
    let start = whole.as_ptr().addr();
    let mut memory = whole.split_off(start.next_multiple_of(ALIGNMENT) - start);
    let rest = memory.split_off(bytes);
    (memory, rest)
}

fn round_up(bytes: usize) -> usize {
    bytes.max(1).next_multiple_of(ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::fake::{FakeLock, warnings};

    const SLAB: usize = (4 << 20) + 100;
    /// Locked bytes of one.
    const LOCKED: usize = (4 << 20) + ALIGNMENT;

    fn allocate_under(limit: usize) -> (Arc<FakeLock>, Vec<SlabMemory>, Pinning, Vec<String>) {
        let fake = Arc::new(FakeLock::with_limit(limit));
        let lock: Arc<dyn HostLock> = Arc::<FakeLock>::clone(&fake);
        let ((slabs, pinning), warnings) = warnings(|| allocate_slabs(3, SLAB, Some(&lock)));
        (fake, slabs, pinning, warnings)
    }

    #[test]
    fn slabs_are_aligned_zeroed_and_locked_until_their_registration_goes() {
        let (fake, slabs, pinning, warnings) = allocate_under(usize::MAX);
        assert_eq!((slabs.len(), pinning), (3, Pinning::Whole));
        assert!(warnings.is_empty());
        assert_eq!(fake.locked(), 3 * LOCKED);
        for slab in slabs {
            assert_eq!(slab.bytes.as_ptr().addr() % ALIGNMENT, 0);
            assert_eq!(slab.bytes.len(), SLAB);
            assert!(slab.bytes.iter().all(|b| *b == 0));
            let registration = slab.registration.unwrap();
            assert!(registration.covers(&slab.bytes) && registration.covers(&slab.bytes[7..]));
            // The memory goes first; the fake reads it when it is unlocked.
            drop(slab.bytes);
            drop(registration);
        }
        assert_eq!(fake.locked(), 0);
    }

    #[test]
    fn memory_that_nobody_locks_has_no_registration() {
        let (slabs, pinning) = allocate_slabs(2, 10, None);
        assert_eq!(pinning, Pinning::NotAsked);
        assert!(
            slabs
                .iter()
                .all(|s| s.registration.is_none() && s.bytes.len() == 10)
        );
    }

    #[test]
    fn fault_29_refused_memory_means_fewer_slabs_first() {
        let (fake, slabs, pinning, warnings) = allocate_under(2 * LOCKED);
        assert_eq!((slabs.len(), pinning), (2, Pinning::Fewer));
        assert_eq!(fake.locked(), 2 * LOCKED);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(
            warnings[0].contains("fewer slabs; raise the limit"),
            "{warnings:?}"
        );
    }

    #[test]
    fn fault_29_then_smaller_locked_parts() {
        let (fake, slabs, pinning, warnings) = allocate_under(2 * LOCKED - 1);
        assert_eq!((slabs.len(), pinning), (2, Pinning::Part));
        let locked = fake.locked() / 2;
        assert!((LEAST_LOCKED..LOCKED).contains(&locked), "{locked}");
        let registration = slabs[0].registration.as_ref().unwrap();
        let covers = |part| registration.covers(&slabs[0].bytes[part]);
        assert!(covers(0..locked) && covers(locked - 3..locked));
        assert!(!covers(0..SLAB) && !covers(locked - 3..locked + 1) && !covers(locked..SLAB));
        assert_eq!(warnings.len(), 1, "{warnings:?}");
    }

    #[test]
    fn fault_29_then_pageable_slabs_with_one_loud_warning() {
        let (fake, slabs, pinning, warnings) = allocate_under(2 * LEAST_LOCKED - 1);
        assert_eq!((slabs.len(), pinning), (3, Pinning::Refused));
        assert_eq!(fake.locked(), 0, "what was locked on the way is unlocked");
        assert!(
            slabs
                .iter()
                .all(|s| s.registration.is_none() && s.bytes.len() == SLAB)
        );
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(
            warnings[0].contains("PAGE-LOCKED MEMORY WAS REFUSED"),
            "{warnings:?}"
        );
        assert!(
            warnings[0].contains("the limit of this fake"),
            "{warnings:?}"
        );
    }
}
