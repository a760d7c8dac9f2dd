//! A block in memory: the columns of one record batch, over the bytes as they were read.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch},
    buffer::{Buffer, ScalarBuffer},
    datatypes::{Float32Type, Int32Type, UInt64Type},
    ipc::{self, MetadataVersion, reader::FileDecoder},
};
use bytes::Bytes;
use feedline_schemas::manifest::{Block, Layout, TargetKind};

use crate::{columns::ShardColumns, guard::catching};

/// The rows of one block. The columns share the memory of the bytes that were read, unless those lay so that numbers
/// would be misaligned; then arrow copies the column.
#[derive(Clone, Debug)]
pub(crate) struct BlockRows {
    /// `[rows, features]`, row-major.
    pub(crate) x: ScalarBuffer<f32>,
    /// `[rows]`.
    pub(crate) y: BlockTarget,
    /// `[rows]`.
    pub(crate) keys: ScalarBuffer<u64>,
    /// `[rows]`.
    pub(crate) origins: ScalarBuffer<u64>,
}

/// The target column of a block.
#[derive(Clone, Debug)]
pub(crate) enum BlockTarget {
    None,
    Regression(ScalarBuffer<f32>),
    Classification(ScalarBuffer<i32>),
}

impl BlockRows {
    /// A block without rows.
    pub(crate) fn empty() -> Self {
        Self {
            x: ScalarBuffer::from(Vec::new()),
            y: BlockTarget::None,
            keys: ScalarBuffer::from(Vec::new()),
            origins: ScalarBuffer::from(Vec::new()),
        }
    }

    /// Checks the bytes of a block, metadata and body, and decodes them.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub(crate) fn read(
        bytes: Bytes,
        block: &Block,
        columns: &ShardColumns,
        layout: &Layout,
    ) -> Result<Self, String> {
        let found = crc32c::crc32c(&bytes);
        if found != block.crc32c {
            return Err(format!(
                "its checksum is `{found:08x}` and the manifest says `{:08x}`",
                block.crc32c
            ));
        }
        let batch = catching(|| decode(bytes, block, columns))??;
        Self::new(&batch, block, columns, layout)
    }

    fn new(
        batch: &RecordBatch,
        block: &Block,
        columns: &ShardColumns,
        layout: &Layout,
    ) -> Result<Self, String> {
        let Layout::Dense { features, target } = *layout;
        if batch.num_rows() != block.rows as usize {
            return Err(format!(
                "it has `{}` rows and the manifest says `{}`",
                batch.num_rows(),
                block.rows
            ));
        }
        let column = |index: usize| {
            without_nulls(batch.column(index), batch.schema_ref().field(index).name())
        };
        let x = without_nulls(column(columns.x)?.as_fixed_size_list().values(), "x")?
            .as_primitive::<Float32Type>();
        let values = batch.num_rows() * features as usize;
        if x.len() < values {
            return Err(format!(
                "column `x` has `{}` values instead of `{values}`",
                x.len()
            ));
        }
        let y = match (target, columns.y) {
            (TargetKind::None, _) | (_, None) => BlockTarget::None,
            (TargetKind::Regression, Some(y)) => {
                BlockTarget::Regression(column(y)?.as_primitive::<Float32Type>().values().clone())
            }
            (TargetKind::Classification { classes }, Some(y)) => {
                let labels = column(y)?.as_primitive::<Int32Type>().values().clone();
                check_labels(&labels, classes)?;
                BlockTarget::Classification(labels)
            }
        };
        let number = |index| column(index).map(|c| c.as_primitive::<UInt64Type>().values().clone());
        Ok(Self {
            x: x.values().slice(0, values),
            y,
            keys: number(columns.key)?,
            origins: number(columns.origin)?,
        })
    }
}

fn decode(bytes: Bytes, block: &Block, columns: &ShardColumns) -> Result<RecordBatch, String> {
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

fn check_labels(labels: &[i32], classes: u32) -> Result<(), String> {
    match labels
        .iter()
        .position(|label| u32::try_from(*label).map_or(true, |label| label >= classes))
    {
        None => Ok(()),
        Some(row) => Err(format!(
            "row `{row}` has class `{}`, the manifest says `{classes}` classes",
            labels[row]
        )),
    }
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
        assert_eq!(*rows.x, [4.0, 1.0, 2.0, 5.0, 1.0, 2.0, 6.0, 1.0, 2.0]);
        assert!(matches!(&rows.y, BlockTarget::Classification(y) if **y == [4, 0, 1]));
        assert_eq!(*rows.keys, [!4, !5, !6]);
        assert_eq!(*rows.origins, [4, 5, 6]);
    }

    #[test]
    fn rows_are_read_wherever_the_bytes_lie() {
        let (bytes, block, columns) = block();
        check(&BlockRows::read(bytes.clone(), &block, &columns, &LAYOUT).unwrap());
        for shift in 1..9 {
            let mut moved = vec![0; shift];
            moved.extend_from_slice(&bytes);
            let moved = Bytes::from(moved).slice(shift..);
            check(&BlockRows::read(moved, &block, &columns, &LAYOUT).unwrap());
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let (bytes, block, columns) = block();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let error = BlockRows::read(flipped.into(), &block, &columns, &LAYOUT).unwrap_err();
            assert!(error.starts_with("its checksum is"), "bit {bit}: {error}");
        }
    }

    /// Only a manifest that was wrong from the beginning gets so far.
    #[test]
    fn damage_under_a_fitting_checksum_is_an_error_or_other_numbers_and_never_a_panic() {
        let (bytes, block, columns) = block();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let crc32c = crc32c::crc32c(&flipped);
            let block = Block {
                crc32c,
                ..block.clone()
            };
            if let Ok(rows) = BlockRows::read(flipped.into(), &block, &columns, &LAYOUT) {
                assert_eq!(
                    (rows.x.len(), rows.keys.len(), rows.origins.len()),
                    (9, 3, 3)
                );
            }
        }
    }

    #[test]
    fn a_block_of_other_rows_is_refused() {
        let (bytes, block, columns) = block();
        let block = Block { rows: 4, ..block };
        assert_eq!(
            BlockRows::read(bytes, &block, &columns, &LAYOUT).unwrap_err(),
            "it has `3` rows and the manifest says `4`"
        );
    }
}
