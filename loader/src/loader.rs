//! Opening a dataset and starting passes over one of its splits.

use std::sync::{Arc, Mutex, PoisonError};

use feedline_schemas::{
    format::LOADER_STATE,
    ids::{Epoch, Step},
    loader_state::LoaderState,
    manifest::Manifest,
};
use feedline_storage::{Store, clock::Clock};

use crate::{
    EpochBatches, Error, LoaderConfig, LoaderMetrics,
    assemble::States,
    fetch::{Extents, StoreExtents},
    geometry::Geometry,
    index::index,
    input::{Input, Record},
    iterator::Parts,
    metrics::Meters,
    order::{self, Batches, Blocks, ORDER_VERSION, Order, OrderSpec, Share},
    ring::Ring,
    slab::{HostMemory, SlabShape},
    state,
};

/// One split of a dataset, at the manifest that was current when it was opened.
///
/// A manifest published later is not seen. The loader only reads.
#[derive(Debug)]
pub struct Loader {
    config: LoaderConfig,
    spec: OrderSpec,
    batches: Batches,
    shape: SlabShape,
    geometry: Arc<Geometry>,
    input: Arc<Input>,
    extents: Arc<dyn Extents>,
    blocks: Arc<Blocks>,
    shuffled: Arc<order::Source>,
    meters: Arc<Meters>,
    /// The ring of the last pass that ended, for the next.
    spare: Arc<Mutex<Option<Ring>>>,
}

impl Loader {
    /// Opens the dataset in the folder `dataset`: reads `CURRENT` and the manifest it names, and no shard yet.
    ///
    /// # Errors
    /// [`Error::Config`], [`Error::NoDataset`], [`Error::EmptySplit`], or what is wrong with the manifest.
    pub async fn open(
        dataset: &Store,
        config: &LoaderConfig,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Error> {
        config.check()?;
        let input = Arc::new(Input::open(dataset, config.split).await?);
        let geometry = Arc::clone(input.geometry());
        let Record::Dense { features, target } = *input.record() else {
            return Err(Error::Manifest {
                url: dataset.url(),
                reason: "its rows are not numbers".into(),
            });
        };
        let batches = Batches::new(geometry.samples(), config.global_batch);
        let share = Share::new(config.rank, config.world_size);
        let shape = SlabShape {
            rows: index(share.most_rows(batches.rows(0))),
            features: features as usize,
            target,
        };
        let blocks = Arc::new(Blocks::of(&geometry, 0));
        let spec = OrderSpec::fit(
            config.seed.get(),
            config.domains,
            config.window_blocks,
            config.global_batch,
            &blocks,
        );
        let shuffled = Arc::new(spec.source(Arc::clone(&blocks)));
        let meters = Arc::new(Meters::new(clock, shape));
        let extents = Arc::new(StoreExtents::new(dataset.clone(), Arc::clone(&meters)));
        let config = config.clone();
        Ok(Self {
            config,
            spec,
            batches,
            shape,
            geometry,
            input,
            extents,
            blocks,
            shuffled,
            meters,
            spare: Arc::default(),
        })
    }

    /// The batches of the rest of an epoch: from `start`, which is [`Loader::start_state`], the
    /// [`state`](crate::Batch::state) of the last batch that was used, on whatever number of ranks, or the
    /// [`next_epoch`](Loader::next_epoch) of that. After the last batch of an epoch there are none.
    ///
    /// Deals the epoch's blocks before it returns, which takes about 0.1 s per million blocks.
    ///
    /// # Errors
    /// [`Error::StateMismatch`], which lists what differs; [`Error::Thread`].
    pub fn epoch(&self, start: LoaderState) -> Result<EpochBatches, Error> {
        state::check(&start, &self.start_state(), self.batches_per_epoch())?;
        let order = Order::epoch(
            Arc::clone(&self.shuffled),
            self.spec.global_batch,
            start.epoch.get(),
        );
        let first = start.batch.get();
        self.start(order, first, States::Advance(start))
    }

    /// All samples of the split once, in shard order: for evaluation. Batches are cut and shared among ranks as in an
    /// epoch. Their state is [`Loader::start_state`]: they move no position.
    ///
    /// # Errors
    /// [`Error::Thread`].
    pub fn sequential(&self) -> Result<EpochBatches, Error> {
        let order = Order::sequential(Arc::clone(&self.blocks), self.spec.global_batch);
        self.start(order, 0, States::Stay(self.start_state()))
    }

    /// The state before the first batch of the first epoch.
    #[must_use]
    pub fn start_state(&self) -> LoaderState {
        LoaderState {
            format: LOADER_STATE.format.to_owned(),
            version: LOADER_STATE.version,
            fingerprint: self.input.fingerprint(),
            order_version: ORDER_VERSION,
            seed: self.config.seed,
            domains: self.spec.domains,
            window_blocks: self.spec.window_blocks,
            global_batch: self.spec.global_batch,
            epoch: Epoch::new(0),
            batch: Step::new(0),
        }
    }

    /// The state before the first batch of the epoch after that of `state`.
    #[must_use]
    pub fn next_epoch(&self, state: &LoaderState) -> LoaderState {
        LoaderState {
            epoch: state.epoch.next(),
            batch: Step::new(0),
            ..state.clone()
        }
    }

    /// Global batches of an epoch, the last and perhaps smaller one included. The same on every rank.
    #[must_use]
    pub fn batches_per_epoch(&self) -> u64 {
        self.batches.count()
    }

    /// Samples in the split, over all ranks.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.batches.samples()
    }

    /// The manifest in use.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        let manifest = self.input.manifest();
        manifest.expect("our own shards, the only format that is opened, have a manifest")
    }

    /// Where the time of all passes so far went.
    #[must_use]
    pub fn metrics(&self) -> LoaderMetrics {
        let totals = self.meters.totals();
        LoaderMetrics {
            refetches: totals.refetches + self.input.rereads(),
            ..totals
        }
    }

    fn start(&self, order: Order, start: u64, states: States) -> Result<EpochBatches, Error> {
        EpochBatches::start(Parts {
            order,
            start,
            share: Share::new(self.config.rank, self.config.world_size),
            states,
            geometry: Arc::clone(&self.geometry),
            input: Arc::clone(&self.input),
            extents: Arc::clone(&self.extents),
            shape: self.shape,
            prefetch_bytes: self.config.prefetch_bytes,
            ring: self.ring(),
            home: Arc::clone(&self.spare),
            meters: Arc::clone(&self.meters),
        })
    }

    /// The ring of an earlier pass; a new one at first, and while another pass uses it.
    fn ring(&self) -> Ring {
        let spare = self
            .spare
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        spare.unwrap_or_else(|| Ring::new(HostMemory::Plain, self.shape, self.config.slabs))
    }
}
