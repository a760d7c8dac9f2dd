//! Opening a loader, and one pass over it.

use std::{
    collections::BTreeMap,
    process,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::Poll,
    time::Duration,
};

use feedline_loader::{
    BadValues, ColumnMap, EpochBatches, Error, InputConfig, InputFormat, LastBatch, LoaderConfig,
    TokenLayout, TokensConfig,
    picture::{MixedBy, PictureConfig},
};
use feedline_schemas::{
    ids::{Rank, Seed},
    loader_state::LoaderState,
    manifest::{Split, TargetKind},
};
use feedline_storage::{Store, StoreOptions, clock::SystemClock};
use pyo3::prelude::*;

use crate::{
    batch::{Batch, Place},
    errors, waiting,
};

/// What `Loader` is opened with. Python has filled in every default that is its own.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Settings {
    split: String,
    seed: u64,
    global_batch: u32,
    rank: u32,
    world_size: u32,
    domains: Option<u32>,
    window_blocks: Option<u32>,
    prefetch_bytes: Option<u64>,
    slabs: Option<u32>,
    threads: Option<u32>,
    reads: Option<u32>,
    stall_timeout_s: Option<f64>,
    max_bad_share: Option<f64>,
    /// JSON of a `PictureConfig`.
    pictures: Option<String>,
    tokens: Option<Tokens>,
    extent_bytes: Option<u64>,
    last_batch: String,
    format: Option<String>,
    columns: Columns,
    target: Option<String>,
    /// Number of classes, when the target is a class.
    classes: Option<u32>,
    bad_values: String,
    /// What the environment says about object stores.
    variables: BTreeMap<String, String>,
}

/// How documents become rows.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Tokens {
    length: u32,
    pack: bool,
    padding_id: u32,
}

/// Columns by what they are used as.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Columns {
    x: Vec<String>,
    y: Option<String>,
    image: Option<String>,
    tokens: Option<String>,
    key: Option<String>,
}

/// One split of a dataset, opened.
#[pyclass(frozen, module = "feedline._feedline")]
pub(crate) struct Loader {
    inner: Arc<feedline_loader::Loader>,
    /// The process that its threads live in.
    process: u32,
    /// Batches of the ring that Python may hold while the loader goes on without copying.
    holdable: usize,
}

/// The batches of one pass.
#[pyclass(frozen, module = "feedline._feedline")]
pub(crate) struct Batches {
    pass: Mutex<Option<EpochBatches>>,
    held: Arc<AtomicUsize>,
    holdable: usize,
}

#[pymethods]
impl Loader {
    /// Opens the dataset at `url`.
    #[new]
    fn new(py: Python<'_>, url: &str, settings: Settings) -> PyResult<Self> {
        let config = settings.config(py)?;
        let options = StoreOptions {
            vars: settings.variables,
        };
        let store = Store::open(url, &options)
            .map_err(|error| errors::of_class(py, "ReadError", &error.to_string()))?;
        let opened = waiting::run(py, async {
            feedline_loader::Loader::open(&store, &config, Arc::new(SystemClock)).await
        })?;
        Ok(Self {
            inner: Arc::new(opened.map_err(|error| errors::exception(py, &error))?),
            process: process::id(),
            holdable: config.slabs as usize - 1,
        })
    }

    /// The state before the first batch of `epoch`, as JSON.
    fn start_state(&self, epoch: u64) -> String {
        let mut state = self.inner.start_state();
        state.epoch = feedline_schemas::ids::Epoch::new(epoch);
        json(&state)
    }

    /// The rest of the epoch from `state` on, or, without one, every sample once in shard order.
    #[pyo3(signature = (state=None))]
    fn start(&self, py: Python<'_>, state: Option<&str>) -> PyResult<Batches> {
        if self.process != process::id() {
            let error = Error::Forked {
                started_in: self.process,
                used_in: process::id(),
            };
            return Err(errors::exception(py, &error));
        }
        let state = state.map(|state| read_state(py, state)).transpose()?;
        let pass = py.detach(|| match state {
            Some(state) => self.inner.epoch(state),
            None => self.inner.sequential(),
        });
        Ok(Batches {
            pass: Mutex::new(Some(pass.map_err(|error| errors::exception(py, &error))?)),
            held: Arc::default(),
            holdable: self.holdable,
        })
    }

