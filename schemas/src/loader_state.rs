//! Position of a loader: a few integers that determine the rest of the order on any number of
//! ranks.
//!
//! Version 2 adds what decides an order besides seed, domains and window, and the sources of a mixture. A state of
//! version 1 can be read, but its order is one that this build does not have, so that resuming from it is refused.
//!
//! Version 3 adds the split and whether the order is shuffled. Both are written only where they are not `train` and shuffled,
//! and a state without them has the older version, so that earlier builds read the states of trainings.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{
    format::{LOADER_STATE, versioned},
    ids::{Epoch, Hash128, Seed, Step},
    split::Split,
};

/// State after the last batch the trainer finished. Resuming with another fingerprint, seed, order version or
/// geometry is refused. With 8 sources and 16 phases it takes less than 4 KiB; where shards
/// are skipped, with 15.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoaderState {
    /// `feedline.loader-state`.
    pub format: String,
    /// Format version.
    pub version: u32,
    /// Manifest the order is over; of a mixture, the hash of the fingerprints of its sources.
    pub fingerprint: Hash128,
    /// Version of the order's definition.
    pub order_version: u32,
    /// Seed of the order.
    pub seed: Seed,
    /// Locality domains.
    pub domains: u32,
    /// Blocks per shuffle window of a domain.
    pub window_blocks: u32,
    /// Bytes of blocks that stay together; 0 when each block is on its own.
    #[serde(default)]
    pub extent_bytes: u64,
    /// Samples in a global batch.
    pub global_batch: u32,
    /// Handling of samples that do not fill a batch.
    #[serde(default)]
    pub last_batch: LastBatch,
    /// Kind of a sample.
    #[serde(default)]
    pub unit: SampleUnit,
    /// The sources, when there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mixture: Option<MixtureState>,
    /// Shards that are left out of the order because their files are incomplete. Resuming with
    /// others is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<SkippedShards>,
    /// Split that the order is over; absent for `train`. A state of an earlier version counts as one of `train`.
    #[serde(default = "default_split", skip_serializing_if = "is_default_split")]
    pub split: Split,
    /// False for the samples in the order of the shards; absent for a shuffled order.
    #[serde(default = "default_shuffle", skip_serializing_if = "is_shuffled")]
    pub shuffle: bool,
    /// Epoch in progress.
    pub epoch: Epoch,
    /// Global batches of that epoch already consumed.
    pub batch: Step,
}
versioned!(LoaderState, LOADER_STATE);

impl LoaderState {
    /// Oldest version that has all fields of a state over this split and order.
    #[must_use]
    pub const fn version_of(split: Split, shuffle: bool) -> u32 {
        match (split, shuffle) {
            (Split::Train, true) => 2,
            _ => LOADER_STATE.version,
        }
    }
}

const fn default_split() -> Split {
    Split::Train
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes fields by reference"
)]
const fn is_default_split(split: &Split) -> bool {
    matches!(split, Split::Train)
}

const fn default_shuffle() -> bool {
    true
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes fields by reference"
)]
const fn is_shuffled(shuffle: &bool) -> bool {
    *shuffle
}

/// Handling of the samples at the end of an epoch that do not fill a global batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LastBatch {
    /// They are a smaller batch.
    #[default]
    Keep,
    /// They are left out. Which they are changes from epoch to epoch, unless the order is sequential.
    Drop,
    /// The batch is filled by repeating it from its first sample on; the repeated samples are marked.
    Pad,
}

impl LastBatch {
    /// The name in configuration and states.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Drop => "drop",
            Self::Pad => "pad",
        }
    }
}

impl fmt::Display for LastBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Kind of a sample of an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind", deny_unknown_fields)]
pub enum SampleUnit {
    /// A row.
    #[default]
    Rows,
    /// A row, of each class its share.
    BalancedClasses {
        /// Hash of the samples that each class has in an epoch, and of the rows that each block has of it.
        hash: Hash128,
    },
    /// A window of a stream of tokens.
    Tokens {
        /// Tokens that a window predicts; it has one more.
        length: u32,
    },
    /// A bin of documents.
    Bins {
        /// Tokens of a bin.
        length: u32,
    },
}

