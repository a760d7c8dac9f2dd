//! Datasets that an earlier version of feedline built.

use super::*;
use crate::pipeline::sources::EARLIER_BUILD_VERSION;

#[tokio::test]
async fn a_dataset_of_an_earlier_build_version_is_rebuilt_and_never_appended_to() {
    let root = Store::memory();
    let mut zone = market(&root).await;
    build_with(&root, DATASET, 2).await.unwrap();
    let mut old = manifest(&root).await;
    let (context, _scratch) = context(&root, 2);
    let config = pipeline(DATASET);
    let build = Build::prepare(&config, &context).await.unwrap();
    let version = EARLIER_BUILD_VERSION;
    old.input_hash = build.inputs_of_version(version, &build.spec.config, None);
    assert_ne!(old.input_hash, build.input.hash);
    for more in [None, Some(rows(600..700))] {
        if let Some(more) = more {
            zone.batch(&more).await;
        }
        let build = Build::prepare(&config, &context).await.unwrap();
        assert!(!build.is_built_as(&old).await.unwrap());
        let found = build.check_appendable(old.clone()).await.unwrap();
        let reason = found.err().unwrap().reason;
        let expected = "an earlier version of feedline built it";
        assert!(reason.starts_with(expected), "{reason}");
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
    old.input_hash = build.inputs_of_version(EARLIER_BUILD_VERSION, &build.spec.config, None);
    let refused = build.check_appendable(old).await.err().unwrap().to_string();
    let expected = "an earlier version of feedline built the dataset, and the position";
    assert!(
        refused.contains(expected) && refused.contains("--refit"),
        "{refused}"
    );
}
