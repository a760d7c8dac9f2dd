//! A batch as the trainer sees it.

use std::{fmt, sync::OnceLock};

use feedline_schemas::{loader_state::LoaderState, manifest::TargetKind};

use crate::{
    BatchKind,
    fill::Filled,
    kind::{DATA, POSITIONS, SEGMENTS, TARGET},
    ring::{Lease, Ring},
    slab::COLUMNS,
};

/// This rank's part of one global batch, in memory of the loader's that is used again once the batch is dropped.
///
/// A rank may have no rows of a batch that is smaller than the world; it gets the batch all the same, so that all
/// ranks count the same steps.
pub struct Batch {
    lease: Lease,
    kind: BatchKind,
    target: TargetKind,
    rows: usize,
    padding: usize,
    state: LoaderState,
    filled: Vec<Filled>,
    identities: OnceLock<Identities>,
}

/// Which records the rows are. Looked up when they are first asked for: most steps of a training do not ask.
struct Identities {
    keys: Vec<u64>,
    origins: Vec<u64>,
}

/// Targets of a batch, one per row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target<'a> {
    /// The dataset has no target.
    None,
    /// Scaled numbers, as the dataset's transform made them.
    Regression(&'a [f32]),
    /// Class ids, from 0 and below the layout's number of classes.
    Classification(&'a [i32]),
}

/// What [`Batch::new`] puts together.
pub(crate) struct BatchParts {
    pub(crate) lease: Lease,
    pub(crate) kind: BatchKind,
    pub(crate) target: TargetKind,
    pub(crate) rows: usize,
    pub(crate) padding: usize,
    pub(crate) state: LoaderState,
    pub(crate) filled: Vec<Filled>,
}

impl Batch {
    pub(crate) fn new(parts: BatchParts) -> Self {
        Self {
            lease: parts.lease,
            kind: parts.kind,
            target: parts.target,
            rows: parts.rows,
            padding: parts.padding,
            state: parts.state,
            filled: parts.filled,
            identities: OnceLock::new(),
        }
    }

    pub(crate) fn hand_out(&mut self, ring: &Ring) {
        ring.hand_out(&mut self.lease);
    }

    /// What the rows are.
    #[must_use]
    pub fn kind(&self) -> BatchKind {
        self.kind
    }

    /// Rows of this rank.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How many of the rows, at the end, only fill the batch up: copies of samples that an epoch has already given,
    /// because the last batch is to be as large as the others. Leave them out of sums over an epoch.
    #[must_use]
    pub fn padding(&self) -> usize {
        self.padding
    }

    /// Elements of `x` in a row; 0 for other kinds.
    #[must_use]
    pub fn features(&self) -> usize {
        match self.kind {
            BatchKind::Rows { features } => features,
            BatchKind::Pictures { .. } | BatchKind::Tokens { .. } => 0,
        }
    }

    /// Features, `[rows, features]` row-major; empty for other kinds.
    #[must_use]
    pub fn x(&self) -> &[f32] {
        match self.kind {
            BatchKind::Rows { .. } => bytemuck::cast_slice(self.column(DATA)),
            BatchKind::Pictures { .. } | BatchKind::Tokens { .. } => &[],
        }
    }

    /// Pixels, u8 RGB `[rows, height, width, 3]`; empty for other kinds.
    #[must_use]
    pub fn pixels(&self) -> &[u8] {
        match self.kind {
            BatchKind::Pictures { .. } => self.column(DATA),
            BatchKind::Rows { .. } | BatchKind::Tokens { .. } => &[],
        }
    }

    /// Token ids, `[rows, length]`; empty for other kinds. What a document leaves free holds the padding id.
    #[must_use]
    pub fn tokens(&self) -> &[u32] {
        match self.kind {
            BatchKind::Tokens { .. } => bytemuck::cast_slice(self.column(DATA)),
            BatchKind::Rows { .. } | BatchKind::Pictures { .. } => &[],
        }
    }

    /// For packed tokens, which document of its row each id belongs to, `[rows, length]`: from 1, and 0 for padding.
    /// Empty for other kinds.
    #[must_use]
    pub fn segments(&self) -> &[u32] {
        match self.kind {
            BatchKind::Tokens { packed: true, .. } => bytemuck::cast_slice(self.column(SEGMENTS)),
            _ => &[],
        }
    }

    /// For packed tokens, the position of each id in its document, `[rows, length]`, from 0; 0 for padding. Empty for
    /// other kinds.
    #[must_use]
    pub fn positions(&self) -> &[u32] {
        match self.kind {
            BatchKind::Tokens { packed: true, .. } => bytemuck::cast_slice(self.column(POSITIONS)),
            _ => &[],
        }
    }

    /// Targets, `[rows]`.
    #[must_use]
    pub fn y(&self) -> Target<'_> {
        match (self.kind, self.target) {
            (BatchKind::Tokens { .. }, _) | (_, TargetKind::None) => Target::None,
            (_, TargetKind::Regression) => {
                Target::Regression(bytemuck::cast_slice(self.column(TARGET)))
            }
            (_, TargetKind::Classification { .. }) => {
                Target::Classification(bytemuck::cast_slice(self.column(TARGET)))
            }
        }
    }

    /// First 8 bytes of each record's content hash, `[rows]`; of a row with several documents, that of its first.
    /// Looked up by the first call, which takes some 10 ns a row.
    #[must_use]
    pub fn keys(&self) -> &[u64] {
        &self.identities().keys
    }

    /// Where each record came from, `[rows]`; see [`feedline_schemas::ids::Origin`]. Otherwise as [`Batch::keys`].
    #[must_use]
    pub fn origins(&self) -> &[u64] {
        &self.identities().origins
    }

    /// The rows that hold another sample than the order says, because that one could not be used. `keys` and `origins`
    /// tell which.
    pub fn substituted(&self) -> impl Iterator<Item = usize> {
        self.filled.iter().flat_map(Filled::substituted)
    }

    /// The state from which [`Loader::epoch`](crate::Loader::epoch) goes on after this batch. The same on every rank.
    #[must_use]
    pub fn state(&self) -> &LoaderState {
        &self.state
    }

    /// Bytes of the batch's arrays.
    pub(crate) fn bytes(&self) -> usize {
        self.kind.row_bytes(self.target).iter().sum::<usize>() * self.rows
    }

    /// What the rows have as targets.
    pub(crate) fn target(&self) -> TargetKind {
        self.target
    }

    /// The arrays that are not empty, in the order of the slab's columns.
    pub(crate) fn arrays(&self) -> Vec<&[u8]> {
        let columns = (0..COLUMNS).map(|column| self.column(column));
        columns.filter(|array| !array.is_empty()).collect()
    }

    /// How many of the first of `part`, a part of an array, are page-locked, when any of the batch is.
    pub(crate) fn locked_prefix(&self, part: &[u8]) -> Option<usize> {
        self.lease.slab().locked_prefix(part)
    }

    fn column(&self, column: usize) -> &[u8] {
        let row_bytes = self.kind.row_bytes(self.target)[column];
        &self.lease.slab().column(column)[..self.rows * row_bytes]
    }

    fn identities(&self) -> &Identities {
        self.identities.get_or_init(|| {
            let mut keys = Vec::with_capacity(self.rows);
            let mut origins = Vec::with_capacity(self.rows);
            for filled in &self.filled {
                filled.append_identities(&mut keys, &mut origins);
            }
            Identities { keys, origins }
        })
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("kind", &self.kind)
            .field("rows", &self.rows)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
