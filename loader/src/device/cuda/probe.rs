//! Speed of the link to the GPU without the loader: the baseline of its figures.

use cudarc::driver::{result, sys};

use super::{Cuda, CudaMemory, fault};
use crate::{
    Error,
    device::{DeviceFault, Driver as _},
};

/// Memory that the driver itself allocated page-locked.
struct Pinned<'a> {
    start: *mut std::ffi::c_void,
    cuda: &'a Cuda,
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        let context = self.cuda.context();
        context.record_err(context.synchronize());
        // SAFETY: it was allocated by `malloc_host`, is freed once, and no copy is under way.
        context.record_err(unsafe { result::free_host(self.start) });
    }
}

impl Cuda {
    /// Copies `bytes` bytes of page-locked memory to the device `repeats` times, one after another on one stream, and
    /// returns bytes per second, timed by the device: a plain bandwidth probe.
    ///
    /// # Errors
    ///
    /// The device failed, or refuses so much memory.
    pub fn probe_host_to_device(&self, bytes: usize, repeats: u32) -> Result<f64, Error> {
        let doing = "measure the link to the GPU";
        self.context().bind_to_thread().map_err(fault(doing))?;
        // SAFETY: the memory is written before it is read.
        let start = unsafe { result::malloc_host(bytes, sys::CU_MEMHOSTALLOC_PORTABLE) };
        let pinned = Pinned {
            start: start.map_err(fault(doing))?,
            cuda: self,
        };
        // SAFETY: the allocation has `bytes` bytes, which are written here first.
        let host = unsafe {
            pinned.start.cast::<u8>().write_bytes(0x5A, bytes);
            std::slice::from_raw_parts(pinned.start.cast::<u8>(), bytes)
        };
        let device = self.allocate(bytes)?;
        Ok(self.time_copies(host, &device, repeats, doing)?)
    }

    fn time_copies(
        &self,
        host: &[u8],
        device: &CudaMemory,
        repeats: u32,
        doing: &'static str,
    ) -> Result<f64, DeviceFault> {
        let stream = self.copy_stream()?;
        let timed = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let event = || self.context().new_event(timed).map_err(fault(doing));
        let (begin, end) = (event()?, event()?);
        // The first copies wake the link up.
        for copy in 0..repeats + 3 {
            if copy == 3 {
                begin.record(&stream).map_err(fault(doing))?;
            }
            // SAFETY: both sides live until the end of `probe_host_to_device`, whose drops wait for the device.
            unsafe { self.copy(host, device, 0, &stream)? };
        }
        end.record(&stream).map_err(fault(doing))?;
        let milliseconds = begin.elapsed_ms(&end).map_err(fault(doing))?;
        Ok(host.len() as f64 * f64::from(repeats) / (f64::from(milliseconds) / 1_000.0))
    }
}
