//! The manifest of a dataset, and the shards of a split that it lists.
//!
//! A split of very many shards has them in a table, which is read in parts, a few at a time; only
//! its columns of numbers and names stay in memory.
//!
//! File sizes are compared with the manifest while the dataset is opened: by one request for each
//! of up to [`MOST_ASKED`] shards, and beyond that by listing their folder, a thousand files a
//! request. A table of shards is so long that even the listing would take minutes; its shards are
//! looked up only if incomplete ones are to be skipped, and otherwise when they are first read.

use std::{collections::HashMap, time::Duration};

use bytes::Bytes;
use feedline_schemas::{
    decode,
    manifest::{Manifest, Shard, SplitShards},
    shard_table,
    transform::TransformArtefact,
};
use feedline_storage::Store;
use futures::{StreamExt, TryStreamExt, stream};

use super::{
    config::InputFormat,
    opened::{Skipped, absent},
};
use crate::{Error, block_table::BlockTable, config::BadShards, error::REBUILD, guard::catching};

/// Most shards that are asked for their size one by one.
const MOST_ASKED: usize = 1000;

/// Requests for sizes under way at one time.
const ASKED_AT_A_TIME: usize = 64;

/// Longest time to look up sizes that nothing depends on.
const MOST_WAIT: Duration = Duration::from_secs(30);

/// Parts of a table, of about a quarter of a megabyte each, that are read at one time.
const PARTS_AT_A_TIME: usize = 4;

/// Shards that a log line names.
const MOST_NAMED: usize = 8;

/// Reads the manifest of a dataset in our own format, and no shard. The shards listed in tables are
/// not in it.
///
/// # Errors
/// [`Error::NoDataset`], errors of the manifest, and failures of the store.
pub async fn read(dataset: &Store) -> Result<Manifest, Error> {
    let url = dataset.url();
    let storage = |source| storage_error(dataset, source);
    let Some(current) = dataset.get_opt("CURRENT").await.map_err(storage)? else {
        return Err(Error::NoDataset {
            url,
            reason: absent(InputFormat::Shards, false),
        });
    };
    let name = String::from_utf8_lossy(&current).trim().to_owned();
    if !name.starts_with("manifest-") || !name.ends_with(".json") || name.contains('/') {
        return Err(Error::Manifest {
            url,
            reason: format!("`CURRENT` names `{name}`, which is not a manifest"),
        });
    }
    let bytes = dataset.get(&name).await.map_err(storage)?;
    let manifest: Manifest =
        decode(&dataset.url_of(&name), &bytes).map_err(|source| Error::Contract { url, source })?;
    let computed = manifest.compute_fingerprint();
    if computed != manifest.fingerprint {
        return Err(Error::Fingerprint {
            url: dataset.url_of(&name),
            found: manifest.fingerprint,
            computed,
        });
    }
    Ok(manifest)
}

/// Reads the transform that a manifest names; `None` if its file is missing.
///
/// # Errors
/// [`Error::File`] for another transform than the manifest names, [`Error::Contract`], and failures of the store.
pub(crate) async fn read_transform(
    dataset: &Store,
    manifest: &Manifest,
) -> Result<Option<TransformArtefact>, Error> {
    let path = &manifest.transform.path;
    let read = dataset.get_opt(path).await;
    let Some(bytes) = read.map_err(|source| storage_error(dataset, source))? else {
        return Ok(None);
    };
    let url = dataset.url_of(path);
    let transform: TransformArtefact = decode(&url, &bytes).map_err(|source| Error::Contract {
        url: dataset.url(),
        source,
    })?;
    let (computed, named) = (transform.compute_hash(), manifest.transform.hash);
    if computed != named {
        return Err(Error::File {
            url,
            reason: format!(
                "its hash is `{computed}` and the manifest says `{named}`; restore the file or {REBUILD}"
            ),
        });
    }
    Ok(Some(transform))
}

/// The blocks of the shards of a split, and the incomplete shards, which are left out.
pub(super) async fn block_table(
    store: &Store,
    split: &SplitShards,
    bad: BadShards,
) -> Result<(BlockTable, Skipped), Error> {
    let refuse = |reason| Error::Manifest {
        url: store.url(),
        reason,
    };
    let sizes = sizes(store, split, bad).await?;
    let mut found = FoundShards {
        store,
        sizes,
        bad,
        block_table: BlockTable::default(),
        skipped: Skipped::default(),
    };
    for shard in &split.shards {
        found.add(shard)?;
    }
    if let Some(table) = &split.table {
        let parts = (0..table.blocks.len()).map(|part| fetch_part(store, table, part));
        let mut parts = stream::iter(parts).buffered(PARTS_AT_A_TIME);
        while let Some((part, bytes)) = parts.try_next().await? {
            // Here and not on threads of their own: it takes a millisecond, and each of these would keep memory of its own.
            let shards = catching(|| shard_table::read_part(table, &table.blocks[part], &bytes));
            let shards = shards.map_err(refuse)?;
            for shard in &shards.map_err(|error| refuse(error.to_string()))? {
                found.add(shard)?;
            }
        }
    }
    let FoundShards {
        block_table,
        skipped,
        ..
    } = found;
    let block_table = block_table
        .finish(split.split, split.rows)
        .map_err(refuse)?;
    skipped.log(store);
    if block_table.samples() == 0 {
        return Err(Error::File {
            url: store.url(),
            reason: format!(
                "none of the `{}` shards of split `{}` that have rows is complete; restore the files",
                skipped.paths.len(),
                split.split
            ),
        });
    }
    Ok((block_table, skipped))
}