    /// Whether `start` would take `state`.
    fn check_state(&self, py: Python<'_>, state: &str) -> PyResult<()> {
        let state = read_state(py, state)?;
        self.inner
            .resume(state)
            .map_err(|error| errors::exception(py, &error))
    }

    /// Global batches of an epoch.
    #[getter]
    fn batches_per_epoch(&self) -> u64 {
        self.inner.batches_per_epoch()
    }

    /// Samples of the split, over all ranks.
    #[getter]
    fn samples(&self) -> u64 {
        self.inner.samples()
    }

    /// Samples and blocks that were replaced by others, as text.
    fn quarantine(&self) -> Vec<String> {
        let list = self.inner.quarantine();
        list.iter().map(|bad| format!("{bad:?}")).collect()
    }

    /// Where the time of all passes went, as JSON.
    fn metrics(&self) -> String {
        json(&self.inner.metrics())
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        if self.process != process::id() {
            // Its threads are not in this process, and waiting for their end would never end.
            std::mem::forget(Arc::clone(&self.inner));
        }
    }
}

#[pymethods]
impl Batches {
    /// Waits for the next batch; `None` after the last.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        loop {
            match py.detach(|| self.next_soon()) {
                Poll::Ready(None) => return Ok(None),
                Poll::Ready(Some(Ok(batch))) => return Ok(Some(batch)),
                Poll::Ready(Some(Err(error))) => return Err(errors::exception(py, &error)),
                Poll::Pending => py.check_signals()?,
            }
        }
    }

    /// Batches of the ring that Python holds.
    #[getter]
    fn held(&self) -> usize {
        self.held.load(SeqCst)
    }

    /// Ends the pass and its threads.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.pass().take()));
    }
}

impl Batches {
    fn next_soon(&self) -> Poll<Option<Result<Batch, Error>>> {
        let mut pass = self.pass();
        let Some(batches) = pass.as_mut() else {
            return Poll::Ready(None);
        };
        let received = batches.next_within(waiting::GLANCE);
        received.map(|next| next.map(|batch| batch.map(|batch| self.keep(batch))))
    }

    /// The batch as it is while one slab stays with the loader, and else a copy, so that it never stands still
    /// because Python holds every batch.
    fn keep(&self, batch: feedline_loader::Batch) -> Batch {
        match Place::take(&self.held, self.holdable) {
            Some(place) => Batch::in_place(batch, place),
            None => Batch::copied(&batch),
        }
    }

