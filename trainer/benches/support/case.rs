//! The models that are timed, and made-up samples that they can learn.
//!
//! Numbers come from a hash of their place, so that they are the same in every process.

use std::{fs, ops::Range, path::Path, sync::Arc};

use arrow::{
    array::{
        ArrayRef, BinaryArray, FixedSizeListArray, Float32Array, Int32Array, ListArray,
        RecordBatch, UInt16Array,
    },
    buffer::OffsetBuffer,
    datatypes::{DataType, Field},
};
use feedline_schemas::{
    config::{
        ImagesConfig, LoaderSettings, ModelConfig, ModelKind, NormKind, ScheduleConfig, TrainConfig,
    },
    manifest::{Layout, TargetKind, TokenType},
    transform::FittedTarget,
    units::ByteSize,
};
use feedline_storage::Store;

use crate::dataset::{self, Made};

/// Steps of an epoch.
pub(crate) const EPOCH_STEPS: u64 = 100;

pub(crate) const FEATURES: usize = 64;
pub(crate) const SIDE: usize = 28;
pub(crate) const CLASSES: usize = 10;

/// Model to train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// 64-256-256-1 with GELU on rows of numbers, mean squared error.
    Mlp,
    /// conv 32, pool, conv 64, pool, 128, 10 with ReLU on images of 28x28 in three colours, cross-entropy.
    Cnn,
    /// Two blocks of width 128 with four heads on 128 ids, cross-entropy.
    Transformer,
    /// One layer of width 128 on 32 ids, cross-entropy.
    Lstm,
    /// GPT-2 of 124 M parameters on 1,024 ids, cross-entropy.
    Gpt2,
}

