//! Writes datasets in which every value tells its sample: sample `i` of a split has `x = [i, 1, 2, ..]`, `y = i` (or class
//! `i % classes`), `origin = i` and `key = !i`, so that a wrong order or an overlap shows at sight.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{ArrayRef, FixedSizeListArray, Float32Array, Int32Array, RecordBatch, UInt64Array},
    datatypes::{DataType, Field},
    ipc::{
        MetadataVersion,
        reader::read_footer_length,
        root_as_footer,
        writer::{FileWriter, IpcWriteOptions},
    },
};
use bytes::Bytes;
use feedline_schemas::{
    encode,
    format::MANIFEST,
    ids::{Hash128, Name},
    manifest::{Block, DatasetCounts, Layout, Manifest, Shard, Split, SplitShards, TargetKind},
    transform::TransformReference,
};
use feedline_storage::Store;

/// Elements of `x`.
pub(crate) const FEATURES: u32 = 3;

/// Shards of a split, as rows per block.
pub(crate) type Shape<'a> = &'a [&'a [u32]];

/// Writes a dataset with these splits and publishes it.
pub(crate) async fn publish(
    store: &Store,
    features: u32,
    target: TargetKind,
    splits: &[(Split, Shape<'_>)],
) -> Manifest {
    let mut manifest = empty_manifest(Layout::Dense { features, target });
    for (split, shape) in splits {
        let mut shards = Vec::new();
        let mut first = 0;
        for (number, rows) in shape.iter().enumerate() {
            let file = shard_file(features, target, first, rows);
            let path = format!("shards/{split}/{number:05}.arrow");
            shards.push(describe(&path, &file));
            first += rows.iter().map(|rows| u64::from(*rows)).sum::<u64>();
            store.put(&path, file).await.unwrap();
        }
        manifest.splits.push(SplitShards {
            split: *split,
            rows: first,
            shards,
        });
    }
    publish_manifest(store, manifest).await
}

/// A training split of regression rows.
pub(crate) async fn publish_train(store: &Store, shape: Shape<'_>) -> Manifest {
    publish(
        store,
        FEATURES,
        TargetKind::Regression,
        &[(Split::Train, shape)],
    )
    .await
}

/// Gives `manifest` its fingerprint and makes it the current one.
pub(crate) async fn publish_manifest(store: &Store, mut manifest: Manifest) -> Manifest {
    manifest.fingerprint = manifest.compute_fingerprint();
    store
        .put("manifest-000001.json", encode(&manifest).into())
        .await
        .unwrap();
    store
        .put("CURRENT", "manifest-000001.json".into())
        .await
        .unwrap();
    manifest
}

/// The bytes of a shard whose first sample is `first`.
pub(crate) fn shard_file(features: u32, target: TargetKind, first: u64, rows: &[u32]) -> Bytes {
    let mut batches = Vec::new();
    let mut next = first;
    for rows in rows {
        let samples: Vec<u64> = (next..next + u64::from(*rows)).collect();
        batches.push(record_batch(features, target, &samples));
        next += u64::from(*rows);
    }
    let schema = batches.first().map_or_else(
        || record_batch(features, target, &[]).schema(),
        RecordBatch::schema,
    );
    write_file(&schema, &batches)
}

/// Writes batches as shards are written.
pub(crate) fn write_file(schema: &arrow::datatypes::Schema, batches: &[RecordBatch]) -> Bytes {
    let options = IpcWriteOptions::try_new(64, false, MetadataVersion::V5).unwrap();
    let mut writer = FileWriter::try_new_with_options(Vec::new(), schema, options).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
    }
    writer.into_inner().unwrap().into()
}

/// Sample numbers up to 2^24 are exact in `x` and `y`.
pub(crate) fn record_batch(features: u32, target: TargetKind, samples: &[u64]) -> RecordBatch {
    let value = |sample: u64, feature: u32| {
        if feature == 0 {
            sample as f32
        } else {
            feature as f32
        }
    };
    let x = samples
        .iter()
        .flat_map(|sample| (0..features).map(|f| value(*sample, f)));
    let x = FixedSizeListArray::new(
        Field::new("item", DataType::Float32, false).into(),
        i32::try_from(features).unwrap(),
        Arc::new(Float32Array::from_iter_values(x)),
        None,
    );
    let y: Option<ArrayRef> = match target {
        TargetKind::None => None,
        TargetKind::Regression => Some(Arc::new(Float32Array::from_iter_values(
            samples.iter().map(|s| *s as f32),
        ))),
        TargetKind::Classification { classes } => {
            let class = |s: &u64| i32::try_from(s % u64::from(classes)).unwrap();
            Some(Arc::new(Int32Array::from_iter_values(
                samples.iter().map(class),
            )))
        }
    };
    let keys: ArrayRef = Arc::new(UInt64Array::from_iter_values(samples.iter().map(|s| !s)));
    let origins: ArrayRef = Arc::new(UInt64Array::from_iter_values(samples.iter().copied()));
    let columns = [("x", Arc::new(x) as ArrayRef)]
        .into_iter()
        .chain(y.map(|y| ("y", y)))
        .chain([("key", keys), ("origin", origins)]);
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, false)))
        .unwrap()
}

/// A shard's manifest entry, its block table read from the file's footer.
pub(crate) fn describe(path: &str, file: &Bytes) -> Shard {
    let tail = file.len() - 10;
    let length = read_footer_length(file[tail..].try_into().unwrap()).unwrap();
    let footer = root_as_footer(&file[tail - length..tail]).unwrap();
    let rows_of = arrow::ipc::reader::FileReader::try_new(std::io::Cursor::new(file), None)
        .unwrap()
        .map(|batch| u32::try_from(batch.unwrap().num_rows()).unwrap());
    let blocks: Vec<_> = footer
        .recordBatches()
        .unwrap()
        .iter()
        .zip(rows_of)
        .map(|(block, rows)| {
            let offset = u64::try_from(block.offset()).unwrap();
            let metadata_bytes = u32::try_from(block.metaDataLength()).unwrap();
            let body_bytes = u64::try_from(block.bodyLength()).unwrap();
            let start = usize::try_from(offset).unwrap();
            let end = start + metadata_bytes as usize + usize::try_from(body_bytes).unwrap();
            Block {
                offset,
                metadata_bytes,
                body_bytes,
                rows,
                crc32c: crc32c::crc32c(&file[start..end]),
                tokens: None,
            }
        })
        .collect();
    Shard {
        path: path.to_owned(),
        rows: blocks.iter().map(|block| u64::from(block.rows)).sum(),
        bytes: file.len() as u64,
        hash: Hash128::of(file),
        blocks,
        lengths: None,
    }
}

fn empty_manifest(layout: Layout) -> Manifest {
    let name = Name::new("numbers").unwrap();
    Manifest {
        format: MANIFEST.format.to_owned(),
        version: MANIFEST.version,
        fingerprint: Hash128::new(0),
        dataset: name.clone(),
        input_hash: Hash128::new(0),
        layout,
        transform: TransformReference {
            path: "transform-0.json".into(),
            hash: Hash128::new(0),
            dataset: name,
        },
        shuffle_seed: None,
        sources: Vec::new(),
        counts: DatasetCounts {
            rejected: BTreeMap::new(),
            ..DatasetCounts::default()
        },
        splits: Vec::new(),
        rejects: Vec::new(),
    }
}
