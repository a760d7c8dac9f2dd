//! From settings to what a loader is made of.

use std::{fmt::Write as _, sync::Arc};

use feedline_schemas::{
    ids::Hash128,
    loader_state::{SampleUnit, SkippedShards},
    manifest::{Split, TargetKind},
};
use feedline_storage::{Store, clock::Clock};
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    BatchKind, Error, LoaderConfig, TokenLayout, TokensConfig,
    assembly::fill::Filler,
    block_table::BlockId,
    cache::{self, CachedExtents, epoch_cache::EpochCache},
    class_balance::class_counts,
    engine::LoaderEngine,
    fetch::{Extents, StoreExtents},
    image_limits,
    index::index,
    input::{DocumentLengths, OpenedSplit, RowContent},
    metrics::Meters,
    mixed_datasets,
    order::{
        Blocks, OrderSpec, Orders, RankShare, Units,
        balance::Balance,
        packing::{Lengths, PackedBins},
        tokens::TokenWindows,
    },
    quarantine::Quarantine,
    sources::{SourceInput, Sources},
    state::OrderIdentity,
};

/// Parts of a loader.
pub(crate) struct OpenedLoader {
    pub(crate) inputs: Vec<Arc<OpenedSplit>>,
    pub(crate) units: Vec<Units>,
    pub(crate) orders: Orders,
    pub(crate) identity: OrderIdentity,
    pub(crate) batches_per_epoch: u64,
    pub(crate) engine: LoaderEngine,
}

