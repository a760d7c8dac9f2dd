//! The order of an epoch: a pure function of the split's geometry, the seed, the epoch and the step.
//!
//! Two levels, so that a batch mixes samples from many places while only a bounded window of blocks is in memory.
//! Version 1, with `G` the global batch, `D` domains, `W` blocks per window and `g = G / D`:
//!
//! ```text
//! deal     position p of 0..blocks holds block PRP(p); domain p % D gets it as its block p / D
//! window   a domain's blocks in runs of W; the first run of domain d is cut to ceil((d + 1) * W / D) blocks, so that
//!          domains change windows at different steps
//! shuffle  position i of a window with n samples holds its sample PRP(i), counted through its blocks in dealt order
//! step t   below T = min over domains of floor(samples / g): slots [d * g, (d + 1) * g) of the global batch hold
//!          positions [t * g, (t + 1) * g) of domain d
//! tail     positions from T * g of domain 0, then of domain 1, and so on, are permuted once more and fill the
//!          batches from T on, the last of which may be short
//! ```
//!
//! So every sample is in exactly one slot of one batch, and the world size appears nowhere. With blocks of equal rows
//! the tail is below `D` blocks and `G` samples.
//!
//! `D` is the largest number up to the configured domains that divides `G` and that the blocks suffice for. Windows
//! then grow by the same factor: how well a batch is mixed depends on the number of blocks in all windows together.
//!
//! Any change of this order is a new [`ORDER_VERSION`].

use std::{ops::Range, sync::Arc};

use crate::{
    batches::Batches,
    geometry::{BlockId, Geometry, Place},
    index::index,
    permutation::{Key, Permutation},
    window::Window,
};

/// Version of the order's definition, part of every loader state.
pub(crate) const ORDER_VERSION: u32 = 1;

/// What the order depends on besides the geometry and the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OrderSpec {
    /// Seed.
    pub(crate) seed: u64,
    /// Domains in use; divides `global_batch`.
    pub(crate) domains: u32,
    /// Blocks per window of a domain.
    pub(crate) window_blocks: u32,
    /// Samples of a global batch.
    pub(crate) global_batch: u32,
}

impl OrderSpec {
    /// Fits the wanted domains and window to a split of `blocks` blocks.
    pub(crate) fn fit(
        seed: u64,
        domains: u32,
        window_blocks: u32,
        global_batch: u32,
        blocks: u32,
    ) -> Self {
        let most = domains.min(global_batch).min(blocks);
        let fitted = (1..=most)
            .rev()
            .find(|d| global_batch.is_multiple_of(*d))
            .unwrap_or(1);
        let window = (u64::from(domains) * u64::from(window_blocks)).div_ceil(u64::from(fitted));
        let window_blocks = u32::try_from(window).unwrap_or(u32::MAX);
        Self {
            seed,
            domains: fitted,
            window_blocks,
            global_batch,
        }
    }

    /// Samples a domain gives to a full batch.
    fn domain_rows(self) -> u64 {
        u64::from(self.global_batch / self.domains)
    }
}

/// The order of one epoch. Holds 12 bytes per block.
#[derive(Debug)]
pub(crate) struct EpochOrder {
    spec: OrderSpec,
    epoch: u64,
    batches: Batches,
    domains: Vec<Domain>,
    /// Steps in which every domain gives its full share.
    lockstep: u64,
    tail: Tail,
}

/// What is left of the domains after the lockstep.
#[derive(Debug)]
struct Tail {
    permutation: Permutation,
    /// Windows that reach into the tail, with the tail position of their first such sample.
    windows: Vec<(u64, u64, Window)>,
}

/// The blocks dealt to one domain.
#[derive(Debug, Default)]
struct Domain {
    blocks: Vec<BlockId>,
    /// Samples before each block, and the total at the end.
    samples_before: Vec<u64>,
    /// Blocks in the first window.
    first_window: usize,
}

/// One window of a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WindowSpan {
    /// Its blocks, as positions among the domain's blocks.
    pub(crate) blocks: Range<usize>,
    /// Its samples, as positions among the domain's samples.
    pub(crate) samples: Range<u64>,
}

