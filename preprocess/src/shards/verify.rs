//! Checks a published dataset against its manifest.

use feedline_schemas::{
    count::counted,
    ids::Hash128,
    manifest::{Layout, Manifest, Split},
    report::VerifyReport,
};
use feedline_storage::Store;

use crate::{
    Error,
    shards::{
        audit::audit,
        manifest::{check_profile, check_tokenizer, read_manifest, read_transform},
        shard_layout::ShardLayout,
        writer::tokens_in,
    },
    staging::rejects,
    transform::vocabulary_of,
};

/// Reads every file of the current manifest and lists all faults: sizes, hashes, checksums of
/// blocks, rows, schema, keys in two splits. It does not stop at the first.
///
/// ```no_run
/// use feedline_preprocess::{Error, verify};
/// use feedline_storage::{Store, StoreOptions};
///
/// # async fn example() -> Result<(), Error> {
/// let dataset = Store::open("out/dataset", &StoreOptions::default())?;
/// let report = verify(&dataset).await?;
/// println!("{} rows in {} shards", report.rows, report.shards);
/// assert_eq!(report.leaked_keys, 0);
/// assert!(report.problems.is_empty(), "{:?}", report.problems);
/// # Ok(()) }
/// ```
///
/// # Errors
/// As [`read_manifest`]; a store that cannot be read. Damaged files are problems in the report, not errors.
pub async fn verify(dataset: &Store) -> Result<VerifyReport, Error> {
    let manifest = read_manifest(dataset).await?;
    let layout = ShardLayout::of(&manifest);
    let findings = audit(
        dataset,
        &manifest.splits,
        |split| layout.schema(split),
        |_| {},
    )
    .await?;
    let mut problems = findings.problems;
    problems.extend(
        findings
            .leaks
            .iter()
            .map(|leak| format!("{leak}: the same content appears in two splits")),
    );
    problems.extend(check_counts(&manifest));
    problems.extend(check_transform(dataset, &manifest).await?);
    problems.extend(check_tokenizer(dataset, &manifest).await?);
    problems.extend(check_profile(dataset, &manifest).await?);
    problems.extend(check_rejects(dataset, &manifest).await?);
    Ok(VerifyReport {
        url: dataset.url(),
        fingerprint: manifest.fingerprint.to_string(),
        shards: findings.shards,
        blocks: findings.blocks,
        rows: findings.rows,
        leaked_keys: findings.leaked,
        problems,
    })
}

/// The manifest against itself.
fn check_counts(manifest: &Manifest) -> Vec<String> {
    let counts = &manifest.counts;
    let mut problems = Vec::new();
    for (split, in_manifest) in
        Split::ALL
            .into_iter()
            .zip([counts.train, counts.validation, counts.test])
    {
        let listed: u64 = manifest
            .split(split)
            .map_or(0, |s| s.shards.iter().map(|shard| shard.rows).sum());
        let stated = manifest.split(split).map_or(0, |s| s.rows);
        if listed != in_manifest || stated != in_manifest {
            problems.push(format!(
                "the {split} split has {} in its shards, the manifest counts {in_manifest}",
                counted(listed, "row")
            ));
        }
    }
    if let Some(tokens) = &counts.tokens {
        let each = Split::ALL.map(|split| tokens_in(manifest.split(split)));
        if each != [tokens.train, tokens.validation, tokens.test] {
            problems.push(format!(
                "the splits have {each:?} tokens in their shards, the manifest counts {tokens:?}"
            ));
        }
    }
    problems
}

async fn check_transform(dataset: &Store, manifest: &Manifest) -> Result<Option<String>, Error> {
    match read_transform(dataset, manifest).await {
        Ok(artefact) => {
            let windows = manifest.counts.sequence;
            let rows = windows.map_or(1, |windows| windows.length as usize);
            let features = artefact.features.len().saturating_mul(rows);
            let (what, held, fitted) = match manifest.layout {
                Layout::Multi {
                    features: held,
                    tokens: Some(tokens),
                    ..
                } if held as usize == features => {
                    ("ids", tokens.vocabulary, vocabulary_of(&artefact))
                }
                Layout::Multi { features: held, .. } => ("features", held, features),
                Layout::Dense { features: held, .. } => ("features", held, features),
                Layout::Images { .. } => ("features", 0, features),
                Layout::Tokens { vocabulary, .. } => ("ids", vocabulary, vocabulary_of(&artefact)),
            };
            let differs = usize::try_from(held).ok() != Some(fitted);
            Ok(differs
                .then(|| format!("the transform makes {fitted} {what}, the shards hold {held}")))
        }
        Err(Error::Storage(e)) => Err(e.into()),
        Err(error) => Ok(Some(error.to_string())),
    }
}

async fn check_rejects(dataset: &Store, manifest: &Manifest) -> Result<Vec<String>, Error> {
    let mut problems = Vec::new();
    for path in &manifest.rejects {
        match dataset.get_opt(path).await? {
            None => problems.push(format!("the rejects `{path}` do not exist")),
            Some(bytes) if rejects::path_of(Hash128::of(&bytes)) != *path => {
                problems.push(format!(
                    "the rejects `{path}` are damaged: their hash is not the one in their name"
                ));
            }
            Some(_) => {}
        }
    }
    Ok(problems)
}

#[cfg(test)]
mod tests {
    use feedline_schemas::record::ColumnType::Float64;
    use serde_json::json;

    use super::*;
    use crate::testing::{Cells, LandingZone, build_with};

    #[tokio::test]
    async fn a_missing_transform_or_profile_is_named_and_the_build_writes_it_again() {
        let root = Store::memory();
        let mut zone = LandingZone::new(&root, "a", &[("x", Float64), ("y", Float64)]);
        let row = |i: u32| vec![json!(f64::from(i)), json!(f64::from(2 * i))];
        zone.batch(&(0..200).map(row).collect::<Vec<Cells>>()).await;
        let settings = "sources = [\"a\"]\ntarget = \"y\"\nprofile = true\n";
        build_with(&root, settings, 2).await.unwrap();
        let dataset = root.child("dataset");
        let manifest = read_manifest(&dataset).await.unwrap();
        let profile = manifest.profile.unwrap().path;
        for path in [manifest.transform.path, profile] {
            dataset.delete(&path).await.unwrap();
            let problems = verify(&dataset).await.unwrap().problems;
            let expected = format!(
                "cannot use `{}`: the manifest names it, and it does not exist; restore it, or run `feedline shards build`, which writes it again",
                dataset.url_of(&path)
            );
            assert_eq!(problems, [expected]);
            build_with(&root, settings, 2).await.unwrap();
            let problems = verify(&dataset).await.unwrap().problems;
            assert_eq!(problems, Vec::<String>::new());
        }
    }
}
