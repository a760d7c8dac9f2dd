//! Writes the shards of a split: Arrow IPC files, uncompressed, 64-byte aligned, one record batch per block.
//!
//! Columns as [`feedline_schemas::manifest`] says. Every block but the split's last holds the same number of rows; a
//! shard ends with the block that reaches its size. A file's bytes depend on its rows and the layout alone, and its
//! path holds its hash, so writing it again changes nothing. Nothing sees a shard before a manifest names it.

use std::{collections::HashMap, sync::Arc};

use arrow::{
    array::{ArrayRef, FixedSizeListArray, Float32Array, Int32Array, UInt64Array},
    datatypes::{DataType, Field, Schema, SchemaRef},
    error::ArrowError,
    ipc::{
        MetadataVersion, root_as_footer,
        writer::{FileWriter, IpcWriteOptions},
    },
    record_batch::RecordBatch,
};
use bytes::Bytes;
use feedline_schemas::{
    config::ShardConfig,
    ids::{Hash128, Name},
    manifest::{Block, Layout, Manifest, Shard, Split, TargetKind},
};
use feedline_storage::Store;

use crate::{Error, transform::TargetValues};

/// Alignment of buffers, in bytes.
const ALIGNMENT: usize = 64;
/// Format name in a shard's own metadata.
const FORMAT: &str = "feedline.shard";
const FORMAT_VERSION: &str = "1";
/// What ends an Arrow file: footer length (4 bytes) and magic (6).
const TRAILER: usize = 10;

/// What all shards of a dataset have in common.
#[derive(Clone, Debug)]
pub(crate) struct ShardLayout {
    pub(crate) dataset: Name,
    pub(crate) transform: Hash128,
    /// Elements of `x`.
    pub(crate) features: u32,
    pub(crate) target: TargetKind,
    pub(crate) block_rows: usize,
    pub(crate) shard_bytes: u64,
}

impl ShardLayout {
    pub(crate) fn new(
        dataset: &Name,
        transform: Hash128,
        features: u32,
        target: TargetKind,
        sizes: &ShardConfig,
    ) -> Self {
        let target_bytes = if target == TargetKind::None { 0 } else { 4 };
        let row_bytes = 4 * u64::from(features) + target_bytes + 8 + 8;
        let block_rows = (sizes.block_bytes.bytes() / row_bytes).clamp(1, u64::from(u32::MAX >> 1));
        Self {
            dataset: dataset.clone(),
            transform,
            features,
            target,
            block_rows: usize::try_from(block_rows).unwrap_or(1),
            shard_bytes: sizes.shard_bytes.bytes(),
        }
    }

    /// The layout of a published dataset.
    ///
    /// # Errors
    /// [`Error::Input`] for a layout that this build only reads.
    pub(crate) fn of(manifest: &Manifest) -> Result<Self, Error> {
        let Layout::Dense { features, target } = manifest.layout else {
            return Err(Error::Input {
                what: format!("dataset `{}`", manifest.dataset),
                reason: "its shards do not hold rows of numbers".into(),
                advice: "use a dataset that `shards build` made".into(),
            });
        };
        Ok(Self::new(
            &manifest.dataset,
            manifest.transform.hash,
            features,
            target,
            &ShardConfig::default(),
        ))
    }

    /// Schema of the shards of `split`.
    pub(crate) fn schema(&self, split: Split) -> SchemaRef {
        let mut fields = vec![Field::new("x", self.x_type(), false)];
        match self.target {
            TargetKind::None => {}
            TargetKind::Regression => fields.push(Field::new("y", DataType::Float32, false)),
            TargetKind::Classification { .. } => {
                fields.push(Field::new("y", DataType::Int32, false))
            }
        }
        fields.push(Field::new("key", DataType::UInt64, false));
        fields.push(Field::new("origin", DataType::UInt64, false));
        let metadata = [
            ("feedline.format", FORMAT.to_owned()),
            ("feedline.version", FORMAT_VERSION.to_owned()),
            ("feedline.dataset", self.dataset.to_string()),
            ("feedline.split", split.to_string()),
            ("feedline.transform", self.transform.to_string()),
        ];
        let metadata: HashMap<String, String> = metadata
            .into_iter()
            .map(|(k, v)| (k.to_owned(), v))
            .collect();
        Arc::new(Schema::new_with_metadata(fields, metadata))
    }

