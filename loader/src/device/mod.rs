//! The last metre: from the slabs of the ring to the memory of an accelerator.
//!
//! Slabs are plain memory. [`HostLock`] page-locks it where it lies, so that the device reads it without a copy in
//! between. Everything here builds and is tested without a GPU: what talks to the driver sits behind a trait with a
//! twin on the CPU, and the CUDA side is one module behind the feature `cuda`, which loads the driver when the program
//! runs.

mod batches;
mod copies;
#[cfg(feature = "cuda")]
pub mod cuda;
mod driver;
mod gather;
mod lock;
mod memory;
mod uploader;
mod window;

#[cfg(test)]
pub(crate) mod fake;

pub use batches::BatchInfo;
pub use driver::{DeviceFault, Driver, HostDriver, HostDriverMemory};
pub use gather::{
    ChannelOrder, ColumnLayout, Mix, Normalize, PADDING, RowPlace, TokenPiece, gather_rows,
    gather_tokens, to_bf16,
};
pub use lock::{HostLock, LockRefused};
pub use memory::{ALIGNMENT, Pinning, Registration, SlabMemory, allocate_slabs};
pub use uploader::{DeviceBatch, HostBatch, HostBatches, PART_ALIGNMENT, UploadTotals, Uploader};
pub use window::DeviceWindow;
