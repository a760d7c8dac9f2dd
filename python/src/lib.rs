//! The compiled half of the Python package `feedline`: opens a loader, hands out its batches and the memory of their
//! columns. What a Python user sees is in `package/feedline`; this module decides nothing it could leave to that.

mod batch;
mod errors;
mod loader;
mod settings;
mod waiting;

use pyo3::prelude::*;

/// The loader of feedline, compiled.
#[pymodule]
mod _feedline {
    #[pymodule_export]
    use crate::batch::{Batch, Column};
    #[pymodule_export]
    use crate::loader::{Batches, Loader};
}