    fn x_type(&self) -> DataType {
        DataType::FixedSizeList(Arc::new(element()), self.width())
    }

    fn width(&self) -> i32 {
        i32::try_from(self.features).expect("fewer than 2^31 features")
    }
}

fn element() -> Field {
    Field::new("item", DataType::Float32, false)
}

/// Writes one split.
pub(crate) struct SplitWriter<'a> {
    store: &'a Store,
    layout: &'a ShardLayout,
    split: Split,
    schema: SchemaRef,
    block: Rows,
    open: Option<OpenShard>,
    shards: Vec<Shard>,
}

/// One row to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    /// `[features]`.
    pub(crate) x: &'a [f32],
    pub(crate) y: Option<(&'a TargetValues, usize)>,
    pub(crate) key: u64,
    pub(crate) origin: u64,
}

/// The rows of the block being filled.
#[derive(Debug, Default)]
struct Rows {
    x: Vec<f32>,
    y_float: Vec<f32>,
    y_class: Vec<i32>,
    keys: Vec<u64>,
    origins: Vec<u64>,
}

struct OpenShard {
    file: FileWriter<Vec<u8>>,
    rows: u64,
}

impl<'a> SplitWriter<'a> {
    pub(crate) fn new(store: &'a Store, layout: &'a ShardLayout, split: Split) -> Self {
        Self {
            store,
            layout,
            split,
            schema: layout.schema(split),
            block: Rows::default(),
            open: None,
            shards: Vec::new(),
        }
    }

    pub(crate) async fn push(&mut self, row: Row<'_>) -> Result<(), Error> {
        self.block.push(row);
        if self.block.keys.len() == self.layout.block_rows {
            self.end_block()?;
            let full =
                |open: &OpenShard| open.file.get_ref().len() as u64 >= self.layout.shard_bytes;
            if self.open.as_ref().is_some_and(full) {
                self.end_shard().await?;
            }
        }
        Ok(())
    }

    /// Writes what is left and returns the shards in order.
    pub(crate) async fn finish(mut self) -> Result<Vec<Shard>, Error> {
        if !self.block.keys.is_empty() {
            self.end_block()?;
        }
        self.end_shard().await?;
        Ok(self.shards)
    }

    fn end_block(&mut self) -> Result<(), Error> {
        let batch = std::mem::take(&mut self.block).into_batch(self.layout, &self.schema)?;
        let mut open = match self.open.take() {
            Some(open) => open,
            None => OpenShard {
                file: new_file(&self.schema)?,
                rows: 0,
            },
        };
        open.file.write(&batch)?;
        open.rows += batch.num_rows() as u64;
        self.open = Some(open);
        Ok(())
    }

    async fn end_shard(&mut self) -> Result<(), Error> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        let bytes = open.file.into_inner()?;
        let hash = Hash128::of(&bytes);
        let blocks = blocks_of(&bytes, self.layout.block_rows as u64, open.rows)?;
        let head = blocks
            .first()
            .and_then(|first| usize::try_from(first.offset).ok());
        let shard = Shard {
            path: path_of(self.split, self.shards.len(), hash),
            rows: open.rows,
            bytes: bytes.len() as u64,
            hash,
            head_crc32c: head.and_then(|head| bytes.get(..head)).map(crc32c::crc32c),
            blocks,
            lengths: None,
        };
        self.store.put(&shard.path, Bytes::from(bytes)).await?;
        self.shards.push(shard);
        Ok(())
    }
}

impl Rows {
    fn push(&mut self, row: Row<'_>) {
        self.x.extend_from_slice(row.x);
        match row.y {
            None => {}
            Some((TargetValues::Regression(values), at)) => self.y_float.push(values[at]),
            Some((TargetValues::Classification(values), at)) => self.y_class.push(values[at]),
        }
        self.keys.push(row.key);
        self.origins.push(row.origin);
    }

