//! Removal of the files of earlier builds.

use std::{collections::BTreeSet, time::Duration};

use feedline_schemas::{
    ContractError,
    ids::Hash128,
    manifest::{Manifest, Split, report_path},
    report::PruneReport,
    shard_table::table_path,
};
use feedline_storage::{Listed, Store, clock::Clock};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::{
    manifest::{
        generation_of, path_of, pointer, profile_path, read_manifest, read_named, tokenizer_path,
        transform_path,
    },
    shard_index::digest_path,
    stored_shard::{self, lengths_path},
};
use crate::{Error, staging::rejects};

/// Folders whose files builds write. Any other file in them is reported.
const FOLDERS: [&str; 3] = ["shards/", "rejects/", "tables/"];
/// Hexadecimal digits of a hash in the name of a file.
const HASH_DIGITS: usize = 16;
/// Requests that are made at the same time.
const AT_ONCE: usize = 16;

/// Files of earlier builds that [`prune`] leaves.
#[derive(Clone, Copy, Debug)]
pub struct PruneRule {
    /// Number of the newest manifests whose files stay, the current one included; at least 1.
    pub keep: u32,
    /// Age below which any file stays: a build in progress may be about to name it.
    pub grace: Duration,
    /// Only reports the files.
    pub dry_run: bool,
}

/// Removes the files of a dataset that none of its newest manifests names, and the older manifests.
/// A file of a build is one with a path that a build gives; other files are left, and reported in
/// the folders of builds. No build, training or loader may use the older manifests meanwhile.
///
/// ```no_run
/// use std::time::Duration;
///
/// use feedline_preprocess::{Error, PruneRule, prune};
/// use feedline_storage::{Store, StoreOptions, clock::SystemClock};
///
/// # async fn example() -> Result<(), Error> {
/// let dataset = Store::open("out/dataset", &StoreOptions::default())?;
/// let rule = PruneRule {
///     keep: 2,
///     grace: Duration::from_secs(86_400),
///     dry_run: true,
/// };
/// let report = prune(&dataset, rule, &SystemClock).await?;
/// println!("{} files with {} bytes", report.files, report.bytes);
/// # Ok(()) }
/// ```
///
/// # Errors
/// As [`read_manifest`]; [`Error::Input`] if an older manifest that is kept is damaged, as the files
/// that it names are unknown then, or if a build published meanwhile and needs files that were
/// removed.
pub async fn prune(
    dataset: &Store,
    rule: PruneRule,
    clock: &dyn Clock,
) -> Result<PruneReport, Error> {
    let before = pointer(dataset).await?;
    let current = read_manifest(dataset).await?;
    let listed = dataset.list("").await?;
    let (kept, named) = kept_files(dataset, rule, before.as_deref(), &current, &listed).await?;
    let now = clock.unix();
    let is_young = |file: &Listed| {
        let age = file.modified.map(|modified| now.saturating_sub(modified));
        age.is_some_and(|age| age < rule.grace)
    };
    let (unnamed, foreign) = unnamed_files(listed, &named);
    let (young, mut old): (Vec<_>, Vec<_>) = unnamed.into_iter().partition(is_young);
    // Manifests go first, so that none names a file that is gone.
    old.sort_by_key(|file| generation_of(&file.path).is_none());
    let report = PruneReport {
        url: dataset.url(),
        dry_run: rule.dry_run,
        kept,
        files: old.len() as u64,
        bytes: old.iter().map(|file| file.bytes).sum(),
        young: young.len() as u64,
        foreign,
        removed: old.into_iter().map(|file| file.path).collect(),
    };
    if !rule.dry_run {
        let (manifests, others): (Vec<_>, Vec<_>) = report
            .removed
            .iter()
            .partition(|path| generation_of(path).is_some());
        delete_all(dataset, &manifests).await?;
        delete_all(dataset, &others).await?;
        check_unused(dataset, before.as_deref(), &report.removed).await?;
    }
    Ok(report)
}

