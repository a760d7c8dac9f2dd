//! A block in memory: its columns, over the bytes as they were read.

use std::{ops::Range, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch},
    buffer::{Buffer, ScalarBuffer},
    datatypes::{DataType, Float32Type, Int32Type, UInt16Type, UInt32Type, UInt64Type},
    ipc::{self, MetadataVersion, reader::FileDecoder},
};
use bytes::Bytes;
use feedline_schemas::manifest::{Block, Layout, RowTokens, TargetKind, TokenType};

use super::columns::ShardColumns;
use crate::guard::catching;

/// Rows of one block. The columns share the memory of the bytes that were read; where numbers would
/// be misaligned, arrow copies the column.
#[derive(Clone, Debug)]
pub(crate) enum BlockRows {
    Dense(DenseRows),
    Images(ImageRows),
    Tokens(TokenRows),
    Multi(MultiRows),
}

/// Rows of numbers.
#[derive(Clone, Debug)]
pub(crate) struct DenseRows {
    /// `[rows, features]`, row-major.
    pub(crate) x: ScalarBuffer<f32>,
    /// `[rows]`.
    pub(crate) y: BlockTarget,
    /// `[rows]`.
    pub(crate) keys: ScalarBuffer<u64>,
    /// `[rows]`.
    pub(crate) origins: ScalarBuffer<u64>,
    /// Rows that must not be used, in order.
    pub(crate) bad: Vec<BadRow>,
}

/// Encoded images.
#[derive(Clone, Debug)]
pub(crate) struct ImageRows {
    /// The images' files one after the other, perhaps with other bytes in between.
    pub(crate) bytes: Buffer,
    /// `[rows]`: range of each image's file in `bytes`.
    pub(crate) spans: Spans,
    /// `[rows]`.
    pub(crate) y: BlockTarget,
    /// `[rows]`.
    pub(crate) keys: ScalarBuffer<u64>,
    /// `[rows]`.
    pub(crate) origins: ScalarBuffer<u64>,
    /// Rows that must not be used, in order.
    pub(crate) bad: Vec<BadRow>,
}

/// Documents, one a row.
#[derive(Clone, Debug)]
pub(crate) struct TokenRows {
    /// The documents one after the other.
    pub(crate) ids: TokenIds,
    /// `[rows + 1]`, from 0: document `i` is `ids[offsets[i]..offsets[i + 1]]`.
    pub(crate) offsets: ScalarBuffer<i32>,
    /// `[rows]`.
    pub(crate) keys: ScalarBuffer<u64>,
    /// `[rows]`.
    pub(crate) origins: ScalarBuffer<u64>,
    /// Rows that must not be used, in order.
    pub(crate) bad: Vec<BadRow>,
}

/// Rows of several parts.
#[derive(Clone, Debug)]
pub(crate) struct MultiRows {
    /// `[rows, features]`, row-major; empty without features.
    pub(crate) x: ScalarBuffer<f32>,
    /// Files of the images, and the range of each.
    pub(crate) images: Option<(Buffer, Spans)>,
    /// The ids of all texts, and `[rows + 1]` where each begins and ends.
    pub(crate) tokens: Option<(TokenIds, ScalarBuffer<i32>)>,
    /// `[rows]`.
    pub(crate) y: BlockTarget,
    /// `[rows]`.
    pub(crate) keys: ScalarBuffer<u64>,
    /// `[rows]`.
    pub(crate) origins: ScalarBuffer<u64>,
    /// Rows that must not be used, in order.
    pub(crate) bad: Vec<BadRow>,
}

/// A row that must not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadRow {
    /// Row in the block.
    pub(crate) row: u32,
    /// Description of the damage.
    pub(crate) reason: String,
}

/// Token ids.
#[derive(Clone, Debug)]
pub(crate) enum TokenIds {
    U16(ScalarBuffer<u16>),
    U32(ScalarBuffer<u32>),
}

/// The target column of a block.
#[derive(Clone, Debug)]
pub(crate) enum BlockTarget {
    None,
    /// `[rows]`, or `[rows, targets]` of several.
    Regression(ScalarBuffer<f32>),
    Classification(ScalarBuffer<i32>),
}

