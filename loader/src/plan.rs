//! Which blocks a rank needs, from when and until when, in the order of their first need.
//!
//! Blocks of a window are needed from the step that first touches the window to the step that last does: its samples
//! are shuffled, so nearly all of its blocks are in use in between. The few blocks that the tail needs are found by
//! walking the tail; one that a last window needs too is kept for both, so that a rank reads no block twice.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
    sync::Arc,
};

use crate::{
    batches::{Batches, Share},
    geometry::{BlockId, Geometry},
    order::EpochOrder,
};

/// A block and the batches that need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// Block.
    pub(crate) block: BlockId,
    /// First batch that may need it.
    pub(crate) first: u64,
    /// Last batch that may need it.
    pub(crate) last: u64,
}

/// The needs of one share in an epoch, in order of `first`. No block comes twice.
#[derive(Debug)]
pub(crate) struct EpochPlan {
    order: Arc<EpochOrder>,
    start: u64,
    share: Share,
    /// Next window of each domain: first batch, domain, position of a sample in it.
    windows: BinaryHeap<Reverse<(u64, usize, u64)>>,
    /// Batches of the tail that need a block not handed out yet; walked when the first window reaches the tail.
    tail: Option<BTreeMap<BlockId, (u64, u64)>>,
    ready: VecDeque<Need>,
}

impl EpochPlan {
    /// The needs from batch `start` on.
    pub(crate) fn new(order: Arc<EpochOrder>, start: u64, share: Share) -> Self {
        let mut windows = BinaryHeap::new();
        if start < order.lockstep() {
            let slots = share.slots(order.batches().full());
            windows.extend(
                order
                    .domains_of(&slots)
                    .map(|d| Reverse((start, d, start * order.domain_rows()))),
            );
        }
        Self {
            order,
            start,
            share,
            windows,
            tail: None,
            ready: VecDeque::new(),
        }
    }

    fn open_window(&mut self, first: u64, domain: usize, position: u64) {
        let order = Arc::clone(&self.order);
        let rows = order.domain_rows();
        let lockstep_end = order.lockstep() * rows;
        let Some(window) = order.window_at(domain, position) else {
            return;
        };
        let last = (window.samples.end.min(lockstep_end) - 1) / rows;
        for position in window.blocks {
            let block = order.block(domain, position);
            let in_tail = if window.samples.end >= lockstep_end {
                self.tail().remove(&block).map(|(_, last)| last)
            } else {
                None
            };
            self.ready.push_back(Need {
                block,
                first,
                last: in_tail.unwrap_or(last),
            });
        }
        if window.samples.end < lockstep_end {
            self.windows.push(Reverse((
                window.samples.end / rows,
                domain,
                window.samples.end,
            )));
        }
    }

    fn open_tail(&mut self) {
        let mut needs: Vec<_> = std::mem::take(self.tail())
            .into_iter()
            .map(|(block, (first, last))| Need { block, first, last })
            .collect();
        needs.sort_by_key(|need| need.first);
        self.ready.extend(needs);
    }

    fn tail(&mut self) -> &mut BTreeMap<BlockId, (u64, u64)> {
        let (order, start, share) = (&self.order, self.start, self.share);
        self.tail
            .get_or_insert_with(|| tail_needs(order, start, share))
    }
}

impl Iterator for EpochPlan {
    type Item = Need;

    fn next(&mut self) -> Option<Need> {
        while self.ready.is_empty() {
            match self.windows.pop() {
                Some(Reverse((first, domain, position))) => {
                    self.open_window(first, domain, position)
                }
                None => {
                    self.open_tail();
                    return self.ready.pop_front();
                }
            }
        }
        self.ready.pop_front()
    }
}

fn tail_needs(order: &EpochOrder, start: u64, share: Share) -> BTreeMap<BlockId, (u64, u64)> {
    let mut needs = BTreeMap::new();
    let batches = order.batches();
    for batch in start.max(order.lockstep())..batches.count() {
        let first = (batch - order.lockstep()) * batches.full();
        for slot in share.slots(batches.rows(batch)) {
            let place = order.tail_place(first + slot);
            needs.entry(place.block).or_insert((batch, batch)).1 = batch;
        }
    }
    needs
}

