//! Names of classes, which travel with the dataset.

use std::sync::Arc;

use feedline_loader::{Error, Loader, LoaderConfig, MixtureConfig, SourceWeight};
use feedline_schemas::manifest::{Manifest, Split, TargetKind};
use feedline_storage::{Store, clock::SystemClock};

use crate::{
    SHARDS, config,
    dataset::{publish, publish_manifest, publish_train},
    open, refused,
};

const FEATURES: u32 = 3;

/// A dataset with classes of these names.
async fn named(names: &[&str]) -> (Store, Manifest) {
    let store = Store::memory();
    let target = TargetKind::Classification {
        classes: u32::try_from(names.len()).unwrap(),
    };
    let mut manifest = publish(&store, FEATURES, target, &[(Split::Train, SHARDS)]).await;
    for (class, name) in manifest.counts.classes.iter_mut().zip(names) {
        class.name = (*name).to_owned();
    }
    let manifest = publish_manifest(&store, manifest).await;
    (store, manifest)
}

#[tokio::test]
async fn a_loader_names_the_classes_by_id() {
    let (store, _) = named(&["bad", "good"]).await;
    let loader = open(&store, &config(50)).await;
    assert_eq!(loader.classes(), Some(vec!["bad", "good"]));
    let numbers = Store::memory();
    publish_train(&numbers, SHARDS).await;
    assert_eq!(open(&numbers, &config(50)).await.classes(), None);
}

#[tokio::test]
async fn a_dataset_that_does_not_name_its_classes_is_refused() {
    let (store, mut manifest) = named(&["bad", "good"]).await;
    manifest.counts.classes.clear();
    publish_manifest(&store, manifest).await;
    let error = refused(&store, &config(50)).await;
    assert!(matches!(error, Error::Manifest { .. }), "{error:?}");
    let error = error.to_string();
    assert!(error.contains("it names `0` of `2` classes"), "{error}");
    assert!(error.contains("build it again"), "{error}");
}

#[tokio::test]
async fn datasets_whose_ids_are_other_classes_are_not_mixed() {
    let mixed = async |names: &[&str]| {
        let (first, _) = named(&["bad", "good"]).await;
        let (second, _) = named(names).await;
        let config = LoaderConfig {
            mixture: Some(MixtureConfig {
                sources: vec![SourceWeight::default(); 2],
                stratified: false,
                samples_per_epoch: None,
            }),
            ..config(50)
        };
        Loader::open_mixture(&[first, second], &config, Arc::new(SystemClock)).await
    };
    let loader = mixed(&["bad", "good"]).await.unwrap();
    assert_eq!(loader.classes(), Some(vec!["bad", "good"]));
    let error = mixed(&["good", "bad"]).await.unwrap_err().to_string();
    assert!(
        error.contains("the first has `bad`, `good` and the second has `good`, `bad`"),
        "{error}"
    );
}
