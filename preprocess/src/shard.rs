//! Writes the shards of a split: Arrow IPC files, uncompressed, 64-byte aligned, one record batch per block.
//!
//! Columns as [`feedline_schemas::manifest`] says. Every block of numbers but the split's last holds the same number of
//! rows, one of pictures or documents ends with the row that reaches its size; a shard ends with the block that reaches
//! its own. A file's bytes depend on its rows and the layout alone, and its
//! path holds its hash, so writing it again changes nothing. Nothing sees a shard before a manifest names it.

use std::{collections::HashMap, ops::Range, sync::Arc};

use arrow::{
    array::{
        ArrayRef, FixedSizeListArray, Float32Array, Int32Array, LargeBinaryBuilder,
        LargeStringBuilder, ListArray, UInt16Array, UInt32Array, UInt64Array,
    },
    buffer::OffsetBuffer,
    datatypes::{DataType, Field, Schema, SchemaRef},
    error::ArrowError,
    ipc::{
        MetadataVersion, root_as_footer,
        writer::{FileWriter, IpcWriteOptions},
    },
    record_batch::RecordBatch,
};
use bytes::Bytes;
use datafusion::error::DataFusionError;
use feedline_schemas::{
    config::ShardConfig,
    ids::{Hash128, Name},
    manifest::{
        Block, KeptColumn, Layout, Lengths, Manifest, Shard, Split, SplitShards, TargetKind,
        TokenType,
    },
};
use feedline_storage::Store;
use tokio::task::JoinSet;

use crate::{
    Error,
    kept::{self, Kept},
    transform::TargetValues,
};

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
    pub(crate) layout: Layout,
    /// Whether pictures have boxes.
    pub(crate) boxes: bool,
    /// What rows keep as it landed.
    pub(crate) kept: Vec<KeptColumn>,
    pub(crate) block_bytes: u64,
    pub(crate) shard_bytes: u64,
}

impl ShardLayout {
    pub(crate) fn new(
        dataset: &Name,
        transform: Hash128,
        layout: Layout,
        sizes: &ShardConfig,
    ) -> Self {
        Self {
            dataset: dataset.clone(),
            transform,
            layout,
            boxes: false,
            kept: Vec::new(),
            block_bytes: sizes.block_bytes.bytes(),
            shard_bytes: sizes.shard_bytes.bytes(),
        }
    }

    /// The layout of a published dataset.
    pub(crate) fn of(manifest: &Manifest) -> Self {
        Self {
            boxes: manifest.counts.boxes.is_some(),
            kept: manifest.kept.clone(),
            ..Self::new(
                &manifest.dataset,
                manifest.transform.hash,
                manifest.layout.clone(),
                &ShardConfig::default(),
            )
        }
    }

    /// The same, whose blocks and shards end where they are told to.
    pub(crate) fn with_given_ends(self) -> Self {
        Self {
            block_bytes: u64::MAX,
            shard_bytes: u64::MAX,
            ..self
        }
    }

    fn parts(&self) -> Parts {
        let none = Parts {
            features: None,
            pictures: false,
            tokens: None,
            target: TargetKind::None,
        };
        match self.layout {
            Layout::Dense { features, target } => Parts {
                features: Some(features),
                target,
                ..none
            },
            Layout::Pictures { target } => Parts {
                pictures: true,
                target,
                ..none
            },
            Layout::Tokens { id, .. } => Parts {
                tokens: Some(id),
                ..none
            },
            Layout::Multi {
                features,
                pictures,
                tokens,
                target,
            } => Parts {
                features: (features > 0).then_some(features),
                pictures,
                tokens: tokens.map(|tokens| tokens.id),
                target,
            },
        }
    }

