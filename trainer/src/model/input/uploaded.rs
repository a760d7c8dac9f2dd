//! Batches whose numbers are on a device: they cross the bus once, as they are in host memory.

use std::sync::Arc;

use burn::tensor::{AllocationProperty, Bytes, DType, Device, Int, Tensor, TensorData};

use super::positions::in_pieces;
use crate::{
    data::samples::{RankBatch, Samples, Targets},
    device::Upload as _,
};

/// Selects the bytes of a column of some rows.
type Column = for<'s> fn(Samples<'s>) -> &'s [u8];

/// Source of the bytes of a batch's columns.
pub(crate) trait ColumnBytes {
    /// The bytes of a column.
    fn bytes(&self, column: Column) -> Bytes;
}

/// Copies of columns.
impl ColumnBytes for Samples<'_> {
    fn bytes(&self, column: Column) -> Bytes {
        Bytes::from_bytes_vec(column(*self).to_vec())
    }
}

/// The columns of a batch where they are: the copy to the device reads the loader's memory, and the batch is kept until it
/// has ended.
#[derive(Debug)]
pub(crate) struct LentColumns<'b, B>(pub(crate) &'b Arc<B>);

impl<B: RankBatch + Send + Sync + 'static> ColumnBytes for LentColumns<'_, B> {
    fn bytes(&self, column: Column) -> Bytes {
        let property = if self.0.is_page_locked(column(self.0.samples())) {
            AllocationProperty::Pinned
        } else {
            AllocationProperty::Native
        };
        let lent = LentColumn {
            batch: Arc::clone(self.0),
            column,
        };
        Bytes::from_shared(bytes::Bytes::from_owner(lent), property)
    }
}

/// One of them.
struct LentColumn<B> {
    batch: Arc<B>,
    column: Column,
}

impl<B: RankBatch> AsRef<[u8]> for LentColumn<B> {
    fn as_ref(&self) -> &[u8] {
        (self.column)(self.batch.samples())
    }
}

/// Columns of some rows on a device that is not the processor; `None` where the rows do not have one.
#[derive(Debug, Default)]
pub(crate) struct UploadedBatch {
    /// Numbers, `[rows, features]`.
    pub(super) x: Option<Tensor<2>>,
    /// Pixels, four bytes in a word, as not every device knows bytes. The last word may have less.
    pub(super) words: Option<Tensor<1, Int>>,
    /// Token ids, `[rows, length]`.
    pub(super) tokens: Option<Tensor<2, Int>>,
    /// Number of the document of each id, `[rows, length]`.
    pub(super) segments: Option<Tensor<2, Int>>,
    /// Position of each id in its piece, `[rows, length]`, where a row has several.
    pub(super) positions: Option<Tensor<2, Int>>,
    /// Of whole texts: number of ids, and what each of them counts in the mean of its row, both `[rows, 1]`.
    pub(super) texts: Option<(Tensor<2, Int>, Tensor<2>)>,
    /// Targets.
    targets: Option<TargetTensor>,
    /// Share of each row's own target, `[rows]`, and the other targets.
    mixed: Option<(Tensor<1>, TargetTensor)>,
}

/// Targets of some rows on the device of a model's outputs.
#[derive(Clone, Debug)]
pub(crate) enum TargetTensor {
    /// Stored numbers, `[rows, targets]`.
    Numbers(Tensor<2>),
    /// Class ids, `[rows, 1]`.
    Classes(Tensor<2, Int>),
}

/// Some rows of an uploaded batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UploadedRows<'a> {
    /// The batch.
    pub(super) batch: &'a UploadedBatch,
    /// The first of them.
    pub(super) first: usize,
}

impl<'a> UploadedRows<'a> {
    /// All rows of a batch.
    pub(crate) const fn all(batch: &'a UploadedBatch) -> Self {
        Self { batch, first: 0 }
    }