/// Parts of a buffer, one a row.
#[derive(Clone, Debug)]
pub(crate) enum Spans {
    /// `[rows + 1]`: row `i` is `offsets[i]..offsets[i + 1]`.
    Adjacent(ScalarBuffer<i32>),
    /// As `Adjacent`, in 64 bits.
    AdjacentLarge(ScalarBuffer<i64>),
    /// `[rows]`: start and end of each.
    Apart(Vec<(usize, usize)>),
}

impl BlockRows {
    /// Number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.keys().len()
    }

    /// `[rows]`: key of every row.
    pub(crate) fn keys(&self) -> &[u64] {
        match self {
            Self::Dense(rows) => &rows.keys,
            Self::Images(rows) => &rows.keys,
            Self::Tokens(rows) => &rows.keys,
            Self::Multi(rows) => &rows.keys,
        }
    }

    /// `[rows]`: origin of every row.
    pub(crate) fn origins(&self) -> &[u64] {
        match self {
            Self::Dense(rows) => &rows.origins,
            Self::Images(rows) => &rows.origins,
            Self::Tokens(rows) => &rows.origins,
            Self::Multi(rows) => &rows.origins,
        }
    }

    /// `[rows]`: class of every row; empty where targets are something else.
    pub(crate) fn classes(&self) -> &[i32] {
        match self {
            Self::Dense(DenseRows { y, .. })
            | Self::Images(ImageRows { y, .. })
            | Self::Multi(MultiRows { y, .. }) => match y {
                BlockTarget::Classification(y) => y,
                BlockTarget::None | BlockTarget::Regression(_) => &[],
            },
            Self::Tokens(_) => &[],
        }
    }

    /// Rows that must not be used, in order, when bad values are skipped.
    pub(crate) fn bad(&self) -> &[BadRow] {
        match self {
            Self::Dense(rows) => &rows.bad,
            Self::Images(rows) => &rows.bad,
            Self::Tokens(rows) => &rows.bad,
            Self::Multi(rows) => &rows.bad,
        }
    }

    /// Gives the rows their origins, and keys if they have none.
    pub(crate) fn name(&mut self, new_keys: Option<Vec<u64>>, new_origins: Vec<u64>) {
        let (keys, origins) = match self {
            Self::Dense(rows) => (&mut rows.keys, &mut rows.origins),
            Self::Images(rows) => (&mut rows.keys, &mut rows.origins),
            Self::Tokens(rows) => (&mut rows.keys, &mut rows.origins),
            Self::Multi(rows) => (&mut rows.keys, &mut rows.origins),
        };
        if let Some(new_keys) = new_keys {
            *keys = new_keys.into();
        }
        *origins = new_origins.into();
    }

    /// Notes rows that must not be used.
    pub(crate) fn set_aside(&mut self, bad: Vec<BadRow>) {
        match self {
            Self::Dense(rows) => rows.bad = bad,
            Self::Images(rows) => rows.bad = bad,
            Self::Tokens(rows) => rows.bad = bad,
            Self::Multi(rows) => rows.bad = bad,
        }
    }

    /// The image's file at `row`, as it was stored, where rows have images.
    pub(crate) fn image(&self, row: usize) -> Option<&[u8]> {
        match self {
            Self::Images(rows) => Some(rows.image(row)),
            Self::Multi(rows) => {
                let (bytes, spans) = rows.images.as_ref()?;
                Some(&bytes[spans.range(row)])
            }
            Self::Dense(_) | Self::Tokens(_) => None,
        }
    }

    /// The rows as numbers, or `None` when they are something else.
    #[cfg(test)]
    pub(crate) fn as_dense(&self) -> Option<&DenseRows> {
        match self {
            Self::Dense(rows) => Some(rows),
            _ => None,
        }
    }
}

impl ImageRows {
    /// The image's file at `row`, as it was stored.
    pub(crate) fn image(&self, row: usize) -> &[u8] {
        &self.bytes[self.spans.range(row)]
    }
}

