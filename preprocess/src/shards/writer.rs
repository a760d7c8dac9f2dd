//! Writes the shards of a split: Arrow IPC files, uncompressed, 64-byte aligned, one record batch per block.
//!
//! Columns as [`feedline_schemas::manifest`] says. Every block of numbers but the split's last holds the same number of
//! rows, one of images or documents ends with the row that reaches its size; a shard ends with the block that reaches
//! its own. A file's bytes depend on its rows and the layout alone, and its
//! path holds its hash, so writing it again changes nothing. Nothing sees a shard before a manifest names it.

use std::{ops::Range, sync::Arc};

use arrow::{
    array::{
        ArrayRef, FixedSizeListArray, Float32Array, Int32Array, LargeBinaryBuilder,
        LargeStringBuilder, ListArray, UInt16Array, UInt32Array, UInt64Array,
    },
    buffer::OffsetBuffer,
    datatypes::SchemaRef,
    error::ArrowError,
    record_batch::RecordBatch,
};
use feedline_schemas::manifest::{Layout, Shard, Split, SplitShards, TargetKind, TokenType};
use feedline_storage::Store;
use tokio::task::{JoinHandle, JoinSet};

use super::{
    open_shard::OpenShard,
    shard_layout::{ShardLayout, element, token, width},
    stored_shard::{Stored, folder_of},
};
use crate::{
    Error,
    operators::passthrough_columns::{self, PassthroughValues},
    transform::TargetValues,
};

/// Shards that are made durable while others fill.
const MOST_LEAVING: usize = 3;

/// Most bytes of texts that are kept in a block: who reads a row reads its block.
const MOST_KEPT: u64 = 256 << 20;

fn too_much_kept(rows: usize) -> Error {
    let reason = format!(
        "{rows} rows of one block keep more than {} MiB of text or bytes; keep an id in their place, or lower \
         `dataset.shards.block_bytes`",
        MOST_KEPT >> 20
    );
    Error::config("dataset.passthrough", reason)
}

/// Shards of a split on their way to the store.
#[derive(Debug, Default)]
pub(crate) struct Leaving {
    tasks: JoinSet<Result<Stored, Error>>,
    stored: Vec<(usize, Shard)>,
}

impl Leaving {
    /// The shards in order, when all are stored.
    pub(crate) async fn shards(mut self) -> Result<Vec<Shard>, Error> {
        self.wait(0).await?;
        self.stored.sort_unstable_by_key(|(index, _)| *index);
        Ok(self.stored.into_iter().map(|(_, shard)| shard).collect())
    }

    /// Waits until at most `most` are on their way; returns memory that one of the others was in.
    async fn wait(&mut self, most: usize) -> Result<Option<Vec<u8>>, Error> {
        let mut free = None;
        while self.tasks.len() > most {
            let Some(stored) = self.tasks.join_next().await else {
                break;
            };
            let (index, shard, room) = stored??;
            self.stored.push((index, shard));
            free = Some(room);
        }
        Ok(free)
    }
}

/// Removes unfinished files in `dataset` that dead processes left. A file that cannot be removed
/// does no harm.
pub(crate) async fn sweep(dataset: &Store) {
    let others = ["", "rejects"].map(str::to_owned);
    for folder in Split::ALL.map(folder_of).into_iter().chain(others) {
        let store = dataset.clone();
        let named = folder.clone();
        let swept = tokio::task::spawn_blocking(move || store.sweep(&named));
        if let Ok(Err(error)) = swept.await {
            tracing::debug!(folder, %error, "files that were begun and never ended were left where they are");
        }
    }
}

/// Writes one split.
pub(crate) struct SplitWriter<'a> {
    store: &'a Store,
    layout: &'a ShardLayout,
    split: Split,
    schema: SchemaRef,
    block: Rows,
    /// The shard that blocks are put to. One is being written while the next fills.
    open: Option<JoinHandle<Result<OpenShard, Error>>>,
    /// Shards that the split has before these.
    before: usize,
    /// Shards that have been ended.
    ended: usize,
    leaving: Leaving,
    /// True if shards stay in memory until they are stored.
    is_in_memory: bool,
    /// Memory of one that has been stored, for one to come.
    room: Vec<u8>,
}

/// One row to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    /// `[features]`.
    pub(crate) x: &'a [f32],
    /// A whole image file.
    pub(crate) image: Option<&'a [u8]>,
    /// Boxes in it, as JSON; none where the layout has none.
    pub(crate) boxes: Option<&'a str>,
    /// Ids of a document.
    pub(crate) tokens: Option<&'a [u32]>,
    pub(crate) y: Option<(&'a TargetValues, usize)>,
    pub(crate) key: u64,
    pub(crate) origin: u64,
    /// Passthrough columns of its batch, and the index of the row in it.
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
    /// Passthrough columns.
    pub(crate) kept: &'a Arc<[ArrayRef]>,
}