    /// The rows from number `first` of these on.
    pub(crate) const fn from(self, first: usize) -> Self {
        Self {
            first: self.first + first,
            ..self
        }
    }

    /// The targets of `rows` of them, and of mixed rows their share and the other targets, beside outputs of `device`.
    pub(crate) fn targets(self, rows: usize, device: &Device) -> Option<RowTargets> {
        let tracks = device.is_autodiff();
        let of = |targets: &TargetTensor| targets.part(self.first, rows, tracks);
        Some(RowTargets {
            own: of(self.batch.targets.as_ref()?),
            mixed: self.batch.mixed.as_ref().map(|(lambda, partners)| {
                let lambda = lambda.clone().narrow(0, self.first, rows);
                let lambda = if tracks { lambda.autodiff() } else { lambda };
                (lambda, of(partners))
            }),
        })
    }
}

/// Targets of rows that may be mixed with others.
#[derive(Debug)]
pub(crate) struct RowTargets {
    /// Targets.
    pub(crate) own: TargetTensor,
    /// Share of each row's own target, `[rows]`, and the other targets.
    pub(crate) mixed: Option<(Tensor<1>, TargetTensor)>,
}

impl TargetTensor {
    /// Copies targets to a device; `None` where there are none.
    pub(crate) fn upload(targets: Targets<'_>, device: &Device) -> Option<Self> {
        let rows = targets.len();
        let numbers = |y: &[f32], width: usize| {
            let data = TensorData::new(y.to_vec(), [rows, width]);
            Some(Self::Numbers(Tensor::upload(data, device)))
        };
        match targets {
            Targets::None => None,
            Targets::Numbers(y) => numbers(y, 1),
            Targets::Vectors { y, width } => numbers(y, width),
            Targets::Classes(y) => {
                let data = TensorData::new(y.to_vec(), [rows, 1]);
                Some(Self::Classes(Tensor::upload(data, device)))
            }
        }
    }

    /// Takes the column of targets of a batch to a device.
    fn of_column(
        targets: Targets<'_>,
        column: Column,
        source: &dyn ColumnBytes,
        device: &Device,
    ) -> Option<Self> {
        let rows = targets.len();
        match targets {
            Targets::None => None,
            Targets::Numbers(_) => Some(Self::Numbers(floats(source, column, [rows, 1], device))),
            Targets::Vectors { width, .. } => {
                Some(Self::Numbers(floats(source, column, [rows, width], device)))
            }
            Targets::Classes(_) => Some(Self::Classes(ints(source, column, [rows, 1], device))),
        }
    }

    fn part(&self, first: usize, rows: usize, tracks: bool) -> Self {
        match self {
            Self::Numbers(y) => {
                let y = y.clone().narrow(0, first, rows);
                Self::Numbers(if tracks { y.autodiff() } else { y })
            }
            Self::Classes(y) => {
                let y = y.clone().narrow(0, first, rows);
                Self::Classes(if tracks { y.autodiff() } else { y })
            }
        }
    }
}

/// The numbers of a column.
fn floats<const D: usize>(
    source: &dyn ColumnBytes,
    column: Column,
    shape: [usize; D],
    device: &Device,
) -> Tensor<D> {
    Tensor::upload(
        TensorData::from_bytes(source.bytes(column), shape, DType::F32),
        device,
    )
}

/// The whole numbers of a column, below 2^31.
fn ints<const D: usize>(
    source: &dyn ColumnBytes,
    column: Column,
    shape: [usize; D],
    device: &Device,
) -> Tensor<D, Int> {
    Tensor::upload(
        TensorData::from_bytes(source.bytes(column), shape, DType::I32),
        device,
    )
}

/// The bytes of targets.
fn target_bytes(targets: Targets<'_>) -> &[u8] {
    match targets {
        Targets::None => &[],
        Targets::Numbers(y) | Targets::Vectors { y, .. } => bytemuck::cast_slice(y),
        Targets::Classes(y) => bytemuck::cast_slice(y),
    }
}

