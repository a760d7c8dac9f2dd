//! Rows that are measured and that another dataset of a mixture trains on, found by their keys.
//!
//! The key of a sample is the beginning of the hash of its row's content. So rows that are equal in every column have equal keys
//! in all datasets, from whatever source they come. A dataset of other columns, of other ids, or with another
//! `dataset.dedup_ignore` has other keys for the same rows. It is recognised by its splits: none has a measured key.

use feedline_loader::read_keys;
use feedline_schemas::{
    count::counted,
    ids::TableName,
    manifest::{Manifest, Split},
};
use feedline_storage::Store;

/// Most rows whose keys are read to compare datasets: 8 bytes of memory for each row that is measured.
const ROWS_MAX: u64 = 10_000_000;

/// Most blocks whose keys are read: two small requests for each.
const BLOCKS_MAX: u64 = 20_000;

/// Splits that are measured.
const MEASURED: [Split; 2] = [Split::Validation, Split::Test];

/// A dataset of a mixture beside the one that is measured.
#[derive(Debug)]
pub(super) struct OtherDataset {
    /// URL as the configuration has it.
    pub(super) url: String,
    pub(super) store: Store,
    pub(super) manifest: Manifest,
}

impl OtherDataset {
    /// Names of its sources that `manifest` has, too.
    pub(super) fn shared_sources(&self, manifest: &Manifest) -> Vec<&TableName> {
        let own = &manifest.sources;
        let names = self.manifest.sources.iter().map(|source| &source.name);
        let shared = names.filter(|name| own.iter().any(|source| source.name == **name));
        shared.collect()
    }
}

/// Other datasets, compared with the rows that are measured.
#[derive(Debug, Default)]
pub(super) struct SharedRows<'a> {
    /// Descriptions, with counts, of those whose training split has rows that are measured.
    pub(super) shared: Vec<String>,
    /// Those with a source of the same name, none of whose splits has the key of a row that is measured.
    pub(super) not_comparable: Vec<&'a OtherDataset>,
}

/// Keys of a split that is measured.
struct MeasuredSplit {
    split: Split,
    /// Sorted; equal rows have equal ones.
    keys: Vec<u64>,
}

/// Finds the other datasets whose training split has rows that are measured, and those whose rows cannot be compared.
///
/// # Errors
/// Text that says why the rows were not compared: there are too many, or a shard cannot be read.
pub(super) async fn find<'a>(
    dataset: &Store,
    manifest: &Manifest,
    others: &'a [OtherDataset],
) -> Result<SharedRows<'a>, String> {
    if !MEASURED.into_iter().any(|split| has_rows(manifest, split)) {
        return Ok(SharedRows::default());
    }
    check_size(manifest, others)?;
    let compared = compare(dataset, manifest, others).await;
    compared.map_err(|error| error.to_string())
}

async fn compare<'a>(
    dataset: &Store,
    manifest: &Manifest,
    others: &'a [OtherDataset],
) -> Result<SharedRows<'a>, feedline_loader::Error> {
    let mut measured = Vec::new();
    for split in MEASURED {
        if has_rows(manifest, split) {
            measured.push(MeasuredSplit::read(dataset, split).await?);
        }
    }
    let mut compared = SharedRows::default();
    if measured.is_empty() {
        return Ok(compared);
    }
    for other in others {
        if !has_rows(&other.manifest, Split::Train) {
            continue;
        }
        let shared = count_shared(&measured, &other.store, Split::Train).await?;
        if let Some(described) = describe(&other.url, &measured, &shared) {
            compared.shared.push(described);
        } else if !other.shared_sources(manifest).is_empty()
            && !measures_shared_rows(&measured, other).await?
        {
            compared.not_comparable.push(other);
        }
    }
    Ok(compared)
}

