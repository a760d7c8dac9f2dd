//! The order of a pass: a pure function of the sources' block tables, the seed, the epoch and the step.
//!
//! Two levels, so that a batch mixes samples from many places while only a bounded window of blocks is in memory.
//! Version 2, with `G` the global batch, `D` domains and `W` units (extents) per window:
//!
//! ```text
//! deal     unit PRP(i) of the source is the i-th that is dealt; its n samples, counted in this order, are cut into D
//!          domains whose sizes differ by one sample at most
//! window   a domain's units in runs of W, the last of every second domain first; the first run of domain d has
//!          ceil((d + 1) * W / D) units, so that domains change windows at different steps
//! shuffle  position i of a window with m samples holds its sample PRP(i), counted in dealt order
//! epoch    sample p of 0..n is the next one of the domain whose turn is p % D
//! step t   samples [t * G, (t + 1) * G) fill the slots of the global batch, those of domain 0 first
//! ```
//!
//! So every sample is in exactly one slot of one batch, and the world size appears nowhere. A rank's share of a batch
//! is a run of neighbouring slots and so reads few domains, whether or not `D` divides `G`.
//!
//! Balanced classes change how many samples blocks have, see [`balance`], and nothing else.
//!
//! With several sources, step t takes from each as many of its next samples as the [mixture](dataset_mixture) says, and the slots
//! of all sources are merged by how far a domain is among those of its source.
//!
//! `D` is the largest number up to the configured domains for which there are enough samples in a batch and enough
//! units. Windows then grow by the same factor: how well a batch is mixed depends on the number of units in all windows
//! together.
//!
//! Any change of this order is a new [`ORDER_VERSION`].

pub(crate) mod balance;
mod batches;
mod blocks;
mod cursor;
mod dataset_mixture;
mod deal;
pub(crate) mod packing;
mod permutation;
mod phase;
mod plan;
mod quality;
mod schedule;
mod source;
pub(crate) mod tokens;
mod window;

use std::{
    collections::HashMap,
    ops::Range,
    sync::{Arc, Mutex, PoisonError, Weak},
};

pub use balance::ClassBalance;
pub(crate) use batches::{Batches, RankShare};
pub(crate) use blocks::Blocks;
pub(crate) use cursor::{Cursor, SlotRun};
pub use dataset_mixture::{MixtureConfig, SourceEnd, SourceWeight};
pub(crate) use phase::Phase;
pub(crate) use plan::Need;
pub use quality::ShuffleQuality;
pub(crate) use quality::shuffle_quality;
pub(crate) use source::Units;
pub(crate) use tokens::TokenPlace;
pub(crate) use window::{ShuffleWindow, WindowPlace};

use feedline_schemas::{ids::Rank, loader_state::LastBatch};

use crate::{block_table::BlockId, index::index};
use cursor::{Lane, lanes};
use dataset_mixture::Mixture;
use plan::Needs;
use schedule::Schedule;
use source::{Arrangement, SampleSource, WindowName};

/// Version of the order's definition, part of every loader state.
pub(crate) const ORDER_VERSION: u32 = 2;

/// The most sources of a mixture.
const MOST_SOURCES: usize = 1 << 12;

/// Inputs of the order besides the sources and the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OrderSpec {
    /// Seed.
    pub(crate) seed: u64,
    /// Most domains of a source.
    pub(crate) domains: u32,
    /// Blocks per window of a domain, all sources together.
    pub(crate) window_blocks: u32,
    /// Samples of a global batch.
    pub(crate) global_batch: u32,
    /// Handling of samples that do not fill a batch.
    pub(crate) last_batch: LastBatch,
}

impl OrderSpec {
    /// Fits the wanted domains and window to sources.
    fn fit(self, sources: &[Units]) -> Self {
        let most = sources.iter().map(most_domains).max().unwrap_or(1);
        let domains = self.domains.min(self.global_batch).min(most).max(1);
        let window = self.window().div_ceil(domains.into());
        Self {
            domains,
            window_blocks: u32::try_from(window).unwrap_or(u32::MAX),
            ..self
        }
    }

    /// Blocks in all windows together.
    fn window(self) -> u64 {
        u64::from(self.domains) * u64::from(self.window_blocks)
    }

    /// Source `number`, which has `blocks` of the blocks of all sources, in windows of as large a part of all windows.
    fn source(self, number: u32, units: Units, blocks: u64) -> SampleSource {
        let domains = self.domains.min(most_domains(&units));
        let ours = u128::from(units.blocks().block_count()) * u128::from(self.window());
        let window = ours / u128::from(blocks) / u128::from(domains);
        let window = u32::try_from(window).unwrap_or(u32::MAX).max(1);
        let arrangement = Arrangement::Shuffled { seed: self.seed };
        SampleSource::new(number, units, arrangement, domains, window)
    }
}

/// As many as there are units and samples for.
fn most_domains(units: &Units) -> u32 {
    let samples = u32::try_from(units.blocks().samples()).unwrap_or(u32::MAX);
    units.blocks().unit_count().min(samples).max(1)
}

