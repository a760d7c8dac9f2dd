//! Kernels, compiled for the GPU when the program runs.

use std::{
    collections::HashMap,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use cudarc::{
    driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg},
    nvrtc::{self, CompileOptions, Ptx},
};

use super::{Cuda, CudaMemory, fault};
use crate::{
    Error,
    device::{ChannelOrder, ColumnLayout, DeviceFault, Mix, Normalize},
};

const SOURCE: &str = include_str!("kernels.cu");
const THREADS: u32 = 256;
/// Enough blocks to fill any GPU; threads go round for the rest.
const MOST_BLOCKS: usize = 4_096;

/// Compiled code by compute capability, for all contexts of the process.
static COMPILED: Mutex<Option<HashMap<(i32, i32), Ptx>>> = Mutex::new(None);

/// The kernels of [`device`](crate::device), loaded on one GPU. Launching returns at once; the work is done in the order
/// of the stream. What a kernel reads must have been written earlier in this stream, or the stream wait for it.
#[derive(Clone, Debug)]
pub struct Kernels {
    gather_rows: [(usize, CudaFunction); 3],
    gather_tokens: [(usize, CudaFunction); 2],
    normalize_f32: CudaFunction,
    normalize_bf16: CudaFunction,
    spin: CudaFunction,
    checksum: CudaFunction,
}

/// Bytes of device memory.
pub type Place<'a> = (&'a CudaMemory, Range<usize>);

impl Kernels {
    /// Compiles the kernels, once per process and kind of GPU, and loads them.
    ///
    /// # Errors
    ///
    /// NVRTC (`libnvrtc.so`, of the CUDA toolkit) is not installed, or newer than the driver.
    pub fn load(cuda: &Cuda) -> Result<Self, Error> {
        let doing = "load the kernels";
        let context = cuda.context();
        let capability = context.compute_capability().map_err(fault(doing))?;
        let module = context
            .load_module(compiled(capability)?)
            .map_err(fault(doing))?;
        let function = |name| module.load_function(name).map_err(fault(doing));
        Ok(Self {
            gather_rows: [
                (16, function("gather_rows_16")?),
                (4, function("gather_rows_4")?),
                (1, function("gather_rows_1")?),
            ],
            gather_tokens: [
                (2, function("gather_tokens_u16")?),
                (4, function("gather_tokens_u32")?),
            ],
            normalize_f32: function("normalize_f32")?,
            normalize_bf16: function("normalize_bf16")?,
            spin: function("spin")?,
            checksum: function("checksum")?,
        })
    }

    /// [`gather_rows`](crate::device::gather_rows) on the device: `places` holds a [`RowPlace`](crate::device::RowPlace)
    /// for each of `rows` rows.
    ///
    /// # Errors
    ///
    /// Something does not fit into its memory, or the device failed.
    pub fn gather_rows(
        &self,
        stream: &Arc<CudaStream>,
        window: &CudaMemory,
        column: &ColumnLayout,
        places: Place<'_>,
        out: Place<'_>,
    ) -> Result<(), Error> {
        let doing = "gather rows on the GPU";
        check_column(doing, window, column)?;
        let rows = places.1.len() / 8;
        let places = checked(doing, places, rows * 8, 8)?;
        let unit = |&(unit, _): &&(usize, CudaFunction)| {
            let starts = [column.slot_bytes, column.offset, column.row_bytes];
            starts.iter().all(|start| start.is_multiple_of(*unit))
        };
        let (unit, kernel) = self
            .gather_rows
            .iter()
            .find(unit)
            .unwrap_or(&self.gather_rows[2]);
        let out = checked(doing, out, rows * column.row_bytes, *unit)?;
        let (slot_bytes, offset) = (column.slot_bytes as u64, column.offset as u64);
        let (units, count) = (
            narrow(doing, column.row_bytes / *unit)?,
            narrow(doing, rows)?,
        );
        let window = window.pointer();
        let mut launch = stream.launch_builder(kernel);
        launch
            .arg(&window)
            .arg(&slot_bytes)
            .arg(&column.slots)
            .arg(&offset)
            .arg(&column.rows);
        launch.arg(&units).arg(&places).arg(&count).arg(&out);
        // SAFETY: arguments are those of the kernel; it stays within the window for any places, and `checked` made sure
        // of the rest. Freeing any of the memory waits for the device.
        unsafe { launch.launch(grid(rows * column.row_bytes / *unit)) }.map_err(fault(doing))?;
        Ok(())
    }

