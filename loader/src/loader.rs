//! Opening a dataset and starting passes over one of its splits.

use std::sync::{Arc, Mutex, PoisonError};

use feedline_schemas::{
    ids::Hash128,
    loader_state::{LastBatch, LoaderState, SampleUnit},
    manifest::{Manifest, TargetKind},
};
use feedline_storage::{Store, clock::Clock};

use crate::{
    BatchKind, BatchStream, EpochBatches, Error, LoaderBuilder, LoaderConfig, LoaderMetrics,
    LoaderPlan, Quarantined,
    assemble::States,
    device::HostLock,
    engine::Engine,
    fetch::StoreExtents,
    fill::Filler,
    index::index,
    input::{Input, Record},
    iterator::Parts,
    kept::Kept,
    metrics::Meters,
    order::{Blocks, Order, OrderSpec, Orders, Share, Units},
    quarantine::Quarantine,
    sources::{SourceInput, Sources},
    state::OrderIdentity,
};

/// One split of a dataset, at the manifest that was current when it was opened.
///
/// A manifest published later is not seen. The loader only reads.
#[derive(Debug)]
pub struct Loader {
    config: LoaderConfig,
    orders: Orders,
    identity: OrderIdentity,
    /// Global batches of the first epoch.
    batches_per_epoch: u64,
    blocks: Arc<Blocks>,
    input: Arc<Input>,
    engine: Arc<Engine>,
    /// Where [`Loader::batches`] goes on.
    position: Arc<Mutex<LoaderState>>,
}