    fn pass(&self) -> MutexGuard<'_, Option<EpochBatches>> {
        self.pass.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Settings {
    fn config(&self, py: Python<'_>) -> PyResult<LoaderConfig> {
        let splits = Split::ALL.map(|split| (split.as_str(), split));
        let split = one_of(py, "split", &self.split, &splits)?;
        let mut config = LoaderConfig::new(split, Seed::new(self.seed), self.global_batch);
        config.rank = Rank::new(self.rank);
        config.world_size = self.world_size;
        config.domains = self.domains.unwrap_or(config.domains);
        config.window_blocks = self.window_blocks.unwrap_or(config.window_blocks);
        config.extent_bytes = self.extent_bytes.unwrap_or(config.extent_bytes);
        config.prefetch_bytes = self.prefetch_bytes.unwrap_or(config.prefetch_bytes);
        config.slabs = self.slabs.unwrap_or(config.slabs);
        config.threads = self.threads.unwrap_or(config.threads);
        config.reads = self.reads.unwrap_or(config.reads);
        config.max_bad_share = self.max_bad_share.unwrap_or(config.max_bad_share);
        if let Some(seconds) = self.stall_timeout_s {
            // What is no duration, infinity above all, is no limit.
            config.stall_timeout = Duration::try_from_secs_f64(seconds).ok();
        }
        let lasts = [LastBatch::Keep, LastBatch::Drop, LastBatch::Pad];
        let lasts = lasts.map(|last| (last.as_str(), last));
        config.last_batch = one_of(py, "last_batch", &self.last_batch, &lasts)?;
        config.pictures = self.pictures(py)?;
        config.tokens = self.tokens.as_ref().map(|tokens| TokensConfig {
            length: tokens.length,
            layout: if tokens.pack {
                TokenLayout::Packed
            } else {
                TokenLayout::Documents
            },
            padding_id: tokens.padding_id,
        });
        config.input = self.input(py)?;
        Ok(config)
    }

    fn input(&self, py: Python<'_>) -> PyResult<InputConfig> {
        let formats = [
            ("shards", InputFormat::Shards),
            ("parquet", InputFormat::Parquet),
            ("webdataset", InputFormat::WebDataset),
            ("mds", InputFormat::Mds),
        ];
        let bad_values = [
            ("fail", BadValues::Fail),
            ("skip", BadValues::Skip),
            ("keep", BadValues::Keep),
        ];
        let targets = [
            ("none", TargetKind::None),
            ("regression", TargetKind::Regression),
            (
                "classification",
                TargetKind::Classification {
                    classes: self.classes.unwrap_or(i32::MAX.unsigned_abs()),
                },
            ),
        ];
        let format = self.format.as_deref();
        let format = format.map(|format| one_of(py, "format", format, &formats));
        let target = self.target.as_deref();
        let target = target.map(|target| one_of(py, "target", target, &targets));
        Ok(InputConfig {
            format: format.transpose()?.unwrap_or_default(),
            columns: ColumnMap {
                x: self.columns.x.clone(),
                y: self.columns.y.clone(),
                image: self.columns.image.clone(),
                tokens: self.columns.tokens.clone(),
                key: self.columns.key.clone(),
            },
            target: target.transpose()?,
            bad_values: one_of(py, "bad_values", &self.bad_values, &bad_values)?,
        })
    }
}

/// The value called `text`.
fn one_of<T: Copy>(py: Python<'_>, key: &str, text: &str, values: &[(&str, T)]) -> PyResult<T> {
    let found = values.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<_> = values.iter().map(|(name, _)| format!("`{name}`")).collect();
        let text = format!(
            "cannot use loader setting `{key}`: it is `{text}`, use one of {}",
            names.join(", ")
        );
        errors::of_class(py, "ConfigError", &text)
    })
}

impl Settings {
    fn pictures(&self, py: Python<'_>) -> PyResult<Option<PictureConfig>> {
        let refuse = |reason: &dyn std::fmt::Display| {
            let text = format!("cannot use loader setting `pictures`: {reason}");
            errors::of_class(py, "ConfigError", &text)
        };
        let read = |text: &String| serde_json::from_str::<PictureConfig>(text);
        let pictures = self.pictures.as_ref().map(read).transpose();
        let pictures = pictures.map_err(|error| refuse(&error))?;
        let mix = pictures.as_ref().and_then(|pictures| pictures.mix);
        if mix.is_some_and(|mix| mix.mixed_by == MixedBy::Caller) {
            return Err(refuse(&"`mix.mixed_by` is `caller`, use `loader`"));
        }
        Ok(pictures)
    }
}

fn read_state(py: Python<'_>, text: &str) -> PyResult<LoaderState> {
    serde_json::from_str(text).map_err(|error| {
        let text = format!("cannot resume from this loader state: it is none: {error}");
        errors::of_class(py, "StateMismatchError", &text)
    })
}

/// Any document of the loader's as JSON.
pub(crate) fn json(document: &impl serde::Serialize) -> String {
    // Their maps have string keys, so that nothing can fail.
    serde_json::to_string(document).unwrap_or_default()
}
