//! Batches from nowhere: a ring of slabs whose bytes follow from the number of the batch, filled by a thread.

use std::{sync::Arc, thread};

use crossbeam_channel::{Receiver, Sender, bounded};
use feedline_loader::{
    Error,
    device::{HostBatch, HostBatches, HostLock, Pinning, SlabMemory, allocate_slabs},
};

/// Content that the source writes into its slabs.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Fill {
    /// Every word of every batch: shows that the right bytes arrive.
    Every,
    /// The first word of each batch, so that copies are all the work there is.
    First,
}

pub(crate) struct SlabSource {
    ready: Receiver<NumberedSlab>,
    pub(crate) pinning: Pinning,
    pub(crate) slabs: usize,
}

pub(crate) struct NumberedSlab {
    number: u64,
    slab: Option<SlabMemory>,
    back: Sender<SlabMemory>,
}

impl SlabSource {
    /// Makes `batches` batches of `bytes` bytes in `slabs` slabs.
    pub(crate) fn start(
        lock: Option<&Arc<dyn HostLock>>,
        slabs: u32,
        bytes: usize,
        batches: u64,
        fill: Fill,
    ) -> Self {
        let (memories, pinning) = allocate_slabs(slabs, bytes, lock);
        let slabs = memories.len();
        let (back, free) = bounded(slabs);
        for mut memory in memories {
            write(0, &mut memory.bytes);
            back.try_send(memory).ok();
        }
        let (made, ready) = bounded(slabs);
        thread::spawn(move || {
            for (number, mut slab) in (0..batches).zip(free.iter()) {
                match fill {
                    Fill::Every => write(number, &mut slab.bytes),
                    Fill::First => slab.bytes[..4].copy_from_slice(&word(number, 0).to_le_bytes()),
                }
                let (slab, back) = (Some(slab), back.clone());
                if made.send(NumberedSlab { number, slab, back }).is_err() {
                    return;
                }
            }
        });
        Self {
            ready,
            pinning,
            slabs,
        }
    }
}

/// Word `i` of batch `number`.
fn word(number: u64, i: u64) -> u32 {
    let mixed = (number << 32 | i).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    u32::from_le_bytes([
        mixed.to_le_bytes()[4],
        mixed.to_le_bytes()[5],
        mixed.to_le_bytes()[6],
        mixed.to_le_bytes()[7],
    ])
}

fn write(number: u64, bytes: &mut [u8]) {
    for (i, to) in (0..).zip(bytes.chunks_exact_mut(4)) {
        to.copy_from_slice(&word(number, i).to_le_bytes());
    }
}

/// The checksum that the device should find in batch `number`.
pub(crate) fn checksum(number: u64, bytes: usize) -> u64 {
    (0..bytes as u64 / 4).fold(0, |sum, i| {
        sum.wrapping_add(u64::from(word(number, i)).wrapping_mul(i + 1))
    })
}

impl Iterator for SlabSource {
    type Item = Result<NumberedSlab, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.ready.recv().ok().map(Ok)
    }
}

impl HostBatches for SlabSource {
    type Batch = NumberedSlab;

    fn is_ready(&mut self) -> bool {
        !self.ready.is_empty()
    }
}

impl HostBatch for NumberedSlab {
    type Info = u64;

    fn info(&self) -> u64 {
        self.number
    }

    fn parts(&self) -> Vec<&[u8]> {
        self.slab.iter().map(|slab| &slab.bytes[..]).collect()
    }

    fn edge(&self, part: &[u8]) -> usize {
        let registration = self
            .slab
            .as_ref()
            .and_then(|slab| slab.registration.as_ref());
        registration.map_or(part.len(), |r| r.locked_prefix(part))
    }
}

impl Drop for NumberedSlab {
    fn drop(&mut self) {
        if let Some(slab) = self.slab.take() {
            // Without the thread it is freed.
            self.back.try_send(slab).ok();
        }
    }
}