    fn into_batch(
        self,
        layout: &ShardLayout,
        schema: &SchemaRef,
    ) -> Result<RecordBatch, ArrowError> {
        let x = Arc::new(Float32Array::from(self.x));
        let x = FixedSizeListArray::try_new(Arc::new(element()), layout.width(), x, None)?;
        let mut columns: Vec<ArrayRef> = vec![Arc::new(x)];
        match layout.target {
            TargetKind::None => {}
            TargetKind::Regression => columns.push(Arc::new(Float32Array::from(self.y_float))),
            TargetKind::Classification { .. } => {
                columns.push(Arc::new(Int32Array::from(self.y_class)))
            }
        }
        columns.push(Arc::new(UInt64Array::from(self.keys)));
        columns.push(Arc::new(UInt64Array::from(self.origins)));
        RecordBatch::try_new(Arc::clone(schema), columns)
    }
}

fn new_file(schema: &SchemaRef) -> Result<FileWriter<Vec<u8>>, ArrowError> {
    let options = IpcWriteOptions::try_new(ALIGNMENT, false, MetadataVersion::V5)?;
    FileWriter::try_new_with_options(Vec::new(), schema, options)
}

fn path_of(split: Split, index: usize, hash: Hash128) -> String {
    format!("shards/{split}/{index:05}-{}.arrow", hash.short())
}

/// The block table, from the file's own footer.
fn blocks_of(file: &[u8], block_rows: u64, rows: u64) -> Result<Vec<Block>, Error> {
    let found = footer_blocks(file)?;
    let mut left = rows;
    let blocks = found
        .into_iter()
        .map(|(offset, metadata_bytes, body_bytes)| {
            let rows = left.min(block_rows);
            left -= rows;
            let crc32c = block_bytes(file, offset, metadata_bytes, body_bytes).map(crc32c::crc32c);
            Block {
                offset,
                metadata_bytes,
                body_bytes,
                rows: u32::try_from(rows).expect("a block has fewer than 2^31 rows"),
                crc32c: crc32c.expect("the writer's footer lies inside its file"),
                tokens: None,
            }
        });
    let blocks: Vec<Block> = blocks.collect();
    assert_eq!(left, 0, "the footer lists every block that was written");
    Ok(blocks)
}

/// Offset, metadata and body length of every record batch, as the footer has them.
pub(crate) fn footer_blocks(file: &[u8]) -> Result<Vec<(u64, u32, u64)>, ArrowError> {
    let bad = |what: &str| ArrowError::IpcError(what.to_owned());
    let start = file
        .len()
        .checked_sub(TRAILER)
        .ok_or_else(|| bad("the file is too short"))?;
    let trailer: [u8; TRAILER] = file[start..]
        .try_into()
        .map_err(|_| bad("the file is too short"))?;
    let length = arrow::ipc::reader::read_footer_length(trailer)?;
    let footer = start
        .checked_sub(length)
        .ok_or_else(|| bad("the footer is longer than the file"))?;
    let footer = root_as_footer(&file[footer..start]).map_err(|e| bad(&e.to_string()))?;
    let blocks = footer
        .recordBatches()
        .ok_or_else(|| bad("the footer lists no blocks"))?;
    let sizes = blocks.iter().map(|b| {
        let offset = u64::try_from(b.offset()).ok()?;
        Some((
            offset,
            u32::try_from(b.metaDataLength()).ok()?,
            u64::try_from(b.bodyLength()).ok()?,
        ))
    });
    sizes
        .collect::<Option<_>>()
        .ok_or_else(|| bad("the footer has a negative length"))
}

/// Metadata and body of a block; `None` when it would lie outside the file.
pub(crate) fn block_bytes(
    file: &[u8],
    offset: u64,
    metadata_bytes: u32,
    body_bytes: u64,
) -> Option<&[u8]> {
    let end = offset
        .checked_add(u64::from(metadata_bytes))?
        .checked_add(body_bytes)?;
    file.get(usize::try_from(offset).ok()?..usize::try_from(end).ok()?)
}