impl TokenRows {
    /// Range of the document at `row` in `ids`.
    pub(crate) fn document(&self, row: usize) -> Range<usize> {
        span(self.offsets[row])..span(self.offsets[row + 1])
    }
}

impl TokenIds {
    /// Number of ids.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::U16(ids) => ids.len(),
            Self::U32(ids) => ids.len(),
        }
    }
}

impl Spans {
    /// Range of `row`.
    pub(crate) fn range(&self, row: usize) -> Range<usize> {
        match self {
            Self::Adjacent(offsets) => span(offsets[row])..span(offsets[row + 1]),
            Self::AdjacentLarge(offsets) => span(offsets[row])..span(offsets[row + 1]),
            Self::Apart(spans) => spans[row].0..spans[row].1,
        }
    }
}

/// Converts an offset that arrow has checked to be inside its buffer.
fn span<T: TryInto<usize>>(offset: T) -> usize {
    offset.try_into().unwrap_or(usize::MAX)
}

/// Decodes the bytes of a block of our own shards, metadata and body. Their checksum has been compared.
///
/// # Errors
/// Description of the damage in the bytes.
pub(crate) fn decode(
    bytes: Bytes,
    block: &Block,
    columns: &ShardColumns,
    layout: &Layout,
) -> Result<BlockRows, String> {
    let batch = catching(|| read_batch(bytes, block, columns))??;
    if batch.num_rows() != block.rows as usize {
        return Err(format!(
            "it has `{}` rows and the manifest says `{}`",
            batch.num_rows(),
            block.rows
        ));
    }
    let reader = BlockColumns {
        batch: &batch,
        columns,
    };
    match *layout {
        Layout::Dense { features, target } => reader.dense(features, target),
        Layout::Images { target } => reader.images(target),
        Layout::Tokens { id, vocabulary } => reader.tokens(id, vocabulary, block.tokens),
        Layout::Multi {
            features,
            tokens,
            target,
            ..
        } => reader.multi(features, tokens, target, block.tokens),
    }
}

/// The columns of a block.
struct BlockColumns<'a> {
    batch: &'a RecordBatch,
    columns: &'a ShardColumns,
}