impl fmt::Display for SampleUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rows => f.write_str("rows"),
            Self::BalancedClasses { .. } => f.write_str("rows of balanced classes"),
            Self::Tokens { length } => write!(f, "windows of {length} tokens"),
            Self::Bins { length } => write!(f, "bins of {length} tokens"),
        }
    }
}

/// Shards that an order leaves out, of all its sources together. Written as one string,
/// `<shards> <rows> <hash>`, so that a state stays small.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(into = "String", try_from = "String")]
#[schemars(with = "String")]
pub struct SkippedShards {
    /// Number of them, at least 1.
    pub shards: u64,
    /// Rows in them, as the manifests count.
    pub rows: u64,
    /// xxh3-64 of the lines `<fingerprint of the source> <path>`, in the order of sources and shards, each with a
    /// newline behind it.
    pub hash: u64,
}

impl fmt::Display for SkippedShards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shards, rows, hash } = self;
        write!(f, "{shards} shards with {rows} rows ({hash:016x})")
    }
}

impl From<SkippedShards> for String {
    fn from(skipped: SkippedShards) -> Self {
        let SkippedShards { shards, rows, hash } = skipped;
        format!("{shards} {rows} {hash:016x}")
    }
}

impl TryFrom<String> for SkippedShards {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let parse = || {
            let mut words = text.split(' ');
            let (shards, rows, hash) = (words.next()?, words.next()?, words.next()?);
            let is_hash = hash.len() == 16 && words.next().is_none();
            let hash = u64::from_str_radix(hash, 16).ok().filter(|_| is_hash)?;
            Some(Self {
                shards: shards.parse().ok()?,
                rows: rows.parse().ok()?,
                hash,
            })
        };
        parse().ok_or_else(|| format!("`{text}` is not two counts and a hash"))
    }
}

/// The sources of a mixture, in order, and the weights they had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MixtureState {
    /// Fingerprint of each source.
    pub fingerprints: Vec<Hash128>,
    /// Samples of each source.
    pub samples: Numbers,
    /// For each source 1 when it stops at its end, 0 when it repeats.
    pub stops: Numbers,
    /// True when every batch has the same make-up.
    pub stratified: bool,
    /// Samples in an epoch, where that was given.
    pub samples_per_epoch: Option<u64>,
    /// Weights, each with the first batch of their use; the last decides the order, those before it
    /// are history. At least 1, at most 16: the oldest are dropped.
    pub phases: Vec<MixturePhase>,
}

/// Weights of a mixture, and from when on they held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MixturePhase {
    /// Epoch in which the phase began.
    pub epoch: Epoch,
    /// First batch of that epoch in it.
    pub batch: Step,
    /// Weight of each source, relative to their sum.
    pub weights: Numbers,
    /// Samples of each source before that epoch; only in the last phase.
    #[serde(default, skip_serializing_if = "Numbers::is_empty")]
    pub before: Numbers,
    /// Samples of each source in that epoch before the phase; only in the last phase.
    #[serde(default, skip_serializing_if = "Numbers::is_empty")]
    pub used: Numbers,
}

/// Some counts, written as one string of decimal numbers with a space between two, so that a state stays small.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[schemars(transparent)]
pub struct Numbers(
    #[schemars(with = "String", regex(pattern = r"^([0-9]+( [0-9]+)*)?$"))] Vec<u64>,
);

impl Numbers {
    /// Wraps counts.
    #[must_use]
    pub const fn new(numbers: Vec<u64>) -> Self {
        Self(numbers)
    }
    /// The counts.
    #[must_use]
    pub fn as_slice(&self) -> &[u64] {
        &self.0
    }
    /// Returns true if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, number) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { " " };
            write!(f, "{separator}{number}")?;
        }
        Ok(())
    }
}

impl Serialize for Numbers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let numbers: Result<_, _> = text.split_whitespace().map(str::parse).collect();
        numbers.map(Self).map_err(|_| {
            de::Error::custom(format!(
                "`{text}` is not a list of counts with spaces in between"
            ))
        })
    }
}

