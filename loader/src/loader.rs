//! Opening a dataset and starting passes over one of its splits.

use std::sync::{Arc, Mutex, PoisonError};

use feedline_schemas::{
    ids::Hash128,
    loader_state::{LastBatch, LoaderState},
    manifest::Manifest,
};
use feedline_storage::{Store, clock::Clock};

use crate::{
    BatchKind, BatchStream, EpochBatches, Error, LoaderBuilder, LoaderConfig, LoaderMetrics,
    LoaderPlan, Quarantined,
    assembly::assemble::States,
    deliver::iterator::PassParts,
    device::HostLock,
    engine::LoaderEngine,
    input::OpenedSplit,
    open::OpenedLoader,
    order::{Blocks, Orders, PassOrder, Units},
    state::OrderIdentity,
};

/// One split of a dataset, at the manifest that was current when it was opened.
///
/// A manifest published later is not seen. The loader writes nothing but its disk cache, if it has one.
#[derive(Debug)]
pub struct Loader {
    config: LoaderConfig,
    orders: Orders,
    identity: OrderIdentity,
    /// Global batches of the first epoch.
    batches_per_epoch: u64,
    /// Of every source.
    units: Vec<Units>,
    inputs: Vec<Arc<OpenedSplit>>,
    engine: Arc<LoaderEngine>,
    /// Position of [`Loader::batches`].
    position: Arc<Mutex<LoaderState>>,
    /// A pass that was begun before it is asked for.
    prepared: Mutex<Option<PreparedPass>>,
}

/// A pass that was begun before it is asked for, and which one it is.
#[derive(Debug)]
struct PreparedPass {
    /// State that an epoch begins with; `None` for a sequential pass.
    start: Option<LoaderState>,
    batches: EpochBatches,
}