impl Case {
    /// Those that the processor trains in a bearable time.
    pub(crate) const ALL: [Self; 4] = [Self::Mlp, Self::Cnn, Self::Transformer, Self::Lstm];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Mlp => "mlp",
            Self::Cnn => "cnn",
            Self::Transformer => "transformer",
            Self::Lstm => "lstm",
            Self::Gpt2 => "gpt2",
        }
    }

    /// Samples in a batch.
    pub(crate) const fn batch(self) -> usize {
        match self {
            Self::Mlp => 4096,
            Self::Cnn => 128,
            Self::Transformer => 16,
            Self::Lstm => 64,
            Self::Gpt2 => 8,
        }
    }

    pub(crate) fn config(self, batch: usize, steps: u64) -> TrainConfig {
        let model = match self {
            Self::Mlp => ModelConfig {
                hidden: Some(vec![256, 256]),
                ..ModelConfig::default()
            },
            Self::Cnn => ModelConfig {
                r#type: ModelKind::Cnn,
                norm: Some(NormKind::None),
                ..ModelConfig::default()
            },
            Self::Transformer => ModelConfig {
                r#type: ModelKind::Transformer,
                layers: Some(2),
                ..ModelConfig::default()
            },
            Self::Lstm => ModelConfig {
                r#type: ModelKind::Lstm,
                context: Some(self.context()),
                ..ModelConfig::default()
            },
            Self::Gpt2 => ModelConfig {
                r#type: ModelKind::Transformer,
                layers: Some(12),
                width: Some(768),
                heads: Some(12),
                context: Some(self.context()),
                ..ModelConfig::default()
            },
        };
        let side = u32::try_from(SIDE).unwrap();
        TrainConfig {
            model,
            images: ImagesConfig {
                height: side,
                width: side,
                ..ImagesConfig::default()
            },
            batch_size: u32::try_from(batch).unwrap(),
            epochs: steps.div_ceil(EPOCH_STEPS),
            schedule: ScheduleConfig {
                warmup_steps: Some(1),
                final_fraction: Some(1.0),
                ..ScheduleConfig::default()
            },
            patience: 0,
            // A shuffle over 32 blocks; no more are kept than are needed soon, so that memory is
            // that of training.
            loader: LoaderSettings {
                domains: 8,
                window_blocks: 4,
                prefetch_bytes: ByteSize::mib(16),
                ..LoaderSettings::default()
            },
            ..TrainConfig::default()
        }
    }

    /// Ids that a model of tokens reads of a row.
    const fn context(self) -> u32 {
        match self {
            Self::Mlp | Self::Cnn => 0,
            Self::Transformer => 128,
            Self::Lstm => 32,
            Self::Gpt2 => 1024,
        }
    }

    /// Token ids of a row.
    fn length(self) -> Option<usize> {
        let context = usize::try_from(self.context()).unwrap();
        (context > 0).then_some(context + 1)
    }

    const fn vocabulary(self) -> u16 {
        if matches!(self, Self::Gpt2) {
            50_257
        } else {
            256
        }
    }

    /// Publishes a dataset of an epoch of batches for training, and one each to validate and to test.
    pub(crate) async fn publish(self, store: &Store, batch: usize) {
        let layout = match self {
            Self::Mlp => Layout::Dense {
                features: u32::try_from(FEATURES).unwrap(),
                target: TargetKind::Regression,
            },
            Self::Cnn => Layout::Images {
                target: TargetKind::Classification {
                    classes: u32::try_from(CLASSES).unwrap(),
                },
            },
            Self::Transformer | Self::Lstm | Self::Gpt2 => Layout::Tokens {
                id: TokenType::U16,
                vocabulary: self.vocabulary().into(),
            },
        };
        let fitted = match self {
            Self::Mlp => Some(FittedTarget::Regression {
                column: "y".into(),
                mean: 0.0,
                scale: 1.0,
                offset: 0.0,
            }),
            Self::Cnn => Some(FittedTarget::Classification {
                column: "y".into(),
                classes: (0..CLASSES).map(|class| class.to_string()).collect(),
                counts: vec![1; CLASSES],
            }),
            Self::Transformer | Self::Lstm | Self::Gpt2 => None,
        };
        let rows = batch * usize::try_from(EPOCH_STEPS).unwrap();
        let made = Made {
            layout,
            fitted,
            rows: [rows, batch, batch],
            block_rows: (batch / 4).max(64),
            batch: &|rows| self.columns(rows),
            document_length: match self {
                Self::Mlp | Self::Cnn => None,
                Self::Transformer => Some(|_| 129),
                Self::Lstm => Some(|_| 33),
                Self::Gpt2 => Some(|_| 1025),
            },
        };
        dataset::publish_made(store, &made).await;
    }

    /// Each id follows from the one before, but for one in eight.
    fn document(self, row: usize, length: usize) -> impl Iterator<Item = u16> {
        let vocabulary = usize::from(self.vocabulary());
        let mut id = row % vocabulary;
        (0..length).map(move |at| {
            id = if uniform(row, at) < 0.125 {
                (id + at) % vocabulary
            } else {
                (5 * id + 1) % vocabulary
            };
            u16::try_from(id).unwrap()
        })
    }

    fn columns(self, rows: Range<usize>) -> RecordBatch {
        let (payload, y): (ArrayRef, Option<ArrayRef>) = match self {
            Self::Mlp => {
                let x = Float32Array::from_iter_values(rows.clone().flat_map(features));
                let field = Field::new("item", DataType::Float32, false);
                let width = i32::try_from(FEATURES).unwrap();
                let x = FixedSizeListArray::new(field.into(), width, Arc::new(x), None);
                let y = Float32Array::from_iter_values(rows.clone().map(function));
                (Arc::new(x), Some(Arc::new(y)))
            }
            Self::Cnn => {
                let png = |row| dataset::png([SIDE; 2], |place| colours(row, place));
                let x = BinaryArray::from_iter_values(rows.clone().map(png));
                let y = Int32Array::from_iter_values(rows.clone().map(class));
                (Arc::new(x), Some(Arc::new(y)))
            }
            Self::Transformer | Self::Lstm | Self::Gpt2 => {
                let length = self.length().unwrap();
                let offsets = OffsetBuffer::from_lengths(rows.clone().map(|_| length));
                let ids = UInt16Array::from_iter_values(
                    rows.clone().flat_map(|row| self.document(row, length)),
                );
                let field = Field::new("item", DataType::UInt16, false);
                let x = ListArray::new(field.into(), offsets, Arc::new(ids), None);
                (Arc::new(x), None)
            }
        };
        let name = match self {
            Self::Mlp => "x",
            Self::Cnn => "image",
            Self::Transformer | Self::Lstm | Self::Gpt2 => "tokens",
        };
        dataset::columns((name, payload), y, rows)
    }

    /// Writes the training rows as plain arrays, `x.bin` and `y.bin`, little-endian: f32 rows and targets; u8 images
    /// `[rows, 3, 28, 28]` and i32 classes; i32 ids.
    pub(crate) fn write_raw(self, folder: &Path, batch: usize) {
        let rows = 0..batch * usize::try_from(EPOCH_STEPS).unwrap();
        let (x, y): (Vec<u8>, Vec<u8>) = match self {
            Self::Mlp => (
                rows.clone()
                    .flat_map(features)
                    .flat_map(f32::to_le_bytes)
                    .collect(),
                rows.flat_map(|row| function(row).to_le_bytes()).collect(),
            ),
            Self::Cnn => (
                rows.clone().flat_map(planes).collect(),
                rows.flat_map(|row| class(row).to_le_bytes()).collect(),
            ),
            Self::Transformer | Self::Lstm | Self::Gpt2 => {
                let length = self.length().unwrap();
                let ids = rows.flat_map(|row| self.document(row, length));
                (
                    ids.flat_map(|id| i32::from(id).to_le_bytes()).collect(),
                    Vec::new(),
                )
            }
        };
        fs::write(folder.join("x.bin"), x).unwrap();
        fs::write(folder.join("y.bin"), y).unwrap();
    }
}