impl Loader {
    /// Begins to describe a loader of the dataset at `url`: a path, or `file://`, `s3://`, `gs://`, `az://`,
    /// `http(s)://`.
    ///
    /// ```
    /// use feedline_loader::{Loader, Split};
    ///
    /// # fn example() -> Result<(), feedline_loader::Error> {
    /// let loader = Loader::builder("out/dataset").split(Split::Train).batch_size(256).seed(7).open_blocking()?;
    /// for batch in loader.batches()? {
    ///     let batch = batch?;
    ///     assert_eq!(batch.x().len(), batch.rows() * batch.features());
    /// }
    /// # Ok(()) }
    /// # assert!(matches!(example(), Err(feedline_loader::Error::NoDataset { .. })));
    /// ```
    pub fn builder(url: &str) -> LoaderBuilder {
        LoaderBuilder::new(url)
    }

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
        let input = Arc::new(Input::open(dataset, config.split, &config.input).await?);
        let (kind, target) = kind(input.record(), config)?;
        let geometry = Arc::clone(input.geometry());
        let meters = Arc::new(Meters::new(clock));
        let quarantine = Arc::new(Quarantine::new(
            vec![Arc::clone(&geometry)],
            config.max_bad_share,
            Arc::clone(&meters),
        ));
        let extents = StoreExtents::new(
            dataset.clone(),
            &config.fetch,
            config.reads,
            Arc::clone(&meters),
        );
        let sources = Sources {
            inputs: vec![SourceInput {
                input: Arc::clone(&input),
                extents: Arc::new(extents),
            }],
            quarantine: Arc::clone(&quarantine),
            meters,
        };
        let filler = Filler {
            kind,
            target,
            pictures: config.pictures.clone(),
            tokens: config.tokens.clone(),
            seed: config.seed.get(),
            quarantine,
        };
        let blocks = Arc::new(Blocks::of(&geometry, config.extent_bytes));
        let units = Units::Rows(Arc::clone(&blocks));
        let orders = Orders::single(order_spec(config), units).map_err(no_batch)?;
        let first_epoch = orders.epoch(0, None).map_err(no_batch)?;
        let identity = OrderIdentity {
            fingerprints: vec![input.fingerprint()],
            extent_bytes: config.extent_bytes,
            unit: SampleUnit::Rows,
            mixture: None,
        };
        let share = Share::new(config.rank, config.world_size);
        let rows = index(share.most_rows(first_epoch.slots(0)));
        let kept = Kept::new(split_bytes(&input) <= config.prefetch_bytes);
        let engine = Engine::new(config, share, rows, sources, filler, kept);
        let loader = Self {
            config: config.clone(),
            position: Arc::new(Mutex::new(identity.start(&orders))),
            orders,
            identity,
            batches_per_epoch: first_epoch.batch_count(),
            blocks,
            input,
            engine: Arc::new(engine),
        };
        Ok(loader)
    }

    /// Page-locks the memory of batches, so that a device can copy from it directly, for an
    /// [`Uploader`](crate::device::Uploader). To be called before the first pass; a second call changes nothing. How far
    /// the system allowed it is in [`LoaderMetrics::pinning`] once a pass has begun.
    pub fn lock_batches(&self, lock: Arc<dyn HostLock>) {
        if !self.engine.lock_slabs(lock) {
            tracing::warn!("the loader's batches are page-locked already");
        }
    }

    /// The batches of the rest of the epoch at [`Loader::state`], which moves along with them: called again, it gives
    /// the rest of that epoch, or the next one when there is none.
    ///
    /// # Errors
    /// As [`Loader::epoch`].
    pub fn batches(&self) -> Result<EpochBatches, Error> {
        let mut start = self.state();
        if start.batch.get() >= self.batches_per_epoch() {
            start = self.next_epoch(&start);
        }
        self.start_epoch(start, Some(Arc::clone(&self.position)))
    }

    /// As [`Loader::batches`], for async callers.
    ///
    /// # Errors
    /// As [`Loader::epoch`].
    pub fn stream(&self) -> Result<BatchStream, Error> {
        Ok(BatchStream::new(self.batches()?))
    }

    /// The state after the last batch of [`Loader::batches`] that was finished: that is, before which the next one was
    /// asked for. Save it with the model; a run that goes on from it repeats nothing and leaves nothing out.
    #[must_use]
    pub fn state(&self) -> LoaderState {
        self.position().clone()
    }

    /// Has [`Loader::batches`] go on from `state`.
    ///
    /// # Errors
    /// [`Error::StateMismatch`], which lists what differs.
    pub fn resume(&self, state: LoaderState) -> Result<(), Error> {
        *self.position() = self.identity.resume(state, &self.orders)?.0;
        Ok(())
    }

    /// The batches of the rest of an epoch: from `start`, which is [`Loader::start_state`], the
    /// [`state`](crate::Batch::state) of the last batch that was used, on whatever number of ranks, or the
    /// [`next_epoch`](Loader::next_epoch) of that. After the last batch of an epoch there are none.
    ///
    /// # Errors
    /// [`Error::StateMismatch`], which lists what differs; [`Error::Thread`].
    pub fn epoch(&self, start: LoaderState) -> Result<EpochBatches, Error> {
        self.start_epoch(start, None)
    }

    fn start_epoch(
        &self,
        start: LoaderState,
        position: Option<Arc<Mutex<LoaderState>>>,
    ) -> Result<EpochBatches, Error> {
        let (start, order) = self.identity.resume(start, &self.orders)?;
        EpochBatches::start(Parts {
            engine: Arc::clone(&self.engine),
            order,
            start: start.batch.get(),
            states: States::Advance(start),
            position,
        })
    }

    /// All samples of the split once, in shard order: for evaluation. Batches are cut and shared among ranks as in an
    /// epoch. Their state is [`Loader::start_state`]: they move no position.
    ///
    /// # Errors
    /// [`Error::Thread`].
    pub fn sequential(&self) -> Result<EpochBatches, Error> {
        let units = Units::Rows(Arc::clone(&self.blocks));
        EpochBatches::start(Parts {
            engine: Arc::clone(&self.engine),
            order: Order::sequential(units, self.config.global_batch, LastBatch::Keep),
            start: 0,
            states: States::Stay(self.start_state()),
            position: None,
        })
    }

    /// The state before the first batch of the first epoch.
    #[must_use]
    pub fn start_state(&self) -> LoaderState {
        self.identity.start(&self.orders)
    }

    /// The state before the first batch of the epoch after that of `state`.
    #[must_use]
    pub fn next_epoch(&self, state: &LoaderState) -> LoaderState {
        self.engine.next_epoch(state)
    }

    /// Global batches of an epoch, the last and perhaps smaller one included. The same on every rank.
    #[must_use]
    pub fn batches_per_epoch(&self) -> u64 {
        self.batches_per_epoch
    }

    /// Samples in the split, over all ranks.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.blocks.samples()
    }

    /// What the rows of its batches are.
    #[must_use]
    pub fn kind(&self) -> BatchKind {
        self.engine.filler.kind
    }

    /// The manifest in use; none for a dataset in another format than ours.
    #[must_use]
    pub fn manifest(&self) -> Option<&Manifest> {
        self.input.manifest()
    }

    /// A hash that changes when the dataset does; every state carries it.
    #[must_use]
    pub fn fingerprint(&self) -> Hash128 {
        self.input.fingerprint()
    }

    /// What an epoch will read and hold, and how well it mixes. Simulates some hundred batches, which takes up to
    /// seconds, and reads nothing.
    #[must_use]
    pub fn plan(&self) -> LoaderPlan {
        LoaderPlan::new(&self.orders, self.input.geometry(), &self.config)
    }

    /// Where the time of all passes so far went.
    #[must_use]
    pub fn metrics(&self) -> LoaderMetrics {
        self.engine.metrics()
    }

    /// The samples and blocks that could not be used so far and were replaced by others.
    #[must_use]
    pub fn quarantine(&self) -> Vec<Quarantined> {
        self.engine.filler.quarantine.list()
    }

    fn position(&self) -> std::sync::MutexGuard<'_, LoaderState> {
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What batches of such records are, and their targets.
fn kind(record: &Record, config: &LoaderConfig) -> Result<(BatchKind, TargetKind), Error> {
    let missing = |key, what: &str| Error::Config {
        key,
        reason: format!("the dataset holds {what}, say how they are to be handed out"),
    };
    match *record {
        Record::Dense { features, target } => {
            let features = features as usize;
            Ok((BatchKind::Rows { features }, target))
        }
        Record::Pictures { target } => {
            let pictures = config
                .pictures
                .as_ref()
                .ok_or_else(|| missing("pictures", "pictures"))?;
            let kind = BatchKind::Pictures {
                height: pictures.height as usize,
                width: pictures.width as usize,
            };
            Ok((kind, target))
        }
        Record::Tokens { .. } => {
            let tokens = config
                .tokens
                .as_ref()
                .ok_or_else(|| missing("tokens", "documents"))?;
            if tokens.pack {
                return Err(Error::Config {
                    key: "tokens.pack",
                    reason: "documents cannot be packed yet, set it to `false`".into(),
                });
            }
            let kind = BatchKind::Tokens {
                length: tokens.length as usize,
                packed: tokens.pack,
            };
            Ok((kind, TargetKind::None))
        }
    }
}

/// The order that the settings ask for.
fn order_spec(config: &LoaderConfig) -> OrderSpec {
    OrderSpec {
        seed: config.seed.get(),
        domains: config.domains,
        window_blocks: config.window_blocks,
        global_batch: config.global_batch,
        last_batch: config.last_batch,
    }
}

fn no_batch(reason: String) -> Error {
    Error::Config {
        key: "global_batch",
        reason,
    }
}

/// Bytes of all blocks in memory.
fn split_bytes(input: &Input) -> u64 {
    let blocks = 0..input.geometry().block_count();
    blocks.map(|block| input.block_bytes(block)).sum()
}