#[cfg(test)]
impl LoaderState {
    /// The sample of version 2, which a training writes.
    pub(crate) fn of_training() -> Self {
        Self {
            format: LOADER_STATE.format.into(),
            version: 2,
            fingerprint: Hash128::new(7),
            order_version: 2,
            seed: Seed::new(0),
            domains: 1,
            window_blocks: 512,
            extent_bytes: 0,
            global_batch: 256,
            last_batch: LastBatch::Pad,
            unit: SampleUnit::Rows,
            mixture: None,
            skipped: None,
            split: Split::Train,
            shuffle: true,
            epoch: Epoch::new(1),
            batch: Step::new(0),
        }
    }

    /// The sample of version 3.
    pub(crate) fn of_evaluation() -> Self {
        Self {
            version: 3,
            split: Split::Test,
            shuffle: false,
            ..Self::of_training()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Versioned, decode, encode};

    fn state(sources: usize, phases: usize) -> LoaderState {
        let counts = |count: u64| Numbers::new(vec![count; sources]);
        let mut list = vec![
            MixturePhase {
                epoch: Epoch::new(99),
                batch: Step::new(99_999_999),
                // All of them together are 2^30.
                weights: counts((1 << 30) / sources as u64),
                before: Numbers::default(),
                used: Numbers::default(),
            };
            phases
        ];
        list[phases - 1].before = counts(100_000_000_000);
        list[phases - 1].used = counts(10_000_000_000);
        LoaderState {
            format: LoaderState::TAG.format.into(),
            version: LoaderState::TAG.version,
            fingerprint: Hash128::new(u128::MAX),
            order_version: 2,
            seed: Seed::new(u64::MAX),
            domains: 4096,
            window_blocks: 65_536,
            extent_bytes: 1 << 40,
            global_batch: 1 << 30,
            last_batch: LastBatch::Keep,
            unit: SampleUnit::Tokens { length: 131_072 },
            mixture: Some(MixtureState {
                fingerprints: vec![Hash128::new(u128::MAX); sources],
                samples: counts(10_000_000_000),
                stops: counts(1),
                stratified: false,
                samples_per_epoch: Some(100_000_000_000),
                phases: list,
            }),
            skipped: None,
            split: Split::Validation,
            shuffle: false,
            epoch: Epoch::new(99),
            batch: Step::new(99_999_999),
        }
    }

    #[test]
    fn a_state_of_8_sources_and_16_phases_is_below_4_kib() {
        for unit in [
            SampleUnit::Tokens { length: 131_072 },
            SampleUnit::BalancedClasses {
                hash: Hash128::new(u128::MAX),
            },
        ] {
            let skipped = SkippedShards {
                shards: 1_000_000,
                rows: 10_000_000_000,
                hash: u64::MAX,
            };
            for (phases, skipped) in [(16, None), (15, Some(skipped))] {
                let state = LoaderState {
                    unit,
                    skipped,
                    ..state(8, phases)
                };
                let json = encode(&state);
                assert!(json.len() < 4096, "{} bytes", json.len());
                assert_eq!(decode::<LoaderState>("state", &json).unwrap(), state);
            }
        }
    }

    #[test]
    fn a_state_of_a_training_is_one_of_version_2_and_is_written_as_such() {
        let text = include_str!("../samples/loader-state-2.json");
        let state: LoaderState = decode("sample", text.as_bytes()).unwrap();
        assert_eq!(state, LoaderState::of_training());
        assert_eq!(String::from_utf8(encode(&state)).unwrap(), text);
        assert_eq!(LoaderState::version_of(state.split, state.shuffle), 2);
        let other = LoaderState::of_evaluation();
        assert_eq!(LoaderState::version_of(other.split, other.shuffle), 3);
    }

    #[test]
    fn skipped_shards_that_make_no_sense_are_refused() {
        for text in [
            "",
            "1 2",
            "1 2 ff",
            "1 2 x000000000000001",
            "1 2 0000000000000001 ",
            "-1 2 3",
        ] {
            let json = serde_json::to_string(text).unwrap();
            let error = serde_json::from_str::<SkippedShards>(&json).unwrap_err();
            assert!(error.to_string().contains("is not two counts and a hash"));
        }
    }

    #[test]
    fn counts_that_are_no_counts_are_refused() {
        let error = serde_json::from_str::<Numbers>("\"1 -2\"").unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("`1 -2` is not a list of counts")
        );
    }
}
