//! The dataset's splits, each behind its loader.

use std::{collections::BTreeMap, num::NonZero, sync::Arc, thread, time::Duration};

use feedline_loader::{
    BadShards, BatchKind, CacheConfig, FetchConfig, InputFormat, Loader, LoaderConfig, Target,
    TokenLayout, TokensConfig,
    picture::{Crop, PictureConfig},
};
use feedline_schemas::{
    config::{BadShardsPolicy, ModelKind, PackMode, PicturesConfig, TrainConfig},
    ids::Rank,
    loader_state::LoaderState,
    manifest::{Manifest, Split},
};
use feedline_storage::{Store, clock::Clock};

use crate::{
    data::{Batch, Batches, Data, Inputs, Samples, Targets},
    error::Error,
    models,
    parallel::{Group, narrow},
    plan,
};

/// Most threads that a loader takes.
const THREADS_MAX: u32 = 1024;

/// Reason to open a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To train on the training split, and to measure the others.
    Training,
    /// To measure weights, on whichever split.
    Measuring,
}

/// The loader's settings for a split of the dataset that `config` trains on.
#[must_use]
pub fn settings(config: &TrainConfig, split: Split) -> LoaderConfig {
    settings_for(Purpose::Training, config, split)
}

/// The same for a purpose: what is measured is not augmented, so that figures of all splits compare.
fn settings_for(purpose: Purpose, config: &TrainConfig, split: Split) -> LoaderConfig {
    let given = &config.loader;
    let mut settings = LoaderConfig {
        domains: given.domains,
        window_blocks: given.window_blocks,
        extent_bytes: given.extent_bytes.bytes(),
        prefetch_bytes: given.prefetch_bytes.bytes(),
        slabs: given.slabs,
        threads: given.threads,
        reads: given.reads,
        stall_timeout: (given.stall_seconds > 0).then(|| Duration::from_secs(given.stall_seconds)),
        max_bad_share: given.max_bad_share,
        bad_shards: match given.bad_shards {
            BadShardsPolicy::Fail => BadShards::Fail,
            BadShardsPolicy::Skip => BadShards::Skip,
        },
        fetch: FetchConfig {
            deadline: Duration::from_secs(given.deadline_seconds),
            ..FetchConfig::new()
        },
        cache: given.cache.as_ref().map(|cache| CacheConfig {
            dir: (&cache.dir).into(),
            bytes: cache.bytes.bytes(),
        }),
        ..LoaderConfig::new(split, config.seed, config.batch_size)
    };
    settings.input.format = InputFormat::Shards;
    let PicturesConfig {
        height,
        width,
        augment,
        ..
    } = config.pictures;
    let trained_on = purpose == Purpose::Training && split == Split::Train;
    settings.pictures = Some(if augment && trained_on {
        PictureConfig::training(height, width)
    } else {
        PictureConfig::new(height, width, Crop::Whole)
    });
    if models::reads_tokens(&config.model) {
        // One id more than the model reads: the last is only predicted.
        let length = u32::try_from(plan::context(config) + 1).unwrap_or(u32::MAX);
        let layout = match given.pack.unwrap_or_default() {
            // Every token of a document but its first counts in what is measured.
            PackMode::BestFit if !trained_on => TokenLayout::PackedOverlapping,
            PackMode::BestFit => TokenLayout::Packed,
            PackMode::Fill => TokenLayout::Filled,
        };
        settings.tokens = Some(TokensConfig::new(length).with_layout(layout));
    }
    settings
}

/// `config` with what it leaves to the dataset, where that says it: how many ids a model reads of a row, how documents become
/// rows, and how many steps a window has. Reads the manifest, if there is one.
///
/// # Errors
/// What is wrong with the manifest; that there is no dataset is no error.
pub async fn settled(
    config: &TrainConfig,
    dataset: &Store,
) -> Result<TrainConfig, feedline_loader::Error> {
    let mut config = config.clone();
    let reads_tokens = models::reads_tokens(&config.model);
    let is_lstm = config.model.r#type == ModelKind::Lstm;
    let reads_steps = is_lstm && !reads_tokens && config.model.steps.is_none();
    if !reads_tokens && !reads_steps {
        return Ok(config);
    }
    let manifest = match feedline_loader::read_manifest(dataset).await {
        Err(feedline_loader::Error::NoDataset { .. }) => return Ok(config),
        manifest => manifest?,
    };
    if reads_steps {
        config.model.steps = manifest.counts.sequence.map(|windows| windows.length);
        return Ok(config);
    }
    if let Some(tokens) = manifest.tokens {
        config.model.context = config.model.context.or(tokens.window);
        config.loader.pack = config.loader.pack.or(Some(tokens.pack));
    }
    Ok(config)
}

/// The loader's word on a setting of its own, as one on a key of `[train.loader]`.
fn in_section(error: feedline_loader::Error) -> Error {
    match error {
        feedline_loader::Error::Config { key, reason } => {
            let key = match key {
                "fetch.deadline" => "loader.deadline_seconds".to_owned(),
                "tokens" => return crate::error::config("model.type", models::ON_TOKENS),
                "tokens.length" => "model.context".to_owned(),
                "tokens.layout" => "loader.pack".to_owned(),
                key if key.starts_with("pictures") => key.to_owned(),
                key => format!("loader.{key}"),
            };
            crate::error::config(&key, reason)
        }
        error => error.into(),
    }
}