impl EpochOrder {
    /// Deals the blocks of an epoch; takes time and memory proportional to their number.
    pub(crate) fn new(geometry: &Geometry, spec: OrderSpec, epoch: u64) -> Self {
        let mut domains = deal(geometry, spec, epoch);
        for (domain, number) in domains.iter_mut().zip(1..) {
            let cut = (number * u64::from(spec.window_blocks)).div_ceil(u64::from(spec.domains));
            domain.first_window = index(cut).min(domain.blocks.len());
        }
        let lockstep = domains
            .iter()
            .map(|d| d.samples() / spec.domain_rows())
            .min()
            .unwrap_or(0);
        let mut order = Self {
            spec,
            epoch,
            batches: Batches::new(geometry.samples(), spec.global_batch),
            domains,
            lockstep,
            tail: Tail {
                permutation: Permutation::new(0, Key::derive(0, "", &[])),
                windows: Vec::new(),
            },
        };
        order.tail = order.make_tail();
        order
    }

    /// The batches of the epoch.
    pub(crate) fn batches(&self) -> Batches {
        self.batches
    }

    /// Steps in which every domain gives its full share; batches from there on are the tail.
    pub(crate) fn lockstep(&self) -> u64 {
        self.lockstep
    }

    /// The slots of a full batch that belong to each domain which has some of `slots`.
    pub(crate) fn domains_of(&self, slots: &Range<u64>) -> Range<usize> {
        if slots.is_empty() {
            return 0..0;
        }
        let rows = self.spec.domain_rows();
        index(slots.start / rows)..index((slots.end - 1) / rows) + 1
    }

    /// Samples that a domain gives to a full batch.
    pub(crate) fn domain_rows(&self) -> u64 {
        self.spec.domain_rows()
    }

    /// Block at a position of a domain.
    pub(crate) fn block(&self, domain: usize, position: usize) -> BlockId {
        self.domains[domain].blocks[position]
    }

    /// The window of a domain that holds its sample at `position`, or none at the domain's end.
    pub(crate) fn window_at(&self, domain: usize, position: u64) -> Option<WindowSpan> {
        self.domains[domain].window_at(position, self.spec.window_blocks as usize)
    }

    /// Where the sample at a position of the tail lies.
    pub(crate) fn tail_place(&self, position: u64) -> Place {
        let position = self.tail.permutation.forward(position);
        let window = self
            .tail
            .windows
            .partition_point(|(start, ..)| *start <= position)
            - 1;
        let (start, skip, window) = &self.tail.windows[window];
        window.place(position - start + skip)
    }

    fn window(&self, domain: usize, span: &WindowSpan) -> Window {
        let number = self.domains[domain].window_number(span, self.spec.window_blocks as usize);
        let key = Key::derive(
            self.spec.seed,
            "window",
            &[self.epoch, domain as u64, number as u64],
        );
        let Domain {
            blocks,
            samples_before,
            ..
        } = &self.domains[domain];
        Window::new(
            &blocks[span.blocks.clone()],
            &samples_before[span.blocks.start..=span.blocks.end],
            key,
        )
    }

    fn make_tail(&self) -> Tail {
        let begin = self.lockstep * self.spec.domain_rows();
        let mut windows = Vec::new();
        let mut samples = 0;
        for domain in 0..self.domains.len() {
            let mut position = begin;
            while let Some(span) = self.window_at(domain, position) {
                windows.push((
                    samples,
                    position - span.samples.start,
                    self.window(domain, &span),
                ));
                samples += span.samples.end - position;
                position = span.samples.end;
            }
        }
        let key = Key::derive(self.spec.seed, "tail", &[self.epoch]);
        Tail {
            permutation: Permutation::new(samples, key),
            windows,
        }
    }
}