/// The orders of all epochs over some sources.
#[derive(Debug)]
pub(crate) struct Orders {
    spec: OrderSpec,
    sources: Vec<Arc<SampleSource>>,
    mixture: Option<Mixture>,
}

impl Orders {
    /// Orders of one source.
    ///
    /// # Errors
    /// There is no batch in it.
    pub(crate) fn single(spec: OrderSpec, units: Units) -> Result<Self, String> {
        let orders = Self::new(spec, vec![units], None)?;
        orders.epoch(0, None).map(|_| orders)
    }

    /// Orders of a mixture, and the phase with which a run begins.
    ///
    /// # Errors
    /// The sources cannot be mixed in this way, or make no batch.
    pub(crate) fn mixed(
        spec: OrderSpec,
        sources: Vec<Units>,
        config: &MixtureConfig,
    ) -> Result<(Self, Phase), String> {
        if sources.len() > MOST_SOURCES {
            return Err(format!(
                "it has `{}` sources, use up to `{MOST_SOURCES}`",
                sources.len()
            ));
        }
        let sizes: Vec<u64> = sources.iter().map(|s| s.blocks().samples()).collect();
        let phase = Phase::first(config.parts(&sizes)?);
        let mixture = config.mixture(&sizes, spec.seed, spec.global_batch);
        let orders = Self::new(spec, sources, Some(mixture))?;
        orders.epoch(0, Some(&phase))?;
        Ok((orders, phase))
    }

    fn new(spec: OrderSpec, sources: Vec<Units>, mixture: Option<Mixture>) -> Result<Self, String> {
        if let Some(empty) = sources.iter().position(|s| s.blocks().samples() == 0) {
            return Err(format!("source `{empty}` has no samples"));
        }
        let spec = spec.fit(&sources);
        let blocks = sources
            .iter()
            .map(|s| u64::from(s.blocks().block_count()))
            .sum();
        let sources = (0..)
            .zip(sources)
            .map(|(number, units)| Arc::new(spec.source(number, units, blocks)));
        Ok(Self {
            spec,
            sources: sources.collect(),
            mixture,
        })
    }

    /// The spec as it fits the sources.
    pub(crate) fn spec(&self) -> OrderSpec {
        self.spec
    }

    /// The blocks of the first source.
    fn first_blocks(&self) -> Arc<Blocks> {
        Arc::clone(self.sources[0].blocks())
    }

    /// Samples of each source.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = u64> {
        self.sources.iter().map(|source| source.samples())
    }

    /// The order of an epoch; of a mixture, as `phase` says. Builds what it needs when a batch is first looked up.
    ///
    /// # Errors
    /// The weights of the phase cannot be used, or there is no batch.
    pub(crate) fn epoch(&self, epoch: u64, phase: Option<&Phase>) -> Result<PassOrder, String> {
        let OrderSpec {
            global_batch,
            last_batch,
            ..
        } = self.spec;
        let schedule = match (&self.mixture, phase) {
            (Some(mixture), Some(phase)) => {
                phase.schedule(mixture, epoch, global_batch, last_batch)?
            }
            _ => {
                let batches = Batches::new(self.sources[0].samples(), global_batch, last_batch);
                Schedule::single(batches, epoch)
            }
        };
        if schedule.batches().count() == 0 {
            return Err(format!(
                "an epoch has `{}` samples, less than one batch of `{global_batch}`, and `last_batch` is \
                 `{last_batch}`; use a smaller batch or keep the last",
                schedule.batches().samples()
            ));
        }
        Ok(PassOrder::new(self.sources.clone(), schedule))
    }

    /// The phase in which other weights hold from batch `batch` of epoch `epoch` on.
    ///
    /// # Errors
    /// The weights, old or new, cannot be used.
    pub(crate) fn change(
        &self,
        phase: &Phase,
        epoch: u64,
        batch: u64,
        parts: Vec<u64>,
    ) -> Result<Phase, String> {
        let Some(mixture) = &self.mixture else {
            return Ok(phase.clone());
        };
        let changed = phase.change(mixture, (epoch, batch), self.spec.global_batch, parts)?;
        self.epoch(epoch + 1, Some(&changed))?;
        Ok(changed)
    }
}

/// The order of one pass. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct PassOrder(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    sources: Vec<Arc<SampleSource>>,
    schedule: Schedule,
    lanes: Vec<Lane>,
    /// Epoch of each source at the begin of the pass.
    first_epochs: Vec<u64>,
    /// Windows that some cursor holds, by id.
    windows: Mutex<HashMap<u64, Weak<ShuffleWindow>>>,
}

impl PassOrder {
    /// All samples as they were written, block after block.
    pub(crate) fn sequential(units: Units, global_batch: u32, last: LastBatch) -> Self {
        let source = SampleSource::new(0, units, Arrangement::Sequential, 1, 1);
        let batches = Batches::new(source.samples(), global_batch, last);
        Self::new(vec![Arc::new(source)], Schedule::single(batches, 0))
    }

