//! Device that computes a model, and numbers that are read from it.

use std::{
    fmt,
    future::Future,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use burn::{
    backend::DispatchDevice,
    tensor::{DType, Device, Tensor},
};
use feedline_schemas::config::Precision;

use crate::error::{Error, config as wrong};

mod bus;
mod choice;
pub(crate) mod kernels;
mod mask;
mod wgpu;

#[cfg(feature = "cuda")]
pub(crate) use self::choice::cuda_of;
pub(crate) use self::{
    bus::{BusBytes, Upload, add_bus_bytes, count_download, numbers, take_bus_bytes},
    choice::may_be_gpu,
    mask::{MaskValues, draw},
};

/// Kind of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceKind {
    /// The processor.
    Processor,
    /// NVIDIA GPU of this number, through CUDA.
    #[cfg(feature = "cuda")]
    Cuda(u32),
    /// Adapter of this number, through Vulkan, Metal or DirectX 12.
    #[cfg(any(test, feature = "wgpu"))]
    Wgpu(u32),
}

impl DeviceKind {
    /// Returns true for one to which whole batches are worth more than parts of them, and where weights stay.
    pub(crate) const fn is_gpu(self) -> bool {
        !matches!(self, Self::Processor)
    }

    /// Number of an NVIDIA GPU.
    pub(crate) const fn cuda(self) -> Option<u32> {
        match self {
            #[cfg(feature = "cuda")]
            Self::Cuda(number) => Some(number),
            _ => None,
        }
    }
}

/// An available device.
#[derive(Clone, Debug)]
pub(crate) struct Backend {
    pub(crate) device: Device,
    /// Name for people, such as `NVIDIA H200 (cuda:0)`.
    pub(crate) name: String,
    /// The same without its number, such as `NVIDIA H200`: devices of one model compute alike.
    pub(crate) model: String,
    /// Kind and number.
    pub(crate) kind: DeviceKind,
    /// Free bytes of a GPU's memory, where it reports them.
    pub(crate) memory_bytes: Option<u64>,
}

impl Backend {
    /// The processor.
    pub(crate) fn cpu() -> Self {
        Self {
            device: Device::flex(),
            name: "cpu".to_owned(),
            model: "cpu".to_owned(),
            kind: DeviceKind::Processor,
            memory_bytes: None,
        }
    }

    /// The processor in the place of a GPU: what stays on a device stays in tensors of its own.
    #[cfg(test)]
    pub(crate) fn stand_in() -> Self {
        Self {
            kind: DeviceKind::Wgpu(0),
            ..Self::cpu()
        }
    }

    /// Refuses a type of products that the device does not compute in.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub(crate) fn check(&self, precision: Precision) -> Result<(), Error> {
        let products = match precision {
            Precision::F32 => return Ok(()),
            Precision::Bf16 => DType::BF16,
            Precision::F16 => DType::F16,
        };
        if self.device.supports_dtype(products) {
            return Ok(());
        }
        let reason = format!(
            "{} does not compute in it; set it to `f32`, or `train.device` to another device",
            self.name
        );
        Err(wrong("precision", reason))
    }
}

/// Returns true for the processor, where what is made on the host needs no copy.
pub(crate) fn is_processor(device: &Device) -> bool {
    matches!(
        device.clone().inner().as_dispatch(),
        DispatchDevice::Flex(_)
    )
}

/// Numbers on the way from a device to the host, in bytes or as they are.
type Arriving = Pin<Box<dyn Future<Output = Result<Vec<f32>, String>> + Send>>;

/// Begins to read tensors of a device: the copy is ordered at once, so what is computed later does not delay it.
pub(crate) struct DeviceReader(Box<dyn Fn(Tensor<1>) -> Arriving + Send + Sync>);

impl DeviceReader {
    /// Reads tensors of the device that a tensor is on.
    #[cfg_attr(
        not(any(feature = "cuda", feature = "wgpu")),
        expect(unused_variables, reason = "the processor is the only device")
    )]
    pub(crate) fn of(tensor: &Tensor<1>) -> Self {
        #[cfg(any(feature = "cuda", feature = "wgpu"))]
        if let Ok(tensor) = tensor.clone().try_into_primitive::<burn::backend::Cube>() {
            // A read in progress borrows the client that ordered it: a handle of a few bytes, one for each upload of the state.
            let client = &*Box::leak(Box::new(tensor.client));
            return Self(Box::new(move |tensor: Tensor<1>| {
                let tensor = tensor.try_into_primitive::<burn::backend::Cube>();
                let tensor = tensor.expect("the tensors of a run are on one device");
                let reading = client.read_async(vec![tensor.handle]);
                Box::pin(async move {
                    let read = reading.await.map_err(|error| error.to_string())?;
                    let bytes = read.first().map(|bytes| bytes.as_chunks::<4>().0);
                    let numbers = bytes.unwrap_or_default().iter();
                    Ok(numbers.map(|bytes| f32::from_le_bytes(*bytes)).collect())
                })
            }));
        }
        Self(Box::new(|tensor| {
            let read = tensor.try_into_vec_as::<f32>();
            Box::pin(std::future::ready(read.map_err(|error| error.to_string())))
        }))
    }

    /// Begins to read a tensor.
    pub(crate) fn begin(&self, tensor: Tensor<1>) -> DeviceRead {
        count_download(tensor.dims()[0] * size_of::<f32>());
        DeviceRead((self.0)(tensor))
    }
}

impl fmt::Debug for DeviceReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceReader").finish_non_exhaustive()
    }
}

/// Numbers that are read.
pub(crate) struct DeviceRead(Arriving);

impl DeviceRead {
    /// Waits for the numbers.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn finish(self) -> Result<Vec<f32>, Error> {
        wait(self.0).map_err(|reason| Error::Device { reason })
    }
}

impl fmt::Debug for DeviceRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceRead").finish_non_exhaustive()
    }
}

/// Reads a tensor, once all that was ordered before is computed.
///
/// # Errors
/// [`Error::Device`].
pub(crate) fn read(tensor: Tensor<1>) -> Result<Vec<f32>, Error> {
    count_download(tensor.dims()[0] * size_of::<f32>());
    let read = tensor.try_into_vec_as::<f32>();
    read.map_err(|error| Error::Device {
        reason: error.to_string(),
    })
}

/// Waits for a future on this thread, which need not be one of a runtime.
fn wait<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
