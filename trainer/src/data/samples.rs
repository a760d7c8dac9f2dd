//! Interface of training to its data: the loader in a run, vectors in tests.

use std::ops::Range;

use feedline_schemas::{loader_state::LoaderState, manifest::Split, report::MixedSource};

use crate::{
    error::Error,
    model::input::{UploadedBatch, UploadedRows},
};

/// Some rows, borrowed from whoever loaded them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Samples<'a> {
    /// Rows.
    count: usize,
    /// Rows of the global batch before these.
    first_row: usize,
    /// Rows of the global batch.
    global_rows: usize,
    /// Inputs of a model.
    pub(crate) inputs: ModelInputs<'a>,
    /// Targets of each row.
    pub(crate) targets: Targets<'a>,
    /// The other targets of rows that are mixed of two samples.
    pub(crate) mixed: Option<MixedTargets<'a>>,
    /// The same numbers on a device, where they are there already.
    pub(crate) uploaded: Option<UploadedRows<'a>>,
}

/// Targets of the samples that rows are mixed with: the loss of a row is `lambda` times that of its own target and
/// `1 - lambda` times that of its partner's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MixedTargets<'a> {
    /// Share of each row's own target, 0 to 1.
    pub(crate) lambda: &'a [f32],
    /// Targets of the partners; a row that is not mixed has its own.
    pub(crate) partners: Targets<'a>,
}

/// Inputs of a model; a part that the samples do not have is empty.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ModelInputs<'a> {
    /// Numbers, `[rows, features]`, row-major.
    pub(crate) x: &'a [f32],
    /// Elements of a row of `x`.
    pub(crate) features: usize,
    /// RGB pixels, `[rows, height, width, 3]`.
    pub(crate) pixels: &'a [u8],
    /// Height and width of an image.
    pub(crate) sides: [usize; 2],
    /// Token ids, `[rows, length]`: one more than a model reads, unless there are `lengths`.
    pub(crate) tokens: &'a [u32],
    /// Ids of each row that are its text's, `[rows]`; the others are padding. None where the ids are to be predicted.
    pub(crate) lengths: Option<&'a [u32]>,
    /// The document of its row that each id belongs to, from 1, and 0 for padding; empty where a row is one document
    /// without padding.
    pub(crate) segments: &'a [u32],
    /// Position of each id in its document; empty as `segments`.
    pub(crate) positions: &'a [u32],
    /// Ids in a row.
    pub(crate) length: usize,
    /// True where the documents of a row are one stream: a position sees all before it, and the first id of a document is
    /// predicted as well.
    pub(crate) is_stream: bool,
}