    /// [`gather_tokens`](crate::device::gather_tokens) on the device: `pieces` holds
    /// [`TokenPiece`](crate::device::TokenPiece)s, `out` 32-bit ids.
    ///
    /// # Errors
    ///
    /// Something does not fit into its memory, tokens are not 2 or 4 bytes long, or the device failed.
    pub fn gather_tokens(
        &self,
        stream: &Arc<CudaStream>,
        window: &CudaMemory,
        column: &ColumnLayout,
        pieces: Place<'_>,
        pad: u32,
        out: Place<'_>,
    ) -> Result<(), Error> {
        let doing = "gather tokens on the GPU";
        check_column(doing, window, column)?;
        let (count, tokens) = (pieces.1.len() / 16, out.1.len() / 4);
        let pieces = checked(doing, pieces, count * 16, 16)?;
        let out = checked(doing, out, tokens * 4, 4)?;
        let kernel = self
            .gather_tokens
            .iter()
            .find(|(bytes, _)| *bytes == column.row_bytes);
        let aligned = column.slot_bytes.is_multiple_of(column.row_bytes)
            && column.offset.is_multiple_of(column.row_bytes);
        let (Some((_, kernel)), true) = (kernel, aligned) else {
            return Err(
                DeviceFault::new(doing, "tokens must be 2 or 4 bytes long, and aligned").into(),
            );
        };
        let (slot_bytes, offset) = (column.slot_bytes as u64, column.offset as u64);
        let (blocks, count, tokens) = (
            count.clamp(1, MOST_BLOCKS),
            narrow(doing, count)?,
            narrow(doing, tokens)?,
        );
        let window = window.pointer();
        let mut launch = stream.launch_builder(kernel);
        launch
            .arg(&window)
            .arg(&slot_bytes)
            .arg(&column.slots)
            .arg(&offset)
            .arg(&column.rows);
        launch
            .arg(&pieces)
            .arg(&count)
            .arg(&pad)
            .arg(&tokens)
            .arg(&out);
        // SAFETY: as in `gather_rows`; the kernel checks destinations against `tokens` too.
        unsafe { launch.launch(grid(blocks * THREADS as usize)) }.map_err(fault(doing))?;
        Ok(())
    }

    /// [`Normalize::apply`] on the device, to f32.
    ///
    /// # Errors
    ///
    /// Something does not fit into its memory, or the device failed.
    pub fn normalize_f32(
        &self,
        stream: &Arc<CudaStream>,
        normalize: &Normalize,
        images: Place<'_>,
        mixes: Option<Place<'_>>,
        out: Place<'_>,
    ) -> Result<(), Error> {
        launch_normalize(
            &self.normalize_f32,
            4,
            stream,
            normalize,
            images,
            mixes,
            out,
        )
    }

    /// [`Normalize::apply`] on the device, rounded to bfloat16 as [`to_bf16`](crate::device::to_bf16) does.
    ///
    /// # Errors
    ///
    /// Something does not fit into its memory, or the device failed.
    pub fn normalize_bf16(
        &self,
        stream: &Arc<CudaStream>,
        normalize: &Normalize,
        images: Place<'_>,
        mixes: Option<Place<'_>>,
        out: Place<'_>,
    ) -> Result<(), Error> {
        launch_normalize(
            &self.normalize_bf16,
            2,
            stream,
            normalize,
            images,
            mixes,
            out,
        )
    }

    /// Keeps the stream busy for some time: a training step of known length.
    ///
    /// # Errors
    ///
    /// The device failed.
    pub fn spin(&self, stream: &Arc<CudaStream>, nanoseconds: u64) -> Result<(), Error> {
        let one = LaunchConfig {
            grid_dim: (1, 1, 1),
            block_dim: (1, 1, 1),
            shared_mem_bytes: 0,
        };
        let mut launch = stream.launch_builder(&self.spin);
        launch.arg(&nanoseconds);
        // SAFETY: the kernel touches no memory.
        unsafe { launch.launch(one) }.map_err(fault("keep the GPU busy"))?;
        Ok(())
    }

    /// Adds to the 64-bit number at `sum` each 32-bit word of `words` times its position from 1, wrapping.
    ///
    /// # Errors
    ///
    /// Something does not fit into its memory, or the device failed.
    pub fn checksum(
        &self,
        stream: &Arc<CudaStream>,
        words: Place<'_>,
        sum: Place<'_>,
    ) -> Result<(), Error> {
        let doing = "sum up on the GPU";
        let count = words.1.len() / 4;
        let words = checked(doing, words, count * 4, 4)?;
        let sum = checked(doing, sum, 8, 8)?;
        let length = count as u64;
        let mut launch = stream.launch_builder(&self.checksum);
        launch.arg(&words).arg(&length).arg(&sum);
        // SAFETY: arguments are those of the kernel, and `checked` made sure that all is within its memory.
        unsafe { launch.launch(grid(count)) }.map_err(fault(doing))?;
        Ok(())
    }
}

