//! Settings of a loader.

use std::{ops::RangeInclusive, time::Duration};

use feedline_schemas::{
    ids::{Rank, Seed},
    loader_state::LastBatch,
};

use crate::{
    CacheConfig, ClassBalance, Error, InputConfig, MixtureConfig, SplitChoice, fetch::FetchConfig,
    image::ImageConfig,
};

/// Settings of a loader. Those marked "order" decide which samples a batch holds and must be the same on every rank
/// and when resuming; the others may differ.
#[derive(Clone, Debug, PartialEq)]
pub struct LoaderConfig {
    /// Split to read.
    pub split: SplitChoice,
    /// Order: seed of the shuffle.
    pub seed: Seed,
    /// Order: samples in a global batch, over all ranks together, at least 1.
    pub global_batch: u32,
    /// Number of this rank, below `world_size`. Default 0.
    pub rank: Rank,
    /// Number of ranks, at least 1. Default 1.
    pub world_size: u32,
    /// Order: locality domains, 1 to 4,096. A rank reads only the blocks of the domains its share of the batch comes
    /// from, so more domains let more ranks read little. Shrinks to the number of samples in a batch
    /// and of blocks. Default 64.
    pub domains: u32,
    /// Order: blocks per shuffle window of each domain, 1 to 65,536; grows by as much as the domains shrink. Samples
    /// are shuffled among `domains * window_blocks` blocks at a time: more mix better and take more memory. Default 8.
    pub window_blocks: u32,
    /// Most bytes of blocks in memory or on their way. When the windows of one batch alone are larger, they are held
    /// all the same, with a warning, and nothing is read ahead. Default 1 GiB.
    pub prefetch_bytes: u64,
    /// Batches that can be filled, ready or in use at one time, 2 to 64; their memory is allocated once. How many of
    /// them are filled ahead is set while running. Of small batches there are more, up to 64 that take 4 MiB together.
    /// Default 4.
    pub slabs: u32,
    /// Most threads that fill batches, up to 1,024; 0 means one for each processor. How many of them work is set while
    /// running, to the fewest that keep up. Default 0.
    pub threads: u32,
    /// Most reads under way at one time, 1 to 1,024. Object stores give some dozen MB/s each; on local disks more than
    /// a few dozen only queue. Default 128.
    pub reads: u32,
    /// Longest wait of a call of `next` before it gives [`Error::Stalled`], which names the late
    /// stage. No limit when none. Default 10 minutes.
    pub stall_timeout: Option<Duration>,
    /// Most samples that may be replaced by others because they or their block are damaged, as a share of the split, 0
    /// to 1; each rank counts those that it has read. [`Batch::substituted`](crate::Batch::substituted) has the rows.
    /// Beyond, the pass ends with [`Error::TooManyBad`] or what is wrong with the block. Default 0.001.
    pub max_bad_fraction: f64,
    /// Order: what happens to shards of ours whose files are not as long as the manifest says. Default: opening fails.
    pub bad_shards: BadShards,
    /// Image transforms; required for datasets of images, and the pixels depend on them. Default
    /// none.
    pub images: Option<ImageConfig>,
    /// Packing of documents into rows; required for datasets of tokens. Default none.
    pub tokens: Option<TokensConfig>,
    /// Order: bytes of neighbouring blocks that are dealt together as one extent, up to 1 GiB; 0 deals each block on its
    /// own. A remote store is asked for an extent by one request, or for the part of it that a rank needs, and 8 MiB
    /// suits object stores; on local disks it gains nothing. As samples then come from fewer places, give as many times
    /// more `window_blocks` for as good a shuffle. Default 0.
    pub extent_bytes: u64,
    /// Order: handling of samples that do not fill a batch at the end of an epoch. Default: a
    /// smaller batch. Sequential passes always keep it.
    pub last_batch: LastBatch,
    /// Order: the dataset's format and columns. Our own shards need no settings.
    pub input: InputConfig,
    /// Requests for bytes: deadlines, retries, hedges for late requests.
    pub fetch: FetchConfig,
    /// Mixture of several datasets, for [`Loader::open_mixture`](crate::Loader::open_mixture).
    /// Default none.
    pub mixture: Option<MixtureConfig>,
    /// Order: how often each class comes, for datasets with classes as targets; of a mixture, in each dataset by itself.
    /// Sequential passes give each row once all the same. Opening then reads the targets: two small requests for each
    /// block of our own shards, and all of a dataset in another format. Takes 16 bytes for each class of each block, and
    /// 4 for each row in memory. Default none: each row once.
    pub class_balance: Option<ClassBalance>,
    /// A cache of the dataset on a local disk, for stores that are far away. Default none.
    pub cache: Option<CacheConfig>,
}

