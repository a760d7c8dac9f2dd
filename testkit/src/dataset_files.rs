//! Files of a dataset as `preprocess` writes them: shards, lengths of documents, manifest, pointer.

use std::{borrow::Borrow, collections::BTreeMap};

use arrow::{
    array::RecordBatch,
    datatypes::Schema,
    ipc::{
        MetadataVersion,
        reader::{FileReader, read_footer_length},
        root_as_footer,
        writer::{FileWriter, IpcWriteOptions},
    },
};
use bytes::Bytes;
use feedline_schemas::{
    encode,
    format::MANIFEST,
    ids::{Hash128, Name},
    manifest::{Block, ClassCounts, DatasetCounts, Layout, Lengths, Manifest, Shard},
    transform::TransformReference,
};
use feedline_storage::Store;

/// Writes batches as the blocks of a shard.
pub fn write_file(
    schema: &Schema,
    batches: impl IntoIterator<Item = impl Borrow<RecordBatch>>,
) -> Bytes {
    let options = IpcWriteOptions::try_new(64, false, MetadataVersion::V5).unwrap();
    let mut writer = FileWriter::try_new_with_options(Vec::new(), schema, options).unwrap();
    for batch in batches {
        writer.write(batch.borrow()).unwrap();
    }
    writer.into_inner().unwrap().into()
}

/// A shard's manifest entry, its block table read from the file's footer.
pub fn describe(path: &str, file: &Bytes) -> Shard {
    let tail = file.len() - 10;
    let length = read_footer_length(file[tail..].try_into().unwrap()).unwrap();
    let footer = root_as_footer(&file[tail - length..tail]).unwrap();
    let reader = FileReader::try_new(std::io::Cursor::new(file), None).unwrap();
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
    let blocks = footer.recordBatches().unwrap().iter().zip(rows);
    let blocks: Vec<Block> = blocks.map(block).collect();
    Shard {
        path: path.to_owned(),
        rows: blocks.iter().map(|block| u64::from(block.rows)).sum(),
        bytes: file.len() as u64,
        hash: Hash128::of(file),
        head_crc32c: blocks.first().map(|first| {
            let head = usize::try_from(first.offset).unwrap();
            crc32c::crc32c(&file[..head])
        }),
        blocks,
        lengths: None,
    }
}

/// Writes the lengths of the documents of a shard, one for each row, and names them in its entry.
pub(crate) async fn put_lengths(store: &Store, shard: &mut Shard, lengths: &[u32]) {
    let mut rest = lengths.iter();
    for block in &mut shard.blocks {
        let rows = rest.by_ref().take(block.rows as usize);
        block.tokens = Some(rows.map(|length| u64::from(*length)).sum());
    }
    let bytes: Bytes = lengths.iter().flat_map(|n| n.to_le_bytes()).collect();
    let path = format!("{}.lengths", shard.path);
    shard.lengths = Some(Lengths {
        path: path.clone(),
        crc32c: crc32c::crc32c(&bytes),
    });
    store.put(&path, bytes).await.unwrap();
}

/// A manifest without splits of the dataset `transform.dataset`, with classes of these names.
pub(crate) fn manifest_without_splits(
    layout: Layout,
    classes: impl IntoIterator<Item = String>,
    transform: TransformReference,
) -> Manifest {
    let class = |name| ClassCounts {
        name,
        ..ClassCounts::default()
    };
    Manifest {
        format: MANIFEST.format.to_owned(),
        version: MANIFEST.version,
        fingerprint: Hash128::new(0),
        dataset: transform.dataset.clone(),
        input_hash: Hash128::new(0),
        columns_hash: None,
        layout,
        transform,
        shuffle_seed: None,
        sources: Vec::new(),
        text: None,
        near_dup: None,
        counts: DatasetCounts {
            rejected: BTreeMap::new(),
            classes: classes.into_iter().map(class).collect(),
            ..DatasetCounts::default()
        },
        splits: Vec::new(),
        rejects: Vec::new(),
        tokens: None,
        edit: None,
        kept: Vec::new(),
        profile: None,
        additions: Vec::new(),
        dropped_columns: BTreeMap::new(),
        warnings: Vec::new(),
        naive: Vec::new(),
        target: None,
        other_targets: Vec::new(),
    }
}

/// A reference to the transform at `path` of a dataset.
pub(crate) fn transform_reference(
    dataset: &str,
    path: String,
    hash: Hash128,
) -> TransformReference {
    TransformReference {
        path,
        hash,
        dataset: Name::new(dataset).unwrap(),
    }
}

/// Gives `manifest` its fingerprint and makes it the current one.
pub async fn publish_manifest(store: &Store, mut manifest: Manifest) -> Manifest {
    const PATH: &str = "manifest-000001.json";
    manifest.fingerprint = manifest.compute_fingerprint();
    let bytes = encode(&manifest).into();
    store.put(PATH, bytes).await.unwrap();
    store.put("CURRENT", PATH.into()).await.unwrap();
    manifest
}
