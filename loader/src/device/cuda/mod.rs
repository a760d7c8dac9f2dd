//! NVIDIA GPUs. The driver is loaded when the program runs: a machine without one gets [`Error::NoDevice`].
//!
//! Events, memory and registrations are our own, over the driver's calls: cudarc's pinned slices are write-combined by
//! default, record their event in some modes only, and block where they are read. Streams are cudarc's, so that a
//! trainer can launch on the stream its batches arrive on. Each call binds the context first, which also brings up
//! errors that were met where none could be given.
#![expect(unsafe_code, reason = "calls of the CUDA driver")]

use std::{ffi::c_void, fmt, mem::MaybeUninit, ops::Range, ptr, sync::Arc};

use cudarc::driver::{
    CudaContext, CudaStream, DriverError,
    result::{self, stream::get_priority_range},
    sys,
};

use super::{DeviceFault, Driver, HostLock, LockRefused};
use crate::Error;

mod gather;
mod kernels;
mod probe;

pub use kernels::{Kernels, Place, compiler_is_installed, nccl_is_installed};

/// Events are for order, not for time, and whoever waits for one sleeps.
const EVENT_FLAGS: u32 = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32
    | sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC as u32;

/// A GPU. Clones are the same one.
///
/// It is the [`Driver`] for an [`Uploader`](super::Uploader) and the [`HostLock`] for the loader's slabs.
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

    /// cudarc's context, for work of one's own on this GPU.
    #[must_use]
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
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

    /// Makes a stream of common priority, for kernels.
    ///
    /// # Errors
    ///
    /// The device failed.
    pub fn compute_stream(&self) -> Result<Arc<CudaStream>, Error> {
        let stream = self.context.new_stream();
        Ok(stream.map_err(fault("make a stream"))?)
    }

    /// Copies bytes from the host and waits for it. For what is sent once.
    ///
    /// # Errors
    ///
    /// The device failed.
    ///
    /// # Panics
    ///
    /// The bytes do not fit behind `offset`.
    pub fn write(&self, from: &[u8], to: &CudaMemory, offset: usize) -> Result<(), Error> {
        let end = offset.checked_add(from.len());
        assert!(end.is_some_and(|end| end <= to.bytes));
        self.bind("copy to the GPU")?;
        // SAFETY: the bytes fit, both sides are there for the call, and it returns when the copy is done.
        let copied = unsafe { result::memcpy_htod_sync(to.pointer + offset as u64, from) };
        Ok(copied.map_err(fault("copy to the GPU"))?)
    }

    /// Waits for `stream` and copies bytes to the host. For tests and for results.
    ///
    /// # Errors
    ///
    /// The device failed.
    ///
    /// # Panics
    ///
    /// `range` is not within the memory.
    pub fn read(
        &self,
        from: &CudaMemory,
        range: Range<usize>,
        stream: &CudaStream,
    ) -> Result<Vec<u8>, Error> {
        assert!(range.start <= range.end && range.end <= from.bytes);
        let mut bytes = vec![0; range.len()];
        stream.synchronize().map_err(fault("wait for a stream"))?;
        // SAFETY: the range is within the memory, both sides are there for the call, and it returns when the copy is
        // done.
        let copied =
            unsafe { result::memcpy_dtoh_sync(&mut bytes, from.pointer + range.start as u64) };
        copied.map_err(fault("copy from the GPU"))?;
        Ok(bytes)
    }

    fn bind(&self, doing: &'static str) -> Result<(), DeviceFault> {
        self.context.bind_to_thread().map_err(fault(doing))
    }
}

/// Memory of a GPU. Freeing it waits for all work of the GPU.
pub struct CudaMemory {
    pointer: sys::CUdeviceptr,
    bytes: usize,
    cuda: Cuda,
}

impl CudaMemory {
    /// Its address on the device.
    #[must_use]
    pub fn pointer(&self) -> u64 {
        self.pointer
    }

    /// Its length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        let context = &self.cuda.context;
        // Kernels that were launched with a reference to it may still run. When it is not known that they ended, the
        // memory stays until the process ends.
        match context.synchronize() {
            // SAFETY: it was allocated by `allocate`, is freed once, and nothing runs on the device.
            Ok(()) => context.record_err(unsafe { result::free_sync(self.pointer) }),
            Err(error) => context.record_err::<()>(Err(error)),
        }
    }
}

