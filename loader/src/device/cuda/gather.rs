//! Gathering on a GPU.

use std::sync::Arc;

use cudarc::driver::CudaStream;

use super::{Cuda, CudaMemory, Kernels};
use crate::{
    Error,
    device::{ColumnLayout, Gather, Part},
};

impl Gather for Cuda {
    type Kernels = Kernels;

    fn load_kernels(&self) -> Result<Kernels, Error> {
        Kernels::load(self)
    }

    fn gather_rows(
        kernels: &Kernels,
        stream: &Arc<CudaStream>,
        window: &CudaMemory,
        column: &ColumnLayout,
        places: Part<'_, CudaMemory>,
        out: Part<'_, CudaMemory>,
    ) -> Result<(), Error> {
        kernels.gather_rows(stream, window, column, places, out)
    }

    fn gather_tokens(
        kernels: &Kernels,
        stream: &Arc<CudaStream>,
        window: &CudaMemory,
        column: &ColumnLayout,
        pieces: Part<'_, CudaMemory>,
        pad: u32,
        out: Part<'_, CudaMemory>,
    ) -> Result<(), Error> {
        kernels.gather_tokens(stream, window, column, pieces, pad, out)
    }
}
