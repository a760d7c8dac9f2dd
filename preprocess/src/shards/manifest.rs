//! Publishing of a dataset, and reading of the current one.
//!
//! Order of writes: shards, rejects, transform artefact, tokenizer, profile, the tables of splits
//! with many shards, `manifest-<generation>.json` (created, never replaced), `CURRENT` (replaced),
//! the dataset report. Everything but `CURRENT` is named by content or generation, so a build that
//! died at any point leaves the previous dataset in place, and the next one repeats its writes with
//! the same bytes.

use std::collections::BTreeMap;

use bytes::Bytes;
use feedline_schemas::{
    decode, encode,
    ids::Hash128,
    manifest::{MOST_LISTED_SHARDS, Manifest, Shard},
    profile::{DatasetProfile, ProfileReference},
    shard_table,
    transform::{TransformArtefact, TransformReference},
};
use feedline_storage::{PutNew, Store};

use crate::{Error, dataset_report};

/// Name of the pointer to the manifest to read.
const CURRENT: &str = "CURRENT";

/// Returns true if `dataset` has a finished build.
///
/// # Errors
/// [`Error::Storage`].
pub async fn has_build(dataset: &Store) -> Result<bool, Error> {
    Ok(pointer(dataset).await?.is_some())
}

/// Reads the dataset's current manifest, including shards listed in tables, and checks its
/// fingerprint.
///
/// # Errors
/// [`Error::Input`] when there is no dataset, or the pointer, the manifest or a table is damaged; [`Error::Contract`] when the
/// manifest is of another version.
pub async fn read_manifest(dataset: &Store) -> Result<Manifest, Error> {
    let Some(pointer) = dataset.get_opt(CURRENT).await? else {
        return Err(Error::input(
            format!("dataset `{}`", dataset.url()),
            "it holds no finished build (`CURRENT` is absent)",
            "run `feedline shards build` first, or check the location",
        ));
    };
    let name = String::from_utf8_lossy(&pointer).trim().to_owned();
    if generation_of(&name).is_none() {
        let url = dataset.url_of(CURRENT);
        return Err(damaged(
            &url,
            format!("it holds `{name}`, which is not the name of a manifest"),
        ));
    }
    read_named(dataset, &name).await
}

/// Reads the manifest `name`, including shards listed in tables, and checks its fingerprint.
///
/// # Errors
/// As [`read_manifest`].
pub(super) async fn read_named(dataset: &Store, name: &str) -> Result<Manifest, Error> {
    let url = dataset.url_of(name);
    let Some(file) = dataset.get_opt(name).await? else {
        return Err(damaged(
            &url,
            "`CURRENT` names it, and it does not exist".to_owned(),
        ));
    };
    let mut manifest: Manifest = decode(&url, &file)?;
    let found = manifest.compute_fingerprint();
    if found != manifest.fingerprint {
        let reason = format!(
            "its content has fingerprint {found}, it says {}",
            manifest.fingerprint
        );
        return Err(damaged(&url, reason));
    }
    for split in &mut manifest.splits {
        if let Some(table) = &split.table {
            let file = dataset.get(&table.path).await?;
            split.shards = shard_table::read(table, &file)
                .map_err(|error| damaged(&dataset.url_of(&table.path), error.reason))?;
        }
    }
    Ok(manifest)
}

/// Reads the transform artefact `manifest` names and checks its hash.
///
/// # Errors
/// [`Error::Input`] when it is absent or not the one the manifest names.
pub async fn read_transform(
    dataset: &Store,
    manifest: &Manifest,
) -> Result<TransformArtefact, Error> {
    let url = dataset.url_of(&manifest.transform.path);
    let Some(file) = dataset.get_opt(&manifest.transform.path).await? else {
        return Err(missing(&url));
    };
    let artefact: TransformArtefact = decode(&url, &file)?;
    let found = artefact.compute_hash();
    if found != artefact.hash || found != manifest.transform.hash {
        return Err(damaged(
            &url,
            format!(
                "its content has hash {found}, the manifest says {}",
                manifest.transform.hash
            ),
        ));
    }
    Ok(artefact)
}

/// Reads the profile that `manifest` names, if it names one, and checks its hash.
///
/// # Errors
/// [`Error::Input`] when it is absent or not the one the manifest names.
pub async fn read_profile(
    dataset: &Store,
    manifest: &Manifest,
) -> Result<Option<DatasetProfile>, Error> {
    let Some(ProfileReference { path, hash }) = &manifest.profile else {
        return Ok(None);
    };
    let url = dataset.url_of(path);
    let Some(file) = dataset.get_opt(path).await? else {
        return Err(missing(&url));
    };
    let profile: DatasetProfile = decode(&url, &file)?;
    let found = profile.compute_hash();
    if found != profile.hash || found != *hash {
        let reason = format!("its content has hash {found}, the manifest says {hash}");
        return Err(damaged(&url, reason));
    }
    Ok(Some(profile))
}