/// Returns true if each row of tokens is one piece from its beginning.
pub(super) fn is_plain(samples: Samples<'_>) -> bool {
    let inputs = samples.inputs;
    inputs.is_stream || inputs.segments.iter().all(|segment| *segment <= 1)
}

impl UploadedBatch {
    /// Takes inputs and targets of rows to a device, without gradients, by bytes of `source`.
    pub(crate) fn of(samples: Samples<'_>, source: &dyn ColumnBytes, device: &Device) -> Self {
        if samples.rows() == 0 {
            return Self::default();
        }
        Self {
            targets: TargetTensor::of_column(
                samples.targets,
                |samples| target_bytes(samples.targets),
                source,
                device,
            ),
            mixed: samples.mixed.and_then(|mixed| {
                let lambda = floats(
                    source,
                    |samples| {
                        samples
                            .mixed
                            .map_or(&[], |mixed| bytemuck::cast_slice(mixed.lambda))
                    },
                    [samples.rows()],
                    device,
                );
                let partners = TargetTensor::of_column(
                    mixed.partners,
                    |samples| {
                        samples
                            .mixed
                            .map_or(&[], |mixed| target_bytes(mixed.partners))
                    },
                    source,
                    device,
                );
                Some((lambda, partners?))
            }),
            ..Self::inputs_of(samples, source, device)
        }
    }

    /// The same without targets.
    pub(super) fn inputs_of(
        samples: Samples<'_>,
        source: &dyn ColumnBytes,
        device: &Device,
    ) -> Self {
        let (rows, inputs) = (samples.rows(), samples.inputs);
        let of_ids = [rows, inputs.length];
        let tokens = || {
            ints(
                source,
                |samples| bytemuck::cast_slice(samples.inputs.tokens),
                of_ids,
                device,
            )
        };
        let segments = || {
            ints(
                source,
                |samples| bytemuck::cast_slice(samples.inputs.segments),
                of_ids,
                device,
            )
        };
        let texts = |lengths: &[u32]| {
            #[expect(clippy::cast_precision_loss, reason = "a row has at most 65,536 ids")]
            let shares = lengths.iter().map(|&own| 1.0 / own.max(1) as f32);
            let shares = TensorData::new(shares.collect::<Vec<f32>>(), [rows, 1]);
            let lengths = ints(
                source,
                |samples| bytemuck::cast_slice(samples.inputs.lengths.unwrap_or_default()),
                [rows, 1],
                device,
            );
            (lengths, Tensor::upload(shares, device))
        };
        Self {
            x: (inputs.features > 0).then(|| {
                floats(
                    source,
                    |samples| bytemuck::cast_slice(samples.inputs.x),
                    [rows, inputs.features],
                    device,
                )
            }),
            words: (inputs.sides[0] > 0).then(|| words(inputs.pixels, source, device)),
            tokens: (inputs.length > 0).then(tokens),
            segments: (!inputs.segments.is_empty()).then(segments),
            positions: (!inputs.segments.is_empty() && !is_plain(samples)).then(|| {
                let positions: Vec<u8> = bytemuck::cast_slice(&in_pieces(inputs)).to_vec();
                let data = TensorData::from_bytes_vec(positions, of_ids, DType::I32);
                Tensor::upload(data, device)
            }),
            texts: inputs.lengths.map(texts),
            ..Self::default()
        }
    }
}

/// Pixels in words of four bytes.
fn words(pixels: &[u8], source: &dyn ColumnBytes, device: &Device) -> Tensor<1, Int> {
    let number = pixels.len().div_ceil(4);
    if pixels.len().is_multiple_of(4) {
        return ints(source, |samples| samples.inputs.pixels, [number], device);
    }
    let mut padded = pixels.to_vec();
    padded.resize(4 * number, 0);
    Tensor::upload(
        TensorData::from_bytes_vec(padded, [number], DType::I32),
        device,
    )
}

#[cfg(test)]
mod tests;