/// One of the datasets that a loader reads.
#[derive(Clone, Copy, Debug)]
pub struct LoaderSource<'a> {
    /// A hash that changes when the dataset does.
    pub fingerprint: Hash128,
    /// Samples of the split.
    pub samples: u64,
    /// The manifest in use; none for a dataset in another format than ours.
    pub manifest: Option<&'a Manifest>,
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
        Self::open_mixture(std::slice::from_ref(dataset), config, clock).await
    }

    /// Opens several datasets, whose samples are mixed as [`LoaderConfig::mixture`] says. Their rows mean the same: the kind of
    /// record and target, the names of features, classes and targets, and the tokenizer, as far as their files give them. Of
    /// datasets of shards this reads the transforms; other fitted numbers are one of the [`Loader::warnings`].
    ///
    /// # Errors
    /// As [`Loader::open`]; [`Error::Config`] for datasets or weights that cannot be mixed, with the first difference.
    pub async fn open_mixture(
        datasets: &[Store],
        config: &LoaderConfig,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Error> {
        let OpenedLoader {
            inputs,
            units,
            orders,
            identity,
            batches_per_epoch,
            engine,
        } = OpenedLoader::open(datasets, config, clock).await?;
        Ok(Self {
            config: config.clone(),
            position: Arc::new(Mutex::new(identity.start(&orders))),
            orders,
            identity,
            batches_per_epoch,
            units,
            inputs,
            engine: Arc::new(engine),
            prepared: Mutex::default(),
        })
    }

    /// Page-locks the memory of batches, so that a device can copy from it directly. To be called before the first pass; a
    /// second call changes nothing. How far the system allowed it is in [`LoaderMetrics::pinning`] once a pass has begun,
    /// and of a batch in [`Batch::is_page_locked`](crate::Batch::is_page_locked).
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
        let (start, position) = (self.upcoming(), self.shared_position());
        if let Some(batches) = self.take_prepared(Some(&start)) {
            return Ok(batches.with_position(position));
        }
        EpochBatches::start(self.parts(start, Some(position))?)
    }

    /// Begins the epoch that [`Loader::epoch`] or [`Loader::batches`] will be asked for from `start`: its first batches are
    /// then ready when it is. To be called when the last batch of a pass was handed out and before it is used, with its
    /// [`next_epoch`](Loader::next_epoch): no block of that pass is held any more, and its memory for batches is used again,
    /// so the bounds of memory are those of one pass. The order is the same as without; a pass that is asked for from
    /// another state, or that is never asked for, ends what was begun.
    ///
    /// # Errors
    /// As [`Loader::epoch`].
    pub fn prepare(&self, start: LoaderState) -> Result<(), Error> {
        // The one before ends first, and gives back what it holds.
        drop(self.prepared().take());
        let batches = EpochBatches::start(self.parts(start.clone(), None)?)?;
        *self.prepared() = Some(PreparedPass {
            start: Some(start),
            batches,
        });
        Ok(())
    }

    /// As [`Loader::prepare`], for [`Loader::sequential`].
    ///
    /// # Errors
    /// As [`Loader::sequential`].
    pub fn prepare_sequential(&self) -> Result<(), Error> {
        drop(self.prepared().take());
        let batches = self.sequential()?;
        *self.prepared() = Some(PreparedPass {
            start: None,
            batches,
        });
        Ok(())
    }

    /// The pass that was begun, if it is this one; another one ends.
    fn take_prepared(&self, start: Option<&LoaderState>) -> Option<EpochBatches> {
        let prepared = self.prepared().take()?;
        (prepared.start.as_ref() == start).then_some(prepared.batches)
    }

    fn prepared(&self) -> std::sync::MutexGuard<'_, Option<PreparedPass>> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Loader::batches`], for async callers.
    ///
    /// # Errors
    /// As [`Loader::epoch`].
    pub fn stream(&self) -> Result<BatchStream, Error> {
        Ok(BatchStream::new(self.batches()?))
    }

    /// The state after the last batch of [`Loader::batches`] that was finished, which is when the
    /// next one is asked for. Save it with the model; a run that resumes from it repeats nothing
    /// and leaves nothing out.
    #[must_use]
    pub fn state(&self) -> LoaderState {
        self.position().clone()
    }

    /// Makes [`Loader::batches`] continue from `state`.
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
        if let Some(batches) = self.take_prepared(Some(&start)) {
            return Ok(batches);
        }
        EpochBatches::start(self.parts(start, None)?)
    }

    /// Next position of [`Loader::batches`].
    fn upcoming(&self) -> LoaderState {
        let state = self.state();
        if state.batch.get() < self.batches_per_epoch() {
            return state;
        }
        self.next_epoch(&state)
    }

    /// Position that moves along with [`Loader::batches`].
    fn shared_position(&self) -> Arc<Mutex<LoaderState>> {
        Arc::clone(&self.position)
    }

    /// Parts of a pass over the rest of an epoch.
    fn parts(
        &self,
        start: LoaderState,
        position: Option<Arc<Mutex<LoaderState>>>,
    ) -> Result<PassParts, Error> {
        let (start, order) = self.identity.resume(start, &self.orders)?;
        let mut foresee = Vec::new();
        for epoch in self.engine.unforeseen(start.epoch.get()) {
            if epoch == start.epoch.get() {
                foresee.push((order.clone(), start.batch.get()));
            } else {
                let (_, next) = self
                    .identity
                    .resume(self.next_epoch(&start), &self.orders)?;
                foresee.push((next, 0));
            }
        }
        Ok(PassParts {
            foresee,
            engine: Arc::clone(&self.engine),
            order,
            start: start.batch.get(),
            states: States::Advance(start),
            position,
        })
    }

    /// All samples of the split once, in shard order: for evaluation. Batches are cut and shared among ranks as in an
    /// epoch. Their state is [`Loader::start_state`]: they move no position; [`Loader::sequential_from`] gives those that
    /// carry theirs.
    ///
    /// # Errors
    /// [`Error::Thread`]; [`Error::Config`] for a mixture, whose datasets are to be opened one by one for this.
    pub fn sequential(&self) -> Result<EpochBatches, Error> {
        if let Some(batches) = self.take_prepared(None) {
            return Ok(batches);
        }
        EpochBatches::start(PassParts {
            engine: Arc::clone(&self.engine),
            order: self.sequential_order()?,
            start: 0,
            states: States::Stay(self.start_state()),
            foresee: Vec::new(),
            position: None,
        })
    }

    /// The rest of a sequential pass: from `start`, which is [`Loader::sequential_start`] or the
    /// [`state`](crate::Batch::state) of the last batch of such a pass that was used, on whatever number of ranks.
    ///
    /// # Errors
    /// [`Error::StateMismatch`], which lists what differs; others as [`Loader::sequential`].
    pub fn sequential_from(&self, start: LoaderState) -> Result<EpochBatches, Error> {
        let order = self.sequential_order()?;
        self.identity
            .check_sequential(&start, &self.orders, order.batch_count())?;
        EpochBatches::start(PassParts {
            engine: Arc::clone(&self.engine),
            order,
            start: start.batch.get(),
            states: States::Advance(start),
            foresee: Vec::new(),
            position: None,
        })
    }

    /// The state before the first batch of [`Loader::sequential_from`].
    #[must_use]
    pub fn sequential_start(&self) -> LoaderState {
        self.identity.start_sequential(&self.orders)
    }

    /// Checks that [`Loader::sequential_from`] can resume from `state`.
    ///
    /// # Errors
    /// As [`Loader::sequential_from`].
    pub fn check_sequential(&self, state: &LoaderState) -> Result<(), Error> {
        let batches = self.sequential_order()?.batch_count();
        self.identity.check_sequential(state, &self.orders, batches)
    }

    /// The order of the shards.
    fn sequential_order(&self) -> Result<PassOrder, Error> {
        let [units] = &self.units[..] else {
            return Err(Error::Config {
                key: "mixture",
                reason: "a sequential pass goes over one dataset, open that by itself".into(),
            });
        };
        let units = match units {
            // Those of an epoch are not all rows once.
            Units::Classes(_) => {
                let blocks = Blocks::of(self.inputs[0].block_table(), self.config.extent_bytes);
                Units::Rows(Arc::new(blocks))
            }
            units => units.clone(),
        };
        Ok(PassOrder::sequential(
            units,
            self.config.global_batch,
            LastBatch::Keep,
        ))
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

    /// Samples in the last batch of an epoch, over all ranks, padding included; those of a sequential pass if `is_shuffled`
    /// is false. With fewer than ranks, some of them get a batch without samples.
    #[must_use]
    pub fn last_batch_rows(&self, is_shuffled: bool) -> u64 {
        let order = match is_shuffled {
            true => self
                .identity
                .resume(self.start_state(), &self.orders)
                .map(|(_, order)| order),
            false => self.sequential_order(),
        };
        // A mixture has no sequential pass, and a loader is opened only when there is a batch.
        order.map_or(0, |order| {
            order.slots(order.batch_count().saturating_sub(1))
        })
    }

    /// Samples in the split, over all ranks: rows, or for tokens what fills a row, or for balanced classes those of an
    /// epoch. Of a mixture, those of all datasets together.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.units
            .iter()
            .map(|units| units.blocks().samples())
            .sum()
    }

    /// Kind of the rows of its batches.
    #[must_use]
    pub fn kind(&self) -> BatchKind {
        self.engine.filler.kind
    }

    /// The manifest in use, of a mixture that of the first dataset; none for a dataset in another format than ours.
    #[must_use]
    pub fn manifest(&self) -> Option<&Manifest> {
        self.inputs[0].manifest()
    }

    /// The datasets it reads, in the order in which they were given to [`Loader::open_mixture`].
    pub fn sources(&self) -> impl Iterator<Item = LoaderSource<'_>> {
        self.inputs
            .iter()
            .zip(&self.units)
            .map(|(input, units)| LoaderSource {
                fingerprint: input.fingerprint(),
                samples: units.blocks().samples(),
                manifest: input.manifest(),
            })
    }

    /// Samples that each dataset gave before `state`, in all epochs and over all ranks. Of a mixture, rows that came again
    /// are counted again.
    ///
    /// # Errors
    /// As [`Loader::epoch`].
    pub fn given(&self, state: LoaderState) -> Result<Vec<u64>, Error> {
        let (state, order) = self.identity.resume(state, &self.orders)?;
        Ok(order.given(state.batch.get()))
    }

    /// Names of the classes of the target, index = id; those of a mixture are the same in all datasets. `None` where the
    /// target is no class, and for formats other than ours, whose ids are the labels themselves.
    #[must_use]
    pub fn classes(&self) -> Option<Vec<&str>> {
        self.inputs[0].class_names()
    }

    /// A hash that changes when the dataset does; every state carries it.
    #[must_use]
    pub fn fingerprint(&self) -> Hash128 {
        self.inputs[0].fingerprint()
    }

    /// Forecast of an epoch: its reads, its memory, and the quality of its shuffle. Simulates some
    /// hundred batches, which takes up to seconds, and reads nothing.
    ///
    /// # Panics
    /// Never: a loader is opened only when there is a batch.
    #[must_use]
    pub fn plan(&self) -> LoaderPlan {
        let first = self.identity.resume(self.start_state(), &self.orders);
        let (_, order) = first.expect("a loader is opened only when there is a batch");
        let sources = self.engine.sources.inputs.iter();
        let sources: Vec<_> = sources
            .map(|source| (&**source.input.block_table(), source.joined_bytes))
            .collect();
        let classes = self.classes().map(|names| names.len() as u64);
        LoaderPlan::new(&self.orders, &order, &sources, &self.config, classes)
    }

    /// Metrics of all passes so far.
    #[must_use]
    pub fn metrics(&self) -> LoaderMetrics {
        self.engine.metrics()
    }

    /// Decisions about datasets that their user should know of, as sentences, such as files of another format than ours that
    /// belong to no split, or fitted numbers that differ in a mixture. Each is logged when it comes up.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let inputs = self.inputs.iter();
        inputs.flat_map(|input| input.warnings()).collect()
    }

    /// The number of [`Loader::warnings`], without copying them.
    #[must_use]
    pub fn warning_count(&self) -> usize {
        let inputs = self.inputs.iter();
        inputs.map(|input| input.warning_count()).sum()
    }

    /// Paths of the shards that were left out when the loader was opened, since their files are incomplete, each relative to
    /// its dataset folder; see [`BadShards`](crate::BadShards).
    #[must_use]
    pub fn skipped_shards(&self) -> Vec<&str> {
        let inputs = self.inputs.iter();
        let paths = inputs.flat_map(|input| &input.skipped().paths);
        paths.map(String::as_str).collect()
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
