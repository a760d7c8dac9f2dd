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
    let warnings = open(&store, &named(&["a", "target"])).await.warnings();
    assert!(
        warnings.len() == 1 && warnings[0].contains("the target `target` is also a feature"),
        "{warnings:?}"
    );
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

#[tokio::test]
async fn a_table_whose_log_names_its_files_is_refused_unless_the_format_is_set() {
    for (log, table) in [
        ("_delta_log/00000000000000000000.json", "Delta Lake"),
        ("metadata/v1.metadata.json", "Iceberg"),
    ] {
        let store = Store::memory();
        let rows = numbers(&["a", "y"]);
        store.put("data/0.parquet", rows).await.unwrap();
        store.put(log, "{}".into()).await.unwrap();
        let error = refused(&store, &InputConfig::default()).await;
        assert!(
            error.contains(&format!("it is a table of {table}")) && error.contains("set `format`"),
            "{error}"
        );
        let config = InputConfig {
            format: InputFormat::Parquet,
            ..InputConfig::default()
        };
        let warnings = open(&store, &config).await.warnings();
        assert!(
            warnings.len() == 1 && warnings[0].contains("that the table has replaced or deleted"),
            "{warnings:?}"
        );
    }
}

#[tokio::test]
async fn files_of_another_format_that_are_not_read_are_named() {
    let store = Store::memory();
    let rows = numbers(&["a", "y"]);
    store.put("0.parquet", rows).await.unwrap();
    store.put("images.tar", "no archive".into()).await.unwrap();
    let warnings = open(&store, &InputConfig::default()).await.warnings();
    assert!(
        warnings.len() == 1
            && warnings[0].contains("it is read as Parquet")
            && warnings[0].contains("files of WebDataset are not read: `images.tar`"),
        "{warnings:?}"
    );
    let config = InputConfig {
        format: InputFormat::Parquet,
        ..InputConfig::default()
    };
    assert!(open(&store, &config).await.warnings().is_empty());
}

#[tokio::test]
async fn files_of_no_split_or_of_two_are_named_beside_those_that_are_read() {
    let store = Store::memory();
    for path in ["train/0.parquet", "train/val-0.parquet"] {
        let rows = numbers(&["a", "y"]);
        store.put(path, rows).await.unwrap();
    }
    let input = open(&store, &InputConfig::default()).await;
    assert_eq!(input.block_table().samples(), 2);
    let warnings = input.warnings();
    assert!(
        warnings.len() == 1
            && warnings[0].contains(
                "split `train` is read, without 1 file whose names mention no split or several: `train/val-0.parquet`"
            ),
        "{warnings:?}"
    );
}
