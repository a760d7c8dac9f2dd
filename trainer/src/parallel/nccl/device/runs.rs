//! Numbers in the memory of a GPU, which NCCL exchanges where they are.
//!
//! NCCL is given addresses. [`DeviceRuns`] holds the memory, [`OpenRuns`] its addresses once the numbers are computed, and
//! both stay until the work on them has ended: what drops them first ends the communicator.
#![expect(unsafe_code, reason = "NCCL is given addresses in the memory of a GPU")]

use std::{any::Any, fmt, mem::ManuallyDrop, sync::Arc};

use cudarc::{
    driver::{CudaSlice, CudaStream},
    nccl::{Comm, NcclType, ReduceOp, group_end, group_start, result::NcclError, sys},
};

use crate::parallel::on_device::{TensorOp, TensorWork};

/// Type of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(any(test, feature = "cuda")),
    expect(
        dead_code,
        reason = "without the feature `cuda` no numbers are on a GPU"
    )
)]
pub(super) enum RunType {
    F32,
    Bf16,
}

#[cfg(any(test, feature = "cuda"))]
impl RunType {
    const fn bytes(self) -> usize {
        match self {
            Self::F32 => size_of::<f32>(),
            Self::Bf16 => size_of::<Bf16Bits>(),
        }
    }
}

/// A number of type bf16: only its size and its type are used.
#[repr(transparent)]
struct Bf16Bits(u16);

impl NcclType for Bf16Bits {
    fn as_nccl_type() -> sys::ncclDataType_t {
        sys::ncclDataType_t::ncclBfloat16
    }
}

/// Runs of numbers in the memory of a GPU, without another holder.
#[derive(Debug)]
pub(in crate::parallel) enum DeviceRuns {
    /// No numbers.
    None,
    /// Tensors of the GPU.
    Tensors(Vec<TensorWork>),
    /// Memory of the driver, in tests.
    #[cfg(test)]
    Slices(Vec<DeviceSlice>),
}

/// Numbers in the middle of a piece of the driver's memory, made by work that was ordered in a stream.
#[cfg(test)]
#[derive(Debug)]
pub(in crate::parallel) struct DeviceSlice {
    pub(super) memory: CudaSlice<u8>,
    /// First byte.
    pub(super) begin: usize,
    pub(super) len: usize,
    pub(super) kind: RunType,
    pub(super) op: TensorOp,
}

/// The address of a run.
#[derive(Clone, Copy, Debug)]
struct DeviceRun {
    op: TensorOp,
    address: u64,
    len: usize,
    kind: RunType,
}

/// Wait until numbers are computed.
type ComputedWait = Box<dyn FnOnce() -> Result<(), String> + Send>;

/// Runs at their addresses.
pub(super) struct OpenRuns {
    runs: Vec<DeviceRun>,
    /// `None` when the numbers are computed.
    wait: Option<ComputedWait>,
    /// Keeps the memory at its addresses.
    _memory: Box<dyn Any + Send>,
}

impl fmt::Debug for OpenRuns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenRuns")
            .field("runs", &self.runs)
            .finish_non_exhaustive()
    }
}

impl DeviceRuns {
    /// Gets the addresses of the numbers. Waits for nothing on the GPU: [`OpenRuns::computed`] does.
    ///
    /// # Errors
    /// Reason that the memory is not what NCCL can sum.
    pub(super) fn open(&mut self) -> Result<OpenRuns, String> {
        match self {
            Self::None => Ok(OpenRuns {
                runs: Vec::new(),
                wait: None,
                _memory: Box::new(()),
            }),
            Self::Tensors(tensors) => open_tensors(tensors),
            #[cfg(test)]
            Self::Slices(slices) => open_slices(slices),
        }
    }
}

impl OpenRuns {
    /// The same once the numbers are computed.
    ///
    /// # Errors
    /// Failure on the GPU.
    pub(super) fn computed(mut self) -> Result<Self, String> {
        self.wait.take().map_or(Ok(()), |wait| wait())?;
        Ok(self)
    }
}

#[cfg(not(feature = "cuda"))]
fn open_tensors(_: &mut [TensorWork]) -> Result<OpenRuns, String> {
    Err("this program was built without tensors on NVIDIA GPUs".to_owned())
}

/// The stream of this thread is ordered after what computes each tensor, and then has an event to wait for: other threads may
/// order more work meanwhile.
#[cfg(feature = "cuda")]
fn open_tensors(tensors: &mut Vec<TensorWork>) -> Result<OpenRuns, String> {
    use burn::{
        backend::Cube,
        tensor::{DType, Tensor},
    };
    use cubecl_runtime::runtime::Runtime;

    type Server = <cubecl::cuda::CudaRuntime as Runtime>::Server;

    let mut runs = Vec::new();
    let mut memory = Vec::new();
    let mut computed = None;
    for (op, tensor) in std::mem::take(tensors) {
        let len = tensor.dims()[0];
        let kind = match tensor.dtype() {
            DType::F32 => RunType::F32,
            DType::BF16 => RunType::Bf16,
            other => return Err(format!("it sums no numbers of type {other:?}")),
        };
        let tensor = tensor
            .try_into_primitive::<Cube>()
            .map_err(|error| format!("a tensor is not on the GPU: {error:?}"))?;
        let resource = tensor
            .client
            .get_resource::<Server>(tensor.handle.clone())
            .map_err(|error| error.to_string())?;
        // All orders of other threads have arrived by now, and with them all holders are known.
        if !tensor.handle.can_mut() || !tensor.is_contiguous() {
            return Err("the memory of a tensor is used elsewhere too".to_owned());
        }
        let address = resource.resource().ptr;
        let bytes = usize::try_from(resource.resource().size).unwrap_or(usize::MAX);
        if bytes < len * kind.bytes() {
            return Err(format!("{bytes} bytes are too few for {len} numbers"));
        }
        runs.push(DeviceRun {
            op,
            address,
            len,
            kind,
        });
        memory.push(resource);
        computed = Some(tensor.client.clone());
        tensors.push((op, Tensor::from_primitive::<Cube>(tensor)));
    }
    let wait = computed.map(|client| -> ComputedWait {
        // The event is recorded by this call, not by the wait for it.
        let event = client.sync();
        Box::new(move || cubecl::future::block_on(event).map_err(|error| error.to_string()))
    });
    Ok(OpenRuns {
        runs,
        wait,
        _memory: Box::new(memory),
    })
}

