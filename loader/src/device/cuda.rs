//! NVIDIA GPUs. The driver is loaded when the program runs: a machine without one gets [`Error::NoDevice`].
//!
//! Registrations of memory are our own, over the driver's calls: cudarc's pinned slices are write-combined by default, and
//! block where they are read. Each call binds the context first, which also brings up errors that were met where none
//! could be given.
#![expect(unsafe_code, reason = "calls of the CUDA driver")]

use std::{ffi::c_void, ptr, sync::Arc};

use cudarc::{
    driver::{CudaContext, DriverError, sys},
    nccl, nvrtc,
};

use super::{DeviceFault, HostLock, LockRefused};
use crate::Error;

/// A GPU, which page-locks the loader's slabs. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Cuda {
    context: Arc<CudaContext>,
}

impl Cuda {
    /// Opens GPU number `ordinal`, from 0, of those that are visible to the process.
    ///
    /// # Errors
    ///
    /// There is no driver, or no such GPU.
    pub fn open(ordinal: usize) -> Result<Self, Error> {
        let absent = |reason: String| Error::NoDevice { reason };
        // SAFETY: it opens and closes a library, whose initialisers are NVIDIA's.
        if !unsafe { sys::is_culib_present() } {
            return Err(absent(
                "the CUDA driver (`libcuda.so`) is not installed".into(),
            ));
        }
        let context = CudaContext::new(ordinal).map_err(|error| absent(text(error)))?;
        Ok(Self { context })
    }

    /// The GPU's name.
    ///
    /// # Errors
    ///
    /// The device failed.
    pub fn name(&self) -> Result<String, Error> {
        Ok(self.context.name().map_err(fault("name the GPU"))?)
    }

    /// The GPU's UUID as NVIDIA's tools write it, `GPU-` and 32 hexadecimal digits in five groups. It does not depend on the
    /// numbers that the process sees.
    ///
    /// # Errors
    ///
    /// The device failed.
    pub fn uuid(&self) -> Result<String, Error> {
        let uuid = self
            .context
            .uuid()
            .map_err(fault("ask the GPU for its UUID"))?;
        let digits = uuid
            .bytes
            .map(|byte| format!("{:02x}", byte.to_ne_bytes()[0]));
        let digits = digits.concat();
        let groups = [0..8, 8..12, 12..16, 16..20, 20..32].map(|group| &digits[group]);
        Ok(format!("GPU-{}", groups.join("-")))
    }

    /// The GPU's address on the PCI bus, such as `00000000:3b:00.0`.
    ///
    /// # Errors
    ///
    /// The device failed.
    pub fn pci_bus_id(&self) -> Result<String, Error> {
        use sys::CUdevice_attribute as Attribute;
        let number = |attribute| self.context.attribute(attribute);
        let address = || {
            let domain = number(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?;
            let bus = number(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?;
            let device = number(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?;
            Ok(format!("{domain:08x}:{bus:02x}:{device:02x}.0"))
        };
        let found: Result<_, DriverError> = address();
        Ok(found.map_err(fault("ask the GPU for its PCI address"))?)
    }

    /// Free bytes of the GPU's memory.
    ///
    /// # Errors
    ///
    /// The device failed.
    pub fn free_bytes(&self) -> Result<u64, Error> {
        let found = self.context.mem_get_info();
        let (free, _) = found.map_err(fault("ask the GPU for its free memory"))?;
        Ok(free as u64)
    }
}

impl HostLock for Cuda {
    fn lock(&self, address: usize, bytes: usize) -> Result<(), LockRefused> {
        let refused = |error| LockRefused::new(text(error));
        self.context.bind_to_thread().map_err(refused)?;
        let start = ptr::with_exposed_provenance_mut::<c_void>(address);
        // SAFETY: the driver checks that the pages are the process's own; the caller keeps them until `unlock`.
        let locked = unsafe {
            sys::cuMemHostRegister_v2(start, bytes, sys::CU_MEMHOSTREGISTER_PORTABLE).result()
        };
        locked.map_err(refused)
    }

    fn unlock(&self, address: usize) {
        let bound = self.context.bind_to_thread();
        let start = ptr::with_exposed_provenance_mut::<c_void>(address);
        // SAFETY: the driver refuses what it did not lock; the caller says that no copy reads the pages.
        let unlocked = bound.and_then(|()| unsafe { sys::cuMemHostUnregister(start).result() });
        if let Err(error) = unlocked {
            tracing::warn!(
                error = text(error),
                "page-locked memory could not be unlocked"
            );
        }
    }
}

/// Returns true if NVRTC (`libnvrtc.so`), which compiles kernels when the program runs, can be
/// loaded.
#[must_use]
pub fn compiler_is_installed() -> bool {
    // SAFETY: it opens and closes a library, whose initialisers are NVIDIA's.
    unsafe { nvrtc::sys::is_culib_present() }
}

/// Returns true if NCCL (`libnccl.so`), which adds up numbers of several GPUs, can be loaded.
#[must_use]
pub fn nccl_is_installed() -> bool {
    // SAFETY: it opens and closes a library, whose initialisers are NVIDIA's.
    unsafe { nccl::sys::is_culib_present() }
}

fn fault(doing: &'static str) -> impl Fn(DriverError) -> DeviceFault {
    move |error| DeviceFault::new(doing, text(error))
}

/// The driver's name and words for an error.
fn text(error: DriverError) -> String {
    let part = |text: Result<&std::ffi::CStr, DriverError>| {
        text.map_or_else(|_| "unknown".into(), std::ffi::CStr::to_string_lossy)
            .into_owned()
    };
    format!(
        "{} ({})",
        part(error.error_name()),
        part(error.error_string())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_gpu_says_so() {
        match Cuda::open(0) {
            Ok(cuda) => println!("skipped: there is a GPU, `{}`", cuda.name().unwrap()),
            Err(error) => assert!(error.to_string().starts_with("no GPU"), "{error}"),
        }
    }
}
