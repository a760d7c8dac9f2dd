//! Writes datasets in which every value follows from its sample's number: sample `i` of a split of
//! rows has `x = [i, 1, 2, ..]`, `y = i` (or class `i % classes`), `origin = i` and `key = !i`, so
//! that a wrong order or an overlap shows at sight.

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayRef, BinaryArray, FixedSizeListArray, Float32Array, Int32Array, ListArray,
        RecordBatch, UInt16Array, UInt32Array, UInt64Array,
    },
    buffer::OffsetBuffer,
    datatypes::{DataType, Field},
};
use bytes::Bytes;
use feedline_schemas::{
    ids::Hash128,
    manifest::{Layout, Manifest, Split, SplitShards, TargetKind, TokenType},
};
use feedline_storage::Store;

pub use crate::dataset_files::{describe, publish_manifest, write_file};
use crate::dataset_files::{manifest_without_splits, put_lengths, transform_reference};

/// Elements of `x`.
pub const FEATURES: u32 = 3;

/// Shards of a split, as rows per block.
pub type Shape<'a> = &'a [&'a [u32]];

/// Writes a dataset of rows of numbers with these splits and publishes it.
pub async fn publish(
    store: &Store,
    features: u32,
    target: TargetKind,
    splits: &[(Split, Shape<'_>)],
) -> Manifest {
    publish_layout(store, Layout::Dense { features, target }, splits).await
}

/// Writes a dataset with these splits and publishes it.
pub async fn publish_layout(
    store: &Store,
    layout: Layout,
    splits: &[(Split, Shape<'_>)],
) -> Manifest {
    let mut manifest = empty_manifest(layout.clone());
    for (split, shape) in splits {
        let mut shards = Vec::new();
        let mut first = 0;
        for (number, rows) in shape.iter().enumerate() {
            let file = shard_file_of(&layout, first, rows);
            let path = format!("shards/{split}/{number:05}.arrow");
            let mut shard = describe(&path, &file);
            if let Layout::Tokens { .. } = layout {
                let lengths: Vec<u32> = (first..first + shard.rows).map(document_length).collect();
                put_lengths(store, &mut shard, &lengths).await;
            }
            shards.push(shard);
            first += rows.iter().map(|rows| u64::from(*rows)).sum::<u64>();
            store.put(&path, file).await.unwrap();
        }
        manifest.splits.push(SplitShards {
            split: *split,
            rows: first,
            shards,
            table: None,
        });
    }
    publish_manifest(store, manifest).await
}

/// Fake of the file of an image: its sample's number, and padding that makes lengths differ.
pub fn image(sample: u64) -> Vec<u8> {
    let mut bytes = format!("image {sample} ").into_bytes();
    bytes.extend((0..sample % 50).map(|i| (sample + i).to_le_bytes()[0]));
    bytes
}

/// Side of a small image.
pub const SIDE: usize = 4;
/// The sample whose small image is broken.
pub const BROKEN: u64 = 13;

/// Pixels of the small image of a sample, u8 RGB of 4 x 4.
pub fn small_pixels(sample: u64) -> Vec<u8> {
    let level = |i: u64| (sample * 31 + i * 7 % 101).to_le_bytes()[0];
    (0..48).map(level).collect()
}

/// A file that holds them.
pub fn small_image(sample: u64) -> Vec<u8> {
    let header = format!("P6\n{SIDE} {SIDE}\n255\n");
    let mut file = [header.into_bytes(), small_pixels(sample)].concat();
    if sample == BROKEN {
        file.truncate(20);
    }
    file
}

/// Token ids in the document of a sample; some have none.
pub fn document_length(sample: u64) -> u32 {
    u32::try_from(sample * 7 % 23).unwrap()
}

/// Token ids of the document of a sample: they count up from its number.
pub fn document(sample: u64, vocabulary: u32) -> Vec<u32> {
    let ids = (0..document_length(sample)).map(|i| (sample + u64::from(i)) % u64::from(vocabulary));
    ids.map(|id| u32::try_from(id).unwrap()).collect()
}

/// A training split of regression rows.
pub async fn publish_train(store: &Store, shape: Shape<'_>) -> Manifest {
    publish(
        store,
        FEATURES,
        TargetKind::Regression,
        &[(Split::Train, shape)],
    )
    .await
}

/// The bytes of a shard of rows of numbers whose first sample is `first`.
pub fn shard_file(features: u32, target: TargetKind, first: u64, rows: &[u32]) -> Bytes {
    shard_file_of(&Layout::Dense { features, target }, first, rows)
}

/// The bytes of a shard whose first sample is `first`.
pub fn shard_file_of(layout: &Layout, first: u64, rows: &[u32]) -> Bytes {
    let mut batches = Vec::new();
    let mut next = first;
    for rows in rows {
        let samples: Vec<u64> = (next..next + u64::from(*rows)).collect();
        batches.push(record_batch_of(layout, &samples));
        next += u64::from(*rows);
    }
    let schema = batches.first().map_or_else(
        || record_batch_of(layout, &[]).schema(),
        RecordBatch::schema,
    );
    write_file(&schema, batches)
}

/// A block of these samples. Numbers up to 2^24 are exact in `x` and `y`.
pub fn record_batch_of(layout: &Layout, samples: &[u64]) -> RecordBatch {
    let mut parts: Vec<(&str, ArrayRef)> = Vec::new();
    let target = match *layout {
        Layout::Dense { features, target } => {
            parts.push(("x", Arc::new(vectors(features, samples))));
            target
        }
        Layout::Images { target } => {
            let images = samples.iter().map(|sample| image(*sample));
            parts.push(("image", Arc::new(BinaryArray::from_iter_values(images))));
            target
        }
        Layout::Tokens { id, vocabulary } => {
            parts.push(("tokens", Arc::new(documents(id, vocabulary, samples))));
            TargetKind::None
        }
        Layout::Multi {
            features,
            images,
            tokens,
            target,
        } => {
            if features > 0 {
                parts.push(("x", Arc::new(vectors(features, samples))));
            }
            if images {
                let images = samples.iter().map(|sample| small_image(*sample));
                parts.push(("image", Arc::new(BinaryArray::from_iter_values(images))));
            }
            if let Some(tokens) = tokens {
                let ids = documents(tokens.id, tokens.vocabulary, samples);
                parts.push(("tokens", Arc::new(ids)));
            }
            target
        }
    };
    let y: Option<ArrayRef> = match target {
        TargetKind::None => None,
        TargetKind::Regression => Some(Arc::new(Float32Array::from_iter_values(
            samples.iter().map(|s| *s as f32),
        ))),
        TargetKind::Regressions { targets } => {
            let of = |sample: &u64| {
                let sample = *sample as f32;
                (0..targets).map(move |target| sample + 0.5 * target as f32)
            };
            let y: Vec<f32> = samples.iter().flat_map(of).collect();
            let item = Field::new("item", DataType::Float32, false);
            let width = i32::try_from(targets).unwrap();
            let y =
                FixedSizeListArray::new(item.into(), width, Arc::new(Float32Array::from(y)), None);
            Some(Arc::new(y))
        }
        TargetKind::Classification { classes } => {
            let class = |s: &u64| i32::try_from(s % u64::from(classes)).unwrap();
            Some(Arc::new(Int32Array::from_iter_values(
                samples.iter().map(class),
            )))
        }
    };
    let keys: ArrayRef = Arc::new(UInt64Array::from_iter_values(samples.iter().map(|s| !s)));
    let origins: ArrayRef = Arc::new(UInt64Array::from_iter_values(samples.iter().copied()));
    let columns = parts
        .into_iter()
        .chain(y.map(|y| ("y", y)))
        .chain([("key", keys), ("origin", origins)]);
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, false)))
        .unwrap()
}

fn vectors(features: u32, samples: &[u64]) -> FixedSizeListArray {
    let value = |sample: u64, feature: u32| {
        if feature == 0 {
            sample as f32
        } else {
            feature as f32
        }
    };
    let x = samples
        .iter()
        .flat_map(|sample| (0..features).map(move |f| value(*sample, f)));
    FixedSizeListArray::new(
        Field::new("item", DataType::Float32, false).into(),
        i32::try_from(features).unwrap(),
        Arc::new(Float32Array::from_iter_values(x)),
        None,
    )
}

fn documents(id: TokenType, vocabulary: u32, samples: &[u64]) -> ListArray {
    let lengths = samples
        .iter()
        .map(|sample| document_length(*sample) as usize);
    let offsets = OffsetBuffer::from_lengths(lengths);
    let ids = samples
        .iter()
        .flat_map(|sample| document(*sample, vocabulary));
    let ids: ArrayRef = match id {
        TokenType::U16 => {
            let ids = ids.map(|id| u16::try_from(id).unwrap());
            Arc::new(UInt16Array::from_iter_values(ids))
        }
        TokenType::U32 => Arc::new(UInt32Array::from_iter_values(ids)),
    };
    let field = Field::new("item", ids.data_type().clone(), false);
    ListArray::new(field.into(), offsets, ids, None)
}

/// A manifest without splits.
pub fn empty_manifest(layout: Layout) -> Manifest {
    let classes = match layout.target() {
        TargetKind::Classification { classes } => classes,
        TargetKind::None | TargetKind::Regression | TargetKind::Regressions { .. } => 0,
    };
    let names = (0..classes).map(|class: u32| class.to_string());
    let path = "transform-0.json".to_owned();
    let transform = transform_reference("numbers", path, Hash128::new(0));
    manifest_without_splits(layout, names, transform)
}
