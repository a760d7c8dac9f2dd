//! Files that were written by pyarrow, MosaicML streaming and webdataset; see `tests/data/foreign/README.md`.

use std::path::Path;

use bytes::Bytes;
use feedline_schemas::manifest::TargetKind;
use feedline_storage::{Store, StoreOptions};

use super::{classes, documents, image_files, numbers, open, read_all};
use crate::{
    BadShards,
    input::{
        OpenedSplit, RowContent,
        block_rows::{BlockRows, BlockTarget},
        config::{ColumnMap, InputConfig, InputFormat},
        splits::SplitChoice,
    },
};

fn fixtures(folder: &str) -> Store {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/foreign");
    let path = path.join(folder);
    Store::open(path.to_str().unwrap(), &StoreOptions::default()).unwrap()
}

fn with(format: InputFormat, columns: ColumnMap) -> InputConfig {
    InputConfig {
        format,
        columns,
        ..InputConfig::default()
    }
}

fn pairs() -> Vec<f32> {
    (0..60u8)
        .flat_map(|i| [f32::from(i), -f32::from(i)])
        .collect()
}

#[tokio::test]
async fn a_table_of_pyarrow_is_read() {
    let store = fixtures("");
    let columns = ColumnMap {
        x: vec!["v".into()],
        ..ColumnMap::default()
    };
    let input = open(&store, &with(InputFormat::Parquet, columns)).await;
    let target = TargetKind::Classification { classes: 7 };
    assert_eq!(
        *input.record(),
        RowContent::Dense {
            features: 2,
            target
        }
    );
    let blocks = read_all(&input, &store).await.unwrap();
    assert_eq!(blocks.len(), 3);
    assert_eq!(numbers(&blocks), pairs());
    assert_eq!(classes(&blocks), (0..60).map(|i| i % 7).collect::<Vec<_>>());
}

#[tokio::test]
async fn damaged_pages_of_pyarrow_are_known_by_their_checksums() {
    let name = "checksums.parquet";
    let good = fixtures("").get(name).await.unwrap();
    let store = Store::memory();
    let config = with(InputFormat::Parquet, ColumnMap::default());
    let attempt = async |bytes: Bytes| -> Result<Vec<f32>, String> {
        store.put(name, bytes).await.unwrap();
        let input = OpenedSplit::open(&store, SplitChoice::Unnamed, &config, BadShards::Fail).await;
        let input = input.map_err(|e| e.to_string())?;
        let blocks = read_all(&input, &store).await.map_err(|e| e.to_string())?;
        Ok(numbers(&blocks))
    };
    let expected = attempt(good.clone()).await.unwrap();
    let (mut by_checksum, mut other) = (0, 0);
    for byte in 0..good.len() {
        let mut flipped = good.to_vec();
        flipped[byte] ^= 1 << (byte % 8);
        match attempt(flipped.into()).await {
            Err(error) if error.contains("has the checksum") => by_checksum += 1,
            Ok(numbers) if numbers != expected => other += 1,
            _ => {}
        }
    }
    // Checksums cover the bodies of pages, which are small here, and neither their headers nor the footer.
    assert!(by_checksum > 800, "{by_checksum}");
    assert!(other < 20, "{other}");
}

#[tokio::test]
async fn datasets_of_mosaicml_streaming_are_read_and_their_hashes_compared() {
    for folder in ["mds", "mds-zstd"] {
        let store = fixtures(folder);
        let input = open(&store, &InputConfig::default()).await;
        let blocks = read_all(&input, &store).await.unwrap();
        let expected: Vec<Vec<u32>> = (0..60).map(|i| (i..i + i % 4 + 1).collect()).collect();
        assert_eq!(documents(&blocks), expected);
        let columns = ColumnMap {
            x: vec!["x".into()],
            ..ColumnMap::default()
        };
        let input = open(&store, &with(InputFormat::Detect, columns)).await;
        let blocks = read_all(&input, &store).await.unwrap();
        assert_eq!(numbers(&blocks), pairs());
        assert_eq!(classes(&blocks), (0..60).map(|i| i % 7).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn an_archive_of_webdataset_is_read() {
    let store = fixtures("");
    let columns = ColumnMap {
        y: Some("score".into()),
        ..ColumnMap::default()
    };
    let input = open(&store, &with(InputFormat::WebDataset, columns)).await;
    let blocks = read_all(&input, &store).await.unwrap();
    let file = |i: u8| [&[0xff, 0xd8][..], &[i; 9]].concat();
    assert_eq!(image_files(&blocks), (0..6).map(file).collect::<Vec<_>>());
    let BlockRows::Images(rows) = &blocks[0] else {
        panic!()
    };
    assert!(matches!(&rows.y, BlockTarget::Regression(y) if **y == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5]));
    let labels = open(&store, &with(InputFormat::WebDataset, ColumnMap::default())).await;
    let blocks = read_all(&labels, &store).await.unwrap();
    assert_eq!(classes(&blocks), [0, 1, 2, 3, 4, 0]);
}