    /// Schema of the shards of `split`.
    pub(crate) fn schema(&self, split: Split) -> SchemaRef {
        let parts = self.parts();
        let mut fields = Vec::new();
        if let Some(features) = parts.features {
            fields.push(Field::new("x", x_type(features), false));
        }
        if parts.pictures {
            fields.push(Field::new("image", DataType::LargeBinary, false));
        }
        if let Some(id) = parts.tokens {
            let ids = DataType::List(Arc::new(token(id)));
            fields.push(Field::new("tokens", ids, false));
        }
        match parts.target {
            TargetKind::None => {}
            TargetKind::Regression => fields.push(Field::new("y", DataType::Float32, false)),
            TargetKind::Classification { .. } => {
                fields.push(Field::new("y", DataType::Int32, false))
            }
        }
        fields.push(Field::new("key", DataType::UInt64, false));
        fields.push(Field::new("origin", DataType::UInt64, false));
        if self.boxes {
            fields.push(Field::new("boxes", DataType::LargeUtf8, false));
        }
        fields.extend(self.kept.iter().map(kept::field));
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

    /// Whether the block is worth writing: one of numbers holds as many rows as fit, any other ends with the row that
    /// reaches its size.
    fn is_full(&self, block: &Rows) -> bool {
        match self.rows_of_block() {
            Some(rows) => block.keys.len() >= rows,
            None => block.bytes >= self.block_bytes,
        }
    }

    /// Rows of a block of numbers; `None` where a block ends by its size.
    fn rows_of_block(&self) -> Option<usize> {
        let Layout::Dense { features, target } = self.layout else {
            return None;
        };
        let target_bytes = if target == TargetKind::None { 0 } else { 4 };
        // A text that is kept counts as a number does: every block but the last has as many rows.
        let kept_bytes = 8 * self.kept.len() as u64;
        let row_bytes = 4 * u64::from(features) + target_bytes + 8 + 8 + kept_bytes;
        let rows = (self.block_bytes / row_bytes).clamp(1, u64::from(u32::MAX >> 1));
        Some(usize::try_from(rows).expect("31 bits fit"))
    }
}

/// What the rows of a shard have.
#[derive(Clone, Copy, Debug)]
struct Parts {
    /// Elements of `x`.
    features: Option<u32>,
    pictures: bool,
    tokens: Option<TokenType>,
    target: TargetKind,
}

fn x_type(features: u32) -> DataType {
    DataType::FixedSizeList(Arc::new(element()), width(features))
}

fn width(features: u32) -> i32 {
    i32::try_from(features).expect("fewer than 2^31 features")
}

fn element() -> Field {
    Field::new("item", DataType::Float32, false)
}

fn token(id: TokenType) -> Field {
    let r#type = match id {
        TokenType::U16 => DataType::UInt16,
        TokenType::U32 => DataType::UInt32,
    };
    Field::new("item", r#type, false)
}

/// Most bytes of texts that are kept in a block: who reads a row reads its block.
const MOST_KEPT: u64 = 256 << 20;

fn too_much_kept(rows: usize) -> Error {
    let reason = format!(
        "{rows} rows of one block keep more than {} MiB of text or bytes; keep an id in their place, or lower \
         `dataset.shards.block_bytes`",
        MOST_KEPT >> 20
    );
    Error::config("dataset.keep", reason)
}

/// Writes one split.
pub(crate) struct SplitWriter<'a> {
    store: &'a Store,
    layout: &'a ShardLayout,
    split: Split,
    schema: SchemaRef,
    block: Rows,
    open: Option<OpenShard>,
    /// Shards that the split has before these.
    before: usize,
    shards: Vec<Shard>,
    /// The shard that is on its way to the store while the next one fills.
    leaving: JoinSet<Result<(Shard, Vec<u8>), Error>>,
    /// Memory of one that has been stored, for one to come.
    room: Vec<u8>,
}

/// One row to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    /// `[features]`.
    pub(crate) x: &'a [f32],
    /// A whole picture file.
    pub(crate) picture: Option<&'a [u8]>,
    /// Boxes in it, as JSON; none where the layout has none.
    pub(crate) boxes: Option<&'a str>,
    /// Ids of a document.
    pub(crate) tokens: Option<&'a [u32]>,
    pub(crate) y: Option<(&'a TargetValues, usize)>,
    pub(crate) key: u64,
    pub(crate) origin: u64,
    /// What is kept of its batch, a column each, and which row of it.
    pub(crate) kept: Option<(&'a Arc<[ArrayRef]>, usize)>,
}

/// Rows of numbers to write, with nothing else beside them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NumberRows<'a> {
    /// `[rows, features]`.
    pub(crate) x: &'a [f32],
    pub(crate) features: usize,
    pub(crate) y: Option<&'a TargetValues>,
    pub(crate) keys: &'a [u64],
    pub(crate) origins: &'a [u64],
    /// What is kept, a column each.
    pub(crate) kept: &'a Arc<[ArrayRef]>,
}