/// Loaders by split; at least one.
#[derive(Debug)]
pub(crate) struct Loaders {
    by_split: BTreeMap<Split, Loader>,
}

impl Loaders {
    /// Opens `splits`, at least one, for a purpose and the rank's share of batches of the configured size.
    ///
    /// # Errors
    /// [`Error::Loader`], also for a split without rows: better now than after hours of training.
    pub(crate) async fn open(
        dataset: &Store,
        config: &TrainConfig,
        (purpose, splits): (Purpose, &[Split]),
        group: &Group,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, Error> {
        let place = group.place();
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let mut by_split = BTreeMap::new();
        for &split in splits {
            let mut settings = LoaderConfig {
                rank: Rank::new(narrow(place.rank)),
                world_size: narrow(place.world),
                ..settings_for(purpose, config, split)
            };
            if settings.threads == 0 && group.has_others() {
                settings.threads = narrow(group.threads_of(processors)).min(THREADS_MAX);
            }
            let opened = Loader::open(dataset, &settings, Arc::clone(clock)).await;
            by_split.insert(split, opened.map_err(in_section)?);
        }
        let loaders = Self { by_split };
        // Each loader reads `CURRENT`: a build that is published in between must not mix two datasets.
        let fingerprint = loaders.manifest().fingerprint;
        if loaders
            .by_split
            .values()
            .any(|loader| loader.fingerprint() != fingerprint)
        {
            return Err(Error::Dataset {
                url: dataset.url(),
                reason: "it was built anew while it was being opened; start again".into(),
            });
        }
        Ok(loaders)
    }

    /// The manifest of the dataset.
    pub(crate) fn manifest(&self) -> &Manifest {
        self.by_split
            .values()
            .next()
            .and_then(Loader::manifest)
            .expect("there is at least one split, and only shards with a manifest are opened")
    }

    /// Whether a split was opened.
    pub(crate) fn has(&self, split: Split) -> bool {
        self.by_split.contains_key(&split)
    }

    fn of(&self, split: Split) -> &Loader {
        self.by_split
            .get(&split)
            .expect("the caller opened the splits it uses")
    }
}

impl Data for Loaders {
    type Batch = feedline_loader::Batch;

    fn start(&self) -> LoaderState {
        self.of(Split::Train).start_state()
    }

    fn batches_per_epoch(&self) -> u64 {
        self.of(Split::Train).batches_per_epoch()
    }

    fn epoch(&self, from: LoaderState) -> Result<Batches<'_, Self::Batch>, Error> {
        Ok(Box::new(
            self.of(Split::Train).epoch(from)?.map(|batch| Ok(batch?)),
        ))
    }

    fn sequential(&self, split: Split) -> Result<Batches<'_, Self::Batch>, Error> {
        Ok(Box::new(
            self.of(split).sequential()?.map(|batch| Ok(batch?)),
        ))
    }
}

impl Batch for feedline_loader::Batch {
    fn samples(&self) -> Samples<'_> {
        let targets = match self.y() {
            Target::Regression(y) => Targets::Numbers(y),
            Target::Classification(y) => Targets::Classes(y),
            Target::None => Targets::None,
        };
        let mut inputs = Inputs {
            x: self.x(),
            features: self.features(),
            pixels: self.pixels(),
            tokens: self.tokens(),
            segments: self.segments(),
            positions: self.positions(),
            ..Inputs::default()
        };
        match self.kind() {
            BatchKind::Rows { .. } => {}
            BatchKind::Pictures { height, width } => inputs.sides = [height, width],
            BatchKind::Tokens { length, .. } => inputs.length = length,
            BatchKind::Multi {
                height,
                width,
                length,
                ..
            } => {
                inputs.sides = [height, width];
                inputs.length = length;
                inputs.lengths = (length > 0).then(|| self.lengths());
            }
        }
        let place = self.place();
        Samples::new(self.rows(), inputs, targets).within(place.first_row, place.global_rows)
    }

    fn keys(&self) -> &[u64] {
        self.keys()
    }

    fn origins(&self) -> &[u64] {
        self.origins()
    }

    fn state(&self) -> &LoaderState {
        self.state()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn augmented_training_images_are_measured_without_augmentation() {
        let mut config = TrainConfig::default();
        config.pictures.augment = true;
        let crop = |purpose, split| {
            let pictures = settings_for(purpose, &config, split).pictures.unwrap();
            (pictures.crop, pictures.augment.len())
        };
        let (trained_on, flips) = crop(Purpose::Training, Split::Train);
        assert!(matches!(trained_on, Crop::RandomResized { .. }));
        assert_eq!(flips, 1);
        for split in Split::ALL {
            let found = crop(Purpose::Measuring, split);
            assert_eq!(found, (Crop::Whole, 0), "{split}");
        }
    }
}
