//! Assignment of blocks to slots of the device's window, decided ahead of the copies.
//!
//! The assemble thread gives slots to blocks in the order of their first need, and takes them back after the last batch
//! that needs them. So a batch's places are known before its blocks are on the device, and a slot is asked for only
//! behind the batches that still read what is in it: the upload thread never waits for a batch that waits for it.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
    fmt,
    iter::Peekable,
    sync::Arc,
};

use crossbeam_channel::Sender;

use super::PADDING;
use crate::{
    Error,
    assembly::block_types::LoadedBlock,
    order::{Need, ShuffleWindow},
    source_block::SourceBlock,
};

/// A block to be brought to a slot. The first of a pass is upload 1.
#[derive(Debug)]
pub(crate) struct Upload {
    /// Slot of the window.
    pub(crate) slot: u32,
    /// The block.
    pub(crate) block: Arc<LoadedBlock>,
}

/// A slot that no batch behind `batch` reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leave {
    /// The last batch that may read it.
    pub(crate) batch: u64,
    /// Slot of the window.
    pub(crate) slot: u32,
    /// The upload that brought what is in it.
    pub(crate) upload: u64,
}

/// Gives slots to blocks. Is called for every block that arrives and every batch that is planned.
pub(crate) struct Slots {
    needs: Peekable<Box<dyn Iterator<Item = Need> + Send>>,
    /// The slot left longest ago is used first.
    free: VecDeque<u32>,
    held: HashMap<SourceBlock, HeldBlock>,
    leaving: BinaryHeap<Reverse<(u64, SourceBlock)>>,
    uploads: Sender<Upload>,
    leaves: Sender<Leave>,
    /// Uploads so far.
    sent: u64,
    count: u32,
    slot_bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct HeldBlock {
    slot: u32,
    /// Its upload, once the block has arrived.
    upload: Option<u64>,
}

impl Slots {
    /// `count` slots of `slot_bytes` bytes for the blocks that `needs` lists.
    pub(crate) fn new(
        needs: Box<dyn Iterator<Item = Need> + Send>,
        count: u32,
        slot_bytes: usize,
        uploads: Sender<Upload>,
        leaves: Sender<Leave>,
    ) -> Self {
        Self {
            needs: needs.peekable(),
            free: (0..count).collect(),
            held: HashMap::new(),
            leaving: BinaryHeap::new(),
            uploads,
            leaves,
            sent: 0,
            count,
            slot_bytes,
        }
    }

    /// Gives slots to all blocks that `batch` may need, and to those behind them as long as there
    /// are some. `arrived` finds blocks that have arrived already.
    ///
    /// # Errors
    /// The batch needs more blocks at one time than there are slots.
    pub(crate) fn admit(
        &mut self,
        batch: u64,
        arrived: impl Fn(SourceBlock) -> Option<Arc<LoadedBlock>>,
    ) -> Result<(), Error> {
        while let Some(need) = self.needs.peek().copied() {
            let block = (need.source, need.block);
            // A need that is far ahead, of a block that still has a slot for an earlier one.
            if self.held.contains_key(&block) {
                break;
            }
            let Some(slot) = self.free.pop_front() else {
                if need.first <= batch {
                    return Err(self.too_small(batch));
                }
                break;
            };
            self.needs.next();
            let upload = None;
            self.held.insert(block, HeldBlock { slot, upload });
            self.leaving.push(Reverse((need.last, block)));
            if let Some(rows) = arrived(block) {
                self.arrived(block, &rows);
            }
        }
        Ok(())
    }

    /// Sends a block that has arrived on its way, if it has a slot.
    pub(crate) fn arrived(&mut self, block: SourceBlock, rows: &Arc<LoadedBlock>) {
        let Some(held) = self.held.get_mut(&block) else {
            return;
        };
        if held.upload.is_none() {
            self.sent += 1;
            held.upload = Some(self.sent);
            let (slot, block) = (held.slot, Arc::clone(rows));
            // When the upload thread is gone, the caller learns why from it.
            self.uploads.send(Upload { slot, block }).ok();
        }
    }

    /// Says that `batch` is planned: slots that no later batch needs are free behind it.
    pub(crate) fn planned(&mut self, batch: u64) {
        while let Some(Reverse((last, block))) = self.leaving.peek().copied()
            && last <= batch
        {
            self.leaving.pop();
            let Some(HeldBlock { slot, upload }) = self.held.remove(&block) else {
                continue;
            };
            self.free.push_back(slot);
            if let Some(upload) = upload {
                let leave = Leave {
                    batch,
                    slot,
                    upload,
                };
                self.leaves.send(leave).ok();
            }
        }
    }

    /// By block of a window, the slot it has, [`PADDING`] while it is not on its way; and the last upload of these.
    pub(crate) fn of(&self, window: &ShuffleWindow) -> (Vec<u32>, u64) {
        let mut uploads = 0;
        let slot = |block: &u32| match self.held.get(&(window.source, *block)) {
            Some(HeldBlock {
                slot,
                upload: Some(upload),
            }) => {
                uploads = uploads.max(*upload);
                *slot
            }
            _ => PADDING,
        };
        (window.blocks.iter().map(slot).collect(), uploads)
    }

