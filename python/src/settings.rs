//! Settings of a loader from Python, as the loader's own settings.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use feedline_loader::{
    BadShards, BadValues, CacheConfig, ClassBalance, ColumnMap, FetchConfig, InputConfig,
    InputFormat, LastBatch, LoaderConfig, MixtureConfig, SourceEnd, SourceWeight, SplitChoice,
    TokenLayout, TokensConfig,
    image::{Augment, Crop, ImageConfig, ImageLimits, MixConfig},
};
use feedline_schemas::{
    config::ImageBackground,
    ids::{Rank, Seed},
    manifest::{Split, TargetKind},
};
use pyo3::prelude::*;
use serde::{Deserialize as _, de::DeserializeOwned};
use serde_json::Value;

use crate::errors;

/// Arguments that `Loader` is opened with. Python has filled in every default that is its own.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Settings {
    split: Option<String>,
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
    max_bad_fraction: Option<f64>,
    bad_shards: String,
    /// JSON of a `ImageConfig`.
    images: Option<String>,
    tokens: Option<Tokens>,
    /// Weight of each class; none given are all equal.
    class_balance: Option<Vec<f64>>,
    mixture: Option<Mixture>,
    cache: Option<Cache>,
    fetch: Fetch,
    extent_bytes: Option<u64>,
    last_batch: String,
    format: Option<String>,
    columns: Columns,
    target: Option<String>,
    /// Number of classes, when the target is a class.
    classes: Option<u32>,
    bad_values: String,
    /// Options of object stores from the environment.
    pub(crate) variables: BTreeMap<String, String>,
}

/// Packing of documents into rows.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Tokens {
    length: u32,
    layout: String,
    padding_id: u32,
}

/// Mixture of several datasets.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Mixture {
    /// One for each dataset.
    weights: Vec<Option<f64>>,
    ends: Vec<String>,
    stratified: bool,
    samples_per_epoch: Option<u64>,
}

/// The cache on a local disk.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Cache {
    dir: PathBuf,
    bytes: u64,
}

/// Settings of requests for bytes. Times are in seconds.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Fetch {
    local_threads: Option<u32>,
    deadline_s: Option<f64>,
    attempt_least_s: Option<f64>,
    attempt_most_s: Option<f64>,
    least_bytes_per_second: Option<u64>,
    progress_window_s: Option<f64>,
    hedge_permille: Option<u32>,
    hedge_least_s: Option<f64>,
    backoff_s: Option<f64>,
    backoff_most_s: Option<f64>,
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

impl Settings {
    /// The loader's settings.
    pub(crate) fn config(&self, py: Python<'_>) -> PyResult<LoaderConfig> {
        let splits = Split::ALL.map(|split| (split.as_str(), split));
        let split = self.split.as_deref();
        let split = split.map(|split| one_of(py, "split", split, &splits));
        let split = split
            .transpose()?
            .map_or(SplitChoice::Unnamed, SplitChoice::Named);
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
        config.max_bad_fraction = self.max_bad_fraction.unwrap_or(config.max_bad_fraction);
        let policies = [BadShards::Fail, BadShards::Skip].map(|policy| (policy.as_str(), policy));
        config.bad_shards = one_of(py, "bad_shards", &self.bad_shards, &policies)?;
        if let Some(seconds) = self.stall_timeout_s {
            config.stall_timeout = stall_timeout(py, seconds)?;
        }
        let lasts = [LastBatch::Keep, LastBatch::Drop, LastBatch::Pad];
        let lasts = lasts.map(|last| (last.as_str(), last));
        config.last_batch = one_of(py, "last_batch", &self.last_batch, &lasts)?;
        config.images = self.images(py)?;
        config.tokens = self.tokens(py)?;
        config.class_balance = self.class_balance.as_ref().map(|weights| {
            if weights.is_empty() {
                ClassBalance::Equal
            } else {
                ClassBalance::Weighted(weights.clone())
            }
        });
        config.mixture = self.mixture(py)?;
        config.cache = self.cache.as_ref().map(|cache| CacheConfig {
            dir: cache.dir.clone(),
            bytes: cache.bytes,
        });
        config.fetch = self.fetch.config(py)?;
        config.input = self.input(py)?;
        Ok(config)
    }

    fn tokens(&self, py: Python<'_>) -> PyResult<Option<TokensConfig>> {
        let layouts = [
            ("packed", TokenLayout::Packed),
            ("stream", TokenLayout::Stream),
            ("filled", TokenLayout::Filled),
            ("documents", TokenLayout::Documents),
        ];
        let tokens = self.tokens.as_ref().map(|tokens| {
            Ok(TokensConfig {
                length: tokens.length,
                layout: one_of(py, "tokens.layout", &tokens.layout, &layouts)?,
                padding_id: tokens.padding_id,
            })
        });
        tokens.transpose()
    }

