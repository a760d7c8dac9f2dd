//! What passes will cost and how well they mix, before anything is read.

use serde::Serialize;

use crate::{
    LoaderConfig,
    geometry::Geometry,
    order::{Orders, ShuffleQuality, shuffle_quality},
};

/// Classes that the shuffle is judged by.
const CLASSES: u64 = 1000;

/// Batches that are simulated.
const BATCHES: u64 = 500;

/// What an epoch will read and hold, and how well it mixes. Nothing is read to find out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LoaderPlan {
    /// Samples of an epoch, over all ranks.
    pub samples: u64,
    /// Global batches of an epoch.
    pub batches: u64,
    /// Bytes of all blocks that are read once.
    pub bytes: u64,
    /// Requests in which they can be read: one for each extent.
    pub requests: u64,
    /// How often a block is read by some rank, on average: above 1 where two ranks share a domain.
    pub reads_per_block: f64,
    /// Locality domains.
    pub domains: u32,
    /// Blocks per window of a domain.
    pub window_blocks: u32,
    /// Bytes of the blocks of all windows together, on average: what the ranks hold at least, all together.
    pub window_bytes: u64,
    /// How well batches are mixed.
    pub shuffle: ShuffleQuality,
}

impl LoaderPlan {
    /// The plan of orders over one source.
    pub(crate) fn new(orders: &Orders, geometry: &Geometry, config: &LoaderConfig) -> Self {
        let order = orders
            .epoch(0, None)
            .expect("a loader is opened only when there is a batch");
        let spec = orders.spec();
        let blocks = u64::from(geometry.block_count());
        let bytes = (0..geometry.block_count())
            .map(|block| geometry.byte_range(block))
            .map(|range| range.end - range.start)
            .sum::<u64>();
        let extents = geometry.extents(config.extent_bytes);
        let window = u64::from(spec.domains) * u64::from(spec.window_blocks);
        let window_bytes = u128::from(bytes) * u128::from(window.min(blocks)) / u128::from(blocks);
        let reads = order.domains_read(config.world_size) as f64;
        Self {
            samples: geometry.samples(),
            batches: order.batch_count(),
            bytes,
            requests: extents.map_or(blocks, |firsts| firsts.len() as u64 - 1),
            reads_per_block: reads / order.domains_read(1) as f64,
            domains: spec.domains,
            window_blocks: spec.window_blocks,
            window_bytes: u64::try_from(window_bytes).unwrap_or(u64::MAX),
            shuffle: shuffle_quality(orders, CLASSES, BATCHES),
        }
    }
}
