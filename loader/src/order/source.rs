//! One source of an order: its blocks, how they are spread over domains, and its deals.

use std::sync::{Arc, Mutex, PoisonError};

use super::{
    balance::Balance,
    blocks::Blocks,
    deal::{Deal, Domains, WindowSpan},
    packing::PackedBins,
    permutation::{Permutation, PermutationKey},
    tokens::TokenWindows,
    window::ShuffleWindow,
};
use crate::block_table::BlockId;

/// Deals that are kept: a batch, a plan that is ahead of it, and the epoch after that.
const DEALS_KEPT: usize = 3;

/// In which order the samples of a source come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrangement {
    /// Shuffled differently in each epoch.
    Shuffled {
        /// Seed of all epochs.
        seed: u64,
    },
    /// As they were written.
    Sequential,
}

/// Kind of the samples of a source.
#[derive(Clone, Debug)]
pub(crate) enum Units {
    /// Rows of blocks.
    Rows(Arc<Blocks>),
    /// Windows of a stream of tokens.
    Tokens(Arc<TokenWindows>),
    /// Rows of blocks, of each class its share.
    Classes(Arc<Balance>),
    /// Documents in bins.
    Bins(Arc<PackedBins>),
}

impl Units {
    /// Number of samples in each block; of balanced classes, in epoch 0. The sum is that of every
    /// epoch.
    pub(crate) fn blocks(&self) -> &Arc<Blocks> {
        match self {
            Self::Rows(blocks) => blocks,
            Self::Tokens(windows) => windows.blocks(),
            Self::Classes(balance) => balance.blocks(),
            Self::Bins(packing) => packing.blocks(),
        }
    }

    /// Number of samples in each block in an epoch.
    fn in_epoch(&self, epoch: u64) -> Arc<Blocks> {
        match self {
            Self::Classes(balance) => balance.in_epoch(epoch),
            Self::Rows(_) | Self::Tokens(_) | Self::Bins(_) => Arc::clone(self.blocks()),
        }
    }

    /// The balance of its classes, if they are.
    pub(crate) fn balance(&self) -> Option<&Arc<Balance>> {
        match self {
            Self::Classes(balance) => Some(balance),
            Self::Rows(_) | Self::Tokens(_) | Self::Bins(_) => None,
        }
    }

    /// The blocks whose samples need `block`: itself, and one other at most.
    fn holders(&self, block: BlockId) -> [Option<BlockId>; 2] {
        match self {
            Self::Rows(_) | Self::Classes(_) => [Some(block), None],
            Self::Tokens(windows) => [Some(block), windows.reads_on_in(block)],
            Self::Bins(packing) => {
                let unit = packing.blocks().unit_of(block);
                [Some(packing.blocks().unit(unit).start), None]
            }
        }
    }
}

/// The samples of one source, epoch after epoch: sample `i` is sample `i % n` of epoch `i / n`.
#[derive(Debug)]
pub(crate) struct SampleSource {
    number: u32,
    units: Units,
    arrangement: Arrangement,
    domains: Domains,
    deals: Mutex<Vec<(u64, Arc<Deal>)>>,
}

/// Names a window of a source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowName {
    /// Its number in the pass.
    pub(crate) id: u64,
    /// Epoch of the source.
    pub(crate) epoch: u64,
    /// Domain.
    pub(crate) domain: u32,
}

impl SampleSource {
    /// Source `number`, which has at least one sample, in up to `domains` domains with windows of about
    /// `window_blocks` blocks; both are at least 1.
    pub(crate) fn new(
        number: u32,
        units: Units,
        arrangement: Arrangement,
        domains: u32,
        window_blocks: u32,
    ) -> Self {
        let blocks = units.blocks();
        let unit_blocks = blocks.block_count().div_ceil(blocks.unit_count().max(1));
        let window_units = u64::from(window_blocks.div_ceil(unit_blocks.max(1)));
        let domains = Domains::new(blocks.samples(), domains, window_units);
        Self {
            number,
            units,
            arrangement,
            domains,
            deals: Mutex::default(),
        }
    }

    /// Number of samples in each block; see [`Units::blocks`].
    pub(crate) fn blocks(&self) -> &Arc<Blocks> {
        self.units.blocks()
    }

    /// Samples of an epoch.
    pub(crate) fn samples(&self) -> u64 {
        self.units.blocks().samples()
    }

    /// Spread of the samples of an epoch over domains.
    pub(crate) fn domains(&self) -> &Domains {
        &self.domains
    }

    /// Numbers that [`SampleSource::window_number`] stays below.
    pub(crate) fn window_numbers(&self) -> u64 {
        u64::from(self.domains.count()) * u64::from(self.units.blocks().unit_count())
    }

    /// A number that no other window of the same epoch has.
    pub(crate) fn window_number(&self, domain: u32, span: &WindowSpan) -> u64 {
        u64::from(domain) * u64::from(self.units.blocks().unit_count()) + span.units.start
    }

    /// The deal of an epoch. Takes time for each unit unless it was asked for lately.
    pub(crate) fn deal(&self, epoch: u64) -> Arc<Deal> {
        let mut deals = self.deals.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = deals.iter().position(|(held, _)| *held == epoch) {
            let found = deals.remove(at);
            deals.push(found);
        } else {
            let blocks = self.units.blocks();
            let units = blocks.unit_count().into();
            let numbers = [self.number.into(), epoch];
            let permutation = self.permutation(units, "deal", &numbers);
            if deals.len() == DEALS_KEPT {
                deals.remove(0);
            }
            let deal = Deal::new(self.units.in_epoch(epoch), permutation);
            deals.push((epoch, Arc::new(deal)));
        }
        Arc::clone(&deals[deals.len() - 1].1)
    }

    /// The window `span` of an epoch's deal.
    pub(crate) fn window(&self, deal: &Deal, span: &WindowSpan, name: WindowName) -> ShuffleWindow {
        let WindowName { id, epoch, domain } = name;
        let samples = span.samples.end - span.samples.start;
        let numbers = [self.number.into(), epoch, domain.into(), span.units.start];
        let permutation = self.permutation(samples, "window", &numbers);
        let origin = (id, self.number, epoch);
        ShuffleWindow::new(origin, &self.units, deal, span, permutation)
    }

    /// When in the epoch, counted in samples, windows that hold samples of `block` begin and end.
    pub(crate) fn uses(&self, epoch: u64, block: BlockId, mut take: impl FnMut(u64, u64)) {
        let deal = self.deal(epoch);
        for holder in self.units.holders(block).into_iter().flatten() {
            for (domain, span) in deal.spans_of(&self.domains, holder) {
                take(
                    self.domains.in_epoch(domain, span.positions.start),
                    self.domains.in_epoch(domain, span.positions.end - 1),
                );
            }
        }
    }

    fn permutation(&self, count: u64, label: &str, numbers: &[u64]) -> Permutation {
        match self.arrangement {
            Arrangement::Shuffled { seed } => {
                Permutation::new(count, PermutationKey::derive(seed, label, numbers))
            }
            Arrangement::Sequential => Permutation::identity(count),
        }
    }
}