impl BlockColumns<'_> {
    fn dense(&self, features: u32, target: TargetKind) -> Result<BlockRows, String> {
        Ok(BlockRows::Dense(DenseRows {
            x: self.vectors(self.columns.payload, ("x", features))?,
            y: self.target(target)?,
            keys: self.numbers(self.columns.key)?,
            origins: self.numbers(self.columns.origin)?,
            bad: Vec::new(),
        }))
    }

    fn vectors(
        &self,
        column: usize,
        (name, width): (&str, u32),
    ) -> Result<ScalarBuffer<f32>, String> {
        let list = self.column(column)?.as_fixed_size_list();
        let x = without_nulls(list.values(), name)?.as_primitive::<Float32Type>();
        let values = self.batch.num_rows() * width as usize;
        if x.len() < values {
            return Err(format!(
                "column `{name}` has `{}` values instead of `{values}`",
                x.len()
            ));
        }
        Ok(x.values().slice(0, values))
    }

    fn images(&self, target: TargetKind) -> Result<BlockRows, String> {
        let (bytes, spans) = self.files(self.columns.payload)?;
        Ok(BlockRows::Images(ImageRows {
            bytes,
            spans,
            y: self.target(target)?,
            keys: self.numbers(self.columns.key)?,
            origins: self.numbers(self.columns.origin)?,
            bad: Vec::new(),
        }))
    }

    fn files(&self, column: usize) -> Result<(Buffer, Spans), String> {
        let column = self.column(column)?;
        Ok(match column.data_type() {
            DataType::LargeBinary => {
                let (offsets, bytes, _) = column.as_binary::<i64>().clone().into_parts();
                (bytes, Spans::AdjacentLarge(offsets.into_inner()))
            }
            _ => {
                let (offsets, bytes, _) = column.as_binary::<i32>().clone().into_parts();
                (bytes, Spans::Adjacent(offsets.into_inner()))
            }
        })
    }

    fn tokens(
        &self,
        id: TokenType,
        vocabulary: u32,
        tokens: Option<u64>,
    ) -> Result<BlockRows, String> {
        let (ids, offsets) = self.documents(self.columns.payload, id, vocabulary, tokens)?;
        Ok(BlockRows::Tokens(TokenRows {
            ids,
            offsets,
            keys: self.numbers(self.columns.key)?,
            origins: self.numbers(self.columns.origin)?,
            bad: Vec::new(),
        }))
    }

    fn multi(
        &self,
        features: u32,
        tokens: Option<RowTokens>,
        target: TargetKind,
        count: Option<u64>,
    ) -> Result<BlockRows, String> {
        let x = match self.columns.x {
            Some(x) => self.vectors(x, ("x", features))?,
            None => Vec::new().into(),
        };
        let images = self.columns.image.map(|image| self.files(image));
        let tokens = match (tokens, self.columns.tokens) {
            (Some(tokens), Some(column)) => {
                let RowTokens {
                    id,
                    vocabulary,
                    length,
                } = tokens;
                let (ids, offsets) = self.documents(column, id, vocabulary, count)?;
                let longest = offsets.windows(2).map(|ends| span(ends[1] - ends[0])).max();
                if longest.is_some_and(|longest| longest > length as usize) {
                    return Err(format!(
                        "it has a row of more token ids than the `{length}` that the manifest says"
                    ));
                }
                Some((ids, offsets))
            }
            _ => None,
        };
        Ok(BlockRows::Multi(MultiRows {
            x,
            images: images.transpose()?,
            tokens,
            y: self.target(target)?,
            keys: self.numbers(self.columns.key)?,
            origins: self.numbers(self.columns.origin)?,
            bad: Vec::new(),
        }))
    }

    fn documents(
        &self,
        column: usize,
        id: TokenType,
        vocabulary: u32,
        tokens: Option<u64>,
    ) -> Result<(TokenIds, ScalarBuffer<i32>), String> {
        let list = self.column(column)?.as_list::<i32>();
        let values = without_nulls(list.values(), "tokens")?;
        let ids = match id {
            TokenType::U16 => TokenIds::U16(values.as_primitive::<UInt16Type>().values().clone()),
            TokenType::U32 => TokenIds::U32(values.as_primitive::<UInt32Type>().values().clone()),
        };
        check_ids(&ids, vocabulary)?;
        let offsets = list.offsets().inner().clone();
        let held = offsets.last().map_or(0, |last| span(*last));
        if offsets.first().is_some_and(|first| *first != 0) || held != ids.len() {
            return Err("its documents do not fill column `tokens`".into());
        }
        if tokens.is_some_and(|tokens| tokens != held as u64) {
            return Err(format!(
                "it has `{held}` tokens and the manifest says `{}`",
                tokens.unwrap_or(0)
            ));
        }
        Ok((ids, offsets))
    }

    fn target(&self, target: TargetKind) -> Result<BlockTarget, String> {
        Ok(match (target, self.columns.y) {
            (TargetKind::None, _) | (_, None) => BlockTarget::None,
            (TargetKind::Regression, Some(y)) => {
                let values = self.column(y)?.as_primitive::<Float32Type>().values();
                BlockTarget::Regression(values.clone())
            }
            (TargetKind::Regressions { targets }, Some(y)) => {
                BlockTarget::Regression(self.vectors(y, ("y", targets))?)
            }
            (TargetKind::Classification { .. }, Some(y)) => {
                let labels = self.column(y)?.as_primitive::<Int32Type>().values();
                BlockTarget::Classification(labels.clone())
            }
        })
    }

    fn numbers(&self, index: usize) -> Result<ScalarBuffer<u64>, String> {
        let column = self.column(index)?.as_primitive::<UInt64Type>();
        Ok(column.values().clone())
    }

    fn column(&self, index: usize) -> Result<&ArrayRef, String> {
        without_nulls(
            self.batch.column(index),
            self.batch.schema_ref().field(index).name(),
        )
    }
}