    fn mixture(&self, py: Python<'_>) -> PyResult<Option<MixtureConfig>> {
        let ends = [("repeat", SourceEnd::Repeat), ("stop", SourceEnd::Stop)];
        let Some(mixture) = &self.mixture else {
            return Ok(None);
        };
        let sources = mixture.weights.iter().zip(&mixture.ends);
        let sources = sources.map(|(weight, end)| {
            Ok(SourceWeight {
                weight: *weight,
                end: one_of(py, "ends", end, &ends)?,
            })
        });
        Ok(Some(MixtureConfig {
            sources: sources.collect::<PyResult<_>>()?,
            stratified: mixture.stratified,
            samples_per_epoch: mixture.samples_per_epoch,
        }))
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

impl Fetch {
    fn config(&self, py: Python<'_>) -> PyResult<FetchConfig> {
        let time = |key: &str, given: Option<f64>, usual: Duration| {
            match given {
            None => Ok(usual),
            Some(seconds) => Duration::try_from_secs_f64(seconds).map_err(|_| {
                let text = format!(
                    "cannot use loader setting `fetch.{key}`: it is `{seconds}`, use a number of seconds"
                );
                errors::of_class(py, "ConfigError", &text)
            }),
        }
        };
        let usual = FetchConfig::new();
        Ok(FetchConfig {
            local_threads: self.local_threads.unwrap_or(usual.local_threads),
            deadline: time("deadline_s", self.deadline_s, usual.deadline)?,
            attempt_least: time("attempt_least_s", self.attempt_least_s, usual.attempt_least)?,
            attempt_most: time("attempt_most_s", self.attempt_most_s, usual.attempt_most)?,
            least_bytes_per_second: self
                .least_bytes_per_second
                .unwrap_or(usual.least_bytes_per_second),
            progress_window: time(
                "progress_window_s",
                self.progress_window_s,
                usual.progress_window,
            )?,
            hedge_permille: self.hedge_permille.unwrap_or(usual.hedge_permille),
            hedge_least: time("hedge_least_s", self.hedge_least_s, usual.hedge_least)?,
            backoff: time("backoff_s", self.backoff_s, usual.backoff)?,
            backoff_most: time("backoff_most_s", self.backoff_most_s, usual.backoff_most)?,
            ..usual
        })
    }
}

/// The longest wait for a batch; none for infinity, and for more seconds than a duration has.
fn stall_timeout(py: Python<'_>, seconds: f64) -> PyResult<Option<Duration>> {
    if seconds > 0.0 {
        return Ok(Duration::try_from_secs_f64(seconds).ok());
    }
    let text = format!(
        "cannot use loader setting `stall_timeout_s`: it is `{seconds}`, use a number of seconds above 0, or `math.inf` for no \
         limit"
    );
    Err(errors::of_class(py, "ConfigError", &text))
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
    fn images(&self, py: Python<'_>) -> PyResult<Option<ImageConfig>> {
        let Some(text) = &self.images else {
            return Ok(None);
        };
        let images = serde_json::from_str(text);
        let images: Value = images.map_err(|error| refused(py, "images", &error))?;
        let part = |key: &str| images.get(key).filter(|part| !part.is_null());
        // Parts by themselves, so that an error names their keys.
        check_part::<Crop>(py, "images.crop", part("crop"))?;
        let steps = part("augment").and_then(Value::as_array);
        for (place, step) in steps.into_iter().flatten().enumerate() {
            check_part::<Augment>(py, &format!("images.augment[{place}]"), Some(step))?;
        }
        check_part::<MixConfig>(py, "images.mix", part("mix"))?;
        check_part::<ImageLimits>(py, "images.limits", part("limits"))?;
        check_part::<ImageBackground>(py, "images.background", part("background"))?;
        let images = ImageConfig::deserialize(&images);
        images
            .map(Some)
            .map_err(|error| refused(py, "images", &error))
    }
}

/// Checks that the setting `key` is a `T`.
fn check_part<T: DeserializeOwned>(
    py: Python<'_>,
    key: &str,
    part: Option<&Value>,
) -> PyResult<()> {
    let read = part.map(|part| T::deserialize(part)).transpose();
    read.map(|_| ()).map_err(|error| refused(py, key, &error))
}

/// Error of a setting of images.
fn refused(py: Python<'_>, key: &str, reason: &serde_json::Error) -> PyErr {
    let text = format!("cannot use loader setting `{key}`: {reason}");
    errors::of_class(py, "ConfigError", &text)
}