/// Returns the fault of the profile that `manifest` names, if it names one.
///
/// # Errors
/// [`Error::Storage`] for a store that cannot be read.
pub(crate) async fn check_profile(
    dataset: &Store,
    manifest: &Manifest,
) -> Result<Option<String>, Error> {
    match read_profile(dataset, manifest).await {
        Ok(_) => Ok(None),
        Err(Error::Storage(e)) => Err(e.into()),
        Err(error) => Ok(Some(error.to_string())),
    }
}

/// Writes a profile and says how a manifest refers to it.
pub(crate) async fn put_profile(
    dataset: &Store,
    profile: Option<&DatasetProfile>,
) -> Result<Option<ProfileReference>, Error> {
    let Some(profile) = profile else {
        return Ok(None);
    };
    let path = profile_path(profile.hash);
    dataset.put(&path, Bytes::from(encode(profile))).await?;
    Ok(Some(ProfileReference {
        path,
        hash: profile.hash,
    }))
}

/// Error for a file that the manifest names and the next build writes again.
fn missing(url: &str) -> Error {
    Error::input(
        format!("`{url}`"),
        "the manifest names it, and it does not exist",
        "restore it, or run `feedline shards build`, which writes it again",
    )
}

fn damaged(url: &str, reason: String) -> Error {
    Error::input(
        format!("`{url}`"),
        reason,
        "it was changed or damaged: restore it, or rebuild the dataset with `--refit`, which may move rows to other splits",
    )
}

/// Writes the artefact and says how a manifest refers to it.
pub(crate) async fn put_transform(
    dataset: &Store,
    artefact: &TransformArtefact,
    name: &feedline_schemas::ids::Name,
) -> Result<TransformReference, Error> {
    let path = transform_path(artefact.hash);
    dataset.put(&path, Bytes::from(encode(artefact))).await?;
    Ok(TransformReference {
        path,
        hash: artefact.hash,
        dataset: name.clone(),
    })
}

/// Path of the transform artefact with this hash.
pub(super) fn transform_path(hash: Hash128) -> String {
    format!("transform-{}.json", hash.short())
}

/// Path of the profile with this hash.
pub(super) fn profile_path(hash: Hash128) -> String {
    format!("profile-{}.json", hash.short())
}

/// Path of the `tokenizer.json` with this hash.
pub(crate) fn tokenizer_path(hash: Hash128) -> String {
    format!("tokenizer-{}.json", hash.short())
}

/// Returns the fault of the tokenizer that `manifest` names, if it names one.
///
/// # Errors
/// [`Error::Storage`] for a store that cannot be read.
pub(crate) async fn check_tokenizer(
    dataset: &Store,
    manifest: &Manifest,
) -> Result<Option<String>, Error> {
    let Some(tokens) = &manifest.tokens else {
        return Ok(None);
    };
    let path = &tokens.tokenizer;
    let Some(file) = dataset.get_opt(path).await? else {
        return Ok(Some(format!("the tokenizer `{path}` does not exist")));
    };
    let (found, hash) = (Hash128::of(&file), tokens.hash);
    Ok((found != hash).then(|| {
        format!("the tokenizer `{path}` is damaged: its hash is {found}, the manifest says {hash}")
    }))
}

/// Writes the tables of a manifest whose shards are all there, gives it its fingerprint, and publishes it, whatever is there.
pub(crate) async fn complete(dataset: &Store, manifest: &mut Manifest) -> Result<(), Error> {
    settle(dataset, manifest).await?;
    let before = pointer(dataset).await?;
    publish(dataset, before.as_ref(), manifest).await
}

/// Writes the tables of a manifest and gives it its fingerprint. To be done before it is published.
pub(crate) async fn settle(dataset: &Store, manifest: &mut Manifest) -> Result<(), Error> {
    let tables = manifest.add_tables(MOST_LISTED_SHARDS).map_err(|error| {
        let advice = "write fewer shards: raise `shards.shard_bytes`";
        Error::input("the list of shards", error.reason, advice)
    })?;
    put_tables(dataset, tables).await?;
    manifest.fingerprint = manifest.compute_fingerprint();
    Ok(())
}

/// Writes the tables of a manifest: the path and the bytes of each. To be done before it is published.
pub(crate) async fn put_tables(
    dataset: &Store,
    tables: Vec<(String, Vec<u8>)>,
) -> Result<(), Error> {
    for (path, file) in tables {
        dataset.put(&path, Bytes::from(file)).await?;
    }
    Ok(())
}

/// Creates the next generation's manifest and points `CURRENT` at it.
///
/// Requires that `CURRENT` still equals the [`pointer`] read `before`: an overtaken build must not
/// restore an older dataset. If an earlier, killed build left a manifest of equal content as the
/// newest, that one is used instead.
///
/// # Errors
/// As [`check_undisturbed`].
pub(crate) async fn publish(
    dataset: &Store,
    before: Option<&Bytes>,
    manifest: &Manifest,
) -> Result<(), Error> {
    // If another build published the same rows meanwhile, its pointer is the one to replace.
    let before = check_undisturbed(dataset, before, manifest).await?;
    let bytes = Bytes::from(encode(manifest));
    let newest = dataset
        .list("")
        .await?
        .iter()
        .filter_map(|l| generation_of(&l.path))
        .max();
    let mut generation = newest.unwrap_or(0);
    let is_ours = match newest {
        Some(newest) => dataset
            .get_opt(&path_of(newest))
            .await?
            .is_some_and(|found| found == bytes),
        None => false,
    };
    if !is_ours {
        generation += 1;
        while let PutNew::Taken(_) = dataset.put_new(&path_of(generation), bytes.clone()).await? {
            generation += 1;
        }
    }
    let pointer = Bytes::from(path_of(generation));
    if dataset.swap(CURRENT, before, pointer).await? {
        return Ok(());
    }
    match current(dataset).await? {
        Some(published) if published.fingerprint == manifest.fingerprint => Ok(()),
        _ => Err(disturbed(dataset)),
    }
}