/// The manifests that are kept, newest first, and the paths of all files that they name.
async fn kept_files(
    dataset: &Store,
    rule: PruneRule,
    pointer: Option<&[u8]>,
    current: &Manifest,
    listed: &[Listed],
) -> Result<(Vec<String>, BTreeSet<String>), Error> {
    let pointer = String::from_utf8_lossy(pointer.unwrap_or_default())
        .trim()
        .to_owned();
    let newest = generation_of(&pointer).unwrap_or_default();
    let older = listed.iter().filter_map(|file| generation_of(&file.path));
    let older: BTreeSet<u64> = older.filter(|generation| *generation < newest).collect();
    let mut kept = vec![pointer];
    let mut named: BTreeSet<String> = named_by(current).collect();
    for generation in older
        .into_iter()
        .rev()
        .take(rule.keep.saturating_sub(1) as usize)
    {
        let path = path_of(generation);
        named.extend(named_by(&read_older(dataset, &path, kept.len()).await?));
        kept.push(path);
    }
    named.extend(kept.iter().cloned());
    Ok((kept, named))
}

/// Reads an older manifest that is kept beside `newer` newer ones. If it is damaged, the files that
/// it names are unknown.
async fn read_older(dataset: &Store, path: &str, newer: usize) -> Result<Manifest, Error> {
    let (what, reason) = match read_named(dataset, path).await {
        Ok(manifest) => return Ok(manifest),
        Err(Error::Input { what, reason, .. }) => (what, reason),
        Err(Error::Contract(ContractError::Malformed {
            what, path, reason, ..
        })) => (format!("`{what}`"), format!("{reason} at `{path}`")),
        Err(Error::Storage(feedline_storage::Error::NotFound { url })) => {
            (format!("`{url}`"), "it does not exist".to_owned())
        }
        Err(error) => return Err(error),
    };
    Err(Error::input(
        what,
        format!(
            "{reason}, so the files that the older manifest `{path}` names are unknown; nothing was removed"
        ),
        format!(
            "restore it; or remove `{path}` or use `--keep {newer}`, and the files that only that manifest names are removed"
        ),
    ))
}

/// Files that no kept manifest names: those of builds, and the paths of others in their folders.
fn unnamed_files(listed: Vec<Listed>, named: &BTreeSet<String>) -> (Vec<Listed>, Vec<String>) {
    let unnamed = listed
        .into_iter()
        .filter(|file| !named.contains(&file.path));
    let (of_builds, others): (Vec<_>, Vec<_>) = unnamed.partition(|file| is_of_build(&file.path));
    let others = others.into_iter().map(|file| file.path);
    let foreign = others.filter(|path| FOLDERS.iter().any(|folder| path.starts_with(folder)));
    (of_builds, foreign.collect())
}

/// Paths of the files that a manifest names.
fn named_by(manifest: &Manifest) -> impl Iterator<Item = String> {
    let mut named = vec![
        manifest.transform.path.clone(),
        report_path(manifest.fingerprint),
    ];
    named.extend(manifest.profile.iter().map(|profile| profile.path.clone()));
    named.extend(
        manifest
            .tokens
            .iter()
            .map(|tokens| tokens.tokenizer.clone()),
    );
    named.extend(manifest.rejects.iter().cloned());
    for split in &manifest.splits {
        named.extend(split.table.iter().map(|table| table.path.clone()));
        for shard in &split.shards {
            named.push(digest_path(&shard.path));
            named.extend(shard.lengths.iter().map(|lengths| lengths.path.clone()));
            named.push(shard.path.clone());
        }
    }
    named.into_iter()
}

/// Returns true for a path that a build gives a file, except for `CURRENT`.
fn is_of_build(path: &str) -> bool {
    let is_named_by_hash = || {
        let (hash, index) = hash_and_index(path)?;
        Some(paths_of_builds(hash, index).iter().any(|own| own == path))
    };
    generation_of(path).is_some() || is_named_by_hash().unwrap_or_default()
}

/// Hash at the end of a file's name, and the index before it in the name of a shard.
fn hash_and_index(path: &str) -> Option<(Hash128, Option<usize>)> {
    let (path, _) = path.rsplit_once('.')?;
    let begin = path.len().checked_sub(HASH_DIGITS)?;
    let hash = u64::from_str_radix(path.get(begin..)?, 16).ok()?;
    let before = path.get(..begin)?.rsplit('/').next()?;
    let index = before.strip_suffix('-');
    let index = index.and_then(|index| index.parse().ok());
    Some((Hash128::new(u128::from(hash) << 64), index))
}

