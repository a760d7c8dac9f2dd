//! The dataset's splits, each behind its loader.

use std::{collections::BTreeMap, num::NonZero, sync::Arc, thread, time::Duration};

use feedline_loader::{
    BadShards, BatchKind, CacheConfig, ClassBalance, FetchConfig, InputFormat, Loader,
    LoaderConfig, Target, TokenLayout, TokensConfig, device::Pinning,
};
use feedline_schemas::{
    config::{
        BadShardsPolicy, BalanceRule, ClassBalanceConfig, DeviceChoice, ModelKind, PackMode,
        TrainConfig, TrainMixture,
    },
    ids::Rank,
    loader_state::LoaderState,
    manifest::{Manifest, Split},
    report::{MixedSource, Warning},
    run::LeftOutShards,
};
use feedline_storage::{Store, clock::Clock};

use crate::{
    config::loader_keys::in_section,
    data::{
        images, mixture,
        quarantine::{UnusableSamples, left_out_shards, warning_of_shards},
        samples::{Batches, Data, ModelInputs, RankBatch, Samples, Targets},
    },
    device,
    error::Error,
    model::{class_outputs, models},
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

/// Opens what `config` trains on, as the only rank: the training split of `dataset`, or those of a mixture.
///
/// # Errors
/// [`Error::Config`] for what the datasets do not allow, [`Error::Loader`].
pub async fn open_training(
    config: &TrainConfig,
    dataset: &Store,
    clock: Arc<dyn Clock>,
) -> Result<Loader, Error> {
    let settings = settings_for(Purpose::Training, config, Split::Train);
    open_train(config, dataset, settings, clock).await
}

/// Opens the training split of `dataset`, or those of a mixture, to train on.
async fn open_train(
    config: &TrainConfig,
    dataset: &Store,
    mut settings: LoaderConfig,
    clock: Arc<dyn Clock>,
) -> Result<Loader, Error> {
    if let Some(balance) = &config.loader.balance {
        settings.class_balance = Some(class_balance(balance, dataset).await?);
    }
    match &config.mixture {
        Some(mixture) => mixture::open(dataset, mixture, &settings, clock).await,
        None => Loader::open(dataset, &settings, clock)
            .await
            .map_err(in_section),
    }
}

/// The shares of classes by id.
async fn class_balance(
    balance: &ClassBalanceConfig,
    dataset: &Store,
) -> Result<ClassBalance, Error> {
    let shares = match balance {
        ClassBalanceConfig::Rule(BalanceRule::Equal) => return Ok(ClassBalance::Equal),
        ClassBalanceConfig::Named(shares) => shares,
    };
    let manifest = feedline_loader::read_manifest(dataset).await?;
    let names: Vec<&String> = manifest.counts.classes.iter().map(|c| &c.name).collect();
    let unknown: Vec<&String> = shares.keys().filter(|name| !names.contains(name)).collect();
    if !unknown.is_empty() {
        let reason = if names.is_empty() {
            "the dataset has no classes as targets; leave it out".to_owned()
        } else {
            format!(
                "the dataset has no class {}; it has {}",
                class_outputs::list(&unknown),
                class_outputs::list(&names)
            )
        };
        return Err(crate::error::config("loader.balance", reason));
    }
    let of = |name: &&String| shares.get(*name).copied().unwrap_or(1.0);
    Ok(ClassBalance::Weighted(names.iter().map(of).collect()))
}

/// Batches of the loader at one time: the configured ones and, on a device, those that are copied there ahead.
fn slabs(config: &TrainConfig) -> u32 {
    let given = config.loader.slabs;
    // The loader refuses a number outside of these.
    if LoaderConfig::SLABS.contains(&given) && device::may_be_gpu(config.device) {
        (given + config.loader.device_prefetch).min(*LoaderConfig::SLABS.end())
    } else {
        given
    }
}

/// Checks `[train.loader]`, and what else the loader asks of the configuration, without a dataset.
///
/// # Errors
/// [`Error::Config`] with the key.
pub fn check_loader(config: &TrainConfig) -> Result<(), Error> {
    // No device is looked for.
    let config = TrainConfig {
        device: DeviceChoice::Cpu,
        ..config.clone()
    };
    let settings = settings_for(Purpose::Training, &config, Split::Train);
    settings.check().map_err(in_section)
}

/// The loader's settings for a split and a purpose: what is measured is neither augmented nor mixed, so that figures of all
/// splits compare.
fn settings_for(purpose: Purpose, config: &TrainConfig, split: Split) -> LoaderConfig {
    let given = &config.loader;
    let mut settings = LoaderConfig {
        domains: given.domains,
        window_blocks: given.window_blocks,
        extent_bytes: given.extent_bytes.bytes(),
        prefetch_bytes: given.prefetch_bytes.bytes(),
        slabs: slabs(config),
        threads: given.threads,
        reads: given.reads,
        stall_timeout: (given.stall_s > 0).then(|| Duration::from_secs(given.stall_s)),
        max_bad_fraction: given.max_bad_fraction,
        bad_shards: match given.bad_shards {
            BadShardsPolicy::Fail => BadShards::Fail,
            BadShardsPolicy::Skip => BadShards::Skip,
        },
        fetch: FetchConfig {
            deadline: Duration::from_secs(given.deadline_s),
            ..FetchConfig::new()
        },
        cache: given.cache.as_ref().map(|cache| CacheConfig {
            dir: (&cache.dir).into(),
            bytes: cache.bytes.bytes(),
        }),
        ..LoaderConfig::new(split, config.seed, config.batch_size)
    };
    settings.input.format = InputFormat::Shards;
    let trained_on = purpose == Purpose::Training && split == Split::Train;
    settings.images = Some(images::for_loader(&config.images, trained_on));
    if models::reads_tokens(&config.model) {
        // One id more than the model reads: the last is only predicted.
        let length = u32::try_from(plan::context(config) + 1).unwrap_or(u32::MAX);
        let layout = match given.pack.unwrap_or_default() {
            // Every token of a document but its first counts in what is measured.
            PackMode::BestFit if !trained_on => TokenLayout::PackedOverlapping,
            PackMode::BestFit => TokenLayout::Packed,
            PackMode::Fill | PackMode::Stream => TokenLayout::Filled,
        };
        settings.tokens = Some(TokensConfig::new(length).with_layout(layout));
    }
    settings
}

/// `config` with what it leaves to the dataset, where that says it: how many ids a model reads of a row, how documents become
/// rows, how many steps a window has, and the fingerprints of the datasets that it is mixed with. Reads the manifests that
/// it needs for that, if there are any.
///
/// # Errors
/// An error of a manifest; a dataset that is absent is no error, but for those that it is mixed with.
pub async fn settled(config: &TrainConfig, dataset: &Store) -> Result<TrainConfig, Error> {
    let mut config = config.clone();
    if let Some(mixture) = &config.mixture {
        config.mixture = Some(mixture::settled(mixture, dataset).await?);
    }
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

/// Loaders by split; at least one.
#[derive(Debug)]
pub(crate) struct Loaders {
    by_split: BTreeMap<Split, Loader>,
    dataset_url: String,
    /// Datasets that the training split is mixed with.
    mixture: Option<TrainMixture>,
    /// True where a row of tokens is one stream, whose documents see each other.
    is_stream: bool,
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
            let clock = Arc::clone(clock);
            let loader = if purpose == Purpose::Training && split == Split::Train {
                open_train(config, dataset, settings, clock).await?
            } else {
                let opened = Loader::open(dataset, &settings, clock).await;
                opened.map_err(in_section)?
            };
            by_split.insert(split, loader);
        }
        let loaders = Self {
            by_split,
            dataset_url: dataset.url(),
            mixture: config.mixture.clone(),
            is_stream: config.loader.pack == Some(PackMode::Stream),
        };
        // Each loader reads `CURRENT`: a build that is published in between must not mix two datasets.
        let fingerprint = loaders.manifest().fingerprint;
        if loaders
            .by_split
            .values()
            .any(|loader| loader.fingerprint() != fingerprint)
        {
            return Err(Error::Dataset {
                url: dataset.url(),
                reason: "it was rebuilt while it was being opened; start again".into(),
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

    /// Warning that less of the memory of batches than wanted was page-locked.
    pub(crate) fn locking_warning(&self) -> Option<Warning> {
        let found = self
            .by_split
            .values()
            .map(|loader| loader.metrics().pinning);
        let worst = found.max_by_key(|pinning| match pinning {
            Pinning::NotAsked | Pinning::Whole => 0,
            Pinning::Fewer => 1,
            Pinning::Part => 2,
            Pinning::Refused => 3,
        })?;
        let locked = match worst {
            Pinning::NotAsked | Pinning::Whole => return None,
            Pinning::Fewer => "fewer batches than configured are in page-locked memory",
            Pinning::Part => "a part of each batch is in page-locked memory",
            Pinning::Refused => "no memory of batches is page-locked",
        };
        let message = format!(
            "{locked}: the system limits it, and copies to the GPU are slower; raise the limit (`ulimit -l`, `LimitMEMLOCK=` of a service, `--ulimit memlock=-1` of a container)"
        );
        Some(Warning::new("little_locked_memory", message).with_key("train.loader.slabs"))
    }

    /// Samples that cannot be used, as far as this rank found them.
    pub(crate) fn unusable(&self) -> UnusableSamples {
        let of_splits = self.by_split.iter();
        let of_splits = of_splits.map(|(split, loader)| UnusableSamples::of(*split, loader));
        of_splits.fold(UnusableSamples::default(), UnusableSamples::and)
    }

    /// Incomplete shards that are left out, by split.
    pub(crate) fn left_out_shards(&self) -> BTreeMap<Split, LeftOutShards> {
        let of_splits = self.by_split.iter();
        let of_split =
            |(split, loader): (&Split, &Loader)| Some((*split, left_out_shards(loader)?));
        of_splits.filter_map(of_split).collect()
    }

    /// Warnings of incomplete shards that are left out.
    pub(crate) fn left_out_warnings(&self) -> Vec<Warning> {
        let left_out = self.left_out_shards().into_iter();
        let warnings = left_out.map(|(split, shards)| warning_of_shards(split, &shards));
        warnings.collect()
    }

    /// Page-locks the memory of all batches, so that a device copies from it directly.
    #[cfg(feature = "cuda")]
    pub(crate) fn lock_batches(&self, lock: &Arc<dyn feedline_loader::device::HostLock>) {
        for loader in self.by_split.values() {
            loader.lock_batches(Arc::clone(lock));
        }
    }

    /// Returns true if a split was opened.
    pub(crate) fn has(&self, split: Split) -> bool {
        self.by_split.contains_key(&split)
    }

    fn of(&self, split: Split) -> &Loader {
        self.by_split
            .get(&split)
            .expect("the caller opened the splits it uses")
    }

    fn loaded(&self, batch: feedline_loader::Batch) -> Loaded {
        Loaded {
            batch,
            is_stream: self.is_stream,
        }
    }
}

/// A batch of a loader, with the settings that it does not know.
#[derive(Debug)]
pub(crate) struct Loaded {
    batch: feedline_loader::Batch,
    is_stream: bool,
}

impl Data for Loaders {
    type Batch = Loaded;

    fn start(&self) -> LoaderState {
        self.of(Split::Train).start_state()
    }

    fn batches_per_epoch(&self) -> u64 {
        self.of(Split::Train).batches_per_epoch()
    }

    fn epoch(&self, from: LoaderState) -> Result<Batches<'_, Self::Batch>, Error> {
        let batches = self.of(Split::Train).epoch(from)?;
        Ok(Box::new(batches.map(|batch| Ok(self.loaded(batch?)))))
    }

    fn prepare_from(&self, from: &LoaderState) -> Result<(), Error> {
        Ok(self.of(Split::Train).prepare(from.clone())?)
    }

    fn prepare_epoch(&self, last: &LoaderState) -> Result<(), Error> {
        let loader = self.of(Split::Train);
        Ok(loader.prepare(loader.next_epoch(last))?)
    }

    fn prepare_sequential(&self, split: Split) -> Result<(), Error> {
        Ok(self.of(split).prepare_sequential()?)
    }

    fn sequential(&self, split: Split) -> Result<Batches<'_, Self::Batch>, Error> {
        let batches = self.of(split).sequential()?;
        Ok(Box::new(batches.map(|batch| Ok(self.loaded(batch?)))))
    }

    fn quarantined(&self) -> u64 {
        let loaders = self.by_split.values();
        loaders.map(|loader| loader.metrics().quarantined).sum()
    }

    fn given(&self, state: &LoaderState) -> Vec<MixedSource> {
        let mixture = self.mixture.as_ref();
        mixture::given(self.of(Split::Train), mixture, &self.dataset_url, state)
    }
}

impl RankBatch for Loaded {
    fn samples(&self) -> Samples<'_> {
        let batch = &self.batch;
        let targets = |target| match target {
            Target::Regression(y) => Targets::Numbers(y),
            Target::Regressions { y, targets } => Targets::Vectors { y, width: targets },
            Target::Classification(y) => Targets::Classes(y),
            Target::None => Targets::None,
        };
        let mut inputs = ModelInputs {
            x: batch.x(),
            features: batch.features(),
            pixels: batch.pixels(),
            tokens: batch.tokens(),
            segments: batch.segments(),
            positions: batch.positions(),
            is_stream: self.is_stream,
            ..ModelInputs::default()
        };
        match batch.kind() {
            BatchKind::Rows { .. } => {}
            BatchKind::Images { height, width } => inputs.sides = [height, width],
            BatchKind::Tokens { length, .. } => inputs.length = length,
            BatchKind::Multi {
                height,
                width,
                length,
                ..
            } => {
                inputs.sides = [height, width];
                inputs.length = length;
                inputs.lengths = (length > 0).then(|| batch.lengths());
            }
        }
        let place = batch.place();
        let samples = Samples::new(batch.rows(), inputs, targets(batch.y()));
        samples
            .mixed_with(batch.lambda(), targets(batch.y_partner()))
            .within(place.first_row, place.global_rows)
    }

    fn keys(&self) -> &[u64] {
        self.batch.keys()
    }

    fn origins(&self) -> &[u64] {
        self.batch.origins()
    }

    fn substituted(&self) -> Vec<usize> {
        // Rows of documents have as many losses as tokens that are predicted, so that none of them is left out by its row.
        match self.batch.kind() {
            BatchKind::Tokens { .. } => Vec::new(),
            BatchKind::Rows { .. } | BatchKind::Images { .. } | BatchKind::Multi { .. } => {
                self.batch.substituted().collect()
            }
        }
    }

    fn state(&self) -> &LoaderState {
        self.batch.state()
    }

    fn is_page_locked(&self, bytes: &[u8]) -> bool {
        self.batch.is_page_locked(bytes)
    }
}

#[cfg(test)]
mod tests {
    use feedline_loader::image::Crop;
    use feedline_schemas::config::{Augmentation, ImageMixConfig};

    use super::*;

    #[test]
    fn batches_ahead_of_a_device_are_in_addition_and_a_bad_number_stays_as_it_is() {
        let slabs = |device, slabs, device_prefetch| {
            let mut config = TrainConfig {
                device,
                ..TrainConfig::default()
            };
            (config.loader.slabs, config.loader.device_prefetch) = (slabs, device_prefetch);
            settings_for(Purpose::Training, &config, Split::Train).slabs
        };
        let gpu = DeviceChoice::Wgpu(None);
        assert_eq!(slabs(gpu, 4, 2), 6);
        assert_eq!(slabs(gpu, 63, 9), 64);
        assert_eq!(slabs(DeviceChoice::Cpu, 4, 2), 4);
        // A build without NVIDIA GPUs computes on the processor.
        if cfg!(not(feature = "cuda")) {
            assert_eq!(slabs(DeviceChoice::Auto, 4, 2), 4);
        }
        for bad in [0, 1, 65, u32::MAX] {
            assert_eq!(slabs(gpu, bad, 2), bad);
        }
    }

    #[test]
    fn settings_of_the_loader_are_checked_without_a_dataset() {
        let refused = |change: fn(&mut TrainConfig)| {
            let mut config = TrainConfig::default();
            change(&mut config);
            check_loader(&config).unwrap_err().to_string()
        };
        check_loader(&TrainConfig::default()).unwrap();
        let slabs = refused(|c| c.loader.slabs = 1);
        assert!(slabs.contains("`train.loader.slabs`"), "{slabs}");
        let bad = refused(|c| c.loader.max_bad_fraction = 3.0);
        assert!(bad.contains("`train.loader.max_bad_fraction`"), "{bad}");
    }

    #[test]
    fn augmented_training_images_are_measured_without_augmentation() {
        let mut config = TrainConfig::default();
        config.images.augment = Augmentation::Usual(true);
        config.images.mix = Some(ImageMixConfig {
            mixup: 1.0,
            ..ImageMixConfig::default()
        });
        let crop = |purpose, split| {
            let images = settings_for(purpose, &config, split).images.unwrap();
            (images.crop, images.augment.len(), images.mix.is_some())
        };
        let (trained_on, flips, mixed) = crop(Purpose::Training, Split::Train);
        assert!(matches!(trained_on, Crop::RandomResized { .. }));
        assert_eq!((flips, mixed), (1, true));
        for split in Split::ALL {
            let found = crop(Purpose::Measuring, split);
            assert_eq!(found, (Crop::Whole, 0, false), "{split}");
        }
    }
}