/// Calls [`publish`] with the current pointer.
#[cfg(test)]
pub(crate) async fn republish(dataset: &Store, manifest: &Manifest) -> Result<(), Error> {
    let before = pointer(dataset).await?;
    publish(dataset, before.as_ref(), manifest).await
}

fn disturbed(dataset: &Store) -> Error {
    Error::input(
        format!("`{}`", dataset.url_of(CURRENT)),
        "another build published the dataset while this one ran, so this one published nothing",
        "build again, one build of a dataset at a time",
    )
}

/// Bytes of the pointer to the current manifest, if there is a dataset; for [`check_undisturbed`].
pub(crate) async fn pointer(dataset: &Store) -> Result<Option<Bytes>, Error> {
    Ok(dataset.get_opt(CURRENT).await?)
}

/// Checks that no other build has published since the [`pointer`] was `before`, except `manifest`
/// itself: this build may have fewer rows. Returns the current pointer.
async fn check_undisturbed(
    dataset: &Store,
    before: Option<&Bytes>,
    manifest: &Manifest,
) -> Result<Option<Bytes>, Error> {
    let now = pointer(dataset).await?;
    if now.as_ref() == before {
        return Ok(now);
    }
    let published = current(dataset).await?;
    if published.is_some_and(|published| published.fingerprint == manifest.fingerprint) {
        return Ok(now);
    }
    Err(disturbed(dataset))
}

pub(super) fn path_of(generation: u64) -> String {
    format!("manifest-{generation:06}.json")
}

pub(super) fn generation_of(path: &str) -> Option<u64> {
    let digits = path.strip_prefix("manifest-")?.strip_suffix(".json")?;
    let plain = digits.len() >= 6 && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

/// The current manifest, when there is a dataset.
///
/// # Errors
/// As [`read_manifest`], for a dataset that exists and cannot be read: without its manifest the
/// splits of the rows are unknown.
pub(crate) async fn current(dataset: &Store) -> Result<Option<Manifest>, Error> {
    match dataset.get_opt(CURRENT).await? {
        Some(_) => read_manifest(dataset).await.map(Some),
        None => Ok(None),
    }
}

/// The current manifest, when it is of a build with these inputs and everything it names is there in full size.
pub(crate) async fn up_to_date(
    dataset: &Store,
    input_hash: Hash128,
) -> Result<Option<Manifest>, Error> {
    let found = current(dataset).await?;
    let Some(manifest) = found.filter(|manifest| manifest.input_hash == input_hash) else {
        return Ok(None);
    };
    let is_whole = is_whole(dataset, &manifest).await?;
    Ok(is_whole.then_some(manifest))
}

/// Returns true if all files of a manifest exist in full size.
pub(crate) async fn is_whole(dataset: &Store, manifest: &Manifest) -> Result<bool, Error> {
    let there: BTreeMap<String, u64> = dataset
        .list("shards")
        .await?
        .into_iter()
        .map(|l| (l.path, l.bytes))
        .collect();
    let whole = |shard: &Shard| {
        let lengths = shard.lengths.as_ref();
        there.get(&shard.path) == Some(&shard.bytes)
            && lengths.is_none_or(|l| there.get(&l.path) == Some(&(shard.rows * 4)))
    };
    let missing = manifest
        .splits
        .iter()
        .flat_map(|s| &s.shards)
        .find(|shard| !whole(shard));
    if let Some(shard) = missing {
        tracing::warn!(shard = %shard.path, "a shard of the current dataset is missing or truncated, rebuilding");
        return Ok(false);
    }
    if let Some(problem) = check_tokenizer(dataset, manifest).await? {
        tracing::warn!(problem, "building again");
        return Ok(false);
    }
    if let Some(problem) = check_profile(dataset, manifest).await? {
        tracing::warn!(problem, "building again");
        return Ok(false);
    }
    if manifest.profile.is_some() {
        let page = dataset_report::path_of(manifest.fingerprint);
        if dataset.get_opt(&page).await?.is_none() {
            tracing::warn!(
                page,
                "the report of the current dataset is missing, rebuilding"
            );
            return Ok(false);
        }
    }
    match read_transform(dataset, manifest).await {
        Ok(_) => Ok(true),
        Err(Error::Storage(e)) => Err(e.into()),
        Err(error) => {
            tracing::warn!(%error, "building again");
            Ok(false)
        }
    }
}