/// Checks that the keys of so many rows can be read before a training.
fn check_size(manifest: &Manifest, others: &[OtherDataset]) -> Result<(), String> {
    let measured = MEASURED
        .into_iter()
        .filter_map(|split| manifest.split(split));
    let of_others = others.iter().flat_map(|other| {
        let reads_all = !other.shared_sources(manifest).is_empty();
        let splits = Split::ALL.into_iter();
        let read = splits.filter(move |split| reads_all || *split == Split::Train);
        read.filter_map(move |split| other.manifest.split(split))
    });
    let (mut rows, mut blocks) = (0_u64, 0_u64);
    for split in measured.chain(of_others) {
        rows = rows.saturating_add(split.rows);
        blocks = blocks.saturating_add(match split.table {
            // Such a split has very many shards.
            Some(_) => u64::MAX,
            None => split
                .shards
                .iter()
                .map(|s| s.blocks.len() as u64)
                .sum::<u64>(),
        });
    }
    if rows > ROWS_MAX {
        return Err(format!(
            "there are {rows} rows, and up to {ROWS_MAX} are compared"
        ));
    }
    if blocks > BLOCKS_MAX {
        return Err(format!(
            "the rows are in more than {BLOCKS_MAX} blocks, whose keys would take long to read"
        ));
    }
    Ok(())
}

fn has_rows(manifest: &Manifest, split: Split) -> bool {
    manifest.split(split).is_some_and(|split| split.rows > 0)
}

impl MeasuredSplit {
    async fn read(dataset: &Store, split: Split) -> Result<Self, feedline_loader::Error> {
        let mut keys = Vec::new();
        read_keys(dataset, split, |of_block| keys.extend_from_slice(of_block)).await?;
        keys.sort_unstable();
        Ok(Self { split, keys })
    }
}

