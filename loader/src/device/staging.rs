//! Page-locked memory through which blocks go to the device.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::{Driver, HostBatch, HostLock, SlabMemory, allocate_slabs, copies::Copies};
use crate::Error;

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
        copies: &mut Copies<D, Staged>,
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
                    stage: super::feed::STAGE,
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