/// Handling of shards of ours whose files are not as long as the manifest says.
///
/// Sizes are looked up while the loader is opened, by a request for each of up to 1,000 shards, and of up to 10,000 by
/// listing their folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BadShards {
    /// Opening fails with [`Error::ShardTruncated`], which names the first one. A file that is absent is an error when it
    /// is read, as a cache may have what is needed of it. A split of more than 10,000 shards is not looked through:
    /// what is wrong with a shard of it is an error when that is read.
    #[default]
    Fail,
    /// They are left out of the order, as are files that are absent. They are counted in
    /// [`LoaderMetrics::skipped_shards`](crate::LoaderMetrics::skipped_shards), named in the log
    /// and recorded in states, so that a run resumes only with the same ones. Also the folder of
    /// more than 10,000 shards is listed for this, which takes about 0.1 s and 0.1 MB for a
    /// thousand of them.
    Skip,
}

impl BadShards {
    /// The name in configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Skip => "skip",
        }
    }
}

/// Packing of tokenized documents into rows of a batch.
///
/// ```no_run
/// use feedline_loader::{Loader, TokenLayout, TokensConfig};
///
/// // A model that reads 512 ids, and predicts the next id of each.
/// let tokens = TokensConfig::new(513).with_layout(TokenLayout::Packed);
/// let loader = Loader::builder("out/dataset").batch_size(32).tokens(tokens).open_blocking()?;
/// for batch in loader.batches()? {
///     let batch = batch?;
///     assert_eq!(batch.tokens().len(), batch.rows() * 513);
///     assert_eq!(batch.segments().len(), batch.tokens().len());
/// }
/// # Ok::<(), feedline_loader::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokensConfig {
    /// Order: ids in a row, 1 to 16,777,216. For next-token training, one more than the model reads: inputs are the
    /// first `length - 1`, targets the last.
    pub length: u32,
    /// Order: what a row holds.
    pub layout: TokenLayout,
    /// Id of positions that no document fills. Default 0.
    pub padding_id: u32,
}

/// Layout of a row of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenLayout {
    /// Several documents, each whole where it fits, by best fit: every id once, and little padding. Default.
    #[default]
    Packed,
    /// As `Packed`, but the pieces of a document that is longer than a row overlap by one id, so that each but the
    /// document's first is once what is to be predicted, as for `Stream`; `length` is at least 2. For measuring.
    PackedOverlapping,
    /// A piece of all documents one after the other, whatever it begins and ends with. Rows overlap by one id, so that
    /// each but the first is once what is to be predicted; `length` is at least 2. No padding but in the last row.
    Stream,
    /// As `Stream`, and which document of its row each id belongs to, and its position there, as for `Packed`: for a model
    /// that must not see one document from another.
    Filled,
    /// One document; what exceeds `length` is left out, with a [warning](crate::Loader::warnings), and counted in
    /// [`truncated_documents`](crate::LoaderMetrics::truncated_documents).
    Documents,
}

impl TokenLayout {
    /// Returns true if rows are pieces of all documents one after the other.
    pub(crate) const fn is_stream(self) -> bool {
        matches!(self, Self::Stream | Self::Filled)
    }

    /// Ids that pieces of a document share, where it is put together of documents.
    pub(crate) const fn overlap(self) -> u32 {
        match self {
            Self::PackedOverlapping => 1,
            Self::Packed | Self::Stream | Self::Filled | Self::Documents => 0,
        }
    }

    /// Returns true if rows say which document each id belongs to.
    pub(crate) const fn has_segments(self) -> bool {
        matches!(self, Self::Packed | Self::PackedOverlapping | Self::Filled)
    }
}

impl TokensConfig {
    /// Packed rows of `length` ids.
    #[must_use]
    pub const fn new(length: u32) -> Self {
        Self {
            length,
            layout: TokenLayout::Packed,
            padding_id: 0,
        }
    }

    /// The same with another layout.
    #[must_use]
    pub const fn with_layout(self, layout: TokenLayout) -> Self {
        Self { layout, ..self }
    }

    fn check(&self) -> Result<(), Error> {
        let shares = self.layout.is_stream() || self.layout.overlap() > 0;
        let least = if shares { 2 } else { 1 };
        if (least..=1 << 24).contains(&self.length) {
            return Ok(());
        }
        let reason = format!("it is `{}`, use `{least}` to `16777216`", self.length);
        Err(Error::Config {
            key: "tokens.length",
            reason,
        })
    }
}

impl LoaderConfig {
    /// Numbers that [`slabs`](Self::slabs) may be.
    pub const SLABS: RangeInclusive<u32> = 2..=64;

