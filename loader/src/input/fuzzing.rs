//! Fuzz targets of foreign datasets of one file, opened and read as a training does.

use std::sync::{Arc, LazyLock};

use feedline_storage::{Store, clock::SystemClock};
use tokio::runtime::{Builder, Runtime};

use super::{OpenedSplit, config::InputConfig, splits::SplitChoice};
use crate::{BadShards, Error, FetchConfig, fetch::StoreExtents, metrics::Meters};

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime")
});

/// A dataset of one Parquet file. Its footer decides the blocks, and each has the rows it says.
pub fn parquet_dataset(data: &[u8]) {
    check("train.parquet", data);
}

/// A dataset of one tar archive, its images beside their labels.
pub fn webdataset(data: &[u8]) {
    check("train.tar", data);
}

fn check(name: &str, data: &[u8]) {
    let read = RUNTIME.block_on(read(name, data));
    if let Err(error) = read {
        let text = error.to_string();
        assert!(text.contains("memory:"), "{text}");
    }
}

async fn read(name: &str, data: &[u8]) -> Result<(), Error> {
    let store = Store::memory();
    let put = store.put(name, data.to_vec().into()).await;
    put.expect("a store in memory does not fail");
    let config = InputConfig::default();
    let input = OpenedSplit::open(&store, SplitChoice::Unnamed, &config, BadShards::Fail).await?;
    let meters = Arc::new(Meters::new(Arc::new(SystemClock)));
    let extents = StoreExtents::new(store, &FetchConfig::new(), 16, meters);
    for block in 0..input.block_table().block_count() {
        let rows = input.read(block, 0, &extents).await?;
        assert_eq!(rows.rows(), input.block_table().rows(block) as usize);
        assert_eq!(rows.keys().len(), rows.rows());
    }
    Ok(())
}