fn storage_error(store: &Store, source: feedline_storage::Error) -> Error {
    Error::Storage {
        url: store.url(),
        source: Box::new(source),
    }
}

async fn fetch_part(store: &Store, table: &Shard, number: usize) -> Result<(usize, Bytes), Error> {
    let part = &table.blocks[number];
    let range = part.offset..part.offset.saturating_add(part.bytes());
    let bytes = store.get_range(&table.path, range).await;
    let bytes = bytes.map_err(|source| storage_error(store, source))?;
    Ok((number, bytes))
}

/// The shards found so far.
struct FoundShards<'a> {
    store: &'a Store,
    /// By path, if they are known; missing files are absent.
    sizes: Option<HashMap<String, u64>>,
    bad: BadShards,
    block_table: BlockTable,
    skipped: Skipped,
}

impl FoundShards<'_> {
    fn add(&mut self, shard: &Shard) -> Result<(), Error> {
        let size = self.sizes.as_ref().map(|sizes| sizes.get(&shard.path));
        match (size, self.bad) {
            (Some(found), BadShards::Skip) if found != Some(&shard.bytes) => {
                self.block_table.skip(shard);
                self.skipped.add(shard);
                return Ok(());
            }
            (Some(Some(&found)), BadShards::Fail) if found != shard.bytes => {
                return Err(Error::ShardTruncated {
                    shard: self.store.url_of(&shard.path),
                    expected: shard.bytes,
                    found,
                });
            }
            // One that is missing is an error when it is read: until then a cache may have what is needed of it.
            _ => {}
        }
        self.block_table
            .push(shard)
            .map_err(|reason| Error::Manifest {
                url: self.store.url(),
                reason,
            })
    }
}

/// Sizes of the existing files by path. None when they are not looked up or cannot be.
async fn sizes(
    store: &Store,
    split: &SplitShards,
    bad: BadShards,
) -> Result<Option<HashMap<String, u64>>, Error> {
    if bad == BadShards::Fail && split.table.is_some() {
        return Ok(None);
    }
    let look = async {
        match split.shards.len() {
            0..=MOST_ASKED if split.table.is_none() => ask(store, &split.shards).await,
            _ => list(store, &split.shards).await,
        }
    };
    if bad == BadShards::Skip {
        let found = look.await.map_err(|source| storage_error(store, source));
        return found.map(Some);
    }
    // The read of an incomplete shard fails too: nothing depends on knowing it earlier.
    let reason = match tokio::time::timeout(MOST_WAIT, look).await {
        Ok(Ok(found)) => return Ok(Some(found)),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no response within {} s", MOST_WAIT.as_secs()),
    };
    tracing::warn!(
        store = store.url(),
        reason,
        "the sizes of shards cannot be looked up, they are compared when shards are read"
    );
    Ok(None)
}

async fn ask(
    store: &Store,
    shards: &[Shard],
) -> Result<HashMap<String, u64>, feedline_storage::Error> {
    let sizes = (0..shards.len()).map(async |number| {
        let path = &shards[number].path;
        match store.size(path).await {
            Ok(size) => Ok(Some((path.clone(), size))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    });
    let found = stream::iter(sizes).buffer_unordered(ASKED_AT_A_TIME);
    found
        .try_filter_map(async |size| Ok(size))
        .try_collect()
        .await
}

async fn list(
    store: &Store,
    shards: &[Shard],
) -> Result<HashMap<String, u64>, feedline_storage::Error> {
    let listed = store.list(&common_folder(shards)).await?;
    Ok(listed.into_iter().map(|l| (l.path, l.bytes)).collect())
}

/// The innermost folder that all of these are in; of none, where shards usually are.
fn common_folder(shards: &[Shard]) -> String {
    let Some((first, others)) = shards.split_first() else {
        return "shards".into();
    };
    let mut folder: Vec<&str> = first.path.split('/').collect();
    folder.pop();
    for shard in others {
        let same = folder.iter().zip(shard.path.split('/'));
        let same = same.take_while(|(a, b)| **a == *b).count();
        folder.truncate(same);
    }
    folder.join("/")
}

impl Skipped {
    fn add(&mut self, shard: &Shard) {
        self.rows += shard.rows;
        self.paths.push(shard.path.clone());
    }

    fn log(&self, store: &Store) {
        if !self.paths.is_empty() {
            tracing::error!(
                store = store.url(),
                shards = self.paths.len(),
                rows = self.rows,
                first = self.paths[..self.paths.len().min(MOST_NAMED)].join(", "),
                "shards are incomplete and are left out"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_all_shards_is_listed() {
        let check = |paths: &[&str], folder: &str| {
            let shard = |path: &&str| Shard {
                path: (*path).to_owned(),
                ..crate::block_table::tests::split_of(&[&[1]])
                    .shards
                    .remove(0)
            };
            let shards: Vec<_> = paths.iter().map(shard).collect();
            assert_eq!(common_folder(&shards), folder);
        };
        check(&[], "shards");
        check(&["a"], "");
        check(&["s/t/a", "s/t/b"], "s/t");
        check(&["s/t/a", "s/tt/b"], "s");
        check(&["s/t/a", "s/t/u/b", "s/t/u/c"], "s/t");
        check(&["s/t/a", "u"], "");
    }
}