/// Targets of some rows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Targets<'a> {
    /// The samples have none besides themselves.
    None,
    /// Stored (scaled) numbers.
    Numbers(&'a [f32]),
    /// Several stored numbers of each row, `[rows, width]`, row-major.
    Vectors { y: &'a [f32], width: usize },
    /// Class ids from 0.
    Classes(&'a [i32]),
}

impl Targets<'_> {
    /// Rows, as far as there are targets.
    pub(crate) const fn len(self) -> usize {
        match self {
            Self::None => 0,
            Self::Numbers(y) => y.len(),
            Self::Vectors { y, width } => y.len() / width,
            Self::Classes(y) => y.len(),
        }
    }

    /// The targets of some of the rows.
    pub(crate) fn slice(self, rows: Range<usize>) -> Self {
        match self {
            Self::None => Self::None,
            Self::Numbers(y) => Self::Numbers(&y[rows]),
            Self::Vectors { y, width } => Self::Vectors {
                y: &y[rows.start * width..rows.end * width],
                width,
            },
            Self::Classes(y) => Self::Classes(&y[rows]),
        }
    }
}

impl<'a> Samples<'a> {
    /// `count` samples, a batch of their own.
    pub(crate) const fn new(count: usize, inputs: ModelInputs<'a>, targets: Targets<'a>) -> Self {
        Self {
            count,
            first_row: 0,
            global_rows: count,
            inputs,
            targets,
            mixed: None,
            uploaded: None,
        }
    }

    /// The same samples, whose numbers are on a device too.
    pub(crate) const fn with_upload(self, uploaded: &'a UploadedBatch) -> Self {
        Self {
            uploaded: Some(UploadedRows::all(uploaded)),
            ..self
        }
    }

    /// The same samples as mixtures: `lambda` of each row's own, and the rest of a partner with such a target. Without any
    /// `lambda` they are not mixed.
    pub(crate) fn mixed_with(self, lambda: &'a [f32], partners: Targets<'a>) -> Self {
        let mixed = (!lambda.is_empty()).then_some(MixedTargets { lambda, partners });
        Self { mixed, ..self }
    }

    /// Rows of numbers, one per target.
    #[cfg(test)]
    pub(crate) fn of_rows(x: &'a [f32], features: usize, targets: Targets<'a>) -> Self {
        let inputs = ModelInputs {
            x,
            features,
            ..ModelInputs::default()
        };
        Self::new(targets.len(), inputs, targets)
    }

    /// The same samples as those from `first_row` on of a global batch of `global_rows`.
    pub(crate) const fn within(self, first_row: usize, global_rows: usize) -> Self {
        Self {
            first_row,
            global_rows,
            ..self
        }
    }

    /// Rows.
    pub(crate) const fn rows(self) -> usize {
        self.count
    }

    /// Rows of the global batch before these.
    pub(crate) const fn first_row(self) -> usize {
        self.first_row
    }

    /// Rows of the global batch.
    pub(crate) const fn global_rows(self) -> usize {
        self.global_rows
    }

    /// Some of the rows.
    pub(crate) fn slice(self, rows: Range<usize>) -> Self {
        let ModelInputs {
            features,
            sides,
            length,
            ..
        } = self.inputs;
        let pixels = 3 * sides[0] * sides[1];
        let inputs = ModelInputs {
            x: part(self.inputs.x, &rows, features),
            pixels: part(self.inputs.pixels, &rows, pixels),
            tokens: part(self.inputs.tokens, &rows, length),
            lengths: self.inputs.lengths.map(|all| part(all, &rows, 1)),
            segments: part(self.inputs.segments, &rows, length),
            positions: part(self.inputs.positions, &rows, length),
            ..self.inputs
        };
        Self {
            count: rows.len(),
            first_row: self.first_row + rows.start,
            global_rows: self.global_rows,
            inputs,
            mixed: self.mixed.map(|mixed| MixedTargets {
                lambda: &mixed.lambda[rows.clone()],
                partners: mixed.partners.slice(rows.clone()),
            }),
            uploaded: self.uploaded.map(|uploaded| uploaded.from(rows.start)),
            targets: self.targets.slice(rows),
        }
    }
}

/// The elements of some rows; none if there are none at all.
fn part<'a, T>(values: &'a [T], rows: &Range<usize>, width: usize) -> &'a [T] {
    values
        .get(rows.start * width..rows.end * width)
        .unwrap_or_default()
}

/// This rank's share of a global batch.
pub(crate) trait RankBatch {
    /// Its rows, which know their place in the global batch.
    fn samples(&self) -> Samples<'_>;
    /// Their keys.
    fn keys(&self) -> &[u64];
    /// Their origins, packed [`Origin`](feedline_schemas::ids::Origin)s.
    fn origins(&self) -> &[u64];
    /// Rows, in order, that hold another sample than the order names, because that one cannot be used.
    fn substituted(&self) -> Vec<usize> {
        Vec::new()
    }
    /// State to resume from after it.
    fn state(&self) -> &LoaderState;
    /// Returns true if some bytes of its samples are in page-locked memory, which a device copies from directly.
    fn is_page_locked(&self, _bytes: &[u8]) -> bool {
        false
    }
}

/// Batches in order.
pub(crate) type Batches<'a, B> = Box<dyn Iterator<Item = Result<B, Error>> + Send + 'a>;

/// The splits of a dataset.
pub(crate) trait Data {
    /// A batch.
    type Batch: RankBatch + Send + Sync + 'static;
    /// The state before the first batch of epoch 0 of the training split.
    fn start(&self) -> LoaderState;
    /// Batches of one epoch of the training split.
    fn batches_per_epoch(&self) -> u64;
    /// The batches of the training split that are left of the epoch that `from` is in.
    fn epoch(&self, from: LoaderState) -> Result<Batches<'_, Self::Batch>, Error>;
    /// Begins to load the batches of [`Data::epoch`] from `from`, so that the first ones are ready in time.
    fn prepare_from(&self, _from: &LoaderState) -> Result<(), Error> {
        Ok(())
    }
    /// Begins the epoch after `last`, the state of the last batch of one, so that its first batches are ready in time.
    fn prepare_epoch(&self, _last: &LoaderState) -> Result<(), Error> {
        Ok(())
    }
    /// The same for [`Data::sequential`].
    fn prepare_sequential(&self, _split: Split) -> Result<(), Error> {
        Ok(())
    }
    /// All rows of `split` once, in stored order.
    fn sequential(&self, split: Split) -> Result<Batches<'_, Self::Batch>, Error>;
    /// Samples of the opened splits that were found to be unusable, on this rank and so far.
    fn quarantined(&self) -> u64 {
        0
    }
    /// Samples that each dataset of a mixture gave to training before `state`; empty for one dataset.
    fn given(&self, _state: &LoaderState) -> Vec<MixedSource> {
        Vec::new()
    }
}
