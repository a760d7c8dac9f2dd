//! Refusals when a dataset is opened.

use feedline_loader::{Error, LoaderConfig};
use feedline_schemas::{
    encode,
    manifest::{Manifest, Split},
};
use feedline_storage::Store;

use crate::{
    SHARDS, collect, config,
    dataset::{publish_manifest, publish_train},
    open, refused,
};

#[tokio::test]
async fn a_folder_without_a_dataset_is_named() {
    let store = Store::memory().child("nothing");
    let url = store.url();
    assert_eq!(
        refused(&store, &config(8)).await.to_string(),
        format!(
            "there is no dataset in `{url}`: the folder is missing or empty; check the path, or build the dataset first"
        )
    );
}

#[tokio::test]
async fn an_absent_or_empty_split_is_named() {
    let store = Store::memory();
    let manifest = publish_train(&store, &[]).await;
    for split in [Split::Train, Split::Test] {
        let error = refused(
            &store,
            &LoaderConfig {
                split: split.into(),
                ..config(8)
            },
        )
        .await;
        assert_eq!(
            error.to_string(),
            format!(
                "split `{split}` of dataset `{}` has no samples; change `[dataset.split]` so that rows get into it, such as by a \
                 larger fraction, or by other boundaries or conditions where it has none, or add data",
                store.url()
            )
        );
    }
    assert!(manifest.split(Split::Test).is_none());
}

/// What helps against a damaged dataset. A build keeps one that has its full size, except with `--refit`.
const REBUILD: &str = "build the dataset again with `feedline shards build PIPELINE.toml --refit`";

#[tokio::test]
async fn a_manifest_that_cannot_be_parsed_is_refused() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    let check = async |text: &'static str| {
        store
            .put("manifest-000001.json", text.into())
            .await
            .unwrap();
        let error = refused(&store, &config(8)).await;
        assert!(matches!(error, Error::Contract { .. }), "{error}");
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(
            cause.ends_with(
                "or build the dataset again with `feedline shards build PIPELINE.toml --refit`"
            ),
            "{cause}"
        );
    };
    check("{").await;
    check(r#"{"format": "feedline.manifest", "version": 999}"#).await;
}

#[tokio::test]
async fn a_manifest_that_was_edited_is_refused() {
    let store = Store::memory();
    let mut manifest = publish_train(&store, SHARDS).await;
    manifest.splits[0].shards[0].blocks[0].crc32c ^= 1;
    store
        .put("manifest-000001.json", encode(&manifest).into())
        .await
        .unwrap();
    let error = refused(&store, &config(8)).await;
    assert!(matches!(error, Error::Fingerprint { .. }), "{error}");
    assert!(error.to_string().contains(&format!(
        "was changed after it was written, restore it or {REBUILD}"
    )));
}

#[tokio::test]
async fn a_manifest_that_contradicts_itself_is_refused() {
    let store = Store::memory();
    let manifest = publish_train(&store, SHARDS).await;
    let check = async |change: fn(&mut Manifest), reason: &str| {
        let mut manifest = manifest.clone();
        change(&mut manifest);
        publish_manifest(&store, manifest).await;
        let error = refused(&store, &config(8)).await.to_string();
        assert!(error.contains(reason), "{error}");
        let advice = format!("its manifest is damaged, restore it or {REBUILD}");
        assert!(error.ends_with(&advice), "{error}");
    };
    check(
        |m| m.splits[0].rows += 1,
        "split `train` says `1222` rows and its blocks hold `1221`",
    )
    .await;
    check(
        |m| {
            m.layout = feedline_schemas::manifest::Layout::Dense {
                features: 0,
                target: feedline_schemas::manifest::TargetKind::None,
            }
        },
        "its rows have no features",
    )
    .await;
}

#[tokio::test]
async fn a_pointer_to_something_else_is_refused() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    for name in ["", "../manifest-1.json", "manifest-1.json/x", "shard.arrow"] {
        store.put("CURRENT", name.into()).await.unwrap();
        let error = refused(&store, &config(8)).await.to_string();
        assert!(
            error.contains(&format!(
                "`CURRENT` names `{name}`, which is not a manifest"
            )),
            "{error}"
        );
    }
    store
        .put("CURRENT", "manifest-000009.json".into())
        .await
        .unwrap();
    assert!(
        matches!(refused(&store, &config(8)).await, Error::Storage { source, .. } if source.is_not_found())
    );
    store
        .put("CURRENT", "manifest-000001.json\n".into())
        .await
        .unwrap();
    open(&store, &config(8)).await;
}

#[tokio::test]
async fn a_dataset_published_later_is_not_seen() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    let loader = open(&store, &config(32)).await;
    store
        .put("CURRENT", "manifest-000002.json".into())
        .await
        .unwrap();
    assert_eq!(
        collect(loader.epoch(loader.start_state()).unwrap())
            .concat()
            .len(),
        1221
    );
}
