//! Keys of the samples of a split, read without their other columns.

use std::sync::Arc;

use feedline_schemas::manifest::Split;
use feedline_storage::{Store, clock::SystemClock};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::{
    BadShards, Error, FetchConfig,
    fetch::StoreExtents,
    input::{
        OpenedSplit,
        config::{InputConfig, InputFormat},
    },
    metrics::Meters,
};

/// Blocks whose keys are read at one time.
const BLOCKS_AT_A_TIME: u32 = 32;

/// Reads the keys of all samples of a split of a dataset of shards, and hands those of each block to `take`, in stored order.
///
/// This takes two small requests for each block: one to locate the keys, one for them. They are not checked against the block's
/// checksum. Shards whose files are incomplete are left out. Memory: the keys of some blocks, 8 bytes a sample.
///
/// # Errors
/// [`Error::NoDataset`], [`Error::EmptySplit`], or what is wrong with the manifest or a shard.
pub async fn read_keys(
    dataset: &Store,
    split: Split,
    mut take: impl FnMut(&[u64]) + Send,
) -> Result<(), Error> {
    let config = InputConfig {
        format: InputFormat::Shards,
        ..InputConfig::new()
    };
    let input = OpenedSplit::open(dataset, split, &config, BadShards::Skip).await?;
    // Only meters use it.
    let meters = Arc::new(Meters::new(Arc::new(SystemClock)));
    let fetch = FetchConfig::new();
    let extents = StoreExtents::new(dataset.clone(), &fetch, BLOCKS_AT_A_TIME, meters);
    let blocks = 0..input.block_table().block_count();
    let reads = blocks.map(|block| input.keys(block, &extents));
    let mut keys = stream::iter(reads).buffered(BLOCKS_AT_A_TIME as usize);
    while let Some(keys) = keys.try_next().await? {
        take(&keys);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use feedline_schemas::manifest::{Layout, TargetKind, TokenType};

    use super::*;
    use crate::dataset::{FEATURES, publish_layout};

    const SHAPE: &[&[u32]] = &[&[5, 3], &[], &[4, 0, 1]];

    async fn keys_of(store: &Store) -> Vec<u64> {
        let mut keys = Vec::new();
        let take = |of_block: &[u64]| keys.extend_from_slice(of_block);
        read_keys(store, Split::Train, take).await.unwrap();
        keys
    }

    #[tokio::test]
    async fn keys_of_every_layout_come_in_stored_order() {
        let target = TargetKind::Classification { classes: 5 };
        let dense = Layout::Dense {
            features: FEATURES,
            target,
        };
        let tokens = Layout::Tokens {
            id: TokenType::U16,
            vocabulary: 100,
        };
        for layout in [dense, tokens, Layout::Images { target }] {
            let store = Store::memory();
            publish_layout(&store, layout, &[(Split::Train, SHAPE)]).await;
            let expected: Vec<u64> = (0..13).map(|sample: u64| !sample).collect();
            assert_eq!(keys_of(&store).await, expected);
        }
    }

    #[tokio::test]
    async fn keys_are_read_of_a_block_whose_other_columns_are_damaged() {
        let store = Store::memory();
        let layout = Layout::Dense {
            features: FEATURES,
            target: TargetKind::Regression,
        };
        let manifest = publish_layout(&store, layout, &[(Split::Train, &[&[3]])]).await;
        let path = &manifest.split(Split::Train).unwrap().shards[0].path;
        let mut file = store.get(path).await.unwrap().to_vec();
        // The features of the first sample; the targets of all begin like this, too.
        let features = [0.0_f32, 1.0, 2.0].map(f32::to_le_bytes).concat();
        let at = file
            .windows(features.len())
            .position(|part| part == features);
        file[at.unwrap() + 4] ^= 1;
        store.put(path, file.into()).await.unwrap();
        assert_eq!(keys_of(&store).await, [!0, !1, !2]);
    }
}
