//! What training needs of its data: the loader in a run, vectors in tests.

use feedline_schemas::{loader_state::LoaderState, manifest::Split};

use crate::error::Error;

/// Some rows, borrowed from whoever loaded them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Samples<'a> {
    /// Features, `[rows, features]`, row-major.
    pub(crate) x: &'a [f32],
    /// Elements of a row, at least 1.
    pub(crate) features: usize,
    /// Targets, one per row.
    pub(crate) targets: Targets<'a>,
}

/// Targets of some rows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Targets<'a> {
    /// Stored (scaled) numbers.
    Numbers(&'a [f32]),
    /// Class ids from 0.
    Classes(&'a [i32]),
}

impl Targets<'_> {
    /// Rows.
    pub(crate) const fn len(self) -> usize {
        match self {
            Self::Numbers(y) => y.len(),
            Self::Classes(y) => y.len(),
        }
    }

    /// The targets of some of the rows.
    pub(crate) fn slice(self, rows: std::ops::Range<usize>) -> Self {
        match self {
            Self::Numbers(y) => Self::Numbers(&y[rows]),
            Self::Classes(y) => Self::Classes(&y[rows]),
        }
    }
}

impl Samples<'_> {
    /// Rows.
    pub(crate) const fn rows(self) -> usize {
        self.targets.len()
    }

    /// Some of the rows.
    pub(crate) fn slice(self, rows: std::ops::Range<usize>) -> Self {
        let x = &self.x[rows.start * self.features..rows.end * self.features];
        Self {
            x,
            features: self.features,
            targets: self.targets.slice(rows),
        }
    }
}

/// One batch.
pub(crate) trait Batch {
    /// Its rows.
    fn samples(&self) -> Samples<'_>;
    /// Their keys.
    fn keys(&self) -> &[u64];
    /// Where to go on after it.
    fn state(&self) -> &LoaderState;
}

/// Batches in order.
pub(crate) type Batches<'a, B> = Box<dyn Iterator<Item = Result<B, Error>> + 'a>;

/// The splits of a dataset.
pub(crate) trait Data {
    /// A batch.
    type Batch: Batch;
    /// The state before the first batch of epoch 0 of the training split.
    fn start(&self) -> LoaderState;
    /// Batches of one epoch of the training split.
    fn batches_per_epoch(&self) -> u64;
    /// The batches of the training split that are left of the epoch that `from` is in.
    fn epoch(&self, from: LoaderState) -> Result<Batches<'_, Self::Batch>, Error>;
    /// All rows of `split` once, in stored order.
    fn sequential(&self, split: Split) -> Result<Batches<'_, Self::Batch>, Error>;
}
