//! Page-aligned memory for read bytes, reused once they are dropped.
//!
//! Fresh memory costs a page fault for every 4 KiB, which for bytes in the page cache is about as
//! much as copying them. Idle memory is given up when memory of another size is needed, so that the
//! total never exceeds the most that was held at one time.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;

const PAGE: usize = 4096;
/// Sizes are rounded up to this, so that blocks of nearly the same size share memory.
const STEP: usize = 64 << 10;

/// Memory that is not in use.
#[derive(Default)]
pub(crate) struct MemoryPool {
    idle: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    by_size: BTreeMap<usize, Vec<Vec<u8>>>,
    bytes: usize,
}

/// A piece of memory; goes back to its pool when it is dropped.
pub(crate) struct PooledMemory {
    data: Vec<u8>,
    start: usize,
    len: usize,
    pool: Arc<MemoryPool>,
}

impl MemoryPool {
    /// Memory for `len` bytes, whose content is arbitrary but initialised.
    pub(crate) fn take(self: &Arc<Self>, len: usize) -> PooledMemory {
        let size = len.next_multiple_of(STEP) + PAGE;
        let data = self.reuse(size).unwrap_or_else(|| vec![0; size]);
        let start = data.as_ptr().align_offset(PAGE);
        // The offset is below a page, unless it cannot be found, and then any place will do.
        let start = if start < PAGE { start } else { 0 };
        PooledMemory {
            data,
            start,
            len,
            pool: Arc::clone(self),
        }
    }

    fn reuse(&self, size: usize) -> Option<Vec<u8>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        // Up to a quarter of waste is better than two pieces.
        let fit = idle.by_size.range(size..=size + size / 4).next();
        if let Some(fit) = fit.map(|(size, _)| *size) {
            return idle.take(fit);
        }
        let mut given_up = 0;
        while given_up < size {
            let Some((largest, _)) = idle.by_size.last_key_value() else {
                break;
            };
            let largest = *largest;
            given_up += largest;
            drop(idle.take(largest));
        }
        None
    }

    fn give_back(&self, data: Vec<u8>) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.bytes += data.len();
        idle.by_size.entry(data.len()).or_default().push(data);
    }

    #[cfg(test)]
    fn idle_bytes(&self) -> usize {
        self.idle.lock().unwrap().bytes
    }
}

impl Idle {
    fn take(&mut self, size: usize) -> Option<Vec<u8>> {
        let pieces = self.by_size.get_mut(&size)?;
        let data = pieces.pop();
        if pieces.is_empty() {
            self.by_size.remove(&size);
        }
        self.bytes -= data.as_ref().map_or(0, Vec::len);
        data
    }
}

impl PooledMemory {
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.data[self.start..self.start + self.len]
    }

    /// The bytes, for anybody to hold.
    pub(crate) fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for PooledMemory {
    fn as_ref(&self) -> &[u8] {
        &self.data[self.start..self.start + self.len]
    }
}

impl Drop for PooledMemory {
    fn drop(&mut self) {
        self.pool.give_back(std::mem::take(&mut self.data));
    }
}

impl fmt::Debug for MemoryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pool")
    }
}

impl fmt::Debug for PooledMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("len", &self.len).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_used_again_and_never_more_than_was_held() {
        let pool = Arc::new(MemoryPool::default());
        let mut first = pool.take(1_000_000);
        first.as_mut_slice().fill(7);
        let bytes = first.into_bytes();
        assert_eq!(bytes.as_ptr().align_offset(PAGE), 0);
        let place = bytes.as_ptr();
        let part = bytes.slice(10..20);
        drop(bytes);
        assert_eq!(pool.idle_bytes(), 0, "a part of it is still held");
        assert_eq!(part, [7; 10][..]);
        drop(part);
        let again = pool.take(990_000);
        assert_eq!(
            (again.as_ref().as_ptr(), again.as_ref().len()),
            (place, 990_000)
        );
        drop(again);
        let held = pool.idle_bytes();
        drop(pool.take(300_000));
        assert!(pool.idle_bytes() <= held, "other sizes take the place");
        assert_eq!(pool.take(0).into_bytes().len(), 0);
    }
}
