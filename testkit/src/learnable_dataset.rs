//! Writes small datasets: shards, transform artefact, manifest, pointer.

use std::{ops::Range, sync::Arc};

use arrow::{
    array::{
        ArrayRef, BinaryArray, FixedSizeListArray, Float32Array, Int32Array, ListArray,
        RecordBatch, UInt16Array, UInt64Array,
    },
    buffer::OffsetBuffer,
    datatypes::{DataType, Field},
};
use bytes::Bytes;
use feedline_schemas::{
    encode,
    format::TRANSFORM,
    ids::Hash128,
    manifest::{Layout, Shard, Split, SplitShards, TargetKind, TokenType},
    transform::{FittedTarget, TransformArtefact},
};
use feedline_storage::Store;

use crate::dataset_files::{
    describe, manifest_without_splits, publish_manifest, put_lengths, transform_reference,
    write_file,
};

/// Elements of `x`.
const FEATURES: usize = 3;

/// Number of token ids.
pub const VOCABULARY: u16 = 16;

/// Rows of a block.
const BLOCK_ROWS: usize = 50;

/// Kind of the target.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `100 + 20 * f(x)`, stored as `f(x)`.
    Regression,
    /// One of two classes.
    Classification,
    /// No target.
    None,
    /// Images of 8x8 pixels, one of two classes: the left half is brighter than the right, or not.
    Images,
    /// Documents in which each id is one more than the one before, modulo [`VOCABULARY`].
    Tokens,
}

impl Kind {
    fn target(self) -> TargetKind {
        match self {
            Self::Regression => TargetKind::Regression,
            Self::Classification | Self::Images => TargetKind::Classification { classes: 2 },
            Self::None | Self::Tokens => TargetKind::None,
        }
    }

    fn fitted(self) -> Option<FittedTarget> {
        match self {
            Self::Regression => Some(FittedTarget::Regression {
                column: "y".into(),
                mean: 100.0,
                scale: 20.0,
                offset: 100.0,
            }),
            Self::Classification | Self::Images => Some(FittedTarget::Classification {
                column: "y".into(),
                classes: vec!["no".into(), "yes".into()],
                counts: vec![200, 100],
            }),
            Self::None | Self::Tokens => None,
        }
    }

    fn layout(self) -> Layout {
        let target = self.target();
        match self {
            Self::Images => Layout::Images { target },
            Self::Tokens => Layout::Tokens {
                id: TokenType::U16,
                vocabulary: u32::from(VOCABULARY),
            },
            _ => Layout::Dense {
                features: u32::try_from(FEATURES).unwrap(),
                target,
            },
        }
    }

    /// The column that a model reads.
    fn payload(self, rows: Range<usize>) -> (&'static str, ArrayRef) {
        match self {
            Self::Images => {
                let images = rows.map(image);
                ("image", Arc::new(BinaryArray::from_iter_values(images)))
            }
            Self::Tokens => ("tokens", Arc::new(documents(rows))),
            _ => ("x", Arc::new(vectors(rows))),
        }
    }
}

/// Publishes a dataset with 300 training, 100 validation and 100 test rows.
pub async fn publish(store: &Store, kind: Kind) {
    publish_rows(store, kind, [300, 100, 100]).await;
}

/// Publishes a dataset with as many rows per split as said.
pub async fn publish_rows(store: &Store, kind: Kind, rows: [usize; 3]) {
    let made = Made {
        layout: kind.layout(),
        fitted: kind.fitted(),
        rows,
        block_rows: BLOCK_ROWS,
        batch: &|rows| batch(kind, rows),
        document_length: matches!(kind, Kind::Tokens).then_some(document_length),
    };
    publish_made(store, &made).await;
}

/// A dataset as its parts.
#[expect(missing_debug_implementations, reason = "it has a function")]
pub struct Made<'a> {
    /// Columns of its shards.
    pub layout: Layout,
    /// Target of its transform.
    pub fitted: Option<FittedTarget>,
    /// Rows of each split; they are numbered through.
    pub rows: [usize; 3],
    /// Rows of a block.
    pub block_rows: usize,
    /// The columns of some rows.
    pub batch: &'a dyn Fn(Range<usize>) -> RecordBatch,
    /// Token ids of a row, of a dataset of tokens.
    pub document_length: Option<fn(usize) -> usize>,
}

/// Publishes a dataset of one shard for each split.
pub async fn publish_made(store: &Store, made: &Made<'_>) {
    let mut artefact = TransformArtefact {
        format: TRANSFORM.format.to_owned(),
        version: TRANSFORM.version,
        hash: Hash128::new(0),
        fitted_rows: made.rows[0] as u64,
        null_values: vec![],
        missing_values: vec![],
        inputs: vec![],
        steps: vec![],
        features: vec![],
        target: made.fitted.clone(),
        other_targets: Vec::new(),
        characters: None,
        images: None,
        tokens: None,
        signs: None,
    };
    artefact.hash = Hash128::of(&encode(&artefact));
    let path = format!("transform-{}.json", artefact.hash.short());
    store.put(&path, encode(&artefact).into()).await.unwrap();

    let classes = match &made.fitted {
        Some(FittedTarget::Classification { classes, .. }) => classes.clone(),
        Some(FittedTarget::Regression { .. }) | None => Vec::new(),
    };
    let transform = transform_reference("toy", path, artefact.hash);
    let mut manifest = manifest_without_splits(made.layout.clone(), classes, transform);
    manifest.splits = put_splits(store, made).await;
    publish_manifest(store, manifest).await;
}

