//! Page-locked memory through which blocks go to the device.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::{Driver, HostBatch, HostLock, SlabMemory, allocate_slabs, copies::CopyStream};
use crate::Error;

/// Name of the upload stage in errors and of its thread.
pub(super) const STAGE: &str = "upload";

/// Some buffers of one size, going round: free, or under a copy.
#[derive(Debug)]
pub(super) struct Staging {
    free: Receiver<SlabMemory>,
    back: Sender<SlabMemory>,
}

/// A block's bytes in a buffer, which is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Staged {
    /// Present until `drop`.
    memory: Option<SlabMemory>,
    lengths: Vec<usize>,
    back: Sender<SlabMemory>,
}

impl Staging {
    /// Allocates `buffers` buffers of `bytes` bytes, page-locked as far as `lock` allows.
    pub(super) fn new(buffers: u32, bytes: usize, lock: Option<&Arc<dyn HostLock>>) -> Self {
        let (memories, _) = allocate_slabs(buffers.max(1), bytes, lock);
        let (back, free) = bounded(memories.len());
        for memory in memories {
            // There is room for every one.
            back.try_send(memory).ok();
        }
        Self { free, back }
    }

    /// Copies a block's parts to a free buffer, one behind another. Waits for the oldest copy when there is none.
    ///
    /// # Errors
    ///
    /// The device failed, or the parts do not fit.
    pub(super) fn stage<D: Driver>(
        &self,
        parts: &[&[u8]],
        copies: &mut CopyStream<D, Staged>,
    ) -> Result<Staged, Error> {
        let memory = loop {
            if let Ok(memory) = self.free.try_recv() {
                break memory;
            }
            copies.settle_oldest()?;
            copies.reap()?;
        };
        let mut staged = Staged {
            memory: Some(memory),
            lengths: parts.iter().map(|part| part.len()).collect(),
            back: self.back.clone(),
        };
        let mut rest = staged.memory.as_mut().map_or(&mut [][..], |m| &mut m.bytes);
        for part in parts {
            let Some((to, behind)) = rest.split_at_mut_checked(part.len()) else {
                return Err(Error::Worker {
                    stage: STAGE,
                    reason: "a block is larger than its dataset says".into(),
                });
            };
            to.copy_from_slice(part);
            rest = behind;
        }
        Ok(staged)
    }
}

impl Staged {
    /// Bytes of each part.
    pub(super) fn lengths(&self) -> &[usize] {
        &self.lengths
    }
}

impl HostBatch for Staged {
    type Info = ();

    fn info(&self) {}

    fn parts(&self) -> Vec<&[u8]> {
        let mut rest = self.memory.as_ref().map_or(&[][..], |memory| &memory.bytes);
        let mut take = |length: &usize| {
            let (part, behind) = rest.split_at(*length);
            rest = behind;
            part
        };
        self.lengths.iter().map(&mut take).collect()
    }

    fn edge(&self, part: &[u8]) -> usize {
        let memory = self.memory.as_ref();
        let registration = memory.and_then(|memory| memory.registration.as_ref());
        registration.map_or(part.len(), |r| r.locked_prefix(part))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            // There is room for every one; without the other end it is freed.
            self.back.try_send(memory).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{HostDriver, fake::FakeLock};

    const PARTS: [usize; 2] = [3 << 20, 1 << 20];

    fn stage(limit: usize) -> Staged {
        let lock: Arc<dyn HostLock> = Arc::new(FakeLock::with_limit(limit));
        let staging = Staging::new(2, PARTS.iter().sum(), Some(&lock));
        let parts = [vec![1; PARTS[0]], vec![2; PARTS[1]]];
        let parts = parts.each_ref().map(Vec::as_slice);
        let mut copies = CopyStream::new(&Arc::new(HostDriver), ());
        staging.stage(&parts, &mut copies).unwrap()
    }

    #[test]
    fn parts_lie_one_behind_another_and_are_cut_where_page_locked_memory_ends() {
        let check = |limit, edges: [usize; 2]| {
            let staged = stage(limit);
            let parts = staged.parts();
            assert!(parts[0].iter().all(|byte| *byte == 1));
            assert!(parts[1].iter().all(|byte| *byte == 2));
            assert_eq!(
                parts.iter().map(|part| part.len()).collect::<Vec<_>>(),
                PARTS
            );
            assert_eq!([staged.edge(parts[0]), staged.edge(parts[1])], edges);
        };
        check(usize::MAX, PARTS);
        // Of both buffers, only the first half can be locked.
        check(5 << 20, [2 << 20, 0]);
        // None is: there is no edge.
        check(0, PARTS);
    }

    #[test]
    fn a_block_that_is_larger_than_its_dataset_says_is_refused() {
        let staging = Staging::new(1, 10, None);
        let mut copies = CopyStream::new(&Arc::new(HostDriver), ());
        let error = staging.stage(&[&[0; 6], &[0; 5]], &mut copies).unwrap_err();
        assert!(matches!(error, Error::Worker { .. }), "{error}");
        assert!(
            staging.stage(&[&[0; 6], &[0; 4]], &mut copies).is_ok(),
            "its buffer is back"
        );
    }
}
