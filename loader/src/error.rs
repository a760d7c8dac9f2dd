//! Errors between the shards and the trainer.

use feedline_schemas::{Classified, ContractError, ErrorKind, ids::Hash128, manifest::Split};

/// What puts back a file of a dataset that feedline built: a build without `--refit` keeps a dataset that has its full size.
pub(crate) const REBUILD: &str =
    "build the dataset again with `feedline shards build PIPELINE.toml --refit`";

/// An error of the loader.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting cannot be used.
    #[error("cannot use loader setting `{key}`: {reason}")]
    Config {
        /// Name of the setting.
        key: &'static str,
        /// Reason of the refusal, and the allowed values.
        reason: String,
    },
    /// The folder holds no published dataset.
    #[error("there is no dataset in `{url}`: {reason}")]
    NoDataset {
        /// URL of the folder.
        url: String,
        /// Missing part, and advice.
        reason: String,
    },
    /// The dataset's pointer or manifest cannot be read.
    #[error("cannot read the dataset in `{url}`")]
    Storage {
        /// URL of the folder.
        url: String,
        /// Cause.
        #[source]
        source: Box<feedline_storage::Error>,
    },
    /// The manifest is not a manifest this build can read.
    #[error("cannot use the dataset in `{url}`")]
    Contract {
        /// URL of the folder.
        url: String,
        /// Cause.
        #[source]
        source: ContractError,
    },
    /// The manifest contradicts itself or its pointer.
    #[error(
        "cannot use the dataset in `{url}`: {reason}; its manifest is damaged, restore it or {REBUILD}"
    )]
    Manifest {
        /// URL of the folder.
        url: String,
        /// Description of the contradiction.
        reason: String,
    },
    /// The manifest's content is not the one its fingerprint was made of.
    #[error(
        "cannot use manifest `{url}`: it says fingerprint `{found}` and its content has `{computed}`; the file was \
         changed after it was written, restore it or {REBUILD}"
    )]
    Fingerprint {
        /// URL of the manifest.
        url: String,
        /// Fingerprint it carries.
        found: Hash128,
        /// Fingerprint of its content.
        computed: Hash128,
    },
    /// The split has no samples.
    #[error(
        "split `{split}` of dataset `{url}` has no samples; change `[dataset.split]` so that rows get into it, such as by a larger \
         fraction, or by other boundaries or conditions where it has none, or add data"
    )]
    EmptySplit {
        /// URL of the folder.
        url: String,
        /// Split.
        split: Split,
    },
    /// A loader state belongs to another order.
    #[error(
        "cannot resume from this loader state: {}; resume with the dataset and settings it was saved with, or start \
         a new run",
        list(differences)
    )]
    StateMismatch {
        /// Fields that differ.
        differences: Vec<Difference>,
    },
    /// A shard that the manifest names is absent.
    #[error(
        "shard `{shard}` is missing, although the manifest with fingerprint `{fingerprint}` names it; restore the \
         file or {REBUILD}"
    )]
    ShardMissing {
        /// URL of the shard.
        shard: String,
        /// The manifest's fingerprint.
        fingerprint: Hash128,
    },
    /// A shard is not as long as the manifest says.
    #[error(
        "shard `{shard}` is {}: it has `{found}` bytes and the manifest says `{expected}`; restore the file or \
         {REBUILD}",
        if found < expected { "truncated" } else { "too long" }
    )]
    ShardTruncated {
        /// URL of the shard.
        shard: String,
        /// Bytes it should have.
        expected: u64,
        /// Bytes it has.
        found: u64,
    },
    /// A shard's columns are not those of the manifest's layout.
    #[error(
        "shard `{shard}` does not have the columns of the manifest: {reason}; restore the file or \
         {REBUILD}"
    )]
    ShardSchema {
        /// URL of the shard.
        shard: String,
        /// Description of the difference.
        reason: String,
    },
    /// A block is damaged, also when it was read a second time. Its samples were not handed out.
    #[error(
        "block `{block}` of shard `{shard}` is damaged: {reason}; it was read twice and none of its samples were \
         used; restore the file or, where feedline built it, {REBUILD}"
    )]
    Corrupt {
        /// URL of the shard.
        shard: String,
        /// Block in the shard, from 0.
        block: u32,
        /// Description of the damage.
        reason: String,
    },
    /// A block could not be read, whatever was tried.
    #[error("cannot read block `{block}` of shard `{shard}`")]
    Read {
        /// URL of the shard.
        shard: String,
        /// Block in the shard, from 0.
        block: u32,
        /// Cause.
        #[source]
        source: Box<crate::FetchError>,
    },
    /// The caller keeps every batch it was given, so that none can be filled.
    #[error(
        "the caller holds all `{slabs}` batches of the loader; drop one before requesting the next, or raise `slabs`"
    )]
    BatchesHeld {
        /// Batches there are.
        slabs: u32,
    },
    /// A thread could not be started.
    #[error("cannot start the loader's `{stage}` thread")]
    Thread {
        /// Stage.
        stage: &'static str,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// A thread of the loader panicked or went away: a bug.
    #[error(
        "the loader's `{stage}` thread ended: {reason}; this is a defect of feedline, please report it"
    )]
    Worker {
        /// Stage.
        stage: &'static str,
        /// Message of the panic.
        reason: String,
    },
    /// There is no GPU that can be used.
    #[error(
        "no GPU: {reason}; run on a machine with a GPU, or without one: batches are then delivered in host memory"
    )]
    NoDevice {
        /// Missing part.
        reason: String,
    },
    /// The device or its driver failed.
    #[error(
        "the driver of the GPU failed: start a new process and resume from the last checkpoint"
    )]
    Device {
        /// Cause.
        #[from]
        source: crate::device::DeviceFault,
    },
    /// A URL cannot be used.
    #[error("cannot open the dataset")]
    Location {
        /// Cause.
        #[source]
        source: Box<feedline_storage::Error>,
    },
    /// Too many samples cannot be used.
    #[error(
        "this rank found that `{bad}` of `{samples}` samples cannot be used, more than `max_bad_fraction` = `{most_share}` \
         allows; the last is row `{row}` in block `{block}` of `{shard}`: {reason}; repair the dataset or raise `max_bad_fraction`"
    )]
    TooManyBad {
        /// Samples that cannot be used.
        bad: u64,
        /// Samples there are.
        samples: u64,
        /// Share that is allowed.
        most_share: f64,
        /// File of the last one, relative to the dataset's folder.
        shard: String,
        /// Block in the shard, from 0.
        block: u32,
        /// Row in the block, from 0.
        row: u32,
        /// Description of the fault.
        reason: String,
    },
    /// No batch came for too long.
    #[error(
        "rank `{rank}` waited `{seconds}` s for batch `{batch}`: its loader's `{stage}` stage is late, {detail}; check that, or raise \
         `stall_timeout`"
    )]
    Stalled {
        /// This rank.
        rank: u32,
        /// Batch of the pass, from 0.
        batch: u64,
        /// Waiting time in seconds.
        seconds: u64,
        /// Stage that is late: `fetch`, `decode` or `caller`.
        stage: &'static str,
        /// Cause of the wait.
        detail: String,
    },
    /// The process was forked after the pass began: its threads are in the parent only.
    #[error(
        "this pass was started in process `{started_in}` and is used in process `{used_in}`, where it has no threads: \
         open the loader after the fork, or start workers by spawning instead of forking"
    )]
    Forked {
        /// Process that started the pass.
        started_in: u32,
        /// Process that asked for a batch.
        used_in: u32,
    },
    /// A file of a dataset in another format than ours cannot be used.
    #[error("cannot read `{url}`: {reason}")]
    File {
        /// URL of the file or folder.
        url: String,
        /// Description of the fault, and advice.
        reason: String,
    },
    /// A row holds a value that no model should see, and the settings say to stop there.
    #[error(
        "row `{row}` of block `{block}` of shard `{shard}` has {reason}; correct the data, or set `bad_values` to \
         `skip` to skip such rows"
    )]
    BadValue {
        /// URL of the shard or file.
        shard: String,
        /// Block in the shard, from 0.
        block: u32,
        /// Row in the block, from 0.
        row: u32,
        /// The value, and its position in the row.
        reason: String,
    },
}