/// The rows of the block being filled.
#[derive(Debug, Default)]
struct Rows {
    x: Vec<f32>,
    pictures: LargeBinaryBuilder,
    boxes: LargeStringBuilder,
    tokens: Vec<u32>,
    /// Tokens of each row.
    lengths: Vec<u32>,
    y_float: Vec<f32>,
    y_class: Vec<i32>,
    keys: Vec<u64>,
    origins: Vec<u64>,
    kept: Kept,
    kept_bytes: u64,
    bytes: u64,
}

struct OpenShard {
    file: FileWriter<Vec<u8>>,
    /// Rows and tokens of each block.
    blocks: Vec<(u32, Option<u64>)>,
    /// Tokens of each row.
    lengths: Vec<u32>,
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
            before: 0,
            shards: Vec::new(),
            leaving: JoinSet::new(),
            room: Vec::new(),
        }
    }

    /// The same, whose shards stand behind so many others.
    pub(crate) fn behind(self, before: usize) -> Self {
        Self { before, ..self }
    }

    pub(crate) async fn push(&mut self, row: Row<'_>) -> Result<(), Error> {
        self.block.push(row, self.layout.parts().tokens);
        if self.block.kept_bytes > MOST_KEPT {
            return Err(too_much_kept(self.block.keys.len()));
        }
        self.end_if_full().await
    }

    /// Whether rows are numbers alone, which [`Self::push_rows`] takes.
    pub(crate) fn takes_rows(&self) -> bool {
        let mut kept = self.layout.kept.iter();
        self.layout.rows_of_block().is_some() && kept.all(kept::is_number)
    }

    /// Writes some of these rows, as if each was given to [`Self::push`].
    ///
    /// # Panics
    /// Where [`Self::takes_rows`] says that rows are more than numbers.
    pub(crate) async fn push_rows(
        &mut self,
        rows: &NumberRows<'_>,
        some: Range<usize>,
    ) -> Result<(), Error> {
        let most = self.layout.rows_of_block().expect("rows are numbers");
        let mut next = some.start;
        while next < some.end {
            let end = some.end.min(next + most - self.block.keys.len());
            self.block.extend(rows, next..end, most);
            next = end;
            self.end_if_full().await?;
        }
        Ok(())
    }

    async fn end_if_full(&mut self) -> Result<(), Error> {
        if self.layout.is_full(&self.block) {
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
        self.wait().await?;
        Ok(self.shards)
    }

    /// Ends the block, full or not; to be done where it holds a row.
    pub(crate) fn end_block(&mut self) -> Result<(), Error> {
        let block = std::mem::take(&mut self.block);
        let mut open = match self.open.take() {
            Some(open) => open,
            None => {
                let room = self.new_room();
                OpenShard {
                    file: new_file(&self.schema, room)?,
                    blocks: Vec::new(),
                    lengths: Vec::new(),
                }
            }
        };
        let rows = u32::try_from(block.keys.len()).expect("a block has fewer than 2^31 rows");
        let is_tokens = self.layout.parts().tokens.is_some();
        open.blocks
            .push((rows, is_tokens.then_some(block.tokens.len() as u64)));
        open.lengths.extend_from_slice(&block.lengths);
        open.file
            .write(&block.into_batch(self.layout, &self.schema)?)?;
        self.open = Some(open);
        Ok(())
    }

    /// Memory for a shard.
    fn new_room(&mut self) -> Vec<u8> {
        // It is not in use before something is there.
        const MOST: u64 = 256 << 20;
        let mut room = std::mem::take(&mut self.room);
        let (shard, block) = (self.layout.shard_bytes, self.layout.block_bytes);
        if shard < MOST {
            let expected = shard + 2 * block.min(shard);
            room.reserve_exact(usize::try_from(expected).unwrap_or(0));
        }
        room
    }

    /// Ends the shard with the last block that was ended. It is stored while the next one fills.
    pub(crate) async fn end_shard(&mut self) -> Result<(), Error> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        self.wait().await?;
        let index = self.before + self.shards.len();
        let has_lengths = matches!(self.layout.layout, Layout::Tokens { .. });
        let stored = open.stored(self.store.clone(), self.split, index, has_lengths);
        self.leaving.spawn(stored);
        Ok(())
    }

    /// Waits for the shard that is on its way.
    async fn wait(&mut self) -> Result<(), Error> {
        while let Some(stored) = self.leaving.join_next().await {
            let (shard, room) = stored.map_err(joined)??;
            self.shards.push(shard);
            self.room = room;
        }
        Ok(())
    }
}