/// The needs of one share in a pass in shard order.
pub(crate) fn sequential_plan(
    geometry: Arc<Geometry>,
    batches: Batches,
    start: u64,
    share: Share,
) -> impl Iterator<Item = Need> + Send {
    let first_sample = start * batches.full();
    let blocks = if first_sample < geometry.samples() {
        geometry.block_of(first_sample)..geometry.block_count()
    } else {
        0..0
    };
    blocks.filter_map(move |block| {
        let begin = geometry.first_sample(block).max(first_sample);
        let end = geometry.first_sample(block) + u64::from(geometry.rows(block));
        let (first, last) = (begin / batches.full(), (end - 1) / batches.full());
        let ours = |batch: u64| {
            let slots = share.slots(batches.rows(batch));
            let before = batch * batches.full();
            before + slots.start < end && begin < before + slots.end && !slots.is_empty()
        };
        // A block that spans more than two batches holds one of them whole, and so everybody's share of it.
        let needed = last > first + 1 || ours(first) || ours(last);
        needed.then_some(Need { block, first, last })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use feedline_schemas::ids::Rank;
    use proptest::prelude::*;

    use super::*;
    use crate::{geometry::tests::geometry_of, order::OrderSpec, pass::Pass};

    /// Checks a plan against the places themselves.
    fn check(pass: &Pass, start: u64, share: Share) -> Vec<Need> {
        let plan: Vec<_> = pass.plan(start, share).collect();
        assert!(
            plan.is_sorted_by_key(|need| need.first),
            "needs are out of order"
        );
        let mut planned = BTreeMap::new();
        for need in &plan {
            assert!(
                planned.insert(need.block, need).is_none(),
                "block {} is read twice",
                need.block
            );
            assert!(need.first >= start && need.first <= need.last);
        }
        let mut places = pass.places();
        for batch in start..pass.batches().count() {
            let mut found = Vec::new();
            places.append(batch, share.slots(pass.batches().rows(batch)), &mut found);
            for place in found {
                let need = planned.get(&place.block).expect("every place is planned");
                assert!(
                    (need.first..=need.last).contains(&batch),
                    "{need:?} in batch {batch}"
                );
            }
        }
        plan
    }

    fn epoch(geometry: &Geometry, domains: u32, window: u32, global_batch: u32) -> Pass {
        let spec = OrderSpec::fit(9, domains, window, global_batch, geometry.block_count());
        Pass::Epoch(Arc::new(EpochOrder::new(geometry, spec, 3)))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn every_sample_is_planned_for_its_batch(
            rows in prop::collection::vec(0u32..40, 1..40),
            domains in 1u32..20, window in 1u32..6, global_batch in 1u32..200,
            world in 1u32..9, rank in 0u32..9, start in 0u64..20,
        ) {
            let geometry = Arc::new(geometry_of(&[&rows]));
            prop_assume!(geometry.samples() > 0);
            let share = Share::new(Rank::new(rank % world), world);
            check(&epoch(&geometry, domains, window, global_batch), start, share);
            let batches = Batches::new(geometry.samples(), global_batch);
            check(&Pass::Sequential { geometry, batches }, start, share);
        }
    }

    #[test]
    fn ranks_that_divide_the_domains_read_each_block_of_the_lockstep_once() {
        let geometry = geometry_of(&[&[20; 64]]);
        let pass = epoch(&geometry, 8, 2, 16);
        for world in [1, 2, 4, 8] {
            let plans: Vec<_> = (0..world)
                .flat_map(|r| check(&pass, 0, Share::new(Rank::new(r), world)))
                .map(|n| n.block)
                .collect();
            assert_eq!(plans.len(), 64, "world {world}");
            assert_eq!(plans.iter().collect::<BTreeSet<_>>().len(), 64);
        }
    }

    #[test]
    fn a_resumed_plan_skips_what_is_over() {
        let geometry = geometry_of(&[&[20; 64]]);
        let pass = epoch(&geometry, 8, 2, 16);
        let share = Share::new(Rank::new(0), 1);
        let rest = check(&pass, 70, share);
        assert!(
            rest.len() < 20,
            "{} blocks for the last 10 of 80 batches",
            rest.len()
        );
        assert_eq!(check(&pass, 80, share), []);
    }
}
