//! The memory of one batch.

use feedline_schemas::manifest::TargetKind;

/// Where batches lie. Page-locked memory becomes a second kind here; whoever fills or reads a slab sees slices only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum HostMemory {
    /// Ordinary pageable memory.
    #[default]
    Plain,
}

impl HostMemory {
    /// Allocates and clears room for `count` values.
    fn allocate<T: Copy + Default>(self, count: usize) -> HostBuffer<T> {
        match self {
            Self::Plain => HostBuffer::Plain(vec![T::default(); count].into_boxed_slice()),
        }
    }
}

/// A fixed number of values in [`HostMemory`].
#[derive(Debug)]
pub(crate) enum HostBuffer<T> {
    Plain(Box<[T]>),
}

impl<T> HostBuffer<T> {
    pub(crate) fn as_slice(&self) -> &[T] {
        match self {
            Self::Plain(values) => values,
        }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        match self {
            Self::Plain(values) => values,
        }
    }
}

/// What the slabs of a ring have room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlabShape {
    /// Most rows.
    pub(crate) rows: usize,
    /// Elements of `x` in a row.
    pub(crate) features: usize,
    /// Type of `y`.
    pub(crate) target: TargetKind,
}

impl SlabShape {
    /// Bytes that a row takes.
    pub(crate) fn row_bytes(self) -> u64 {
        let target = if matches!(self.target, TargetKind::None) {
            0
        } else {
            4
        };
        4 * self.features as u64 + target + 16
    }
}

/// The memory of one batch, allocated once and filled again and again.
#[derive(Debug)]
pub(crate) struct Slab {
    /// `[rows, features]`, row-major.
    pub(crate) x: HostBuffer<f32>,
    /// `[rows]`.
    pub(crate) y: SlabTarget,
    /// `[rows]`.
    pub(crate) keys: HostBuffer<u64>,
    /// `[rows]`.
    pub(crate) origins: HostBuffer<u64>,
}

/// The target part of a [`Slab`].
#[derive(Debug)]
pub(crate) enum SlabTarget {
    None,
    Regression(HostBuffer<f32>),
    Classification(HostBuffer<i32>),
}

impl Slab {
    /// Allocates a slab.
    pub(crate) fn new(memory: HostMemory, shape: SlabShape) -> Self {
        let y = match shape.target {
            TargetKind::None => SlabTarget::None,
            TargetKind::Regression => SlabTarget::Regression(memory.allocate(shape.rows)),
            TargetKind::Classification { .. } => {
                SlabTarget::Classification(memory.allocate(shape.rows))
            }
        };
        Self {
            x: memory.allocate(shape.rows * shape.features),
            y,
            keys: memory.allocate(shape.rows),
            origins: memory.allocate(shape.rows),
        }
    }
}
