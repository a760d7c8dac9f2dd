//! A batch in Python: views of the loader's own memory, which goes back to the loader when the last view is gone.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use feedline_loader::{BatchKind, Target};
use pyo3::{
    prelude::*,
    types::{PyDict, PyTuple},
};

/// A batch and its columns.
#[pyclass(frozen, module = "feedline._feedline")]
pub(crate) struct Batch {
    memory: Arc<Memory>,
    names: Vec<&'static str>,
    state: String,
    padding: usize,
    substituted: Vec<usize>,
}

/// One column of a batch, readable by everything that knows numpy's array interface.
///
/// A numpy array made from it keeps this object, which keeps the memory.
#[pyclass(frozen, module = "feedline._feedline")]
pub(crate) struct Column {
    _memory: Arc<Memory>,
    region: Region,
}

/// Memory of the columns of a batch; never moved while this lives.
enum Memory {
    /// In a slab of the ring, which the batch gives back when it is dropped.
    Ring {
        batch: Box<feedline_loader::Batch>,
        _place: Place,
    },
    /// In memory of their own.
    Copy { rows: usize, columns: Vec<Copied> },
}

struct Copied {
    name: &'static str,
    typestr: &'static str,
    shape: Vec<usize>,
    /// Whole words, so that every type is aligned.
    words: Vec<u64>,
}

/// An address with numpy's name of the element type.
struct Region {
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

impl Memory {
    fn region(&self, name: &str) -> Option<Region> {
        match self {
            Self::Ring { batch, .. } => column(batch, name).map(|c| Region {
                typestr: c.typestr,
                shape: c.shape,
                address: c.bytes.as_ptr().expose_provenance(),
            }),
            Self::Copy { columns, .. } => columns.iter().find(|c| c.name == name).map(|c| Region {
                typestr: c.typestr,
                shape: c.shape.clone(),
                address: c.words.as_ptr().expose_provenance(),
            }),
        }
    }
}

impl Batch {
    /// The batch in the ring's own memory.
    pub(crate) fn in_place(batch: feedline_loader::Batch, place: Place) -> Self {
        Self {
            names: names(&batch),
            state: crate::loader::json(batch.state()),
            padding: batch.padding(),
            substituted: batch.substituted().collect(),
            memory: Arc::new(Memory::Ring {
                batch: Box::new(batch),
                _place: place,
            }),
        }
    }

    /// The batch in memory of its own; the ring gets its back at once.
    pub(crate) fn copied(batch: &feedline_loader::Batch) -> Self {
        let names = names(batch);
        let copy = |name: &&'static str| {
            let column = column(batch, name)?;
            let mut words = vec![0u64; column.bytes.len().div_ceil(8)];
            bytemuck::cast_slice_mut(&mut words)[..column.bytes.len()]
                .copy_from_slice(column.bytes);
            Some(Copied {
                name,
                typestr: column.typestr,
                shape: column.shape,
                words,
            })
        };
        Self {
            memory: Arc::new(Memory::Copy {
                rows: batch.rows(),
                columns: names.iter().filter_map(copy).collect(),
            }),
            names,
            state: crate::loader::json(batch.state()),
            padding: batch.padding(),
            substituted: batch.substituted().collect(),
        }
    }
}

#[pymethods]
impl Batch {
    /// Names of the columns.
    fn names(&self) -> Vec<&'static str> {
        self.names.clone()
    }

    /// The column `name`, or `None`.
    fn column(&self, name: &str) -> Option<Column> {
        let region = self.memory.region(name)?;
        Some(Column {
            _memory: Arc::clone(&self.memory),
            region,
        })
    }

    /// Samples of this rank.
    #[getter]
    fn rows(&self) -> usize {
        match &*self.memory {
            Memory::Ring { batch, .. } => batch.rows(),
            Memory::Copy { rows, .. } => *rows,
        }
    }

    /// Returns true if the columns are copies and not the loader's own memory.
    #[getter]
    fn is_copy(&self) -> bool {
        matches!(*self.memory, Memory::Copy { .. })
    }

    /// Number of padding samples at the end.
    #[getter]
    fn padding(&self) -> usize {
        self.padding
    }

    /// Samples that replace others that could not be used.
    #[getter]
    fn substituted(&self) -> Vec<usize> {
        self.substituted.clone()
    }

    /// The loader's state after this batch, as JSON.
    #[getter]
    fn state(&self) -> &str {
        &self.state
    }
}