    fn too_small(&self, batch: u64) -> Error {
        let bytes = self.count as usize * self.slot_bytes;
        Error::Config {
            key: "device.window_bytes",
            reason: format!(
                "batch `{batch}` needs more blocks at one time than the `{}` that `{bytes}` bytes on the device hold; \
                 raise it, or lower `window_blocks` or `domains`",
                self.count
            ),
        }
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots")
            .field("count", &self.count)
            .field("free", &self.free.len())
            .field("sent", &self.sent)
            .finish_non_exhaustive()
    }
}

/// The most blocks that the batches of `needs` need at one time, among the first `most` needs, and how many were looked
/// at.
pub(super) fn peak(needs: impl Iterator<Item = Need>, most: usize) -> (usize, usize) {
    let mut live = BinaryHeap::new();
    let (mut peak, mut count) = (0, 0);
    for need in needs.take(most) {
        while live.peek().is_some_and(|Reverse(last)| *last < need.first) {
            live.pop();
        }
        live.push(Reverse(need.last));
        peak = peak.max(live.len());
        count += 1;
    }
    (peak, count)
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::{Receiver, unbounded};

    use super::*;
    use crate::{
        device::fake::Choices,
        fetch::budget::Budget,
        input::block_rows::{BlockRows, TokenIds, TokenRows},
    };

    async fn block() -> Arc<LoadedBlock> {
        let rows = TokenRows {
            ids: TokenIds::U32(Vec::new().into()),
            offsets: vec![0].into(),
            keys: Vec::new().into(),
            origins: Vec::new().into(),
            bad: Vec::new(),
        };
        Arc::new(LoadedBlock {
            rows: BlockRows::Tokens(rows),
            source: 0,
            block: 0,
            by_class: None,
            _permit: Arc::new(Budget::new(0, 0)).take(0, 0).await,
        })
    }

    /// Needs as an order has them: sorted by first batch, a block again only behind its last one.
    fn needs(choose: &mut Choices) -> Vec<Need> {
        let mut over = [0; 30];
        let mut first = 0;
        let mut needs = Vec::new();
        for _ in 0..200 {
            first += choose.below(2);
            let block = usize::try_from(choose.below(30)).unwrap();
            if over[block] <= first {
                let last = first + choose.below(6);
                over[block] = last + 1;
                needs.push(Need {
                    source: 0,
                    block: u32::try_from(block).unwrap(),
                    first,
                    last,
                });
            }
        }
        needs
    }

    fn slots(needs: Vec<Need>, count: usize) -> (Slots, Receiver<Upload>, Receiver<Leave>) {
        let (uploads_in, uploads) = unbounded();
        let (leaves_in, leaves) = unbounded();
        let needs = Box::new(needs.into_iter());
        let count = u32::try_from(count).unwrap();
        let slots = Slots::new(needs, count, 100, uploads_in, leaves_in);
        (slots, uploads, leaves)
    }

    #[tokio::test]
    async fn as_many_slots_as_blocks_are_needed_at_one_time_are_enough_and_one_less_is_not() {
        let rows = block().await;
        for seed in 0..300 {
            let mut choose = Choices(seed);
            let needs = needs(&mut choose);
            let (peak, seen) = peak(needs.iter().copied(), usize::MAX);
            assert_eq!(seen, needs.len());
            let end = needs.iter().map(|need| need.last).max().unwrap_or(0);
            let mut run = |count: usize| {
                let (mut slots, uploads, leaves) = slots(needs.clone(), count);
                // By slot: the upload that is in it.
                let mut held = vec![None; count];
                for batch in 0..=end {
                    slots.admit(batch, |_| None)?;
                    for need in &needs {
                        let is_live = (need.first..=need.last).contains(&batch);
                        // A block that may be needed need not come.
                        if is_live && choose.below(3) > 0 {
                            slots.arrived((0, need.block), &rows);
                        }
                        assert!(!is_live || slots.held.contains_key(&(0, need.block)));
                    }
                    for upload in uploads.try_iter() {
                        let before = held[upload.slot as usize].replace(batch);
                        assert_eq!(before, None, "a slot is used again when it was left");
                    }
                    slots.planned(batch);
                    for leave in leaves.try_iter() {
                        assert_eq!(leave.batch, batch);
                        assert!(held[leave.slot as usize].take().is_some());
                    }
                }
                assert!(held.iter().all(Option::is_none), "every slot is left");
                Ok::<(), Error>(())
            };
            run(peak).unwrap();
            run(peak + 3).unwrap();
            let error = run(peak - 1).unwrap_err().to_string();
            assert!(error.contains("`device.window_bytes`"), "{error}");
        }
    }

    #[tokio::test]
    async fn blocks_that_are_there_before_their_slot_are_sent_when_they_get_one() {
        let rows = block().await;
        let need = |block, first, last| Need {
            source: 0,
            block,
            first,
            last,
        };
        let needs = [need(1, 0, 1), need(2, 0, 0), need(3, 1, 2), need(1, 3, 3)];
        let (mut slots, uploads, leaves) = slots(needs.to_vec(), 2);
        let sent = || uploads.try_iter().map(|u| u.slot).collect::<Vec<_>>();
        let left = || {
            leaves
                .try_iter()
                .map(|l| (l.slot, l.upload))
                .collect::<Vec<_>>()
        };
        slots.admit(0, |_| None).unwrap();
        slots.arrived((0, 3), &rows);
        assert!(sent().is_empty(), "block 3 has no slot yet");
        slots.arrived((0, 2), &rows);
        slots.arrived((0, 1), &rows);
        slots.arrived((0, 1), &rows);
        assert_eq!(sent(), [1, 0]);
        slots.planned(0);
        assert_eq!(left(), [(1, 1)]);
        slots
            .admit(1, |block| (block == (0, 3)).then(|| Arc::clone(&rows)))
            .unwrap();
        assert_eq!(sent(), [1]);
        slots.planned(1);
        assert_eq!(left(), [(0, 2)]);
        // Block 1 again, for a need of its own.
        slots.admit(2, |_| Some(Arc::clone(&rows))).unwrap();
        assert_eq!(sent(), [0]);
        slots.planned(2);
        slots.admit(3, |_| None).unwrap();
        slots.planned(3);
        assert_eq!(left(), [(1, 3), (0, 4)]);
    }
}
