//! Looking up what the slots of a batch hold.

use std::{ops::Range, sync::Arc};

use super::{PassOrder, window::ShuffleWindow};
use crate::index::index;

/// Some neighbouring slots of a batch that neighbouring positions of one window fill.
#[derive(Clone, Debug)]
pub(crate) struct SlotRun {
    /// The window.
    pub(crate) window: Arc<ShuffleWindow>,
    /// Positions in it.
    pub(crate) positions: Range<u64>,
    /// The slot of the first, counted from the first slot that was asked for.
    pub(crate) slot: u32,
}

/// Walks the batches of a pass. Keeps the window of each domain at hand, so it is cheapest when batches come in order;
/// any order gives the same.
#[derive(Debug)]
pub(crate) struct Cursor {
    order: PassOrder,
    layout: Option<SlotLayout>,
    /// The window that was last used in each lane.
    held: Vec<Option<HeldWindow>>,
}

/// Assignment of the slots of a batch to lanes.
#[derive(Debug)]
struct SlotLayout {
    batch: u64,
    /// The samples of each source, counted through its epochs.
    samples: Vec<Range<u64>>,
    /// First slot of each lane, and the number of slots.
    slots: Vec<u64>,
}

#[derive(Debug)]
struct HeldWindow {
    epoch: u64,
    positions: Range<u64>,
    window: Arc<ShuffleWindow>,
}

impl Cursor {
    pub(crate) fn new(order: PassOrder) -> Self {
        let held = order.lanes().iter().map(|_| None).collect();
        Self {
            order,
            layout: None,
            held,
        }
    }

    /// Appends to `runs` what `slots` of `batch` hold, in slot order and without gaps. Slots from
    /// [`PassOrder::rows`] on repeat the batch from its first slot.
    pub(crate) fn runs(&mut self, batch: u64, slots: Range<u64>, runs: &mut Vec<SlotRun>) {
        self.lay_out(batch);
        let rows = self.order.rows(batch);
        let (asked, mut slot) = (slots.start, slots.start);
        while slot < slots.end && rows > 0 {
            let from = slot % rows;
            let to = (from + slots.end - slot).min(rows);
            self.lanes(from..to, slot - asked, runs);
            slot += to - from;
        }
    }

    fn lay_out(&mut self, batch: u64) {
        if self.layout.as_ref().is_some_and(|held| held.batch == batch) {
            return;
        }
        let samples = self.order.samples(batch);
        let mut slots = Vec::with_capacity(self.held.len() + 1);
        let mut slot = 0;
        slots.push(slot);
        let cuts: Vec<_> = (0..)
            .zip(&samples)
            .map(|(source, samples)| {
                let domains = self.order.source(source).domains();
                (
                    domains,
                    domains.cut(samples.start),
                    domains.cut(samples.end),
                )
            })
            .collect();
        for lane in self.order.lanes() {
            let (domains, start, end) = cuts[lane.source as usize];
            slot += domains.before_cut(lane.domain, end) - domains.before_cut(lane.domain, start);
            slots.push(slot);
        }
        self.layout = Some(SlotLayout {
            batch,
            samples,
            slots,
        });
    }

    /// Appends the runs of `slots`, all of which hold samples; the first of them is `slot` of the
    /// requested range.
    fn lanes(&mut self, mut slots: Range<u64>, mut slot: u64, runs: &mut Vec<SlotRun>) {
        let layout = self.layout.take().expect("the batch was laid out");
        let mut lane = layout.slots.partition_point(|first| *first <= slots.start) - 1;
        while !slots.is_empty() {
            let end = slots.end.min(layout.slots[lane + 1]);
            if slots.start < end {
                let skip = slots.start - layout.slots[lane];
                let samples = layout.samples[self.order.lanes()[lane].source as usize].clone();
                self.epochs(lane, samples, skip..skip + end - slots.start, slot, runs);
                slot += end - slots.start;
                slots.start = end;
            }
            lane += 1;
        }
        self.layout = Some(layout);
    }

    /// Appends a part of a lane's samples in a batch, which may reach over epochs of the source.
    fn epochs(
        &mut self,
        lane: usize,
        samples: Range<u64>,
        mut part: Range<u64>,
        mut slot: u64,
        runs: &mut Vec<SlotRun>,
    ) {
        let number = self.order.lanes()[lane];
        let order = self.order.clone();
        let source = order.source(number.source);
        let mut rest = samples.end - samples.start;
        let (mut epoch, mut from) = (
            samples.start / source.samples(),
            samples.start % source.samples(),
        );
        while !part.is_empty() {
            let to = (from + rest).min(source.samples());
            let positions = source.domains().taken(number.domain, from)
                ..source.domains().taken(number.domain, to);
            let here = positions.end - positions.start;
            if part.start < here {
                let end = part.end.min(here);
                let wanted = positions.start + part.start..positions.start + end;
                self.windows(lane, epoch, wanted, slot, runs);
                slot += end - part.start;
                part.start = end;
            }
            part = part.start - part.start.min(here)..part.end - part.end.min(here);
            rest -= to - from;
            (epoch, from) = (epoch + 1, 0);
        }
    }

    fn windows(
        &mut self,
        lane: usize,
        epoch: u64,
        mut positions: Range<u64>,
        mut slot: u64,
        runs: &mut Vec<SlotRun>,
    ) {
        while !positions.is_empty() {
            let held = self.window(lane, epoch, positions.start);
            let end = positions.end.min(held.positions.end);
            let start = held.positions.start;
            runs.push(SlotRun {
                window: Arc::clone(&held.window),
                positions: positions.start - start..end - start,
                slot: u32::try_from(slot).expect("a batch has fewer than 2^32 slots"),
            });
            slot += end - positions.start;
            positions.start = end;
        }
    }

    fn window(&mut self, lane: usize, epoch: u64, position: u64) -> &HeldWindow {
        let held = &mut self.held[lane];
        let fits = held
            .as_ref()
            .is_some_and(|held| held.epoch == epoch && held.positions.contains(&position));
        if !fits {
            *held = None;
        }
        held.get_or_insert_with(|| {
            let (positions, window) = self.order.window(self.order.lanes()[lane], epoch, position);
            HeldWindow {
                epoch,
                positions,
                window,
            }
        })
    }
}

/// A source's domain, as a part of every batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lane {
    /// Source.
    pub(crate) source: u32,
    /// Domain of the source.
    pub(crate) domain: u32,
}

/// The lanes of sources with these numbers of domains, in slot order: by how far a domain is among its source's
/// domains, so that neighbouring slots read neighbouring domains of all sources.
pub(crate) fn lanes(domains: &[u32]) -> Vec<Lane> {
    let mut lanes: Vec<_> = (0..)
        .zip(domains)
        .flat_map(|(source, domains)| (0..*domains).map(move |domain| Lane { source, domain }))
        .collect();
    lanes.sort_by(|a, b| {
        let cross =
            |x: &Lane, y: &Lane| u64::from(x.domain) * u64::from(domains[index(y.source.into())]);
        cross(a, b).cmp(&cross(b, a)).then(a.source.cmp(&b.source))
    });
    lanes
}