async fn put_splits(store: &Store, made: &Made<'_>) -> Vec<SplitShards> {
    let mut splits = Vec::new();
    let mut first = 0;
    for (split, rows) in Split::ALL.into_iter().zip(made.rows) {
        let file = shard(made, first, rows);
        let path = format!("shards/{split}/0.arrow");
        let mut shards = Vec::new();
        if rows > 0 {
            let mut shard = Shard {
                head_crc32c: None,
                ..describe(&path, &file)
            };
            if let Some(length) = made.document_length {
                let length = |row| u32::try_from(length(row)).unwrap();
                let lengths: Vec<u32> = (first..first + rows).map(length).collect();
                put_lengths(store, &mut shard, &lengths).await;
            }
            shards.push(shard);
        }
        first += rows;
        store.put(&path, file).await.unwrap();
        splits.push(SplitShards {
            split,
            rows: rows as u64,
            shards,
            table: None,
        });
    }
    splits
}

/// Features of a row: three cosines of its number, of periods without a common multiple.
fn features(row: usize) -> [f32; FEATURES] {
    let row = u16::try_from(row).unwrap();
    [0.7, 1.9, 2.3].map(|frequency| (f32::from(row) * frequency).cos())
}

fn vectors(rows: Range<usize>) -> FixedSizeListArray {
    FixedSizeListArray::new(
        Field::new("item", DataType::Float32, false).into(),
        i32::try_from(FEATURES).unwrap(),
        Arc::new(Float32Array::from_iter_values(rows.flat_map(features))),
        None,
    )
}

const fn document_length(row: usize) -> usize {
    5 + row % 7
}

fn documents(rows: Range<usize>) -> ListArray {
    let id = |row: usize, at: usize| u16::try_from((7 * row + at) % usize::from(VOCABULARY));
    let offsets = OffsetBuffer::from_lengths(rows.clone().map(document_length));
    let ids = rows.flat_map(|row| (0..document_length(row)).map(move |at| id(row, at).unwrap()));
    let ids = UInt16Array::from_iter_values(ids);
    let field = Field::new("item", DataType::UInt16, false);
    ListArray::new(field.into(), offsets, Arc::new(ids), None)
}

/// The image of a row: one half is brighter than the other, and each pixel has its noise.
fn image(row: usize) -> Vec<u8> {
    png([8, 8], |[y, x]| {
        let bright = (x < 4) == (row % 2 == 1);
        let noise = (row * 37 + y * 11 + x * 5) % 90;
        let value = u8::try_from(if bright { 120 } else { 40 } + noise).unwrap();
        [value, value / 2, 255 - value]
    })
}

/// A PNG file of `[height, width]` pixels, not compressed; at most 64 KiB.
pub fn png([height, width]: [usize; 2], colours: impl Fn([usize; 2]) -> [u8; 3]) -> Vec<u8> {
    let mut lines = Vec::new();
    for y in 0..height {
        lines.push(0);
        lines.extend((0..width).flat_map(|x| colours([y, x])));
    }
    let length = u16::try_from(lines.len()).unwrap();
    let mut stream = vec![0x78, 0x01, 0x01];
    stream.extend(length.to_le_bytes());
    stream.extend((!length).to_le_bytes());
    let (mut a, mut b) = (1_u32, 0_u32);
    for byte in &lines {
        a = (a + u32::from(*byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    stream.extend(lines);
    stream.extend((b << 16 | a).to_be_bytes());
    let side = |side| u32::try_from(side).unwrap().to_be_bytes();
    let header = [&side(width)[..], &side(height), &[8, 2, 0, 0, 0]].concat();
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    for (kind, data) in [(b"IHDR", header), (b"IDAT", stream), (b"IEND", vec![])] {
        file.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
        let chunk = [kind.as_slice(), &data].concat();
        file.extend(&chunk);
        file.extend(crc32(&chunk).to_be_bytes());
    }
    file
}

/// The CRC of PNG and zip.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |mut crc: u32, byte: &u8| {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xEDB8_8320 & 0_u32.wrapping_sub(crc & 1));
        }
        crc
    };
    !bytes.iter().fold(u32::MAX, step)
}

fn batch(kind: Kind, rows: Range<usize>) -> RecordBatch {
    let function = |row: usize| {
        let [a, b, c] = features(row);
        a * b + c
    };
    let y: Option<ArrayRef> = match kind {
        Kind::Regression => Some(Arc::new(Float32Array::from_iter_values(
            rows.clone().map(function),
        ))),
        Kind::Classification => {
            let class = |row| i32::from(function(row) > 0.4);
            Some(Arc::new(Int32Array::from_iter_values(
                rows.clone().map(class),
            )))
        }
        Kind::Images => {
            let class = |row: usize| i32::try_from(row % 2).unwrap();
            Some(Arc::new(Int32Array::from_iter_values(
                rows.clone().map(class),
            )))
        }
        Kind::None | Kind::Tokens => None,
    };
    columns(kind.payload(rows.clone()), y, rows)
}

/// Inputs of a model for some rows, their targets if there are any, and their numbers as keys and
/// origins.
pub fn columns(
    payload: (&'static str, ArrayRef),
    y: Option<ArrayRef>,
    rows: Range<usize>,
) -> RecordBatch {
    let numbers = |rows: Range<usize>| UInt64Array::from_iter_values(rows.map(|row| row as u64));
    let columns = [payload].into_iter().chain(y.map(|y| ("y", y))).chain([
        ("key", Arc::new(numbers(rows.clone())) as ArrayRef),
        ("origin", Arc::new(numbers(rows))),
    ]);
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, false)))
        .unwrap()
}

fn shard(made: &Made<'_>, first: usize, rows: usize) -> Bytes {
    let schema = (made.batch)(0..0).schema();
    let starts = (first..first + rows).step_by(made.block_rows);
    let end = |start: usize| (start + made.block_rows).min(first + rows);
    write_file(&schema, starts.map(|start| (made.batch)(start..end(start))))
}