#[cfg(test)]
fn open_slices(slices: &mut [DeviceSlice]) -> Result<OpenRuns, String> {
    use cudarc::driver::{CudaEvent, DevicePtr, DriverError};

    let run = |slice: &DeviceSlice| {
        let stream = slice.memory.stream();
        let bytes = slice.len * slice.kind.bytes();
        let view = slice.memory.slice(slice.begin..slice.begin + bytes);
        let (address, _) = view.device_ptr(stream);
        DeviceRun {
            op: slice.op,
            address,
            len: slice.len,
            kind: slice.kind,
        }
    };
    let error = |error: DriverError| format!("{error:?}");
    let event = |slice: &DeviceSlice| slice.memory.stream().record_event(None).map_err(error);
    let events: Vec<CudaEvent> = slices.iter().map(event).collect::<Result<_, _>>()?;
    let wait = move || {
        let mut events = events.iter();
        events.try_for_each(|event| event.synchronize().map_err(error))
    };
    Ok(OpenRuns {
        runs: slices.iter().map(run).collect(),
        wait: Some(Box::new(wait)),
        _memory: Box::new(()),
    })
}

/// Has NCCL exchange all runs in place, in work of a stream that has been ordered, and not done, when this returns. They are
/// one launch. The runs stay until that work, or the communicator, has ended.
///
/// # Errors
/// The call that failed.
pub(super) fn launch(
    comm: &Comm,
    stream: &Arc<CudaStream>,
    open: &OpenRuns,
) -> Result<(), (&'static str, NcclError)> {
    group_start().map_err(|error| ("ncclGroupStart", error))?;
    let mut runs = open.runs.iter().filter(|run| run.len > 0);
    let ordered = runs.try_for_each(|run| match run.kind {
        RunType::F32 => order::<f32>(comm, stream, *run),
        RunType::Bf16 => order::<Bf16Bits>(comm, stream, *run),
    });
    let launched = group_end().map_err(|error| ("ncclGroupEnd", error));
    ordered.and(launched.map(|_| ()))
}

/// Orders the operation of a run, whose numbers are of type `T`.
fn order<T: NcclType>(
    comm: &Comm,
    stream: &Arc<CudaStream>,
    run: DeviceRun,
) -> Result<(), (&'static str, NcclError)> {
    let DeviceRun {
        op, address, len, ..
    } = run;
    let mut all = LentRun::<T>::new(stream, address, len);
    let (call, ordered) = match op {
        TensorOp::AllReduce => (
            "ncclAllReduce",
            comm.all_reduce_in_place(&mut *all.0, &ReduceOp::Sum),
        ),
        TensorOp::Reduce { root } => (
            "ncclReduce",
            comm.reduce_in_place(&mut *all.0, &ReduceOp::Sum, rank_number(root)),
        ),
        TensorOp::AllGather => {
            let own_len = len / comm.world_size();
            let own_address = address + (comm.rank() * own_len * size_of::<T>()) as u64;
            let own = LentRun::<T>::new(stream, own_address, own_len);
            ("ncclAllGather", comm.all_gather(&*own.0, &mut *all.0))
        }
    };
    ordered.map(|_| ()).map_err(|error| (call, error))
}

/// Number of a rank for NCCL, which has no more of them than an `i32` can count.
fn rank_number(rank: usize) -> i32 {
    i32::try_from(rank).unwrap_or(i32::MAX)
}

/// Memory of an open run as cudarc names it, which does not free it.
struct LentRun<T>(ManuallyDrop<CudaSlice<T>>);

impl<T> LentRun<T> {
    fn new(stream: &Arc<CudaStream>, address: u64, len: usize) -> Self {
        // SAFETY: `OpenRuns` is made of memory of this GPU that has room for the numbers of its runs, are computed, and have
        // no other holder; it keeps them at their addresses, and the caller keeps it until the stream has done the work. A
        // rank's share is a part of a run. The slice does not free the memory: it is never dropped, but taken apart.
        let slice = unsafe { stream.upgrade_device_ptr::<T>(address, len) };
        Self(ManuallyDrop::new(slice))
    }
}

impl<T> Drop for LentRun<T> {
    fn drop(&mut self) {
        // SAFETY: the slice is taken here only, and not used afterwards.
        let slice = unsafe { ManuallyDrop::take(&mut self.0) };
        slice.leak();
    }
}
