//! Columns and folders that are read where the settings name none.

use arrow::array::{Float32Array, Int64Array};
use bytes::Bytes;
use feedline_schemas::manifest::TargetKind;
use feedline_storage::Store;

use super::{failure, open, read_all, refused};
use crate::{
    foreign::{column, parquet},
    input::config::{ColumnMap, InputConfig, InputFormat},
};

/// A file of two rows of numbers.
fn numbers(names: &[&str]) -> Bytes {
    let numbers = || column(Float32Array::from(vec![1.0, 2.0]));
    let columns = names.iter().map(|name| (*name, numbers()));
    parquet(columns.collect(), 2)
}

#[tokio::test]
async fn a_target_beyond_32_bits_is_no_damage_and_its_setting_is_named() {
    let store = Store::memory();
    let large = Int64Array::from(vec![1, 1 << 33]);
    let a = column(Float32Array::from(vec![1.0, 2.0]));
    let file = parquet(vec![("a", a), ("y", column(large))], 2);
    store.put("x.parquet", file).await.unwrap();
    let error = failure(&open(&store, &InputConfig::default()).await, &store).await;
    assert!(
        !error.contains("damaged") && error.contains("set `target` to regression"),
        "{error}"
    );
    let config = InputConfig {
        target: Some(TargetKind::Regression),
        ..InputConfig::default()
    };
    let input = open(&store, &config).await;
    assert_eq!(read_all(&input, &store).await.unwrap().len(), 1);
}

#[tokio::test]
async fn of_two_columns_that_are_called_like_a_target_none_becomes_a_feature_unsaid() {
    let store = Store::memory();
    let file = numbers(&["a", "label", "target"]);
    store.put("x.parquet", file).await.unwrap();
    let error = refused(&store, &InputConfig::default()).await;
    assert!(
        error.contains("`label` and `target`") && error.contains("`columns.y`"),
        "{error}"
    );
    let named = |x: &[&str]| {
        let columns = ColumnMap {
            x: x.iter().map(|name| (*name).to_owned()).collect(),
            y: Some("target".into()),
            ..ColumnMap::default()
        };
        InputConfig {
            columns,
            ..InputConfig::default()
        }
    };
    let warnings = open(&store, &named(&[])).await.warnings();
    assert!(
        warnings.len() == 1 && warnings[0].contains("called like a target: `label`"),
        "{warnings:?}"
    );
    assert!(open(&store, &named(&["a"])).await.warnings().is_empty());
}

#[tokio::test]
async fn the_root_of_a_pipeline_is_refused_with_the_folder_of_its_dataset() {
    let store = Store::memory();
    let landed = numbers(&["a", "b"]);
    store.put("landing/homes/0.parquet", landed).await.unwrap();
    store
        .put("dataset/CURRENT", "manifest-000001.json".into())
        .await
        .unwrap();
    let error = refused(&store, &InputConfig::default()).await;
    let url = store.url_of("dataset");
    let expected = format!("there is a dataset of feedline in `{url}`");
    assert!(error.contains(&expected), "{error}");
    let config = InputConfig {
        format: InputFormat::Parquet,
        ..InputConfig::default()
    };
    assert_eq!(open(&store, &config).await.block_table().samples(), 2);
}