fn deal(geometry: &Geometry, spec: OrderSpec, epoch: u64) -> Vec<Domain> {
    let count = geometry.block_count();
    let permutation = Permutation::new(count.into(), Key::derive(spec.seed, "deal", &[epoch]));
    let mut domains: Vec<_> = (0..spec.domains).map(|_| Domain::empty()).collect();
    for (position, domain) in (0..u64::from(count)).zip((0..domains.len()).cycle()) {
        let block = BlockId::try_from(permutation.forward(position))
            .expect("a permutation stays in its domain");
        domains[domain].push(block, geometry.rows(block));
    }
    domains
}

impl Domain {
    fn empty() -> Self {
        Self {
            samples_before: vec![0],
            ..Self::default()
        }
    }

    fn push(&mut self, block: BlockId, rows: u32) {
        self.blocks.push(block);
        self.samples_before.push(self.samples() + u64::from(rows));
    }

    fn samples(&self) -> u64 {
        self.samples_before.last().copied().unwrap_or(0)
    }

    fn window_at(&self, position: u64, window_blocks: usize) -> Option<WindowSpan> {
        if position >= self.samples() {
            return None;
        }
        let block = self
            .samples_before
            .partition_point(|before| *before <= position)
            - 1;
        let start = match block.checked_sub(self.first_window) {
            None => 0,
            Some(after) => self.first_window + after / window_blocks * window_blocks,
        };
        let length = if start == 0 {
            self.first_window
        } else {
            window_blocks
        };
        let blocks = start..start.saturating_add(length).min(self.blocks.len());
        Some(WindowSpan {
            samples: self.samples_before[blocks.start]..self.samples_before[blocks.end],
            blocks,
        })
    }

    fn window_number(&self, span: &WindowSpan, window_blocks: usize) -> usize {
        match span.blocks.start.checked_sub(self.first_window) {
            None => 0,
            Some(after) => 1 + after / window_blocks,
        }
    }
}

/// Walks an epoch's batches; keeps the window of each domain at hand, so it is cheapest when batches come in order.
#[derive(Debug)]
pub(crate) struct Walker {
    order: Arc<EpochOrder>,
    windows: Vec<Option<(Range<u64>, Window)>>,
}

impl Walker {
    /// A walker anywhere in `order`.
    pub(crate) fn new(order: Arc<EpochOrder>) -> Self {
        let windows = order.domains.iter().map(|_| None).collect();
        Self { order, windows }
    }

    /// Appends to `places` where the samples in `slots` of batch `batch` lie, in slot order.
    pub(crate) fn places(&mut self, batch: u64, slots: Range<u64>, places: &mut Vec<Place>) {
        if let Some(tail_batch) = batch.checked_sub(self.order.lockstep) {
            let first = tail_batch * self.order.batches.full();
            places.extend(slots.map(|slot| self.order.tail_place(first + slot)));
            return;
        }
        let rows = self.order.domain_rows();
        for domain in self.order.domains_of(&slots) {
            let first_slot = domain as u64 * rows;
            let offset = batch * rows;
            let from = slots.start.max(first_slot) - first_slot + offset;
            let to = slots.end.min(first_slot + rows) - first_slot + offset;
            self.domain_places(domain, from..to, places);
        }
    }