fn read_batch(bytes: Bytes, block: &Block, columns: &ShardColumns) -> Result<RecordBatch, String> {
    let metadata = i32::try_from(block.metadata_bytes).map_err(|e| e.to_string())?;
    let body = i64::try_from(block.body_bytes).map_err(|e| e.to_string())?;
    let buffer = Buffer::from(bytes);
    if buffer.len() as u64 != u64::from(block.metadata_bytes) + block.body_bytes {
        return Err(format!("it has `{}` bytes", buffer.len()));
    }
    FileDecoder::new(Arc::clone(&columns.schema), MetadataVersion::V5)
        .read_record_batch(&ipc::Block::new(0, metadata, body), &buffer)
        .map_err(|e| format!("its record batch cannot be read: {e}"))?
        .ok_or_else(|| "it holds no record batch".into())
}

fn without_nulls<'a>(column: &'a ArrayRef, name: &str) -> Result<&'a ArrayRef, String> {
    match column.logical_null_count() {
        0 => Ok(column),
        nulls => Err(format!("column `{name}` has `{nulls}` nulls")),
    }
}

/// An id past the vocabulary would be read past the end of an embedding. The largest id is found at the speed of memory.
fn check_ids(ids: &TokenIds, vocabulary: u32) -> Result<(), String> {
    let largest = match ids {
        TokenIds::U16(ids) => ids.iter().copied().fold(0, u16::max).into(),
        TokenIds::U32(ids) => ids.iter().copied().fold(0, u32::max),
    };
    if ids.len() == 0 || largest < vocabulary {
        return Ok(());
    }
    Err(format!(
        "it has token id `{largest}`, the manifest says `{vocabulary}` ids"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{FEATURES, describe, shard_file};

    const CLASSES: TargetKind = TargetKind::Classification { classes: 5 };
    const LAYOUT: Layout = Layout::Dense {
        features: FEATURES,
        target: CLASSES,
    };

    /// The second of two blocks, with samples 4 to 6, and its entry in the block table.
    fn block() -> (Bytes, Block, ShardColumns) {
        let file = shard_file(FEATURES, CLASSES, 0, &[4, 3]);
        let blocks = describe("s", &file).blocks;
        let head = usize::try_from(blocks[0].offset).unwrap();
        let columns = ShardColumns::read(&file[..head], &LAYOUT).unwrap();
        let block = blocks[1].clone();
        let start = usize::try_from(block.offset).unwrap();
        let length = block.metadata_bytes as usize + usize::try_from(block.body_bytes).unwrap();
        (file.slice(start..start + length), block, columns)
    }

    fn check(rows: &BlockRows) {
        let rows = rows.as_dense().unwrap();
        assert_eq!(*rows.x, [4.0, 1.0, 2.0, 5.0, 1.0, 2.0, 6.0, 1.0, 2.0]);
        assert!(matches!(&rows.y, BlockTarget::Classification(y) if **y == [4, 0, 1]));
        assert_eq!(*rows.keys, [!4, !5, !6]);
        assert_eq!(*rows.origins, [4, 5, 6]);
    }

    #[test]
    fn rows_are_read_wherever_the_bytes_lie() {
        let (bytes, block, columns) = block();
        check(&decode(bytes.clone(), &block, &columns, &LAYOUT).unwrap());
        for shift in 1..9 {
            let mut moved = vec![0; shift];
            moved.extend_from_slice(&bytes);
            let moved = Bytes::from(moved).slice(shift..);
            check(&decode(moved, &block, &columns, &LAYOUT).unwrap());
        }
    }

    /// Only a manifest that was wrong from the beginning gets so far.
    #[test]
    fn damage_under_a_fitting_checksum_is_an_error_or_other_numbers_and_never_a_panic() {
        let (bytes, block, columns) = block();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(rows) = decode(flipped.into(), &block, &columns, &LAYOUT) {
                let x = rows.as_dense().unwrap().x.len();
                assert_eq!((x, rows.keys().len(), rows.origins().len()), (9, 3, 3));
            }
        }
    }

    #[test]
    fn a_block_of_other_rows_is_refused() {
        let (bytes, block, columns) = block();
        let block = Block { rows: 4, ..block };
        assert_eq!(
            decode(bytes, &block, &columns, &LAYOUT).unwrap_err(),
            "it has `3` rows and the manifest says `4`"
        );
    }
}
