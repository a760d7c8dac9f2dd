//! Bytes between host memory and a device.
//!
//! Every tensor of numbers of the host is made by [`Upload`], and every number that comes back is counted where it is read, so
//! that a run knows what crosses the bus. A thread counts its own: that of a run orders all of a device's work.

use std::cell::Cell;

use burn::tensor::{Tensor, TensorCreationOptions, TensorData, kind::Basic};

/// Bytes that crossed the bus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BusBytes {
    /// To the device.
    pub(crate) uploaded: u64,
    /// To host memory.
    pub(crate) downloaded: u64,
}

thread_local! {
    static COUNTED: Cell<BusBytes> = const {
        Cell::new(BusBytes { uploaded: 0, downloaded: 0 })
    };
}

/// Bytes of this thread since the last call.
pub(crate) fn take_bus_bytes() -> BusBytes {
    COUNTED.take()
}

/// Counts bytes that crossed the bus on another thread.
pub(crate) fn add_bus_bytes(bytes: BusBytes) {
    let mut counted = COUNTED.get();
    counted.uploaded += bytes.uploaded;
    counted.downloaded += bytes.downloaded;
    COUNTED.set(counted);
}

/// Counts numbers that were read from a device.
pub(crate) fn count_download(bytes: usize) {
    let mut counted = COUNTED.get();
    counted.downloaded += bytes as u64;
    COUNTED.set(counted);
}

/// Tensors of numbers of the host.
pub(crate) trait Upload {
    /// The tensor of these numbers on a device, in a type of their kind.
    fn upload(data: TensorData, to: impl Into<TensorCreationOptions>) -> Self;
}

impl<const D: usize, K: Basic> Upload for Tensor<D, K> {
    fn upload(data: TensorData, to: impl Into<TensorCreationOptions>) -> Self {
        let mut counted = COUNTED.get();
        counted.uploaded += data.as_bytes().len() as u64;
        COUNTED.set(counted);
        Self::from_data(data, to)
    }
}

/// The numbers of a tensor, in host memory.
pub(crate) fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    count_download(tensor.shape().num_elements() * size_of::<f32>());
    tensor
        .into_data()
        .try_into_vec()
        .expect("tensors here are f32")
}