/// Paths that builds give files with this hash, and shards with this index.
fn paths_of_builds(hash: Hash128, index: Option<usize>) -> Vec<String> {
    let mut paths = vec![
        transform_path(hash),
        profile_path(hash),
        tokenizer_path(hash),
        report_path(hash),
        rejects::path_of(hash),
    ];
    for split in Split::ALL {
        paths.push(table_path(split, hash));
        if let Some(index) = index {
            let shard = stored_shard::path_of(split, index, hash);
            paths.extend([digest_path(&shard), lengths_path(&shard), shard]);
        }
    }
    paths
}

async fn delete_all(dataset: &Store, paths: &[&String]) -> Result<(), Error> {
    let deletions: Vec<_> = paths.iter().map(|path| dataset.delete(path)).collect();
    stream::iter(deletions)
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    Ok(())
}

/// Refuses a dataset that a build has published meanwhile with files that are gone.
async fn check_unused(
    dataset: &Store,
    before: Option<&[u8]>,
    removed: &[String],
) -> Result<(), Error> {
    if pointer(dataset).await?.as_deref() == before {
        return Ok(());
    }
    let removed: BTreeSet<&String> = removed.iter().collect();
    let manifest = read_manifest(dataset).await?;
    match named_by(&manifest).find(|path| removed.contains(path)) {
        None => Ok(()),
        Some(path) => Err(Error::input(
            format!("dataset `{}`", dataset.url()),
            format!(
                "a build published while its old files were removed, and it names `{path}`, which is gone"
            ),
            "build again with `--refit`, and do not remove files while a build runs",
        )),
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::record::ColumnType::Float64;
    use feedline_storage::clock::SystemClock;
    use serde_json::json;

    use super::*;
    use crate::{
        testing::{Cells, LandingZone, build_with},
        verify,
    };

    const NOW: PruneRule = PruneRule {
        keep: 1,
        grace: Duration::ZERO,
        dry_run: false,
    };

    /// A dataset in `root` that was built three times, with other rows in its splits each time.
    async fn built(root: &Store) -> Store {
        let mut zone = LandingZone::new(root, "a", &[("x", Float64), ("y", Float64)]);
        let row = |i: u32| vec![json!(f64::from(i)), json!(f64::from(2 * i))];
        zone.batch(&(0..200).map(row).collect::<Vec<Cells>>()).await;
        for seed in 1..=3 {
            let settings = format!(
                "sources = [\"a\"]\ntarget = \"y\"\nprofile = true\nsplit = {{ salt = \"{seed}\" }}\n"
            );
            build_with(root, &settings, 2).await.unwrap();
        }
        root.child("dataset")
    }

    /// Files that no build wrote, in the order of their paths; the last two are in no folder of
    /// builds.
    async fn put_foreign(dataset: &Store) -> Vec<String> {
        let foreign = [
            "rejects/a/0123456789abcdef.jsonl",
            "rejects/mine.jsonl",
            "shards/00000-0123456789abcdef.arrow",
            "shards/notes.txt",
            "shards/other/00000-0123456789abcdef.arrow",
            "shards/train/0-0123456789abcdef.arrow",
            "shards/train/00000-0123456789ABCDEF.arrow",
            "shards/train/00000-0123456789abcdef.parquet",
            "shards/train/mine.arrow",
            "shards/train/mine/00000-0123456789abcdef.arrow",
            "shards/train/mine/x.keys",
            "tables/mine-0123456789abcdef.arrow",
            "report-2024.html",
            "transform-mine.json",
        ];
        for path in foreign {
            dataset.put(path, "mine".into()).await.unwrap();
        }
        foreign.map(str::to_owned).into()
    }

    async fn paths(dataset: &Store) -> BTreeSet<String> {
        let listed = dataset.list("").await.unwrap();
        listed.into_iter().map(|file| file.path).collect()
    }

    #[tokio::test]
    async fn files_of_earlier_builds_are_removed_and_the_dataset_stays_whole() {
        let root = Store::memory();
        let dataset = built(&root).await;
        let foreign = put_foreign(&dataset).await;
        let shards = &read_manifest(&dataset).await.unwrap().splits[0].shards;
        let digest = shards[0].path.replace(".arrow", ".keys");
        dataset.put(&digest, "digest".into()).await.unwrap();
        let before = paths(&dataset).await;
        let named = |manifest: &Manifest| named_by(manifest).collect::<BTreeSet<_>>();
        let previous = named(&read_named(&dataset, &path_of(2)).await.unwrap());
        let current = named(&read_manifest(&dataset).await.unwrap());
        // Nothing is removed on trial, nor in the time of grace.
        let dry_run = PruneRule {
            dry_run: true,
            ..NOW
        };
        let trial = prune(&dataset, dry_run, &SystemClock).await.unwrap();
        assert!(trial.files > 0 && paths(&dataset).await == before);
        assert_eq!(trial.foreign, foreign[..foreign.len() - 2]);
        let two = PruneRule { keep: 2, ..NOW };
        let report = prune(&dataset, two, &SystemClock).await.unwrap();
        assert_eq!(report.kept, [path_of(3), path_of(2)]);
        let after = paths(&dataset).await;
        assert!(
            previous
                .iter()
                .chain(&current)
                .all(|path| !before.contains(path) || after.contains(path))
        );
        assert!(
            report
                .removed
                .iter()
                .any(|path| path.starts_with("shards/train/"))
        );
        let report = prune(&dataset, NOW, &SystemClock).await.unwrap();
        assert_eq!(report.kept, [path_of(3)]);
        let after = paths(&dataset).await;
        let mut expected: BTreeSet<String> = before.intersection(&current).cloned().collect();
        expected.extend(foreign);
        expected.insert("CURRENT".to_owned());
        expected.insert(path_of(3));
        assert!(after.contains(&digest));
        assert_eq!(after, expected);
        assert_eq!(
            verify(&dataset).await.unwrap().problems,
            Vec::<String>::new()
        );
        let again = prune(&dataset, NOW, &SystemClock).await.unwrap();
        assert_eq!((again.files, again.bytes), (0, 0));
    }

    #[test]
    fn the_paths_of_builds_are_recognized() {
        let hash = Hash128::of(b"content");
        for index in [0, 7, 123_456] {
            for path in paths_of_builds(hash, Some(index)) {
                assert!(is_of_build(&path), "{path}");
            }
        }
        assert!(is_of_build(&path_of(3)) && !is_of_build("CURRENT"));
    }

    #[tokio::test]
    async fn an_older_manifest_that_is_damaged_keeps_all_files() {
        let root = Store::memory();
        let dataset = built(&root).await;
        let manifest = dataset.get(&path_of(2)).await.unwrap();
        let changed = String::from_utf8_lossy(&manifest).replacen("\"rows\": ", "\"rows\": 1", 1);
        for damaged in ["{", changed.as_str()] {
            let damaged = damaged.to_owned().into();
            dataset.put(&path_of(2), damaged).await.unwrap();
            let before = paths(&dataset).await;
            let three = PruneRule { keep: 3, ..NOW };
            let error = prune(&dataset, three, &SystemClock).await.unwrap_err();
            let error = error.to_string();
            for part in [
                "manifest-000002.json`: ",
                "are unknown; nothing was removed; restore it",
                "use `--keep 1`",
            ] {
                assert!(error.contains(part), "{error}");
            }
            assert!(!error.contains("--refit"), "{error}");
            assert_eq!(paths(&dataset).await, before);
        }
        let report = prune(&dataset, NOW, &SystemClock).await.unwrap();
        assert!(report.removed.contains(&path_of(2)));
        assert!(verify(&dataset).await.unwrap().problems.is_empty());
    }

    #[tokio::test]
    async fn files_younger_than_the_grace_stay() {
        let folder = tempfile::tempdir().unwrap();
        let root = Store::open(&folder.path().display().to_string(), &Default::default()).unwrap();
        let dataset = built(&root).await;
        let before = paths(&dataset).await;
        let rule = PruneRule {
            grace: Duration::from_secs(3_600),
            ..NOW
        };
        let report = prune(&dataset, rule, &SystemClock).await.unwrap();
        assert!(report.files == 0 && report.young > 0, "{report:?}");
        assert_eq!(paths(&dataset).await, before);
    }

    #[tokio::test]
    async fn a_build_that_publishes_removed_files_meanwhile_is_reported() {
        let root = Store::memory();
        let dataset = built(&root).await;
        let before = pointer(&dataset).await.unwrap();
        let old = read_named(&dataset, &path_of(1)).await.unwrap();
        let removed = [old.splits[0].shards[0].path.clone()];
        check_unused(&dataset, before.as_deref(), &removed)
            .await
            .unwrap();
        super::super::manifest::republish(&dataset, &old)
            .await
            .unwrap();
        let error = check_unused(&dataset, before.as_deref(), &removed).await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains("which is gone"), "{error}");
    }
}
