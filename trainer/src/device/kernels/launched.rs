//! Tensors in the form that kernels take.

use burn::{
    backend::{BackendTypes, Cube},
    tensor::{DType, Device, Tensor},
};
use cubecl::{
    calculate_cube_count_elemwise,
    prelude::{CubeCount, CubeDim},
};

/// A tensor in the memory of a device.
pub(super) type CubeTensor = <Cube as BackendTypes>::FloatTensorPrimitive;

/// A contiguous tensor of f32 of a device that kernels run on; `None` for any other.
pub(super) fn of(tensor: &Tensor<1>) -> Option<CubeTensor> {
    let found = tensor.clone().try_into_primitive::<Cube>().ok()?;
    (found.dtype == DType::F32 && found.is_contiguous()).then_some(found)
}

/// An uninitialized tensor of such a device; `None` for the processor.
pub(super) fn empty(len: usize, device: &Device) -> Option<CubeTensor> {
    let tensor = Tensor::<1>::empty([len], (&device.clone().inner(), DType::F32));
    tensor.try_into_primitive::<Cube>().ok()
}

/// Tensor that a kernel has written.
pub(super) fn tensor(of: CubeTensor) -> Tensor<1> {
    Tensor::from_primitive::<Cube>(of)
}

/// Number of cubes, and the size of each, for a kernel of one thread for each of `count` numbers of the device of `of`.
pub(super) fn threads(of: &CubeTensor, count: usize) -> (CubeCount, CubeDim) {
    let dim = CubeDim::new(&of.client, count);
    let cubes = calculate_cube_count_elemwise(&of.client, count, dim);
    (cubes, dim)
}