    /// Settings for one rank, with the defaults.
    #[must_use]
    pub fn new(split: impl Into<SplitChoice>, seed: Seed, global_batch: u32) -> Self {
        Self {
            split: split.into(),
            seed,
            global_batch,
            rank: Rank::new(0),
            world_size: 1,
            domains: 64,
            window_blocks: 8,
            prefetch_bytes: 1 << 30,
            slabs: 4,
            threads: 0,
            reads: 128,
            stall_timeout: Some(Duration::from_secs(600)),
            max_bad_fraction: 0.001,
            bad_shards: BadShards::Fail,
            images: None,
            tokens: None,
            extent_bytes: 0,
            last_batch: LastBatch::Keep,
            input: InputConfig::new(),
            fetch: FetchConfig::new(),
            mixture: None,
            class_balance: None,
            cache: None,
        }
    }

    /// Checks that every setting is in its range, without a dataset.
    ///
    /// # Errors
    /// [`Error::Config`] names the first that is not, and what is allowed.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |key, reason: String| Err(Error::Config { key, reason });
        let outside = |value: u32, least: u32, most: u32| {
            (!(least..=most).contains(&value))
                .then(|| format!("it is `{value}`, use `{least}` to `{most}`"))
        };
        if let Some(reason) = outside(self.global_batch, 1, 1 << 30) {
            return refuse("global_batch", reason);
        }
        if self.rank.get() >= self.world_size {
            let (rank, world) = (self.rank, self.world_size);
            return refuse(
                "rank",
                format!("rank `{rank}` is not one of `{world}` ranks, which count from 0"),
            );
        }
        if let Some(reason) = outside(self.domains, 1, 1 << 12) {
            return refuse("domains", reason);
        }
        if let Some(reason) = outside(self.window_blocks, 1, 1 << 16) {
            return refuse("window_blocks", reason);
        }
        if let Some(reason) = outside(self.slabs, *Self::SLABS.start(), *Self::SLABS.end()) {
            return refuse("slabs", reason);
        }
        if let Some(reason) = outside(self.threads, 0, 1024) {
            return refuse("threads", reason);
        }
        if let Some(reason) = outside(self.reads, 1, 1024) {
            return refuse("reads", reason);
        }
        if self.extent_bytes > 1 << 30 {
            let reason = format!("it is `{}`, use up to `1073741824`", self.extent_bytes);
            return refuse("extent_bytes", reason);
        }
        if !(0.0..=1.0).contains(&self.max_bad_fraction) {
            let reason = format!("it is `{}`, use `0` to `1`", self.max_bad_fraction);
            return refuse("max_bad_fraction", reason);
        }
        self.fetch.check()?;
        self.tokens.as_ref().map_or(Ok(()), TokensConfig::check)?;
        self.images.as_ref().map_or(Ok(()), ImageConfig::check)
    }

    /// Most threads that fill batches.
    pub(crate) fn most_threads(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::manifest::Split;

    use super::*;

    #[test]
    fn settings_out_of_range_are_named() {
        let check = |change: fn(&mut LoaderConfig), message: &str| {
            let mut config = LoaderConfig::new(Split::Train, Seed::new(0), 8);
            assert!(config.check().is_ok());
            change(&mut config);
            assert_eq!(
                config.check().unwrap_err().to_string(),
                format!("cannot use loader setting {message}")
            );
        };
        check(
            |c| c.global_batch = 0,
            "`global_batch`: it is `0`, use `1` to `1073741824`",
        );
        check(
            |c| c.rank = Rank::new(1),
            "`rank`: rank `1` is not one of `1` ranks, which count from 0",
        );
        check(|c| c.domains = 0, "`domains`: it is `0`, use `1` to `4096`");
        check(
            |c| c.window_blocks = 65_537,
            "`window_blocks`: it is `65537`, use `1` to `65536`",
        );
        check(
            |c| c.extent_bytes = 1 << 31,
            "`extent_bytes`: it is `2147483648`, use up to `1073741824`",
        );
        check(|c| c.slabs = 1, "`slabs`: it is `1`, use `2` to `64`");
        check(
            |c| c.threads = 1025,
            "`threads`: it is `1025`, use `0` to `1024`",
        );
        check(|c| c.reads = 0, "`reads`: it is `0`, use `1` to `1024`");
        check(
            |c| c.max_bad_fraction = f64::NAN,
            "`max_bad_fraction`: it is `NaN`, use `0` to `1`",
        );
        check(
            |c| c.tokens = Some(TokensConfig::new(0)),
            "`tokens.length`: it is `0`, use `1` to `16777216`",
        );
    }
}
