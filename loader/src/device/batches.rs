//! The loader's own batches on their way to the device.

use std::sync::Arc;

use feedline_schemas::{loader_state::LoaderState, manifest::TargetKind};

use super::{Driver, HostBatch, HostBatches, PART_ALIGNMENT, Uploader};
use crate::{Batch, BatchKind, EpochBatches, Error};

/// Description of a batch on the device.
///
/// Its parts are, in this order and without those it does not have: `x`, pixels or token ids; targets; segments;
/// positions; of rows of several parts `x`, targets, pixels, token ids and lengths; laid out as [`Batch`] says. Where the caller mixes images, pixels and targets are those of
/// [`Batch::held_pixels`], and the last part has a [`Mix`](super::Mix) for each.
#[derive(Clone, Debug)]
pub struct BatchInfo {
    /// Kind of the rows.
    pub kind: BatchKind,
    /// Kind of the targets.
    pub target: TargetKind,
    /// Rows of this rank.
    pub rows: usize,
    /// Place of the first of them in the parts: above 0 where an image of another rank comes before.
    pub first: usize,
    /// Number of padding rows at their end; see [`Batch::padding`].
    pub padding: usize,
    /// The state to resume from once this batch has been trained on. [`Loader::state`](crate::Loader::state) is ahead of
    /// it by the batches that are on the device already.
    pub state: LoaderState,
}

impl HostBatch for Batch {
    type Info = BatchInfo;

    fn info(&self) -> BatchInfo {
        BatchInfo {
            kind: self.kind(),
            target: self.target(),
            rows: self.rows(),
            first: self.own_uploaded().start,
            padding: self.padding(),
            state: self.state().clone(),
        }
    }

    fn parts(&self) -> Vec<&[u8]> {
        self.arrays()
    }

    fn edge(&self, part: &[u8]) -> usize {
        self.locked_prefix(part).unwrap_or(part.len())
    }
}

impl HostBatches for EpochBatches {
    type Batch = Batch;

    fn is_ready(&mut self) -> bool {
        Self::is_ready(self)
    }
}

impl<D: Driver> Uploader<D, EpochBatches> {
    /// Brings the batches of a pass to the device, through `buffers` buffers of the size they need; see
    /// [`Uploader::new`]. Open the loader with [`lock_batches`](crate::LoaderBuilder::lock_batches), or copies are slow.
    ///
    /// # Errors
    ///
    /// The device has not enough memory or failed.
    pub fn of_pass(
        driver: Arc<D>,
        compute: D::Stream,
        batches: EpochBatches,
        buffers: u32,
    ) -> Result<Self, Error> {
        let shape = batches.shape();
        let column = |row_bytes: usize| (row_bytes * shape.rows).next_multiple_of(PART_ALIGNMENT);
        let bytes = shape.row_bytes.map(column).iter().sum();
        Self::new(driver, compute, batches, buffers, bytes)
    }
}