    fn domain_places(&mut self, domain: usize, mut positions: Range<u64>, places: &mut Vec<Place>) {
        while !positions.is_empty() {
            let held = &mut self.windows[domain];
            if !held
                .as_ref()
                .is_some_and(|(span, _)| span.contains(&positions.start))
            {
                let span = self
                    .order
                    .window_at(domain, positions.start)
                    .expect("lockstep ends before any domain does");
                *held = Some((span.samples.clone(), self.order.window(domain, &span)));
            }
            let Some((span, window)) = held else {
                unreachable!("it was set above")
            };
            let end = positions.end.min(span.end);
            places
                .extend((positions.start..end).map(|position| window.place(position - span.start)));
            positions.start = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use feedline_schemas::ids::Rank;
    use proptest::prelude::*;

    use super::*;
    use crate::{batches::Share, geometry::tests::geometry_of};

    fn spec(
        seed: u64,
        domains: u32,
        window_blocks: u32,
        global_batch: u32,
        geometry: &Geometry,
    ) -> OrderSpec {
        OrderSpec::fit(
            seed,
            domains,
            window_blocks,
            global_batch,
            geometry.block_count(),
        )
    }

    /// The epoch's samples, batch by batch, joined over `worlds[batch]` ranks each.
    fn sequence(
        geometry: &Geometry,
        spec: OrderSpec,
        epoch: u64,
        world_of: impl Fn(u64) -> u32,
    ) -> Vec<Vec<u64>> {
        let order = Arc::new(EpochOrder::new(geometry, spec, epoch));
        let mut walkers = BTreeMap::new();
        (0..order.batches().count())
            .map(|batch| {
                let world = world_of(batch);
                let mut places = Vec::new();
                for rank in 0..world {
                    let walker = walkers
                        .entry((world, rank))
                        .or_insert_with(|| Walker::new(Arc::clone(&order)));
                    let slots =
                        Share::new(Rank::new(rank), world).slots(order.batches().rows(batch));
                    walker.places(batch, slots, &mut places);
                }
                places
                    .iter()
                    .map(|p| geometry.first_sample(p.block) + u64::from(p.row))
                    .collect()
            })
            .collect()
    }

    fn assert_covers(samples: u64, sequence: &[Vec<u64>], global_batch: u32) {
        let (last, full) = sequence.split_last().unwrap();
        assert!(
            full.iter()
                .all(|batch| batch.len() == global_batch as usize)
        );
        assert!((1..=global_batch as usize).contains(&last.len()));
        let mut all = sequence.concat();
        all.sort_unstable();
        assert!(
            all.into_iter().eq(0..samples),
            "a sample is missing or repeated"
        );
    }

    #[test]
    fn any_world_size_sees_the_same_epoch_once() {
        let geometry = geometry_of(&[&[40; 11], &[40; 6], &[], &[40, 40, 13]]);
        for global_batch in [8, 96, 256, 1000] {
            let spec = spec(7, 64, 3, global_batch, &geometry);
            let alone = sequence(&geometry, spec, 2, |_| 1);
            assert_covers(geometry.samples(), &alone, global_batch);
            for world in 2..=48 {
                assert_eq!(
                    sequence(&geometry, spec, 2, |_| world),
                    alone,
                    "batch {global_batch}, world {world}"
                );
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn uneven_blocks_domains_windows_and_changing_worlds_give_one_sequence(
            shards in prop::collection::vec(prop::collection::vec(0u32..60, 0..12), 1..6),
            seed: u64, epoch in 0u64..5, domains in 1u32..80, window in 1u32..20, global_batch in 1u32..300,
            worlds in prop::collection::vec(1u32..14, 1..6),
        ) {
            let shards: Vec<_> = shards.iter().map(Vec::as_slice).collect();
            let geometry = geometry_of(&shards);
            prop_assume!(geometry.samples() > 0);
            let spec = spec(seed, domains, window, global_batch, &geometry);
            let alone = sequence(&geometry, spec, epoch, |_| 1);
            assert_covers(geometry.samples(), &alone, global_batch);
            prop_assert_eq!(sequence(&geometry, spec, epoch, |b| worlds[index(b) % worlds.len()]), alone);
        }
    }

    #[test]
    fn domains_shrink_to_divide_the_batch_and_the_window_keeps_its_blocks() {
        let fit = |domains, window, batch, blocks| {
            let spec = OrderSpec::fit(0, domains, window, batch, blocks);
            (spec.domains, spec.window_blocks)
        };
        assert_eq!(fit(64, 8, 256, 1000), (64, 8));
        assert_eq!(fit(64, 8, 1000, 1000), (50, 11));
        assert_eq!(fit(64, 8, 256, 5), (4, 128));
        assert_eq!(fit(64, 8, 97, 1000), (1, 512));
        assert_eq!(fit(64, 8, 1, 1), (1, 512));
        assert_eq!(fit(64, u32::MAX, 97, 1000), (1, u32::MAX));
    }

    #[test]
    fn seeds_and_epochs_give_other_orders_of_the_same_samples() {
        let geometry = geometry_of(&[&[50; 20]]);
        let run = |seed, epoch| sequence(&geometry, spec(seed, 4, 2, 32, &geometry), epoch, |_| 1);
        let one = run(1, 0);
        assert_eq!(one, run(1, 0));
        assert_ne!(one, run(1, 1));
        assert_ne!(one, run(2, 0));
    }

    #[test]
    fn the_tail_is_below_one_block_per_domain_and_one_batch() {
        for blocks in [4, 5, 7, 64, 99, 130] {
            let rows = vec![50; blocks];
            let geometry = geometry_of(&[&rows]);
            let spec = spec(3, 4, 2, 32, &geometry);
            let order = EpochOrder::new(&geometry, spec, 0);
            let tail = geometry.samples() - order.lockstep() * 32;
            assert!(tail < 4 * 50 + 32, "{blocks} blocks leave {tail}");
        }
    }

    /// The order is a contract with every saved state: when this fails, raise `ORDER_VERSION`.
    #[test]
    fn order_version_1_is_what_it_was() {
        let geometry = geometry_of(&[&[9, 9, 9, 9, 9], &[9, 9, 4]]);
        let order = sequence(&geometry, spec(42, 4, 2, 8, &geometry), 1, |_| 1);
        let bytes: Vec<u8> = order
            .concat()
            .iter()
            .flat_map(|s| s.to_le_bytes())
            .collect();
        assert_eq!(ORDER_VERSION, 1);
        assert_eq!(order[0], [58, 56, 65, 64, 25, 21, 35, 27]);
        assert_eq!(
            xxhash_rust::xxh3::xxh3_64(&bytes),
            11_994_794_594_296_339_674
        );
    }

    /// The worst case: each class fills whole blocks, so nothing but the order mixes them.
    #[test]
    fn a_class_sorted_set_is_mixed_almost_as_well_as_by_a_global_permutation() {
        const CLASSES: u64 = 200;
        const BATCH: u32 = 128;
        let rows = vec![64; 1000];
        let geometry = geometry_of(&[&rows]);
        let spec = spec(5, 32, 16, BATCH, &geometry);
        let order = sequence(&geometry, spec, 0, |_| 1);
        let classes = |batch: &Vec<u64>| -> Vec<u64> {
            batch
                .iter()
                .map(|sample| sample * CLASSES / geometry.samples())
                .collect()
        };
        let batches = order.len() as f64;
        let distinct = |batch| classes(batch).into_iter().collect::<BTreeSet<_>>().len() as f64;
        let distinct = order.iter().map(distinct).sum::<f64>() / batches;
        let mean = |batch| classes(batch).iter().sum::<u64>() as f64 / f64::from(BATCH);
        let middle = (CLASSES - 1) as f64 / 2.0;
        let variance = order
            .iter()
            .map(|batch| (mean(batch) - middle).powi(2))
            .sum::<f64>()
            / batches;
        let independent = (CLASSES * CLASSES - 1) as f64 / 12.0 / f64::from(BATCH);
        // A global permutation has 200 * (1 - (1 - 1/200)^128) = 94.7 classes in a batch and a spread of 1; samples
        // in shard order have 2 classes and a spread of 11.
        assert!(distinct >= 88.0, "{distinct} classes in a batch");
        let spread = (variance / independent).sqrt();
        assert!(
            spread <= 1.15,
            "means of batches spread {spread} times as far as independent draws"
        );
    }

    #[test]
    fn domains_change_windows_at_different_steps() {
        let geometry = geometry_of(&[&[16; 64]]);
        let order = EpochOrder::new(&geometry, spec(1, 4, 4, 16, &geometry), 0);
        let ends: Vec<_> = (0..4)
            .map(|d| order.window_at(d, 0).unwrap().samples.end)
            .collect();
        assert_eq!(ends, [16, 32, 48, 64]);
        assert_eq!(
            order.window_at(0, 16).unwrap(),
            WindowSpan {
                blocks: 1..5,
                samples: 16..80
            }
        );
        assert_eq!(order.window_at(0, 16 * 16 - 1).unwrap().blocks, 13..16);
        assert_eq!(order.window_at(0, 16 * 16), None);
    }
}