impl OpenShard {
    /// The shard in the store, and the memory it was in.
    async fn stored(
        self,
        store: Store,
        split: Split,
        index: usize,
        has_lengths: bool,
    ) -> Result<(Shard, Vec<u8>), Error> {
        let work = move || {
            let bytes = self.file.into_inner()?;
            let hash = Hash128::of(&bytes);
            let blocks = blocks_of(&bytes, &self.blocks)?;
            let head = blocks
                .first()
                .and_then(|first| usize::try_from(first.offset).ok());
            let shard = Shard {
                path: path_of(split, index, hash),
                rows: self.blocks.iter().map(|(rows, _)| u64::from(*rows)).sum(),
                bytes: bytes.len() as u64,
                hash,
                head_crc32c: head.and_then(|head| bytes.get(..head)).map(crc32c::crc32c),
                blocks,
                lengths: None,
            };
            Ok::<_, Error>((shard, bytes, self.lengths))
        };
        let worked = tokio::task::spawn_blocking(work).await;
        let (mut shard, bytes, lengths) = worked.map_err(joined)??;
        if has_lengths {
            shard.lengths = Some(put_lengths(&store, &shard.path, &lengths).await?);
        }
        let bytes = Bytes::from(bytes);
        store.put(&shard.path, bytes.clone()).await?;
        // No copy: nobody else has them any longer.
        let mut room = Vec::from(bytes);
        room.clear();
        Ok((shard, room))
    }
}

fn joined(error: tokio::task::JoinError) -> Error {
    Error::Engine(DataFusionError::ExecutionJoin(Box::new(error)))
}

/// Writes the lengths of the documents of the shard at `shard`.
async fn put_lengths(store: &Store, shard: &str, lengths: &[u32]) -> Result<Lengths, Error> {
    let bytes: Vec<u8> = lengths.iter().flat_map(|n| n.to_le_bytes()).collect();
    let lengths = Lengths {
        path: format!("{}.lengths", shard.trim_end_matches(".arrow")),
        crc32c: crc32c::crc32c(&bytes),
    };
    store.put(&lengths.path, Bytes::from(bytes)).await?;
    Ok(lengths)
}

impl Rows {
    /// Takes some of `rows`; the block will have `most` of them at most.
    fn extend(&mut self, rows: &NumberRows<'_>, some: Range<usize>, most: usize) {
        if self.keys.is_empty() {
            self.x.reserve_exact(most * rows.features);
        }
        let cells = some.start * rows.features..some.end * rows.features;
        self.x.extend_from_slice(&rows.x[cells]);
        match rows.y {
            None => {}
            Some(TargetValues::Regression(y)) => self.y_float.extend_from_slice(&y[some.clone()]),
            Some(TargetValues::Classification(y)) => {
                self.y_class.extend_from_slice(&y[some.clone()]);
            }
        }
        self.keys.extend_from_slice(&rows.keys[some.clone()]);
        self.origins.extend_from_slice(&rows.origins[some.clone()]);
        if !rows.kept.is_empty() {
            some.for_each(|row| self.kept.push(rows.kept, row));
        }
    }

    fn push(&mut self, row: Row<'_>, id: Option<TokenType>) {
        self.x.extend_from_slice(row.x);
        self.bytes += 4 * row.x.len() as u64;
        if let Some(file) = row.picture {
            self.pictures.append_value(file);
            self.bytes += file.len() as u64;
        }
        if let Some(ids) = row.tokens {
            self.tokens.extend_from_slice(ids);
            let length = u32::try_from(ids.len()).expect("a document has fewer than 2^31 ids");
            self.lengths.push(length);
            let is_wide = id == Some(TokenType::U32);
            self.bytes += u64::from(length) * if is_wide { 4 } else { 2 };
        }
        match row.y {
            None => {}
            Some((TargetValues::Regression(values), at)) => self.y_float.push(values[at]),
            Some((TargetValues::Classification(values), at)) => self.y_class.push(values[at]),
        }
        if let Some(boxes) = row.boxes {
            self.boxes.append_value(boxes);
            self.bytes += boxes.len() as u64;
        }
        self.keys.push(row.key);
        self.origins.push(row.origin);
        if let Some((columns, at)) = row.kept {
            self.kept.push(columns, at);
            self.kept_bytes += kept::bytes_of(columns, at);
        }
    }

