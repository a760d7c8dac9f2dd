//! The blocks in memory, and until when they are needed.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use crate::{Error, block::BlockRows, budget::Budget, fetcher::Arrival, geometry::BlockId};

const ABSENT: u32 = u32::MAX;

/// Blocks in memory. Looking one up is two array accesses, for it happens for every sample; that costs four bytes for
/// each block of the split.
#[derive(Debug)]
pub(crate) struct Resident {
    seats: Vec<u32>,
    rows: Vec<BlockRows>,
    vacant: Vec<u32>,
    failures: BTreeMap<BlockId, Error>,
    /// Last batch, block and bytes of every block here.
    leaving: BinaryHeap<Reverse<(u64, BlockId, u64)>>,
}

impl Resident {
    /// No blocks of a split that has `blocks`.
    pub(crate) fn new(blocks: u32) -> Self {
        Self {
            seats: vec![ABSENT; blocks as usize],
            rows: Vec::new(),
            vacant: Vec::new(),
            failures: BTreeMap::new(),
            leaving: BinaryHeap::new(),
        }
    }

    /// Where the block sits among [`Resident::rows`], if it is here.
    pub(crate) fn seat(&self, block: BlockId) -> Option<u32> {
        Some(self.seats[block as usize]).filter(|seat| *seat != ABSENT)
    }

    /// Why the block will not come, if that is known.
    pub(crate) fn take_failure(&mut self, block: BlockId) -> Option<Error> {
        self.failures.remove(&block)
    }

    /// The blocks by seat; vacant seats have no rows.
    pub(crate) fn rows(&self) -> &[BlockRows] {
        &self.rows
    }

    /// Takes a block in, or notes that it will not come.
    pub(crate) fn insert(&mut self, arrival: Arrival, budget: &Budget) {
        let Arrival { need, bytes, rows } = arrival;
        match rows {
            Ok(rows) => {
                self.seats[need.block as usize] = self.sit(rows);
                self.leaving.push(Reverse((need.last, need.block, bytes)));
            }
            Err(error) => {
                self.failures.insert(need.block, error);
                budget.give(bytes);
            }
        }
    }

    fn sit(&mut self, rows: BlockRows) -> u32 {
        if let Some(seat) = self.vacant.pop() {
            self.rows[seat as usize] = rows;
            return seat;
        }
        self.rows.push(rows);
        u32::try_from(self.rows.len() - 1).expect("there are fewer blocks in memory than block ids")
    }

    /// Lets go of the blocks that no batch after `batch` needs.
    pub(crate) fn release(&mut self, batch: u64, budget: &Budget) {
        while let Some(Reverse((_, block, bytes))) = self
            .leaving
            .peek()
            .copied()
            .filter(|Reverse(l)| l.0 <= batch)
        {
            self.leaving.pop();
            let seat = std::mem::replace(&mut self.seats[block as usize], ABSENT);
            self.rows[seat as usize] = BlockRows::empty();
            self.vacant.push(seat);
            budget.give(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Need;

    fn arrival(block: BlockId, last: u64) -> Arrival {
        Arrival {
            need: Need {
                source: 0,
                block,
                first: 0,
                last,
            },
            bytes: 10,
            rows: Ok(BlockRows::empty()),
        }
    }

    #[test]
    fn a_block_leaves_after_the_last_batch_that_needs_it() {
        let budget = Budget::new(30, 0);
        let mut resident = Resident::new(5);
        for (block, last) in [(4, 7), (0, 3), (2, 5)] {
            assert!(budget.try_take(9, 10).is_some());
            resident.insert(arrival(block, last), &budget);
        }
        let here = |resident: &Resident| -> Vec<_> {
            (0..5u32)
                .filter(|block| resident.seat(*block).is_some())
                .collect()
        };
        assert_eq!(here(&resident), [0, 2, 4]);
        assert_eq!(budget.try_take(9, 10), None);
        resident.release(2, &budget);
        assert_eq!(here(&resident), [0, 2, 4]);
        resident.release(3, &budget);
        assert_eq!(here(&resident), [2, 4]);
        assert_eq!(budget.try_take(9, 10), Some(30));
        resident.insert(arrival(1, 6), &budget);
        assert_eq!(resident.rows().len(), 3, "seats are used again");
        resident.release(7, &budget);
        assert_eq!(here(&resident), Vec::<BlockId>::new());
    }

    #[test]
    fn a_block_that_failed_gives_its_bytes_back_and_its_error_once() {
        let budget = Budget::new(10, 0);
        let mut resident = Resident::new(2);
        assert!(budget.try_take(9, 10).is_some());
        let error = Error::BatchesHeld { slabs: 3 };
        let failed = Arrival {
            rows: Err(error),
            ..arrival(1, 4)
        };
        resident.insert(failed, &budget);
        assert_eq!(resident.seat(1), None);
        assert!(resident.take_failure(1).is_some());
        assert!(resident.take_failure(1).is_none());
        assert_eq!(budget.try_take(9, 10), Some(10));
    }
}