impl OpenedLoader {
    /// Opens the datasets and fits an order to them.
    ///
    /// # Errors
    /// As [`Loader::open_mixture`](crate::Loader::open_mixture).
    pub(crate) async fn open(
        datasets: &[Store],
        config: &LoaderConfig,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Error> {
        config.check()?;
        let meters = Arc::new(Meters::new(Arc::clone(&clock)));
        let mut sources = Vec::new();
        let mut units = Vec::new();
        for dataset in datasets {
            let mut source = open_source(dataset, config, &clock, &meters).await?;
            let units_here = units_of(&source, config).await?;
            source.balance = units_here.balance().map(Arc::clone);
            units.push(units_here);
            sources.push(source);
        }
        let inputs: Vec<_> = sources.iter().map(|s| Arc::clone(&s.input)).collect();
        let (kind, target) = common_kind(datasets, &inputs, config)?;
        mixed_datasets::check(datasets, &inputs).await?;
        let (orders, identity) = order(&inputs, &units, config)?;
        let phase = identity.mixture.as_ref().map(|(_, phase)| phase);
        let first_epoch = orders.epoch(0, phase).map_err(no_batch)?;
        let share = share(config);
        let rows = index(share.most_reads(first_epoch.slots(0)));
        let bytes: u64 = inputs.iter().map(|input| input.block_table().bytes()).sum();
        let block_tables = inputs.iter().map(|input| Arc::clone(input.block_table()));
        let quarantine = Arc::new(Quarantine::new(
            block_tables.collect(),
            config.max_bad_fraction,
            Arc::clone(&meters),
        ));
        let images = image_limits::settings(datasets, &inputs, config).await?;
        let filler = Filler {
            kind,
            target,
            images: images.config,
            backgrounds: images.backgrounds,
            tokens: config
                .tokens
                .filter(|_| matches!(kind, BatchKind::Tokens { .. })),
            seed: config.seed.get(),
            quarantine: Arc::clone(&quarantine),
        };
        let sources = Sources {
            inputs: sources,
            quarantine,
            meters,
        };
        let epoch_cache = EpochCache::new(bytes <= config.prefetch_bytes);
        Ok(Self {
            inputs,
            units,
            batches_per_epoch: first_epoch.batch_count(),
            orders,
            identity,
            engine: LoaderEngine::new(config, share, rows, sources, filler, epoch_cache),
        })
    }
}

/// The part of every batch that is this rank's.
fn share(config: &LoaderConfig) -> RankShare {
    let share = RankShare::new(config.rank, config.world_size);
    match &config.images {
        Some(images) if images.mix.is_some() => share.in_pairs(),
        _ => share,
    }
}

async fn open_source(
    dataset: &Store,
    config: &LoaderConfig,
    clock: &Arc<dyn Clock>,
    meters: &Arc<Meters>,
) -> Result<SourceInput, Error> {
    let input =
        Arc::new(OpenedSplit::open(dataset, config.split, &config.input, config.bad_shards).await?);
    meters
        .skipped_shards
        .add(input.skipped().paths.len() as u64);
    meters.skipped_samples.add(input.skipped().rows);
    let mut extents: Arc<dyn Extents> = Arc::new(StoreExtents::new(
        dataset.clone(),
        &config.fetch,
        config.reads,
        Arc::clone(meters),
    ));
    let mut cache = None;
    if let Some(settings) = config.cache.as_ref().filter(|_| is_far(dataset, &input)) {
        let opened = CachedExtents::open(
            settings,
            (dataset.url(), input.fingerprint()),
            window_bytes(&input, config),
            extents,
            Arc::clone(clock),
        );
        let opened = Arc::new(opened.await?);
        extents = Arc::clone(&opened) as _;
        cache = Some(opened);
    }
    let joined_bytes = if extents.joins() {
        config.extent_bytes
    } else {
        0
    };
    let tokens = tokens_config(input.record(), config);
    let documents = tokens.filter(|tokens| tokens.layout == TokenLayout::Documents);
    Ok(SourceInput {
        document_length: documents.map(|tokens| tokens.length),
        joined_bytes,
        is_stream: tokens.is_some_and(|tokens| tokens.layout.is_stream()),
        input,
        extents,
        cache,
        balance: None,
    })
}

/// Returns true if a dataset is not on a disk of this machine, so that a cache may serve it faster; warns if it is.
fn is_far(dataset: &Store, input: &OpenedSplit) -> bool {
    let is_near = dataset
        .local_path()
        .is_some_and(|path| cache::is_on_local_disk(&path));
    if is_near {
        input.warn(
            "it is on a local disk and is read from there, so the settings of the cache (`cache_dir`, `cache_bytes`) have no \
             effect; remove them",
        );
    }
    !is_near
}

/// About how many bytes the open windows of a source take.
fn window_bytes(input: &OpenedSplit, config: &LoaderConfig) -> u64 {
    let all = input.block_table().bytes();
    let block = all.div_ceil(u64::from(input.block_table().block_count().max(1)));
    let units = u64::from(config.domains) * u64::from(config.window_blocks);
    all.min(units.saturating_mul(block.max(config.extent_bytes)))
}

/// Kind of the samples of a source.
async fn units_of(source: &SourceInput, config: &LoaderConfig) -> Result<Units, Error> {
    let input = &source.input;
    let block_table = input.block_table();
    if let Some(weights) = &config.class_balance {
        let extents = block_table.extents(config.extent_bytes);
        let balance = class_counts::balance(source, extents, weights, config).await?;
        return Ok(Units::Classes(balance));
    }
    let blocks = Blocks::of(block_table, config.extent_bytes);
    let Some(tokens) = tokens_config(input.record(), config) else {
        return Ok(Units::Rows(Arc::new(blocks)));
    };
    match tokens.layout {
        TokenLayout::Documents => Ok(Units::Rows(Arc::new(blocks))),
        TokenLayout::Packed | TokenLayout::PackedOverlapping => {
            let lengths = Arc::new(input.lengths(&*source.extents).await?);
            let size = (tokens.length, tokens.layout.overlap());
            let packing = PackedBins::new(&blocks, lengths, size);
            Ok(Units::Bins(Arc::new(packing)))
        }
        TokenLayout::Stream | TokenLayout::Filled => {
            let counts: Option<Vec<u32>> = (0..block_table.block_count())
                .map(|block| input.tokens(block).and_then(|n| u32::try_from(n).ok()))
                .collect();
            let counts = counts.ok_or_else(|| Error::Config {
                key: "tokens.layout",
                reason: "the dataset does not say how many ids its blocks have, use `documents`"
                    .into(),
            })?;
            let extents = block_table.extents(config.extent_bytes);
            let windows = TokenWindows::new(counts.into_iter(), extents, tokens.length - 1);
            Ok(Units::Tokens(Arc::new(windows)))
        }
    }
}

fn tokens_config<'a>(record: &RowContent, config: &'a LoaderConfig) -> Option<&'a TokensConfig> {
    match record {
        RowContent::Tokens { .. } => config.tokens.as_ref(),
        RowContent::Dense { .. } | RowContent::Images { .. } | RowContent::Multi { .. } => None,
    }
}

