//! A batch as the trainer sees it.

use std::fmt;

use feedline_schemas::loader_state::LoaderState;

use crate::{
    ring::{Lease, Ring},
    slab::SlabTarget,
};

/// This rank's part of one global batch, in memory of the loader's that is used again once the batch is dropped.
///
/// A rank may have no rows of a batch that is smaller than the world; it gets the batch all the same, so that all
/// ranks count the same steps.
pub struct Batch {
    lease: Lease,
    rows: usize,
    features: usize,
    state: LoaderState,
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

impl Batch {
    pub(crate) fn new(lease: Lease, rows: usize, features: usize, state: LoaderState) -> Self {
        Self {
            lease,
            rows,
            features,
            state,
        }
    }

    pub(crate) fn hand_out(&mut self, ring: &Ring) {
        ring.hand_out(&mut self.lease);
    }

    /// Rows of this rank.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Elements of `x` in a row.
    #[must_use]
    pub fn features(&self) -> usize {
        self.features
    }

    /// Features, `[rows, features]` row-major.
    #[must_use]
    pub fn x(&self) -> &[f32] {
        &self.lease.slab().x.as_slice()[..self.rows * self.features]
    }

    /// Targets, `[rows]`.
    #[must_use]
    pub fn y(&self) -> Target<'_> {
        match &self.lease.slab().y {
            SlabTarget::None => Target::None,
            SlabTarget::Regression(y) => Target::Regression(&y.as_slice()[..self.rows]),
            SlabTarget::Classification(y) => Target::Classification(&y.as_slice()[..self.rows]),
        }
    }

    /// First 8 bytes of each record's content hash, `[rows]`.
    #[must_use]
    pub fn keys(&self) -> &[u64] {
        &self.lease.slab().keys.as_slice()[..self.rows]
    }

    /// Where each record came from, `[rows]`; see [`feedline_schemas::ids::Origin`].
    #[must_use]
    pub fn origins(&self) -> &[u64] {
        &self.lease.slab().origins.as_slice()[..self.rows]
    }

    /// The state from which [`Loader::epoch`](crate::Loader::epoch) goes on after this batch. The same on every rank.
    #[must_use]
    pub fn state(&self) -> &LoaderState {
        &self.state
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("rows", &self.rows)
            .field("features", &self.features)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
