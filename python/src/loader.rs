//! Opening a loader, and one pass over it.

use std::{
    process,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::Poll,
    time::Duration,
};

use feedline_loader::{BadShards, BatchKind, EpochBatches, Error, LoaderConfig};
use feedline_schemas::loader_state::LoaderState;
use feedline_storage::{Store, StoreOptions, clock::SystemClock};
use pyo3::prelude::*;

use crate::{
    batch::{Batch, Place},
    errors,
    settings::Settings,
    waiting,
};

/// One split of a dataset, opened.
#[pyclass(frozen, module = "feedline._feedline")]
pub(crate) struct Loader {
    inner: Arc<feedline_loader::Loader>,
    /// The process that its threads live in.
    process: u32,
    /// Batches of the ring that Python may hold while the loader continues without copying.
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
    /// Opens the datasets at `urls`; several are mixed.
    #[new]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "Python's values are converted"
    )]
    fn new(py: Python<'_>, urls: Vec<String>, settings: Settings) -> PyResult<Self> {
        let config = settings.config(py)?;
        let options = StoreOptions {
            vars: settings.variables,
            ..StoreOptions::default()
        };
        let stores = urls.iter().map(|url| Store::open(url, &options));
        let stores = stores
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| errors::of_class(py, "ReadError", &error.to_string()))?;
        let opened = waiting::run(py, config.stall_timeout, async {
            feedline_loader::Loader::open_mixture(&stores, &config, Arc::new(SystemClock)).await
        })?;
        let opened = opened.ok_or_else(|| {
            errors::of_class(py, "StalledError", &late(&stores, config.stall_timeout))
        })?;
        let inner = opened.map_err(|error| errors::exception(py, &error))?;
        if let Some(text) = without_effect(&inner, &config) {
            return Err(errors::of_class(py, "ConfigError", &text));
        }
        Ok(Self {
            inner: Arc::new(inner),
            process: process::id(),
            holdable: config.slabs as usize - 1,
        })
    }

    /// The state before the first batch of `epoch`, as JSON.
    fn start_state(&self, epoch: u64, shuffle: bool) -> String {
        let mut state = match shuffle {
            true => self.inner.start_state(),
            false => self.inner.sequential_start(),
        };
        state.epoch = feedline_schemas::ids::Epoch::new(epoch);
        json(&state)
    }

    /// The rest of the epoch from `state` on, in the order that the state is of.
    fn start(&self, py: Python<'_>, state: &str) -> PyResult<Batches> {
        if self.process != process::id() {
            let error = Error::Forked {
                started_in: self.process,
                used_in: process::id(),
            };
            return Err(errors::exception(py, &error));
        }
        let state = read_state(py, state)?;
        let pass = py.detach(|| match state.shuffle {
            true => self.inner.epoch(state),
            false => self.inner.sequential_from(state),
        });
        Ok(Batches {
            pass: Mutex::new(Some(pass.map_err(|error| errors::exception(py, &error))?)),
            held: Arc::default(),
            holdable: self.holdable,
        })
    }

    /// Checks that `state` is one of this loader with these samples shuffled or not.
    fn check_state(&self, py: Python<'_>, state: &str, shuffle: bool) -> PyResult<()> {
        let state = read_state(py, state)?;
        let checked = match shuffle {
            true => self.inner.resume(state),
            false => self.inner.check_sequential(&state),
        };
        checked.map_err(|error| errors::exception(py, &error))
    }

    /// Global batches of an epoch.
    #[getter]
    fn batches_per_epoch(&self) -> u64 {
        self.inner.batches_per_epoch()
    }

    /// Samples of the last batch of an epoch, over all ranks, padding included.
    fn last_batch_rows(&self, shuffle: bool) -> u64 {
        self.inner.last_batch_rows(shuffle)
    }

    /// Samples of the split, over all ranks.
    #[getter]
    fn samples(&self) -> u64 {
        self.inner.samples()
    }

    /// Names of the classes by id; `None` where the target is no class, or the format has no names.
    #[getter]
    fn classes(&self) -> Option<Vec<String>> {
        let names = self.inner.classes()?;
        Some(names.into_iter().map(str::to_owned).collect())
    }

    /// Samples and blocks that were replaced by others, as text.
    fn quarantine(&self) -> Vec<String> {
        let list = self.inner.quarantine();
        list.iter().map(ToString::to_string).collect()
    }

    /// Keys of the samples that were replaced by others; a damaged block has none.
    fn quarantined_keys(&self) -> Vec<u64> {
        let list = self.inner.quarantine();
        list.iter().filter_map(|bad| bad.key).collect()
    }

    /// Decisions about datasets that their user should know of.
    fn warnings(&self) -> Vec<String> {
        self.inner.warnings()
    }

    /// Number of warnings.
    #[getter]
    fn warning_count(&self) -> usize {
        self.inner.warning_count()
    }

    /// Metrics of all passes, as JSON.
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

    /// The batch itself while one slab stays with the loader, and else a copy, so that the loader
    /// never stops because Python holds every batch.
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

/// Message about datasets that have not opened within `limit`.
fn late(stores: &[Store], limit: Option<Duration>) -> String {
    let urls = stores.iter().map(|store| format!("`{}`", store.url()));
    let urls: Vec<_> = urls.collect();
    let seconds = limit.unwrap_or_default().as_secs_f64();
    format!(
        "cannot open {} within `{seconds}` s: no response, or a slow one; check the address and the network, or raise \
         `stall_timeout_s`",
        urls.join(", ")
    )
}

/// The refusal of a setting that the opened datasets have no use for.
fn without_effect(loader: &feedline_loader::Loader, config: &LoaderConfig) -> Option<String> {
    let (has_documents, has_images) = match loader.kind() {
        BatchKind::Rows { .. } => (false, false),
        BatchKind::Images { .. } => (false, true),
        BatchKind::Tokens { .. } => (true, false),
        BatchKind::Multi { height, .. } => (false, height > 0),
    };
    let has_shards = loader.sources().any(|source| source.manifest.is_some());
    let (key, reason) = if config.tokens.is_some() && !has_documents {
        let reason =
            "it says how documents become rows, and the dataset has no documents of token ids";
        ("tokens", reason)
    } else if config.images.is_some() && !has_images {
        let reason = "it says how images are decoded, and the dataset has no images";
        ("images", reason)
    } else if config.bad_shards == BadShards::Skip && !has_shards {
        let reason = "it is about shards of feedline, and the dataset has another format";
        ("bad_shards", reason)
    } else {
        return None;
    };
    Some(format!(
        "cannot use loader setting `{key}`: {reason}; remove it"
    ))
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