impl fmt::Debug for CudaMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaMemory")
            .field("pointer", &format_args!("{:#x}", self.pointer))
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// A point in a stream of a GPU.
#[derive(Debug)]
pub struct CudaEvent {
    event: sys::CUevent,
    cuda: Cuda,
}

// SAFETY: the driver's calls on events may be made from any thread.
unsafe impl Send for CudaEvent {}
// SAFETY: as above, and at the same time.
unsafe impl Sync for CudaEvent {}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        let context = &self.cuda.context;
        context.record_err(context.bind_to_thread());
        // SAFETY: it was made by `event` and is destroyed once; the driver lets work that waits for it end.
        context.record_err(unsafe { result::event::destroy(self.event) });
    }
}

impl Driver for Cuda {
    type Memory = CudaMemory;
    type Event = CudaEvent;
    type Stream = Arc<CudaStream>;

    fn allocate(&self, bytes: usize) -> Result<CudaMemory, DeviceFault> {
        let doing = "allocate memory of the GPU";
        self.bind(doing)?;
        // SAFETY: the memory is not read before it was written: what reads it are kernels, which see some bytes.
        let pointer = unsafe { result::malloc_sync(bytes.max(1)) };
        Ok(CudaMemory {
            pointer: pointer.map_err(fault(doing))?,
            bytes,
            cuda: self.clone(),
        })
    }

    fn event(&self) -> Result<CudaEvent, DeviceFault> {
        let doing = "make an event";
        self.bind(doing)?;
        let mut event = MaybeUninit::uninit();
        // SAFETY: the driver writes the handle before it returns success, and only then is it taken.
        let event = unsafe {
            sys::cuEventCreate(event.as_mut_ptr(), EVENT_FLAGS)
                .result()
                .map(|()| event.assume_init())
        };
        Ok(CudaEvent {
            event: event.map_err(fault(doing))?,
            cuda: self.clone(),
        })
    }

    fn copy_stream(&self) -> Result<Arc<CudaStream>, DeviceFault> {
        let doing = "make the copy stream";
        self.bind(doing)?;
        let (_least, greatest) = get_priority_range().map_err(fault(doing))?;
        let stream = self.context.new_stream_with_priority(greatest);
        stream.map_err(fault(doing))
    }

    unsafe fn copy(
        &self,
        from: &[u8],
        to: &CudaMemory,
        offset: usize,
        stream: &Arc<CudaStream>,
    ) -> Result<(), DeviceFault> {
        if from.is_empty() {
            return Ok(());
        }
        let doing = "copy a batch to the GPU";
        self.bind(doing)?;
        // SAFETY: the caller keeps both sides, and the bytes fit.
        let queued = unsafe {
            result::memcpy_htod_async(to.pointer + offset as u64, from, stream.cu_stream())
        };
        queued.map_err(fault(doing))
    }

    fn record(&self, event: &CudaEvent, stream: &Arc<CudaStream>) -> Result<(), DeviceFault> {
        let doing = "mark the end of work on the GPU";
        self.bind(doing)?;
        // SAFETY: both handles are valid as long as they are lent here.
        let recorded = unsafe { result::event::record(event.event, stream.cu_stream()) };
        recorded.map_err(fault(doing))
    }

    fn wait(&self, stream: &Arc<CudaStream>, event: &CudaEvent) -> Result<(), DeviceFault> {
        let doing = "order the streams of the GPU";
        self.bind(doing)?;
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: both handles are valid as long as they are lent here.
        let waits = unsafe { result::stream::wait_event(stream.cu_stream(), event.event, flags) };
        waits.map_err(fault(doing))
    }

    fn is_complete(&self, event: &CudaEvent) -> Result<bool, DeviceFault> {
        let doing = "ask whether a copy is done";
        self.bind(doing)?;
        // SAFETY: the handle is valid as long as it is lent here.
        match unsafe { result::event::query(event.event) } {
            Ok(()) => Ok(true),
            Err(DriverError(sys::CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
            Err(error) => Err(fault(doing)(error)),
        }
    }

    fn settle(&self, event: &CudaEvent) -> Result<(), DeviceFault> {
        let doing = "wait for a copy";
        self.bind(doing)?;
        // SAFETY: the handle is valid as long as it is lent here.
        unsafe { result::event::synchronize(event.event) }.map_err(fault(doing))
    }

    fn drain(&self, stream: &Arc<CudaStream>) -> Result<(), DeviceFault> {
        stream
            .synchronize()
            .map_err(fault("wait for the copies under way"))
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