    fn new(sources: Vec<Arc<SampleSource>>, schedule: Schedule) -> Self {
        let domains: Vec<_> = sources.iter().map(|s| s.domains().count()).collect();
        let before = schedule.before(0);
        let first_epochs = before
            .iter()
            .zip(&sources)
            .map(|(before, source)| before / source.samples());
        Self(Arc::new(Inner {
            first_epochs: first_epochs.collect(),
            lanes: lanes(&domains),
            sources,
            schedule,
            windows: Mutex::default(),
        }))
    }

    /// Global batches of the pass.
    pub(crate) fn batch_count(&self) -> u64 {
        self.0.schedule.batches().count()
    }

    /// Global slots in use in a batch, among which ranks share it: its samples, and the padding after them.
    pub(crate) fn slots(&self, batch: u64) -> u64 {
        self.0.schedule.batches().slots(batch)
    }

    /// Samples of a batch, over all ranks. Slots from there on are padding.
    pub(crate) fn rows(&self, batch: u64) -> u64 {
        self.0.schedule.batches().rows(batch)
    }

    /// The blocks that `share` needs from batch `start` on, in the order of their first need. A block comes again only
    /// after the last batch for which it was listed before.
    pub(crate) fn needs(
        &self,
        start: u64,
        share: RankShare,
    ) -> Box<dyn Iterator<Item = Need> + Send> {
        Box::new(Needs::new(self.clone(), start, share))
    }

    /// Starts looking up slots.
    pub(crate) fn cursor(&self) -> Cursor {
        Cursor::new(self.clone())
    }

    /// Domains that `world_size` ranks read in the first batch, summed over all sources; a domain
    /// that two ranks read counts for both.
    pub(crate) fn domains_read(&self, world_size: u32) -> u64 {
        let mut cursor = self.cursor();
        (0..world_size)
            .map(|rank| {
                let share = RankShare::new(Rank::new(rank), world_size);
                let mut runs = Vec::new();
                cursor.runs(0, share.slots(self.slots(0)), &mut runs);
                runs.len() as u64
            })
            .sum()
    }

    fn lanes(&self) -> &[Lane] {
        &self.0.lanes
    }

    fn source(&self, source: u32) -> &SampleSource {
        &self.0.sources[source as usize]
    }

    /// Samples of each source before `batch`, in all passes.
    pub(crate) fn given(&self, batch: u64) -> Vec<u64> {
        self.0.schedule.before(batch)
    }

    /// The samples each source gives to a batch, counted through its epochs.
    fn samples(&self, batch: u64) -> Vec<Range<u64>> {
        let before = self.0.schedule.before(batch);
        let after = self.0.schedule.before(batch + 1);
        before.into_iter().zip(after).map(|(b, a)| b..a).collect()
    }

    /// The window that holds a position of a lane, and its positions in the lane's domain. Cursors share windows.
    fn window(&self, lane: Lane, epoch: u64, position: u64) -> (Range<u64>, Arc<ShuffleWindow>) {
        let source = self.source(lane.source);
        let deal = source.deal(epoch);
        let span = deal.span(source.domains(), lane.domain, position);
        let id = self.window_id(lane, epoch, source.window_number(lane.domain, &span));
        if let Some(window) = self.windows().get(&id).and_then(Weak::upgrade) {
            return (span.positions, window);
        }
        let name = WindowName {
            id,
            epoch,
            domain: lane.domain,
        };
        let made = Arc::new(source.window(&deal, &span, name));
        let mut windows = self.windows();
        let known = windows.get(&id).and_then(Weak::upgrade);
        let window = known.unwrap_or_else(|| {
            if windows.len() >= 2 * self.lanes().len() + 64 {
                windows.retain(|_, window| window.strong_count() > 0);
            }
            windows.insert(id, Arc::downgrade(&made));
            made
        });
        (span.positions, window)
    }

    fn windows(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Weak<ShuffleWindow>>> {
        self.0
            .windows
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn window_id(&self, lane: Lane, epoch: u64, number: u64) -> u64 {
        let before: u64 = self.0.sources[..index(lane.source.into())]
            .iter()
            .map(|source| source.window_numbers())
            .sum();
        let all: u64 = self.0.sources.iter().map(|s| s.window_numbers()).sum();
        (epoch - self.0.first_epochs[lane.source as usize]) * all + before + number
    }

    /// A batch not after the one in which an epoch of a source begins.
    fn epoch_begins(&self, source: u32, epoch: u64) -> u64 {
        let first = epoch * self.source(source).samples();
        self.0.schedule.batches_around(source as usize, first).0
    }

    /// The batches between which windows of an epoch of a source use a block; a batch too many is possible.
    fn uses(&self, source: u32, epoch: u64, block: BlockId) -> Vec<(u64, u64)> {
        let first = epoch * self.source(source).samples();
        let around = |sample| {
            self.0
                .schedule
                .batches_around(source as usize, first + sample)
        };
        let mut uses = Vec::new();
        self.source(source).uses(epoch, block, |from, to| {
            uses.push((around(from).0, around(to).1))
        });
        uses
    }
}

#[cfg(test)]
mod tests;
