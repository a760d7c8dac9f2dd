//! Datasets of every format, read whole.

mod columns;
mod damage;
mod fixtures;
mod mds;
mod parquet;
mod shards;
mod webdataset;

use std::sync::Arc;

use feedline_storage::{Store, clock::SystemClock};

use super::block_rows::{BlockRows, BlockTarget};
use super::{OpenedSplit, config::InputConfig, splits::SplitChoice};
use crate::{
    BadShards, Error,
    fetch::{FetchConfig, StoreExtents},
    metrics::Meters,
};

/// Extents of `store` without any cache.
fn extents(store: &Store) -> StoreExtents {
    let meters = Meters::new(Arc::new(SystemClock));
    StoreExtents::new(store.clone(), &FetchConfig::new(), 16, Arc::new(meters))
}

async fn open(store: &Store, config: &InputConfig) -> OpenedSplit {
    OpenedSplit::open(store, SplitChoice::Unnamed, config, BadShards::Fail)
        .await
        .unwrap()
}

async fn refused(store: &Store, config: &InputConfig) -> String {
    let error = OpenedSplit::open(store, SplitChoice::Unnamed, config, BadShards::Fail)
        .await
        .unwrap_err();
    error.to_string()
}

/// Every block of a split.
async fn read_all(input: &OpenedSplit, store: &Store) -> Result<Vec<BlockRows>, Error> {
    let extents = extents(store);
    let mut blocks = Vec::new();
    for block in 0..input.block_table().block_count() {
        let rows = input.read(block, 0, &extents).await?;
        assert_eq!(rows.rows(), input.block_table().rows(block) as usize);
        blocks.push(rows);
    }
    Ok(blocks)
}

/// The error of the first block that cannot be read.
async fn failure(input: &OpenedSplit, store: &Store) -> String {
    read_all(input, store).await.unwrap_err().to_string()
}

/// Keys of all rows.
fn keys(blocks: &[BlockRows]) -> Vec<u64> {
    blocks
        .iter()
        .flat_map(|rows| rows.keys().to_vec())
        .collect()
}

/// Numbers of all rows, one after the other.
fn numbers(blocks: &[BlockRows]) -> Vec<f32> {
    let x = |rows: &BlockRows| rows.as_dense().unwrap().x.to_vec();
    blocks.iter().flat_map(x).collect()
}

/// Every image's file.
fn image_files(blocks: &[BlockRows]) -> Vec<Vec<u8>> {
    let mut images = Vec::new();
    for block in blocks {
        let BlockRows::Images(rows) = block else {
            panic!("{block:?}")
        };
        images.extend((0..block.rows()).map(|row| rows.image(row).to_vec()));
    }
    images
}

/// Every document.
fn documents(blocks: &[BlockRows]) -> Vec<Vec<u32>> {
    let mut documents = Vec::new();
    for block in blocks {
        let BlockRows::Tokens(rows) = block else {
            panic!("{block:?}")
        };
        let ids: Vec<u32> = match &rows.ids {
            crate::input::block_rows::TokenIds::U16(ids) => {
                ids.iter().map(|id| u32::from(*id)).collect()
            }
            crate::input::block_rows::TokenIds::U32(ids) => ids.to_vec(),
        };
        documents.extend((0..block.rows()).map(|row| ids[rows.document(row)].to_vec()));
    }
    documents
}

/// Classes of all rows.
fn classes(blocks: &[BlockRows]) -> Vec<i32> {
    let mut classes = Vec::new();
    for block in blocks {
        let y = match block {
            BlockRows::Dense(rows) => &rows.y,
            BlockRows::Images(rows) => &rows.y,
            BlockRows::Multi(rows) => &rows.y,
            BlockRows::Tokens(_) => panic!("{block:?}"),
        };
        match y {
            BlockTarget::Classification(y) => classes.extend_from_slice(y),
            other => panic!("{other:?}"),
        }
    }
    classes
}
