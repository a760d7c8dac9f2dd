//! Forecast of the cost of passes and of their shuffle, before anything is read.

use serde::Serialize;

use crate::{
    LoaderConfig,
    block_table::BlockTable,
    order::{Orders, PassOrder, ShuffleQuality, shuffle_quality},
};

/// Batches that are simulated.
const BATCHES: u64 = 500;

/// Forecast of an epoch: its reads, its memory, and the quality of its shuffle. Nothing is read for
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LoaderPlan {
    /// Samples of an epoch, over all ranks.
    pub samples: u64,
    /// Global batches of an epoch.
    pub batches: u64,
    /// Bytes of all blocks that are read once.
    pub bytes: u64,
    /// Requests in which they are read when nothing fails: one for each block, or for each extent of blocks of a remote
    /// store. Heads of shards and what is asked for a second time are not counted.
    pub requests: u64,
    /// Average number of reads of a block by all ranks: above 1 where two ranks share a domain.
    pub reads_per_block: f64,
    /// Locality domains.
    pub domains: u32,
    /// Blocks per window of a domain.
    pub window_blocks: u32,
    /// Bytes of the blocks of all windows together, on average: what the ranks hold at least, all together.
    pub window_bytes: u64,
    /// Quality of the mix of batches; of a mixture, that of its first dataset alone.
    pub shuffle: ShuffleQuality,
}

impl LoaderPlan {
    /// The plan of `order`, an epoch of `orders` over sources with these block tables and most bytes of a request.
    /// `classes` is the number of them that the dataset names.
    pub(crate) fn new(
        orders: &Orders,
        order: &PassOrder,
        sources: &[(&BlockTable, u64)],
        config: &LoaderConfig,
        classes: Option<u64>,
    ) -> Self {
        let spec = orders.spec();
        let (mut bytes, mut requests, mut window_bytes) = (0, 0, 0);
        for (block_table, joined_bytes) in sources {
            let blocks = u64::from(block_table.block_count());
            let of_source = block_table.bytes();
            let window = u64::from(spec.domains) * u64::from(spec.window_blocks);
            bytes += of_source;
            requests += block_table.requests(*joined_bytes);
            window_bytes +=
                u128::from(of_source) * u128::from(window.min(blocks)) / u128::from(blocks);
        }
        let batches = order.batch_count();
        let last = batches.saturating_sub(1);
        let reads = order.domains_read(config.world_size) as f64;
        Self {
            samples: last * u64::from(spec.global_batch) + order.rows(last),
            batches,
            bytes,
            requests,
            reads_per_block: reads / order.domains_read(1) as f64,
            domains: spec.domains,
            window_blocks: spec.window_blocks,
            window_bytes: u64::try_from(window_bytes).unwrap_or(u64::MAX),
            shuffle: shuffle_quality(orders, classes, BATCHES),
        }
    }
}