fn launch_normalize(
    kernel: &CudaFunction,
    value_bytes: usize,
    stream: &Arc<CudaStream>,
    normalize: &Normalize,
    images: Place<'_>,
    mixes: Option<Place<'_>>,
    out: Place<'_>,
) -> Result<(), Error> {
    let doing = "normalise images on the GPU";
    let count = images.1.len() / normalize.values().max(1);
    let values = count * normalize.values();
    let images = checked(doing, images, values, 1)?;
    let mixes = mixes.map_or(Ok(0), |mixes| checked(doing, mixes, count * Mix::BYTES, 4))?;
    let out = checked(doing, out, values * value_bytes, value_bytes)?;
    let count = narrow(doing, count)?;
    let first = u32::from(normalize.order == ChannelOrder::First);
    let mut launch = stream.launch_builder(kernel);
    launch
        .arg(&images)
        .arg(&count)
        .arg(&normalize.height)
        .arg(&normalize.width)
        .arg(&first);
    for number in normalize.scale.iter().chain(&normalize.bias) {
        launch.arg(number);
    }
    launch.arg(&mixes).arg(&out);
    // SAFETY: arguments are those of the kernel, it checks partners itself, and `checked` made sure of the rest.
    unsafe { launch.launch(grid(values)) }.map_err(fault(doing))?;
    Ok(())
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
    unsafe { cudarc::nccl::sys::is_culib_present() }
}

/// The kernels' code for GPUs of a compute capability.
fn compiled(capability: (i32, i32)) -> Result<Ptx, DeviceFault> {
    let doing = "compile the kernels";
    if !compiler_is_installed() {
        let reason = "NVRTC (`libnvrtc.so`) is not installed; it is part of the CUDA toolkit";
        return Err(DeviceFault::new(doing, reason));
    }
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    let compiled = compiled.get_or_insert_default();
    if let Some(ptx) = compiled.get(&capability) {
        return Ok(ptx.clone());
    }
    let (major, minor) = capability;
    let options = CompileOptions {
        options: vec![format!("--gpu-architecture=compute_{major}{minor}")],
        name: Some("feedline.cu".into()),
        ..CompileOptions::default()
    };
    let ptx = nvrtc::compile_ptx_with_opts(SOURCE, options)
        .map_err(|error| DeviceFault::new(doing, error.to_string()))?;
    compiled.insert(capability, ptx.clone());
    Ok(ptx)
}

fn grid(threads: usize) -> LaunchConfig {
    let blocks = threads.div_ceil(THREADS as usize).clamp(1, MOST_BLOCKS);
    LaunchConfig {
        grid_dim: (u32::try_from(blocks).expect("it is clamped"), 1, 1),
        block_dim: (THREADS, 1, 1),
        shared_mem_bytes: 0,
    }
}

/// The address of `bytes` bytes, when they are within their range, the range in its memory, and its start aligned.
fn checked(
    doing: &'static str,
    (memory, range): Place<'_>,
    bytes: usize,
    alignment: usize,
) -> Result<u64, DeviceFault> {
    let fits = range
        .start
        .checked_add(bytes)
        .is_some_and(|end| end <= range.end);
    if fits && range.end <= memory.bytes() && range.start.is_multiple_of(alignment) {
        return Ok(memory.pointer() + range.start as u64);
    }
    let reason = format!(
        "`{bytes}` bytes, aligned to `{alignment}`, are needed at `{range:?}` of memory of `{}` bytes",
        memory.bytes()
    );
    Err(DeviceFault::new(doing, reason))
}

fn check_column(
    doing: &'static str,
    window: &CudaMemory,
    column: &ColumnLayout,
) -> Result<(), DeviceFault> {
    match column.end() {
        Some(end) if end <= window.bytes() => Ok(()),
        _ => Err(DeviceFault::new(
            doing,
            format!(
                "`{column:?}` does not fit a window of `{}` bytes",
                window.bytes()
            ),
        )),
    }
}

fn narrow(doing: &'static str, count: usize) -> Result<u32, DeviceFault> {
    u32::try_from(count)
        .map_err(|_| DeviceFault::new(doing, format!("`{count}` is too many for one call")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_compile_for_every_kind_of_gpu_in_use() {
        for capability in [(7, 5), (8, 0), (8, 9), (9, 0), (10, 0)] {
            match compiled(capability) {
                Ok(ptx) => assert!(
                    ptx.to_src().contains(".entry normalize_bf16"),
                    "{capability:?}"
                ),
                Err(fault) if fault.to_string().contains("is not installed") => {
                    println!("skipped: {fault}");
                    return;
                }
                Err(fault) => panic!("{capability:?}: {fault}"),
            }
        }
    }
}
