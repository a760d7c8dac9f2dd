//! Writes small datasets: shards, transform artefact, manifest, pointer.

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
    format::{MANIFEST, TRANSFORM},
    ids::{Hash128, Name},
    manifest::{Block, DatasetCounts, Layout, Manifest, Shard, Split, SplitShards, TargetKind},
    transform::{FittedTarget, TransformArtefact, TransformReference},
};
use feedline_storage::Store;

/// Elements of `x`.
const FEATURES: usize = 3;

/// Rows of a block.
const BLOCK_ROWS: usize = 50;

/// What the target is.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// `100 + 20 * f(x)`, stored as `f(x)`.
    Regression,
    /// One of two classes.
    Classification,
    /// No target.
    None,
}

impl Kind {
    fn target(self) -> TargetKind {
        match self {
            Self::Regression => TargetKind::Regression,
            Self::Classification => TargetKind::Classification { classes: 2 },
            Self::None => TargetKind::None,
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
            Self::Classification => Some(FittedTarget::Classification {
                column: "y".into(),
                classes: vec!["no".into(), "yes".into()],
                counts: vec![200, 100],
            }),
            Self::None => None,
        }
    }
}

/// Publishes a dataset with 300 training, 100 validation and 100 test rows.
pub(crate) async fn publish(store: &Store, kind: Kind) {
    publish_rows(store, kind, [300, 100, 100]).await;
}

/// Publishes a dataset with as many rows per split as said.
pub(crate) async fn publish_rows(store: &Store, kind: Kind, rows: [usize; 3]) {
    let name = Name::new("toy").unwrap();
    let mut artefact = TransformArtefact {
        format: TRANSFORM.format.to_owned(),
        version: TRANSFORM.version,
        hash: Hash128::new(0),
        fitted_rows: rows[0] as u64,
        null_values: vec![],
        missing_values: vec![],
        inputs: vec![],
        steps: vec![],
        features: vec![],
        target: kind.fitted(),
    };
    artefact.hash = Hash128::of(&encode(&artefact));
    let path = format!("transform-{}.json", artefact.hash.short());
    store.put(&path, encode(&artefact).into()).await.unwrap();

    let mut splits = Vec::new();
    let mut first = 0;
    for (split, rows) in Split::ALL.into_iter().zip(rows) {
        let file = shard(kind, first, rows);
        first += rows;
        let path = format!("shards/{split}/0.arrow");
        let shards = if rows > 0 {
            vec![describe(&path, &file)]
        } else {
            vec![]
        };
        store.put(&path, file).await.unwrap();
        splits.push(SplitShards {
            split,
            rows: rows as u64,
            shards,
            table: None,
        });
    }
    let mut manifest = Manifest {
        format: MANIFEST.format.to_owned(),
        version: MANIFEST.version,
        fingerprint: Hash128::new(0),
        dataset: name.clone(),
        input_hash: Hash128::new(0),
        layout: Layout::Dense {
            features: u32::try_from(FEATURES).unwrap(),
            target: kind.target(),
        },
        transform: TransformReference {
            path,
            hash: artefact.hash,
            dataset: name,
        },
        shuffle_seed: None,
        sources: vec![],
        counts: DatasetCounts {
            rejected: BTreeMap::new(),
            ..DatasetCounts::default()
        },
        splits,
        rejects: vec![],
    };
    manifest.fingerprint = manifest.compute_fingerprint();
    store
        .put("manifest-000001.json", encode(&manifest).into())
        .await
        .unwrap();
    store
        .put("CURRENT", "manifest-000001.json".into())
        .await
        .unwrap();
}

/// Features of a row: three cosines of its number, of periods without a common multiple.
fn features(row: usize) -> [f32; FEATURES] {
    let row = u16::try_from(row).unwrap();
    [0.7, 1.9, 2.3].map(|frequency| (f32::from(row) * frequency).cos())
}

fn batch(kind: Kind, rows: std::ops::Range<usize>) -> RecordBatch {
    let x = rows.clone().flat_map(features);
    let x = FixedSizeListArray::new(
        Field::new("item", DataType::Float32, false).into(),
        i32::try_from(FEATURES).unwrap(),
        Arc::new(Float32Array::from_iter_values(x)),
        None,
    );
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
        Kind::None => None,
    };
    let numbers =
        |rows: std::ops::Range<usize>| UInt64Array::from_iter_values(rows.map(|row| row as u64));
    let columns = [("x", Arc::new(x) as ArrayRef)]
        .into_iter()
        .chain(y.map(|y| ("y", y)))
        .chain([
            ("key", Arc::new(numbers(rows.clone())) as ArrayRef),
            ("origin", Arc::new(numbers(rows))),
        ]);
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, false)))
        .unwrap()
}

fn shard(kind: Kind, first: usize, rows: usize) -> Bytes {
    let options = IpcWriteOptions::try_new(64, false, MetadataVersion::V5).unwrap();
    let schema = batch(kind, 0..0).schema();
    let mut writer = FileWriter::try_new_with_options(Vec::new(), &schema, options).unwrap();
    for start in (first..first + rows).step_by(BLOCK_ROWS) {
        writer
            .write(&batch(kind, start..(start + BLOCK_ROWS).min(first + rows)))
            .unwrap();
    }
    writer.into_inner().unwrap().into()
}

/// A shard's manifest entry, its block table read from the file's footer.
fn describe(path: &str, file: &Bytes) -> Shard {
    let tail = file.len() - 10;
    let length = read_footer_length(file[tail..].try_into().unwrap()).unwrap();
    let footer = root_as_footer(&file[tail - length..tail]).unwrap();
    let reader = arrow::ipc::reader::FileReader::try_new(std::io::Cursor::new(file), None).unwrap();
    let rows = reader.map(|batch| u32::try_from(batch.unwrap().num_rows()).unwrap());
    let block = |(block, rows): (&arrow::ipc::Block, u32)| {
        let offset = usize::try_from(block.offset()).unwrap();
        let metadata = usize::try_from(block.metaDataLength()).unwrap();
        let body = usize::try_from(block.bodyLength()).unwrap();
        Block {
            offset: offset as u64,
            metadata_bytes: u32::try_from(metadata).unwrap(),
            body_bytes: body as u64,
            rows,
            crc32c: crc32c::crc32c(&file[offset..offset + metadata + body]),
            tokens: None,
        }
    };
    let blocks: Vec<Block> = footer
        .recordBatches()
        .unwrap()
        .iter()
        .zip(rows)
        .map(block)
        .collect();
    Shard {
        path: path.to_owned(),
        rows: blocks.iter().map(|block| u64::from(block.rows)).sum(),
        bytes: file.len() as u64,
        hash: Hash128::of(file),
        blocks,
        head_crc32c: None,
        lengths: None,
    }
}