#[pymethods]
impl Column {
    /// Version 3 of numpy's array interface: address, type and shape, C-contiguous and writable. Nothing in Rust reads
    /// or writes the memory while Python holds it.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", self.region.typestr)?;
        interface.set_item("shape", PyTuple::new(py, &self.region.shape)?)?;
        interface.set_item("data", (self.region.address, false))?;
        Ok(interface)
    }
}

/// The columns of a batch, in the order a person would want them.
fn names(batch: &feedline_loader::Batch) -> Vec<&'static str> {
    let mut names = match batch.kind() {
        BatchKind::Rows { .. } => vec!["x"],
        BatchKind::Images { .. } => vec!["image"],
        BatchKind::Tokens { packed: false, .. } => vec!["tokens"],
        BatchKind::Tokens { packed: true, .. } => vec!["tokens", "segments", "positions"],
        BatchKind::Multi {
            features,
            height,
            length,
            ..
        } => {
            let there = [
                ("x", features > 0),
                ("image", height > 0),
                ("tokens", length > 0),
                ("lengths", length > 0),
            ];
            let there = there.into_iter().filter(|(_, there)| *there);
            there.map(|(name, _)| name).collect()
        }
    };
    if batch.y() != Target::None {
        names.push("y");
    }
    if batch.y_partner() != Target::None {
        names.push("y_partner");
    }
    if !batch.lambda().is_empty() {
        names.push("lam");
    }
    names.extend(["key", "origin"]);
    names
}

/// A column's place in the batch.
struct View<'a> {
    typestr: &'static str,
    shape: Vec<usize>,
    bytes: &'a [u8],
}

/// Type and bytes of targets, if there are any; of several, `shape` gets their number.
fn target<'a>(target: Target<'a>, shape: &mut Vec<usize>) -> Option<(&'static str, &'a [u8])> {
    match target {
        Target::None => None,
        Target::Regressions { y, targets } => {
            shape.push(targets);
            Some(("<f4", bytemuck::cast_slice(y)))
        }
        Target::Regression(y) => Some(("<f4", bytemuck::cast_slice(y))),
        Target::Classification(y) => Some(("<i4", bytemuck::cast_slice(y))),
    }
}

fn column<'a>(batch: &'a feedline_loader::Batch, name: &str) -> Option<View<'a>> {
    let rows = batch.rows();
    let mut shape = vec![rows];
    let (typestr, bytes) = match (name, batch.kind()) {
        ("x", BatchKind::Rows { features } | BatchKind::Multi { features, .. }) => {
            shape.push(features);
            ("<f4", bytemuck::cast_slice(batch.x()))
        }
        ("image", BatchKind::Images { height, width } | BatchKind::Multi { height, width, .. }) => {
            shape.extend([height, width, 3]);
            ("|u1", batch.pixels())
        }
        ("tokens" | "segments" | "positions", BatchKind::Tokens { length, .. }) => {
            shape.push(length);
            let ids = match name {
                "tokens" => batch.tokens(),
                "segments" => batch.segments(),
                _ => batch.positions(),
            };
            ("<u4", bytemuck::cast_slice(ids))
        }
        ("tokens", BatchKind::Multi { length, .. }) => {
            shape.push(length);
            ("<u4", bytemuck::cast_slice(batch.tokens()))
        }
        ("lengths", BatchKind::Multi { .. }) => ("<u4", bytemuck::cast_slice(batch.lengths())),
        ("y", _) => target(batch.y(), &mut shape)?,
        ("y_partner", _) => target(batch.y_partner(), &mut shape)?,
        ("lam", BatchKind::Images { .. }) => ("<f4", bytemuck::cast_slice(batch.lambda())),
        ("key", _) => ("<u8", bytemuck::cast_slice(batch.keys())),
        ("origin", _) => ("<u8", bytemuck::cast_slice(batch.origins())),
        _ => return None,
    };
    Some(View {
        typestr,
        shape,
        bytes,
    })
}