/// The rows of the block being filled.
#[derive(Debug, Default)]
struct Rows {
    x: Vec<f32>,
    images: LargeBinaryBuilder,
    boxes: LargeStringBuilder,
    tokens: Vec<u32>,
    /// Tokens of each row.
    lengths: Vec<u32>,
    y_float: Vec<f32>,
    y_class: Vec<i32>,
    keys: Vec<u64>,
    origins: Vec<u64>,
    kept: PassthroughValues,
    kept_bytes: u64,
    bytes: u64,
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
            ended: 0,
            leaving: Leaving::default(),
            is_in_memory: false,
            room: Vec::new(),
        }
    }

    /// The same writer, with `before` shards ahead of its own.
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

    /// Returns true if rows are numbers alone, which [`Self::push_rows`] takes.
    pub(crate) fn takes_rows(&self) -> bool {
        let mut kept = self.layout.kept.iter();
        self.layout.rows_of_block().is_some() && kept.all(passthrough_columns::is_number)
    }

    /// Writes some of these rows, as if each was given to [`Self::push`].
    ///
    /// # Panics
    /// If [`Self::takes_rows`] is false.
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
        match self.block.is_full(self.layout) {
            true => self.end_block().await,
            false => Ok(()),
        }
    }

    /// Writes what is left and returns the shards in order.
    pub(crate) async fn finish(self) -> Result<Vec<Shard>, Error> {
        self.end().await?.shards().await
    }

    /// Writes what is left. The last shards may still be on their way to the store, unless they are in memory.
    pub(crate) async fn end(mut self) -> Result<Leaving, Error> {
        if !self.block.keys.is_empty() {
            self.end_block().await?;
        }
        self.end_shard().await?;
        if self.is_in_memory {
            self.leaving.wait(0).await?;
        }
        Ok(self.leaving)
    }

    /// Ends the block, full or not; to be done where it holds a row. It is written while the next one fills.
    pub(crate) async fn end_block(&mut self) -> Result<(), Error> {
        let block = std::mem::take(&mut self.block);
        let mut open = self.opened().await?;
        if let Some(full) = open.take_if(|open| open.bytes() >= self.layout.shard_bytes) {
            self.leave(full).await?;
        }
        let is_tokens = self.layout.parts().tokens.is_some();
        let tokens = is_tokens.then_some(block.tokens.len() as u64);
        let lengths = block.lengths.clone();
        let batch = block.into_batch(self.layout, &self.schema)?;
        let room = match &open {
            Some(_) => Vec::new(),
            None => std::mem::take(&mut self.room),
        };
        let (store, folder) = (self.store.clone(), folder_of(self.split));
        let (schema, expected) = (Arc::clone(&self.schema), self.expected());
        let work = move || {
            let mut open = match open {
                Some(open) => open,
                None => OpenShard::begin(&store, &folder, &schema, room, expected)?,
            };
            open.write(&batch, tokens, &lengths)?;
            Ok(open)
        };
        self.open = Some(tokio::task::spawn_blocking(work));
        Ok(())
    }

    /// The shard that blocks are put to, when the last of them has been written.
    async fn opened(&mut self) -> Result<Option<OpenShard>, Error> {
        match self.open.take() {
            Some(writing) => writing.await?.map(Some),
            None => Ok(None),
        }
    }

    /// Expected bytes of a shard, if that much memory can be reserved for one.
    fn expected(&self) -> usize {
        // It is reserved, not used, until rows are written.
        const MOST: u64 = 256 << 20;
        let (shard, block) = (self.layout.shard_bytes, self.layout.block_bytes);
        match shard < MOST {
            true => usize::try_from(shard + 2 * block.min(shard)).unwrap_or(0),
            false => 0,
        }
    }

    /// Ends the shard with the last block that was ended. It is stored while the next one fills.
    pub(crate) async fn end_shard(&mut self) -> Result<(), Error> {
        match self.opened().await? {
            Some(open) => self.leave(open).await,
            None => Ok(()),
        }
    }

    async fn leave(&mut self, open: OpenShard) -> Result<(), Error> {
        // One that is in memory has left it before another one leaves.
        self.is_in_memory = open.is_in_memory();
        let most = if self.is_in_memory {
            0
        } else {
            MOST_LEAVING - 1
        };
        if let Some(room) = self.leaving.wait(most).await? {
            self.room = room;
        }
        let index = self.before + self.ended;
        self.ended += 1;
        let has_lengths = matches!(self.layout.layout, Layout::Tokens { .. });
        let stored = open.stored(self.store.clone(), self.split, index, has_lengths);
        self.leaving.tasks.spawn(stored);
        Ok(())
    }
}

impl Rows {
    /// Returns true if the block should be written: a block of numbers holds as many rows as fit,
    /// any other ends with the row that reaches its size.
    fn is_full(&self, layout: &ShardLayout) -> bool {
        match layout.rows_of_block() {
            Some(rows) => self.keys.len() >= rows,
            None => self.bytes >= layout.block_bytes,
        }
    }

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
            Some(TargetValues::Regressions { y, targets }) => {
                let numbers = some.start * targets..some.end * targets;
                self.y_float.extend_from_slice(&y[numbers]);
            }
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
        if let Some(file) = row.image {
            self.images.append_value(file);
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
            Some((TargetValues::Regressions { y, targets }, at)) => {
                self.y_float
                    .extend_from_slice(&y[at * targets..(at + 1) * targets]);
            }
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
            self.kept_bytes += passthrough_columns::bytes_of(columns, at);
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
        if parts.images {
            columns.push(Arc::new(self.images.finish()));
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
            TargetKind::Regressions { targets } => {
                let y = Arc::new(Float32Array::from(self.y_float));
                let (element, width) = (Arc::new(element()), width(targets));
                columns.push(Arc::new(FixedSizeListArray::try_new(
                    element, width, y, None,
                )?));
            }
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

/// Token ids in the shards of a split, as their block tables say.
pub(crate) fn tokens_in(split: Option<&SplitShards>) -> u64 {
    let shards = split.into_iter().flat_map(|split| &split.shards);
    let blocks = shards.flat_map(|shard| &shard.blocks);
    blocks.filter_map(|block| block.tokens).sum()
}