/// Returns whether the validation or test split of another dataset has rows that are measured, so that its keys are of the same
/// kind.
async fn measures_shared_rows(
    measured: &[MeasuredSplit],
    other: &OtherDataset,
) -> Result<bool, feedline_loader::Error> {
    for split in MEASURED {
        if has_rows(&other.manifest, split) {
            let shared = count_shared(measured, &other.store, split).await?;
            if shared.iter().any(|rows| *rows > 0) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// For each measured split the number of its rows in a split of another dataset.
async fn count_shared(
    measured: &[MeasuredSplit],
    other: &Store,
    split: Split,
) -> Result<Vec<u64>, feedline_loader::Error> {
    let seen = measured.iter().map(|split| vec![false; split.keys.len()]);
    let mut seen: Vec<Vec<bool>> = seen.collect();
    let take = |keys: &[u64]| {
        for key in keys {
            for (of_split, seen) in measured.iter().zip(&mut seen) {
                let first = of_split.keys.partition_point(|measured| measured < key);
                if of_split.keys.get(first) == Some(key) {
                    seen[first] = true;
                }
            }
        }
    };
    read_keys(other, split, take).await?;
    Ok(measured.iter().zip(&seen).map(count_seen).collect())
}

/// Counts the rows of a split whose key is seen: that of the first of equal ones says it for all.
fn count_seen((split, seen): (&MeasuredSplit, &Vec<bool>)) -> u64 {
    let (mut first, mut rows) = (0, 0);
    for equal in split.keys.chunk_by(|a, b| a == b) {
        if seen[first] {
            rows += equal.len() as u64;
        }
        first += equal.len();
    }
    rows
}

/// The shared rows of a dataset in words; `None` where there are none.
fn describe(url: &str, measured: &[MeasuredSplit], shared: &[u64]) -> Option<String> {
    let splits = measured.iter().zip(shared);
    let parts = splits.filter(|(_, shared)| **shared > 0);
    let parts: Vec<String> = parts
        .map(|(MeasuredSplit { split, keys }, shared)| {
            let rows = counted(keys.len() as u64, "row");
            format!("{shared} of the {rows} of the {split} split")
        })
        .collect();
    (!parts.is_empty()).then(|| format!("`{url}` has {}", parts.join(" and ")))
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{
        ids::{Hash128, Sequence},
        manifest::{SourceReference, TargetKind},
    };
    use feedline_testkit::numbered_dataset::{FEATURES, publish, publish_manifest};

    use super::*;

    /// A dataset whose splits have so many rows; those of each split begin with the same ones.
    async fn published(rows: &[(Split, u32)]) -> (Store, Manifest) {
        let store = Store::memory();
        let shapes: Vec<(Split, [u32; 1])> = rows.iter().map(|(split, n)| (*split, [*n])).collect();
        let shards: Vec<(Split, [&[u32]; 1])> =
            shapes.iter().map(|(split, n)| (*split, [&n[..]])).collect();
        let splits: Vec<(Split, &[&[u32]])> = shards
            .iter()
            .map(|(split, shape)| (*split, &shape[..]))
            .collect();
        let manifest = publish(&store, FEATURES, TargetKind::Regression, &splits).await;
        (store, manifest)
    }

    async fn other(rows: u32) -> OtherDataset {
        let (store, manifest) = published(&[(Split::Train, rows)]).await;
        OtherDataset {
            url: "memory:///other".into(),
            store,
            manifest,
        }
    }

    fn source(name: &str) -> SourceReference {
        SourceReference {
            name: TableName::new(name).unwrap(),
            sequence: Sequence::new(1),
            entry_hash: Hash128::new(1),
            licence: None,
        }
    }

    /// A dataset of the source `rows`: its training split has only rows from number 9 on, its test split so many first rows.
    async fn other_without_shared_training_rows(test_rows: u32) -> OtherDataset {
        let store = Store::memory();
        let splits: [(Split, &[&[u32]]); 2] = [
            (Split::Train, &[&[9], &[3]]),
            (Split::Test, &[&[test_rows]]),
        ];
        let mut manifest = publish(&store, FEATURES, TargetKind::Regression, &splits).await;
        manifest.splits[0].shards.remove(0);
        manifest.splits[0].rows = 3;
        let mut manifest = publish_manifest(&store, manifest).await;
        manifest.sources = vec![source("rows")];
        OtherDataset {
            url: "memory:///other".into(),
            store,
            manifest,
        }
    }

    /// Numbers of datasets with shared rows and of those that cannot be compared with one that measures 4 rows of this source.
    async fn compared_with(source_name: &str, other: OtherDataset) -> [usize; 2] {
        let (store, mut manifest) = published(&[(Split::Test, 4)]).await;
        manifest.sources = vec![source(source_name)];
        let others = [other];
        let found = find(&store, &manifest, &others).await.unwrap();
        [found.shared.len(), found.not_comparable.len()]
    }

    #[tokio::test]
    async fn a_dataset_that_measures_the_same_rows_and_trains_on_others_is_clean() {
        let other = other_without_shared_training_rows(2).await;
        assert_eq!(compared_with("rows", other).await, [0, 0]);
    }

    #[tokio::test]
    async fn a_dataset_of_the_same_source_without_a_measured_key_is_not_comparable() {
        let other = other_without_shared_training_rows(0).await;
        assert_eq!(compared_with("rows", other).await, [0, 1]);
    }

    #[tokio::test]
    async fn a_dataset_of_another_source_without_a_measured_key_is_clean() {
        let other = other_without_shared_training_rows(0).await;
        assert_eq!(compared_with("elsewhere", other).await, [0, 0]);
    }

    #[tokio::test]
    async fn measured_rows_in_the_training_split_of_another_dataset_are_counted_by_split() {
        let splits = [(Split::Train, 3), (Split::Validation, 2), (Split::Test, 8)];
        let (store, manifest) = published(&splits).await;
        let others = [other(5).await, other(1).await];
        let found = find(&store, &manifest, &others).await.unwrap();
        assert_eq!(
            found.shared,
            [
                "`memory:///other` has 2 of the 2 rows of the validation split and 5 of the 8 rows of the test split",
                "`memory:///other` has 1 of the 2 rows of the validation split and 1 of the 8 rows of the test split",
            ]
        );
        let only_test = published(&[(Split::Test, 1)]).await;
        let none = find(&only_test.0, &only_test.1, &[]).await.unwrap();
        assert!(none.shared.is_empty());
    }

    #[test]
    fn equal_rows_count_each() {
        let split = MeasuredSplit {
            split: Split::Test,
            keys: vec![2, 2, 2, 5, 7, 7],
        };
        let seen = vec![true, false, false, false, true, false];
        assert_eq!(count_seen((&split, &seen)), 5);
        assert_eq!(count_seen((&split, &vec![false; 6])), 0);
    }

    #[tokio::test]
    async fn rows_of_large_datasets_are_not_compared() {
        let (store, mut manifest) = published(&[(Split::Test, 1)]).await;
        let mut large = other(1).await;
        large.manifest.splits[0].rows = ROWS_MAX;
        let refused = find(&store, &manifest, &[large]).await.unwrap_err();
        assert!(refused.contains("10000001 rows"), "{refused}");
        // Other splits are read where a source has the same name.
        manifest.sources = vec![source("rows")];
        let mut large = other_without_shared_training_rows(2).await;
        large.manifest.splits[1].rows = ROWS_MAX;
        let refused = find(&store, &manifest, &[large]).await.unwrap_err();
        assert!(refused.contains("10000004 rows"), "{refused}");
    }
}