/// The orders over some sources, and how states name them.
fn order(
    inputs: &[Arc<OpenedSplit>],
    units: &[Units],
    config: &LoaderConfig,
) -> Result<(Orders, OrderIdentity), Error> {
    let spec = OrderSpec {
        seed: config.seed.get(),
        domains: config.domains,
        window_blocks: config.window_blocks,
        global_batch: config.global_batch,
        last_batch: config.last_batch,
    };
    let (orders, mixture) = match (&config.mixture, units) {
        (None, [units]) => (Orders::single(spec, units.clone()).map_err(no_batch)?, None),
        (None, _) => {
            return Err(Error::Config {
                key: "mixture",
                reason: format!(
                    "there are `{}` datasets, say how they are mixed",
                    units.len()
                ),
            });
        }
        (Some(mixture), _) => {
            let mixed = Orders::mixed(spec, units.to_vec(), mixture);
            let (orders, phase) = mixed.map_err(|reason| Error::Config {
                key: "mixture",
                reason,
            })?;
            (orders, Some((mixture.clone(), phase)))
        }
    };
    let balances: Vec<_> = units.iter().filter_map(Units::balance).collect();
    let unit = match (inputs.first().map(|input| *input.record()), &config.tokens) {
        (Some(RowContent::Tokens { .. }), Some(tokens)) => match tokens.layout {
            TokenLayout::Documents => SampleUnit::Rows,
            TokenLayout::Packed | TokenLayout::PackedOverlapping => SampleUnit::Bins {
                length: tokens.length,
            },
            TokenLayout::Stream | TokenLayout::Filled => SampleUnit::Tokens {
                length: tokens.length - 1,
            },
        },
        _ if !balances.is_empty() => balanced_unit(&balances),
        _ => SampleUnit::Rows,
    };
    let identity = OrderIdentity {
        fingerprints: inputs.iter().map(|input| input.fingerprint()).collect(),
        extent_bytes: config.extent_bytes,
        unit,
        mixture,
        skipped: skipped(inputs),
        split: inputs.first().map_or(Split::Train, |input| input.split()),
    };
    Ok((orders, identity))
}

/// Name of balanced classes of some sources in states.
fn balanced_unit(balances: &[&Arc<Balance>]) -> SampleUnit {
    let hashes = balances.iter().map(|balance| balance.hash().get());
    let bytes: Vec<u8> = hashes.flat_map(u128::to_le_bytes).collect();
    SampleUnit::BalancedClasses {
        hash: Hash128::of(&bytes),
    }
}

/// Left-out shards, as recorded in states.
fn skipped(inputs: &[Arc<OpenedSplit>]) -> Option<SkippedShards> {
    let (mut shards, mut rows, mut lines) = (0, 0, String::new());
    for input in inputs {
        let (fingerprint, skipped) = (input.fingerprint(), input.skipped());
        shards += skipped.paths.len() as u64;
        rows += skipped.rows;
        for path in &skipped.paths {
            // Writing to a string cannot fail.
            writeln!(lines, "{fingerprint} {path}").ok();
        }
    }
    let hash = xxh3_64(lines.as_bytes());
    (shards > 0).then_some(SkippedShards { shards, rows, hash })
}

/// Kind of batches of these inputs, and of their targets.
fn common_kind(
    datasets: &[Store],
    inputs: &[Arc<OpenedSplit>],
    config: &LoaderConfig,
) -> Result<(BatchKind, TargetKind), Error> {
    let mut kinds = datasets.iter().zip(inputs);
    let Some((first, input)) = kinds.next() else {
        return Err(Error::Config {
            key: "mixture",
            reason: "there are no datasets".into(),
        });
    };
    let found = kind(input.record(), config)?;
    for (dataset, input) in kinds {
        let other = kind(input.record(), config)?;
        mixed_datasets::compare_kinds((first, found), (dataset, other))?;
    }
    Ok(found)
}

/// Kind of batches of such records, and of their targets.
fn kind(record: &RowContent, config: &LoaderConfig) -> Result<(BatchKind, TargetKind), Error> {
    let missing = |key, what: &str| Error::Config {
        key,
        reason: format!("the dataset holds {what}, say how they are to be handed out"),
    };
    match *record {
        RowContent::Dense { features, target } => {
            let features = features as usize;
            Ok((BatchKind::Rows { features }, target))
        }
        RowContent::Images { target } => {
            let images = config.images.as_ref();
            let images = images.ok_or_else(|| missing("images", "images"))?;
            let kind = BatchKind::Images {
                height: images.height as usize,
                width: images.width as usize,
            };
            Ok((kind, target))
        }
        RowContent::Multi {
            features,
            images,
            length,
            target,
        } => {
            let [height, width] = match (images, &config.images) {
                (false, _) => [0; 2],
                (true, None) => return Err(missing("images", "images")),
                (true, Some(given)) if given.mix.is_some() => {
                    return Err(Error::Config {
                        key: "images.mix",
                        reason: "the other parts of a row cannot be mixed, leave it out".into(),
                    });
                }
                (true, Some(given)) => [given.height as usize, given.width as usize],
            };
            let kind = BatchKind::Multi {
                features: features as usize,
                height,
                width,
                length: length as usize,
            };
            Ok((kind, target))
        }
        RowContent::Tokens { .. } => {
            let tokens = config.tokens.as_ref();
            let tokens = tokens.ok_or_else(|| missing("tokens", "documents"))?;
            let kind = BatchKind::Tokens {
                length: tokens.length as usize,
                packed: tokens.layout.has_segments(),
            };
            Ok((kind, TargetKind::None))
        }
    }
}

fn no_batch(reason: String) -> Error {
    Error::Config {
        key: "global_batch",
        reason,
    }
}

impl Lengths for DocumentLengths {
    fn append(&self, block: BlockId, lengths: &mut Vec<u32>) {
        lengths.extend_from_slice(self.of(block));
    }
}
