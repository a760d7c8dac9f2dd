//! A batch in Python: views of the loader's own memory, which goes back to the loader when the last view is gone.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use feedline_loader::Target;
use pyo3::{prelude::*, types::PyDict};

/// A batch and its columns.
#[pyclass(frozen, module = "feedline._feedline")]
pub(crate) struct Batch {
    memory: Arc<Memory>,
    state: String,
}

/// One column of a batch, readable by everything that knows numpy's array interface.
///
/// A numpy array made from it keeps this object, which keeps the memory.
#[pyclass(frozen, module = "feedline._feedline")]
pub(crate) struct Column {
    memory: Arc<Memory>,
    index: usize,
}

/// The memory of a batch's columns, never moved while this lives.
struct Memory {
    rows: usize,
    columns: Vec<Region>,
    /// Keeps the regions alive; after it the place among the held ones is given back.
    _owner: Owner,
    _place: Option<Place>,
}

#[expect(dead_code, reason = "held for their memory only")]
enum Owner {
    Ring(feedline_loader::Batch),
    Copy(Vec<Vec<u64>>),
}

/// Where a column lies: an address with numpy's name of the element type.
struct Region {
    name: &'static str,
    typestr: &'static str,
    shape: Vec<usize>,
    address: usize,
}

/// Counts the batches of a loader's ring that Python holds.
pub(crate) struct Place(Arc<AtomicUsize>);

impl Place {
    /// Takes one of `most` places, if one is free.
    pub(crate) fn take(held: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        held.fetch_update(SeqCst, SeqCst, |held| (held < most).then_some(held + 1))
            .ok()
            .map(|_| Self(Arc::clone(held)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Batch {
    /// The batch in the ring's own memory.
    pub(crate) fn in_place(batch: feedline_loader::Batch, place: Place) -> Self {
        let state = state_of(&batch);
        let memory = Memory {
            rows: batch.rows(),
            columns: views(&batch).map(|view| view.region(view.bytes)).collect(),
            _owner: Owner::Ring(batch),
            _place: Some(place),
        };
        Self {
            memory: Arc::new(memory),
            state,
        }
    }

    /// The batch in memory of its own; the ring gets its back at once.
    pub(crate) fn copied(batch: &feedline_loader::Batch) -> Self {
        let mut columns = Vec::new();
        let mut copies = Vec::new();
        for view in views(batch) {
            let mut copy = vec![0u64; view.bytes.len().div_ceil(8)];
            let bytes = &mut bytemuck::cast_slice_mut(&mut copy)[..view.bytes.len()];
            bytes.copy_from_slice(view.bytes);
            columns.push(view.region(bytes));
            copies.push(copy);
        }
        let memory = Memory {
            rows: batch.rows(),
            columns,
            _owner: Owner::Copy(copies),
            _place: None,
        };
        Self {
            memory: Arc::new(memory),
            state: state_of(batch),
        }
    }
}

#[pymethods]
impl Batch {
    /// Names of the columns.
    fn names(&self) -> Vec<&'static str> {
        self.memory.columns.iter().map(|c| c.name).collect()
    }

    /// The column `name`, or `None`.
    fn column(&self, name: &str) -> Option<Column> {
        let index = self.memory.columns.iter().position(|c| c.name == name)?;
        Some(Column {
            memory: Arc::clone(&self.memory),
            index,
        })
    }

    /// Samples of this rank.
    #[getter]
    fn rows(&self) -> usize {
        self.memory.rows
    }

    /// Whether the columns are copies and not the loader's own memory.
    #[getter]
    fn is_copy(&self) -> bool {
        matches!(self.memory._owner, Owner::Copy(_))
    }

    /// The loader's state after this batch, as JSON.
    #[getter]
    fn state(&self) -> &str {
        &self.state
    }
}

#[pymethods]
impl Column {
    /// Version 3 of numpy's array interface: address, type and shape, C-contiguous and writable.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let region = &self.memory.columns[self.index];
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", region.typestr)?;
        interface.set_item("shape", pyo3::types::PyTuple::new(py, &region.shape)?)?;
        interface.set_item("data", (region.address, false))?;
        Ok(interface)
    }
}

struct View<'a> {
    name: &'static str,
    typestr: &'static str,
    shape: Vec<usize>,
    bytes: &'a [u8],
}

impl View<'_> {
    fn region(&self, bytes: &[u8]) -> Region {
        Region {
            name: self.name,
            typestr: self.typestr,
            shape: self.shape.clone(),
            address: bytes.as_ptr().expose_provenance(),
        }
    }
}

fn views(batch: &feedline_loader::Batch) -> impl Iterator<Item = View<'_>> {
    let rows = batch.rows();
    let view = |name, typestr, shape, bytes| View {
        name,
        typestr,
        shape,
        bytes,
    };
    let x = view(
        "x",
        "<f4",
        vec![rows, batch.features()],
        bytemuck::cast_slice(batch.x()),
    );
    let y = match batch.y() {
        Target::None => None,
        Target::Regression(y) => Some(view("y", "<f4", vec![rows], bytemuck::cast_slice(y))),
        Target::Classification(y) => Some(view("y", "<i4", vec![rows], bytemuck::cast_slice(y))),
    };
    let key = view("key", "<u8", vec![rows], bytemuck::cast_slice(batch.keys()));
    let origin = view(
        "origin",
        "<u8",
        vec![rows],
        bytemuck::cast_slice(batch.origins()),
    );
    [Some(x), y, Some(key), Some(origin)].into_iter().flatten()
}

fn state_of(batch: &feedline_loader::Batch) -> String {
    crate::loader::json(batch.state())
}
