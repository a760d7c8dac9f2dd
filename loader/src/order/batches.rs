//! Division of the samples of a pass into global batches, and of these into the shares of ranks.

use std::ops::Range;

use feedline_schemas::{ids::Rank, loader_state::LastBatch};

/// The global batches of one pass: all full but perhaps the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Batches {
    samples: u64,
    global_batch: u64,
    last: LastBatch,
}

/// Part of every global batch that is ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RankShare {
    rank: u64,
    world_size: u64,
    in_pairs: bool,
}

impl RankShare {
    /// The share of `rank`, which must be below `world_size`.
    pub(crate) fn new(rank: Rank, world_size: u32) -> Self {
        debug_assert!(rank.get() < world_size, "rank {rank} of {world_size}");
        Self {
            rank: rank.get().into(),
            world_size: world_size.into(),
            in_pairs: false,
        }
    }

    /// The same share, whose slots are needed in pairs.
    pub(crate) const fn in_pairs(self) -> Self {
        Self {
            in_pairs: true,
            ..self
        }
    }

    /// The slots of a global batch of `slots` that are ours: `floor(rank * slots / world_size)` up to that of the next
    /// rank. The shares of all ranks are contiguous, cover the batch, and differ by at most one slot.
    pub(crate) fn slots(self, slots: u64) -> Range<u64> {
        self.rank * slots / self.world_size..(self.rank + 1) * slots / self.world_size
    }

    /// The slots of a global batch of `slots` that are read: ours, and with pairs of slots `2i` and `2i + 1` the other
    /// ones of those that the share cuts in two.
    pub(crate) fn reads(self, slots: u64) -> Range<u64> {
        let ours = self.slots(slots);
        if !self.in_pairs || ours.is_empty() {
            return ours;
        }
        ours.start & !1..ours.end.next_multiple_of(2).min(slots)
    }

    /// The most slots that are read when no global batch has more than `slots`.
    pub(crate) fn most_reads(self, slots: u64) -> u64 {
        let beside = if self.in_pairs { 2 } else { 0 };
        (self.most_rows(slots) + beside).min(slots)
    }

    /// The most slots of a share when no global batch has more than `slots`.
    pub(crate) fn most_rows(self, slots: u64) -> u64 {
        slots.div_ceil(self.world_size)
    }
}

impl Batches {
    /// Cuts `samples` into batches of `global_batch`, which is at least 1.
    pub(crate) const fn new(samples: u64, global_batch: u32, last: LastBatch) -> Self {
        Self {
            samples,
            global_batch: global_batch as u64,
            last,
        }
    }

    /// Number of batches.
    pub(crate) const fn count(self) -> u64 {
        match self.last {
            LastBatch::Drop => self.samples / self.global_batch,
            LastBatch::Keep | LastBatch::Pad => self.samples.div_ceil(self.global_batch),
        }
    }

    /// Samples of a full batch.
    pub(crate) const fn full(self) -> u64 {
        self.global_batch
    }

    /// Samples of the whole pass.
    pub(crate) const fn samples(self) -> u64 {
        self.samples
    }

    /// Samples of batch `batch`.
    pub(crate) fn rows(self, batch: u64) -> u64 {
        self.samples
            .saturating_sub(batch * self.global_batch)
            .min(self.global_batch)
    }

    /// Slots of batch `batch`: its samples, and the padding after them.
    pub(crate) fn slots(self, batch: u64) -> u64 {
        match self.rows(batch) {
            0 => 0,
            _ if self.last == LastBatch::Pad => self.global_batch,
            rows => rows,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_every_batch_without_overlap() {
        for world_size in 1..=48 {
            for rows in [0, 1, 7, 8, 96, 256, 1000] {
                let mut next = 0;
                for rank in 0..world_size {
                    let share = RankShare::new(Rank::new(rank), world_size);
                    let slots = share.slots(rows);
                    assert_eq!(slots.start, next);
                    assert!(slots.end - slots.start <= share.most_rows(rows));
                    next = slots.end;
                }
                assert_eq!(next, rows);
            }
        }
    }

    #[test]
    fn pairs_are_read_whole() {
        let reads = |rank, world_size, slots| {
            let share = RankShare::new(Rank::new(rank), world_size);
            assert_eq!(share.reads(slots), share.slots(slots));
            share.in_pairs().reads(slots)
        };
        assert_eq!(
            [0, 1, 2].map(|rank| reads(rank, 3, 15)),
            [0..6, 4..10, 10..15]
        );
        assert_eq!([0, 1, 2].map(|rank| reads(rank, 3, 2)), [0..0, 0..2, 0..2]);
        for world_size in 1..=48 {
            for slots in [1, 2, 7, 96, 255, 256, 1000] {
                for rank in 0..world_size {
                    let share = RankShare::new(Rank::new(rank), world_size).in_pairs();
                    let (own, read) = (share.slots(slots), share.reads(slots));
                    assert!(read.end - read.start <= share.most_reads(slots));
                    for slot in own {
                        assert!(read.contains(&slot));
                        assert!((slot ^ 1) >= slots || read.contains(&(slot ^ 1)));
                    }
                }
            }
        }
    }

    #[test]
    fn only_the_last_batch_is_short() {
        let check = |samples, last, rows: [u64; 4], slots: [u64; 4], count| {
            let batches = Batches::new(samples, 8, last);
            assert_eq!([0, 1, 2, 3].map(|batch| batches.rows(batch)), rows);
            assert_eq!([0, 1, 2, 3].map(|batch| batches.slots(batch)), slots);
            assert_eq!(batches.count(), count, "{last:?}");
        };
        check(20, LastBatch::Keep, [8, 8, 4, 0], [8, 8, 4, 0], 3);
        check(20, LastBatch::Pad, [8, 8, 4, 0], [8, 8, 8, 0], 3);
        check(20, LastBatch::Drop, [8, 8, 4, 0], [8, 8, 4, 0], 2);
        for last in [LastBatch::Keep, LastBatch::Pad, LastBatch::Drop] {
            check(16, last, [8, 8, 0, 0], [8, 8, 0, 0], 2);
        }
    }
}
