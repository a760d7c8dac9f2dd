//! Rows that are measured and that another dataset of a mixture trains on, found by their keys.
//!
//! The key of a sample is the beginning of the hash of its row's content. So equal rows have equal keys in all datasets, from
//! whatever source they come.

use feedline_loader::read_keys;
use feedline_schemas::{
    count::counted,
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

/// Keys of a split that is measured.
struct MeasuredSplit {
    split: Split,
    /// Sorted, each once.
    keys: Vec<u64>,
}

/// Finds the other datasets whose training split has rows that are measured; each is described with counts.
///
/// # Errors
/// Text that says why the rows were not compared: there are too many, or a shard cannot be read.
pub(super) async fn find(
    dataset: &Store,
    manifest: &Manifest,
    others: &[OtherDataset],
) -> Result<Vec<String>, String> {
    check_size(manifest, others)?;
    let mut measured = Vec::new();
    for split in MEASURED {
        if has_rows(manifest, split) {
            let read = MeasuredSplit::read(dataset, split).await;
            measured.push(read.map_err(|error| error.to_string())?);
        }
    }
    let mut found = Vec::new();
    for other in others {
        if !has_rows(&other.manifest, Split::Train) {
            continue;
        }
        let shared = count_shared(&measured, &other.store).await;
        let shared = shared.map_err(|error| error.to_string())?;
        found.extend(describe(&other.url, &measured, &shared));
    }
    Ok(found)
}

/// Checks that the keys of so many rows can be read before a training.
fn check_size(manifest: &Manifest, others: &[OtherDataset]) -> Result<(), String> {
    let measured = MEASURED
        .into_iter()
        .filter_map(|split| manifest.split(split));
    let trained = others.iter();
    let trained = trained.filter_map(|other| other.manifest.split(Split::Train));
    let (mut rows, mut blocks) = (0_u64, 0_u64);
    for split in measured.chain(trained) {
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
        keys.dedup();
        Ok(Self { split, keys })
    }
}

/// For each measured split the number of its rows in the training split of another dataset.
async fn count_shared(
    measured: &[MeasuredSplit],
    other: &Store,
) -> Result<Vec<u64>, feedline_loader::Error> {
    let seen = measured.iter().map(|split| vec![false; split.keys.len()]);
    let mut seen: Vec<Vec<bool>> = seen.collect();
    let take = |keys: &[u64]| {
        for key in keys {
            for (split, seen) in measured.iter().zip(&mut seen) {
                if let Ok(place) = split.keys.binary_search(key) {
                    seen[place] = true;
                }
            }
        }
    };
    read_keys(other, Split::Train, take).await?;
    let count = |seen: &Vec<bool>| seen.iter().filter(|is_shared| **is_shared).count() as u64;
    Ok(seen.iter().map(count).collect())
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
    use feedline_schemas::manifest::TargetKind;
    use feedline_testkit::numbered_dataset::{FEATURES, publish};

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

    #[tokio::test]
    async fn measured_rows_in_the_training_split_of_another_dataset_are_counted_by_split() {
        let splits = [(Split::Train, 3), (Split::Validation, 2), (Split::Test, 8)];
        let (store, manifest) = published(&splits).await;
        let others = [other(5).await, other(1).await];
        let found = find(&store, &manifest, &others).await.unwrap();
        assert_eq!(
            found,
            [
                "`memory:///other` has 2 of the 2 rows of the validation split and 5 of the 8 rows of the test split",
                "`memory:///other` has 1 of the 2 rows of the validation split and 1 of the 8 rows of the test split",
            ]
        );
        let only_test = published(&[(Split::Test, 1)]).await;
        let none = find(&only_test.0, &only_test.1, &[]).await.unwrap();
        assert!(none.is_empty());
    }

    #[tokio::test]
    async fn rows_of_large_datasets_are_not_compared() {
        let (store, manifest) = published(&[(Split::Test, 1)]).await;
        let mut large = other(1).await;
        large.manifest.splits[0].rows = ROWS_MAX;
        let refused = find(&store, &manifest, &[large]).await.unwrap_err();
        assert!(refused.contains("10000001 rows"), "{refused}");
    }
}
