//! Datasets that an earlier version of feedline built.

use super::*;
use crate::pipeline::sources::BuildVersion;

#[tokio::test]
async fn a_dataset_of_an_earlier_build_version_is_rebuilt_and_never_appended_to() {
    let root = Store::memory();
    let mut zone = market(&root).await;
    build_with(&root, DATASET, 2).await.unwrap();
    let mut old = manifest(&root).await;
    let (context, _scratch) = context(&root, 2);
    let config = pipeline(DATASET);
    let build = Build::prepare(&config, &context).await.unwrap();
    let settings = &build.spec.config;
    let hashes = BuildVersion::earlier(settings)
        .map(|version| build.inputs_of_version(version, settings, None));
    let hashes: BTreeSet<Hash128> = hashes.collect();
    // Each number, with and without the order of versions that are texts.
    assert_eq!(hashes.len(), 6);
    assert!(!hashes.contains(&build.input.hash));
    for more in [None, Some(rows(600..700))] {
        if let Some(more) = more {
            zone.batch(&more).await;
        }
        let build = Build::prepare(&config, &context).await.unwrap();
        for hash in &hashes {
            old.input_hash = *hash;
            assert!(!build.is_built_as(&old).await.unwrap());
            let found = build.check_appendable(old.clone()).await.unwrap();
            let found = found.err().unwrap();
            let expected = "an earlier version of feedline built it";
            assert!(found.reason.starts_with(expected), "{}", found.reason);
            // Its rows are compared, and those that have moved are a warning.
            assert!(found.movable.is_some_and(|before| !before.is_refused));
        }
    }
}

#[tokio::test]
async fn a_dataset_of_an_earlier_version_whose_rows_could_change_their_split_is_refused() {
    let root = Store::memory();
    market(&root).await;
    let text = format!("{DATASET}split = {{ by = \"range\" }}\n");
    build_with(&root, &text, 2).await.unwrap();
    let mut old = manifest(&root).await;
    let (context, _scratch) = context(&root, 2);
    let config = pipeline(&text);
    let build = Build::prepare(&config, &context).await.unwrap();
    for version in BuildVersion::earlier(&build.spec.config) {
        old.input_hash = build.inputs_of_version(version, &build.spec.config, None);
        let refused = build.check_appendable(old.clone()).await;
        let refused = refused.err().unwrap().to_string();
        let expected = "an earlier version of feedline built the dataset, and the position";
        assert!(
            refused.contains(expected) && refused.contains("--refit"),
            "{version:?}: {refused}"
        );
    }
}

#[tokio::test]
async fn datasets_that_rules_of_series_concern_have_another_hash_than_without_the_rules() {
    let root = Store::memory();
    market(&root).await;
    for (keys, versions) in [("", 6), (", duplicates = \"first\"", 7)] {
        let text = format!(
            "sources = [\"a\"]\ntarget = \"price\"\nseries = {{ time = \"id\", unit = \"s\"{keys} }}\n"
        );
        let (context, _scratch) = context(&root, 2);
        let config = pipeline(&text);
        let build = Build::prepare(&config, &context).await.unwrap();
        let settings = &build.spec.config;
        let hashes = BuildVersion::earlier(settings)
            .map(|version| build.inputs_of_version(version, settings, None));
        let hashes: BTreeSet<Hash128> = hashes.collect();
        assert_eq!(hashes.len(), versions, "{keys}");
        assert!(!hashes.contains(&build.input.hash), "{keys}");
    }
}
