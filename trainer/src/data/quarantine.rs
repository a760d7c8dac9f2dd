//! Samples of splits that cannot be used: those that the loaders of all ranks found, and those of incomplete shards.

use std::collections::BTreeMap;

use feedline_loader::Loader;
use feedline_schemas::{count::counted, manifest::Split, report::Warning, run::LeftOutShards};
use serde::{Deserialize, Serialize};

use crate::{error::Error, parallel::Ranks};

/// Key that limits the number of samples that cannot be used.
const KEY: &str = "train.loader.max_bad_fraction";

/// Key that leaves incomplete shards out.
const SHARDS_KEY: &str = "train.loader.bad_shards";

/// Most shards that a warning names.
const SHARDS_NAMED: usize = 3;

/// The incomplete shards that a loader leaves out of its split, if there are some; all ranks leave out the same.
pub(crate) fn left_out_shards(loader: &Loader) -> Option<LeftOutShards> {
    let skipped = loader.start_state().skipped?;
    Some(first_shards(skipped.rows, &loader.skipped_shards()))
}

fn first_shards(rows: u64, paths: &[&str]) -> LeftOutShards {
    let first = paths.iter().take(LeftOutShards::MOST_PATHS);
    LeftOutShards {
        shards: paths.len() as u64,
        rows,
        paths: first.map(|path| (*path).to_owned()).collect(),
    }
}

/// The warning of incomplete shards that are left out of a split.
pub(crate) fn warning_of_shards(split: Split, left_out: &LeftOutShards) -> Warning {
    let first = left_out.paths.iter().take(SHARDS_NAMED);
    let named: Vec<String> = first.map(|path| format!("`{path}`")).collect();
    let more = match left_out.shards.saturating_sub(named.len() as u64) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let message = format!(
        "{} of the {split} split with {} left out, since their files are missing or have another length than the manifest \
         states: {}{more}; restore them, or build the dataset again",
        counted(left_out.shards, "shard"),
        counted(left_out.rows, "row"),
        named.join(", ")
    );
    Warning::new("shards_left_out", message).with_key(SHARDS_KEY)
}

/// Samples that cannot be used, and why. Each is in it once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnusableSamples(BTreeMap<SampleLocation, (u64, String)>);

/// Location of a sample, or of a block of samples.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct SampleLocation {
    split: Split,
    shard: String,
    block: u32,
    row: Option<u32>,
}

impl UnusableSamples {
    /// Those that the loader of a split found so far.
    pub(crate) fn of(split: Split, loader: &Loader) -> Self {
        let found = loader.quarantine().into_iter().map(|sample| {
            let location = SampleLocation {
                split,
                shard: sample.shard,
                block: sample.block,
                row: sample.row,
            };
            (location, (sample.samples, sample.reason))
        });
        Self(found.collect())
    }

    /// Both.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Those of all ranks.
    ///
    /// # Errors
    /// [`Error::Rank`].
    pub(crate) fn gather(self, ranks: &Ranks) -> Result<Self, Error> {
        if !ranks.are_many() {
            return Ok(self);
        }
        let own: Vec<_> = self.0.into_iter().collect();
        let own = serde_json::to_vec(&own).expect("locations and texts are JSON");
        let of_ranks = ranks.gather(own)?.into_iter();
        // Ranks are processes of one program, so what one writes another reads.
        let of_ranks = of_ranks.filter_map(|of_rank| {
            let of_rank: Option<Vec<_>> = serde_json::from_slice(&of_rank).ok();
            of_rank
        });
        Ok(Self(of_ranks.flatten().collect()))
    }

    /// Number of samples.
    pub(crate) fn count(&self) -> u64 {
        self.0.values().map(|(samples, _)| samples).sum()
    }

    /// A warning for each split that has some; `trained_on` is the one that was trained on.
    pub(crate) fn warnings(&self, trained_on: Option<Split>) -> Vec<Warning> {
        let of_split = |split| {
            let mut found = self.0.iter().filter(|(at, _)| at.split == split).peekable();
            let (first, (_, reason)) = *found.peek()?;
            let count = found.map(|(_, (samples, _))| samples).sum();
            let effect = match trained_on == Some(split) {
                true => "so others were trained on in their place",
                false => "so no metric counts them",
            };
            let message = format!(
                "{} of the {split} split cannot be used, {effect}; the first is {}: {reason}",
                counted(count, "sample"),
                first.describe()
            );
            Some(Warning::new("unusable_samples", message).with_key(KEY))
        };
        Split::ALL.into_iter().filter_map(of_split).collect()
    }
}

impl SampleLocation {
    fn describe(&self) -> String {
        let Self {
            shard, block, row, ..
        } = self;
        match row {
            Some(row) => format!("row `{row}` in block `{block}` of `{shard}`"),
            None => format!("in block `{block}` of `{shard}`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(split: Split, row: Option<u32>, samples: u64) -> UnusableSamples {
        let location = SampleLocation {
            split,
            shard: "shards/a".to_owned(),
            block: 2,
            row,
        };
        UnusableSamples([(location, (samples, "it ends early".to_owned()))].into())
    }

    #[test]
    fn left_out_shards_are_counted_and_the_first_are_named() {
        let message = |paths: &[&str]| {
            let left_out = first_shards(70, paths);
            warning_of_shards(Split::Test, &left_out).message
        };
        let one = message(&["shards/a"]);
        let expected = "1 shard of the test split with 70 rows left out, since their files are missing or have another length than \
                        the manifest states: `shards/a`; restore them, or build the dataset again";
        assert_eq!(one, expected);
        let five = message(&["a", "b", "c", "d", "e"]);
        assert!(five.contains("states: `a`, `b`, `c` and 2 more;"), "{five}");
        let many = first_shards(70, &["a"; 30]);
        assert_eq!((many.shards, many.paths.len()), (30, 20));
    }

    #[test]
    fn a_sample_that_several_ranks_found_counts_once_and_a_block_with_its_rows() {
        let all = samples(Split::Train, Some(7), 1)
            .and(samples(Split::Train, Some(7), 1))
            .and(samples(Split::Train, Some(8), 1))
            .and(samples(Split::Test, None, 40));
        assert_eq!(all.count(), 42);
        let warnings = all.warnings(Some(Split::Train));
        let messages: Vec<&str> = warnings.iter().map(|w| w.message.as_str()).collect();
        assert_eq!(
            messages,
            [
                "2 samples of the train split cannot be used, so others were trained on in their place; the first is row `7` \
                 in block `2` of `shards/a`: it ends early",
                "40 samples of the test split cannot be used, so no metric counts them; the first is in block `2` of \
                 `shards/a`: it ends early",
            ]
        );
        assert!(warnings.iter().all(|w| w.key.as_deref() == Some(KEY)));
    }
}
