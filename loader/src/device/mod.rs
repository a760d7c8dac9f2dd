//! The last metre: from host memory to the memory of an accelerator.
//!
//! [`Loader::device_batches`](crate::Loader::device_batches) gives the batches of a pass on a device. Blocks of rows and
//! tokens go there once, and kernels build each batch from them; batches of images, and what cannot be built there, are
//! copied from the slabs of the ring by an [`Uploader`].
//!
//! Slabs are plain memory. [`HostLock`] page-locks it in place, so that the device reads it without
//! a copy in between. Everything here builds and is tested without a GPU: the code that calls the
//! driver is behind a trait with a twin on the CPU, and the CUDA side is one module behind the
//! feature `cuda`, which loads the driver when the program runs.

mod batches;
mod config;
mod copies;
#[cfg(feature = "cuda")]
pub mod cuda;
mod driver;
mod fault;
mod feed;
mod fit;
mod gather;
mod gathered;
mod gathering;
mod lock;
mod memory;
mod pass;
mod places;
mod slots;
mod staging;
mod uploader;
mod window;

#[cfg(test)]
pub(crate) mod fake;

pub use batches::BatchInfo;
pub use config::{DeviceConfig, Unfit};
pub use driver::{DeviceFault, Driver, HostDriver, HostDriverMemory};
pub use gather::{
    ChannelOrder, ColumnLayout, Mix, Normalize, PADDING, RowPlace, TokenPiece, gather_rows,
    gather_tokens, to_bf16,
};
pub use gathering::{Gather, Part};
pub use lock::{HostLock, LockRefused};
pub use memory::{ALIGNMENT, Pinning, Registration, SlabMemory, allocate_slabs};
pub use pass::{BuiltOn, DeviceBatches};
pub use uploader::{DeviceBatch, HostBatch, HostBatches, PART_ALIGNMENT, UploadTotals, Uploader};

pub(crate) use places::Places;
pub(crate) use slots::Slots;
