//! Opening a loader in a few words.

use std::sync::Arc;

use feedline_schemas::{
    ids::{Rank, Seed},
    loader_state::LoaderState,
    manifest::Split,
};
use feedline_storage::{
    Store, StoreOptions,
    clock::{Clock, SystemClock},
};

use crate::{
    BadShards, ClassBalance, Error, InputConfig, Loader, LoaderConfig, SplitChoice, TokensConfig,
    device::HostLock, image::ImageConfig,
};

/// Settings of a loader to be opened; from [`Loader::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is opened"]
pub struct LoaderBuilder {
    url: String,
    options: StoreOptions,
    config: LoaderConfig,
    clock: Arc<dyn Clock>,
    resume: Option<LoaderState>,
    lock: Option<Arc<dyn HostLock>>,
}

impl LoaderBuilder {
    pub(crate) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            options: StoreOptions::default(),
            config: LoaderConfig::new(SplitChoice::Unnamed, Seed::new(0), 256),
            clock: Arc::new(SystemClock),
            resume: None,
            lock: None,
        }
    }

    /// Split to read. Default [`SplitChoice::Unnamed`].
    pub const fn split(mut self, split: Split) -> Self {
        self.config.split = SplitChoice::Named(split);
        self
    }

    /// Samples in a global batch, over all ranks together. Default 256.
    pub const fn batch_size(mut self, global_batch: u32) -> Self {
        self.config.global_batch = global_batch;
        self
    }

    /// Seed of the shuffle and of random augmentations. Default 0.
    pub const fn seed(mut self, seed: u64) -> Self {
        self.config.seed = Seed::new(seed);
        self
    }

    /// Rank of this loader and number of ranks. Default 0 of 1.
    pub const fn rank(mut self, rank: u32, world_size: u32) -> Self {
        self.config.rank = Rank::new(rank);
        self.config.world_size = world_size;
        self
    }

    /// Image transforms; required for datasets of images.
    pub fn images(mut self, images: ImageConfig) -> Self {
        self.config.images = Some(images);
        self
    }

    /// Packing of documents into rows; required for datasets of tokens.
    pub const fn tokens(mut self, tokens: TokensConfig) -> Self {
        self.config.tokens = Some(tokens);
        self
    }

    /// Sampling rate of each class, for datasets with classes as targets. Default: each row appears
    /// once.
    pub fn class_balance(mut self, balance: ClassBalance) -> Self {
        self.config.class_balance = Some(balance);
        self
    }

    /// The dataset's format and columns; our own shards need none.
    pub fn input(mut self, input: InputConfig) -> Self {
        self.config.input = input;
        self
    }

    /// Most threads that fill batches; 0 means one for each processor, which is the default.
    pub const fn threads(mut self, threads: u32) -> Self {
        self.config.threads = threads;
        self
    }

    /// Handling of shards with incomplete files. Default: opening fails.
    pub const fn bad_shards(mut self, bad_shards: BadShards) -> Self {
        self.config.bad_shards = bad_shards;
        self
    }

    /// Changes any of the other settings.
    pub fn configure(mut self, change: impl FnOnce(&mut LoaderConfig)) -> Self {
        change(&mut self.config);
        self
    }

    /// Options of the stores from the environment: credentials, endpoints, regions. Default none.
    pub fn store_options(mut self, options: StoreOptions) -> Self {
        self.options = options;
        self
    }

    /// The clock that waits are measured on. Default the machine's.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Resumes after the batch that carried this state, on any number of ranks.
    ///
    /// ```
    /// use feedline_loader::{Loader, LoaderState};
    /// use feedline_schemas::{decode, encode};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let url = folder.path().to_str().ok_or("not UTF-8")?;
    /// # let cells = arrow::array::Float32Array::from_iter_values((0_u8..10).map(f32::from));
    /// # let cells: arrow::array::ArrayRef = std::sync::Arc::new(cells);
    /// # let rows = arrow::array::RecordBatch::try_from_iter([("area", cells)])?;
    /// # let file = std::fs::File::create(folder.path().join("rows.parquet"))?;
    /// # let mut writer = parquet::arrow::ArrowWriter::try_new(file, rows.schema(), None)?;
    /// # writer.write(&rows)?;
    /// # writer.close()?;
    /// let loader = Loader::builder(url).batch_size(4).open_blocking()?;
    /// assert_eq!((loader.samples(), loader.batches_per_epoch()), (10, 3));
    /// let batch = loader.batches()?.next().ok_or("there are no batches")??;
    /// // Saved with the model, and read back by the next process.
    /// let saved = encode(batch.state());
    /// let state: LoaderState = decode("loader-state.json", &saved)?;
    /// let resumed = Loader::builder(url).batch_size(4).resume(state).open_blocking()?;
    /// assert_eq!(resumed.batches()?.remaining(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resume(mut self, state: LoaderState) -> Self {
        self.resume = Some(state);
        self
    }

    /// Page-locks the memory of batches, so that a device can copy from it; see [`Loader::lock_batches`].
    pub fn lock_batches(mut self, lock: Arc<dyn HostLock>) -> Self {
        self.lock = Some(lock);
        self
    }

    /// Opens the loader.
    ///
    /// # Errors
    /// [`Error::Location`] for a URL that cannot be used; [`Error::StateMismatch`] for a state of another dataset or
    /// order; those of [`Loader::open`].
    pub async fn open(self) -> Result<Loader, Error> {
        let store = Store::open(&self.url, &self.options).map_err(|source| Error::Location {
            source: Box::new(source),
        })?;
        let loader = Loader::open(&store, &self.config, self.clock).await?;
        if let Some(lock) = self.lock {
            loader.lock_batches(lock);
        }
        if let Some(state) = self.resume {
            loader.resume(state)?;
        }
        Ok(loader)
    }

    /// As [`open`](Self::open), for callers without an async runtime. Inside one it would stop the runtime's thread.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`Error::Thread`].
    pub fn open_blocking(self) -> Result<Loader, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|source| Error::Thread {
                stage: "open",
                source,
            })?;
        runtime.block_on(self.open())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opening_may_move_between_threads() {
        fn moves<F: Future + Send>(_: &F) {}
        moves(&Loader::builder("out/dataset").open());
    }
}