    fn into_batch(
        mut self,
        layout: &ShardLayout,
        schema: &SchemaRef,
    ) -> Result<RecordBatch, ArrowError> {
        let parts = layout.parts();
        let mut columns: Vec<ArrayRef> = Vec::new();
        if let Some(features) = parts.features {
            let x = Arc::new(Float32Array::from(self.x));
            let (element, width) = (Arc::new(element()), width(features));
            columns.push(Arc::new(FixedSizeListArray::try_new(
                element, width, x, None,
            )?));
        }
        if parts.pictures {
            columns.push(Arc::new(self.pictures.finish()));
        }
        if let Some(id) = parts.tokens {
            let lengths = self.lengths.iter().map(|length| *length as usize);
            let offsets = OffsetBuffer::from_lengths(lengths);
            let ids = ids(self.tokens, id);
            let ids = ListArray::try_new(Arc::new(token(id)), offsets, ids, None)?;
            columns.push(Arc::new(ids));
        }
        match parts.target {
            TargetKind::None => {}
            TargetKind::Regression => columns.push(Arc::new(Float32Array::from(self.y_float))),
            TargetKind::Classification { .. } => {
                columns.push(Arc::new(Int32Array::from(self.y_class)))
            }
        }
        columns.push(Arc::new(UInt64Array::from(self.keys)));
        columns.push(Arc::new(UInt64Array::from(self.origins)));
        if layout.boxes {
            columns.push(Arc::new(self.boxes.finish()));
        }
        columns.extend(self.kept.into_columns(layout.kept.len())?);
        RecordBatch::try_new(Arc::clone(schema), columns)
    }
}

fn ids(tokens: Vec<u32>, id: TokenType) -> ArrayRef {
    match id {
        TokenType::U32 => Arc::new(UInt32Array::from(tokens)),
        TokenType::U16 => {
            let narrow = |id| u16::try_from(id).expect("the vocabulary chose the type of its ids");
            Arc::new(tokens.into_iter().map(narrow).collect::<UInt16Array>())
        }
    }
}

/// A file in the memory of `room`, which is empty.
fn new_file(schema: &SchemaRef, room: Vec<u8>) -> Result<FileWriter<Vec<u8>>, ArrowError> {
    let options = IpcWriteOptions::try_new(ALIGNMENT, false, MetadataVersion::V5)?;
    FileWriter::try_new_with_options(room, schema, options)
}

fn path_of(split: Split, index: usize, hash: Hash128) -> String {
    format!("shards/{split}/{index:05}-{}.arrow", hash.short())
}

/// The block table, from the file's own footer and the rows and tokens of each block.
fn blocks_of(file: &[u8], written: &[(u32, Option<u64>)]) -> Result<Vec<Block>, Error> {
    let found = footer_blocks(file)?;
    assert_eq!(
        found.len(),
        written.len(),
        "the footer lists every block that was written"
    );
    let blocks = found.into_iter().zip(written).map(
        |((offset, metadata_bytes, body_bytes), (rows, tokens))| {
            let crc32c = block_bytes(file, offset, metadata_bytes, body_bytes).map(crc32c::crc32c);
            Block {
                offset,
                metadata_bytes,
                body_bytes,
                rows: *rows,
                crc32c: crc32c.expect("the writer's footer lies inside its file"),
                tokens: *tokens,
            }
        },
    );
    Ok(blocks.collect())
}

/// Token ids in the shards of a split, as their block tables say.
pub(crate) fn tokens_in(split: Option<&SplitShards>) -> u64 {
    let shards = split.into_iter().flat_map(|split| &split.shards);
    let blocks = shards.flat_map(|shard| &shard.blocks);
    blocks.filter_map(|block| block.tokens).sum()
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