impl Classified for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Config { .. } | Self::Location { .. } => ErrorKind::Config,
            Self::NoDataset { .. }
            | Self::Manifest { .. }
            | Self::Fingerprint { .. }
            | Self::EmptySplit { .. }
            | Self::StateMismatch { .. }
            | Self::ShardMissing { .. }
            | Self::ShardTruncated { .. }
            | Self::ShardSchema { .. }
            | Self::Corrupt { .. }
            | Self::TooManyBad { .. }
            | Self::File { .. }
            | Self::BadValue { .. } => ErrorKind::Data,
            Self::Thread { .. }
            | Self::NoDevice { .. }
            | Self::Device { .. }
            | Self::Stalled { .. } => ErrorKind::Retry,
            Self::BatchesHeld { .. } | Self::Worker { .. } | Self::Forked { .. } => ErrorKind::Bug,
            Self::Storage { source, .. } => source.kind(),
            Self::Contract { source, .. } => source.kind(),
            Self::Read { source, .. } => source.kind(),
        }
    }
}

/// A field of a loader state that is not what this loader has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Field.
    pub field: &'static str,
    /// Value in the state.
    pub state: String,
    /// Value of this loader.
    pub loader: String,
}

fn list(differences: &[Difference]) -> String {
    let texts: Vec<_> = differences
        .iter()
        .map(|d| {
            format!(
                "`{}` is `{}` in the state and `{}` here",
                d.field, d.state, d.loader
            )
        })
        .collect();
    texts.join(", ")
}

#[cfg(test)]
mod snapshots;