/// Uniform below 1: the finalizer of SplitMix64 (Steele, Lea, Flood 2014).
#[expect(clippy::cast_precision_loss, reason = "24 bits fit")]
pub(crate) fn uniform(row: usize, at: usize) -> f32 {
    let mut z = (row as u64) << 32 | at as u64;
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ z >> 31) >> 40) as f32 / (1 << 24) as f32
}

pub(crate) fn features(row: usize) -> impl Iterator<Item = f32> {
    (0..FEATURES).map(move |at| 2.0 * uniform(row, at + 1) - 1.0)
}

/// Something smooth of the features.
pub(crate) fn function(row: usize) -> f32 {
    let x: Vec<f32> = features(row).collect();
    let pairs = x.chunks_exact(2);
    pairs
        .map(|pair| (2.0 * pair[0]).sin() * pair[1])
        .sum::<f32>()
        * 0.5
        + x[0]
        + x[7]
}

pub(crate) fn class(row: usize) -> i32 {
    i32::try_from(row % CLASSES).unwrap()
}

/// Noise, and a bright square whose place gives the class.
fn colours(row: usize, [y, x]: [usize; 2]) -> [u8; 3] {
    let class = row % CLASSES;
    let bright = y / 5 == class / 2 && x / 14 == class % 2;
    let noise =
        u8::try_from((row * 37 + y * 11 + x * 5 + (row * (y + 3) * (x + 7)) % 83) % 200).unwrap();
    let value = if bright { 30 + noise } else { noise };
    [value, value / 2, 255 - value]
}

/// An image, one plane for each colour.
pub(crate) fn planes(row: usize) -> impl Iterator<Item = u8> {
    let place = |i: usize| [i % (SIDE * SIDE) / SIDE, i % SIDE];
    (0..3 * SIDE * SIDE).map(move |i| colours(row, place(i))[i / (SIDE * SIDE)])
}
