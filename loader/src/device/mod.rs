//! Page-locking of the memory of batches, so that a device copies from it directly.
//!
//! The loader gives batches in host memory; copying them to a device is the part of the caller. Slabs are plain memory:
//! [`HostLock`] page-locks it in place, so that the device reads it without a copy in between. Everything here builds and
//! is tested without a GPU: CUDA is one module behind the feature `cuda`, which loads the driver when the program runs.

#[cfg(feature = "cuda")]
pub mod cuda;
mod fault;
mod lock;
mod memory;

#[cfg(test)]
pub(crate) mod fake;

pub use fault::DeviceFault;
pub use lock::{HostLock, LockRefused};
pub use memory::{Pinning, Registration, SlabMemory, allocate_slabs};
