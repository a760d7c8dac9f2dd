//! Passthrough columns: stored in shards as they landed, so that readers of shards can find or
//! check rows by them.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, BinaryArray, BooleanArray, StringArray, make_array},
    buffer::{Buffer, MutableBuffer, NullBuffer},
    compute::interleave,
    datatypes::{DataType, Field},
    error::ArrowError,
};
use feedline_schemas::{
    config::{DatasetConfig, DatasetKind},
    manifest::{KEPT_FIELD, KeptColumn},
    record::ColumnType,
};

use crate::{
    Error,
    schema::{
        landed_columns::{MergedColumn, find, landed_type},
        system_columns::PASSTHROUGH,
    },
};

const KEY: &str = "dataset.passthrough";

/// Columns that shards have anyway.
const OWN: [&str; 7] = ["x", "y", "key", "origin", "image", "tokens", "boxes"];

/// The columns to keep; that they are there was checked.
///
/// # Errors
/// [`Error::Config`] for columns of lists, for names that shards use themselves, and for rows that are no rows of numbers.
pub(crate) fn resolve(
    config: &DatasetConfig,
    columns: &[MergedColumn],
) -> Result<Vec<KeptColumn>, Error> {
    if !config.passthrough.is_empty() && config.kind != DatasetKind::Rows {
        return Err(Error::config(
            KEY,
            "shards of this `dataset.kind` have no place for it; remove it",
        ));
    }
    let mut kept = Vec::with_capacity(config.passthrough.len());
    for name in &config.passthrough {
        let column = find(KEY, name, columns)?;
        let reason = match column.r#type {
            ColumnType::Null => Some("holds no value in any row"),
            list if list.is_list() => Some("holds lists, which shards cannot keep"),
            _ if OWN.contains(&name.as_str()) => Some(
                "has the name of a system column of shards; rename it in the source, or with `dataset.sql`",
            ),
            _ => None,
        };
        if let Some(reason) = reason {
            return Err(Error::config(KEY, format!("column `{name}` {reason}")));
        }
        kept.push(KeptColumn {
            name: name.clone(),
            r#type: column.r#type,
        });
    }
    Ok(kept)
}

/// Name of a passthrough column in the plan, where the column itself may be a feature.
pub(crate) fn named(column: &KeptColumn) -> String {
    in_plan(&column.name)
}

/// Name of the column `name` in the plan when it is passed through.
pub(crate) fn in_plan(name: &str) -> String {
    format!("{PASSTHROUGH}{name}")
}

/// Returns true if a name could be that of a passthrough column in the plan.
pub(crate) fn is_reserved(name: &str) -> bool {
    name.starts_with(PASSTHROUGH)
}

/// The field of a kept column in a shard.
pub(crate) fn field(column: &KeptColumn) -> Field {
    let metadata = [(KEPT_FIELD.to_owned(), "1".to_owned())];
    Field::new(&column.name, landed_type(column.r#type), true).with_metadata(metadata.into())
}

/// Returns true if all values of a column have the same size.
pub(crate) fn is_number(column: &KeptColumn) -> bool {
    !matches!(
        landed_type(column.r#type),
        DataType::Utf8 | DataType::Binary
    )
}

/// Bytes of the texts and bytes in row `at`.
pub(crate) fn bytes_of(columns: &[ArrayRef], at: usize) -> u64 {
    let lengths = columns.iter().map(|cells| match cells.data_type() {
        DataType::Utf8 => cells.as_string::<i32>().value_length(at),
        DataType::Binary => cells.as_binary::<i32>().value_length(at),
        _ => 0,
    });
    lengths
        .map(|bytes| u64::try_from(bytes).unwrap_or_default())
        .sum()
}

/// Passthrough values of the rows of a block: the batch of each row and its index there.
#[derive(Debug, Default)]
pub(crate) struct PassthroughValues {
    batches: Vec<Arc<[ArrayRef]>>,
    rows: Vec<(usize, usize)>,
}

impl PassthroughValues {
    /// Adds row `at` of a batch with these columns.
    pub(crate) fn push(&mut self, columns: &Arc<[ArrayRef]>, at: usize) {
        let is_last = |last: &Arc<[ArrayRef]>| Arc::ptr_eq(last, columns);
        if !self.batches.last().is_some_and(is_last) {
            self.batches.push(Arc::clone(columns));
        }
        self.rows.push((self.batches.len() - 1, at));
    }

    /// The `count` columns of all rows.
    pub(crate) fn into_columns(self, count: usize) -> Result<Vec<ArrayRef>, ArrowError> {
        let column = |i: usize| {
            let arrays: Vec<_> = self.batches.iter().map(|batch| batch[i].as_ref()).collect();
            bare(&interleave(&arrays, &self.rows)?)
        };
        (0..count).map(column).collect()
    }
}

/// Clears the values under missing cells: they depend on how the rows were read, and shards must
/// not.
fn bare(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let Some(nulls) = column.nulls().filter(|nulls| nulls.null_count() > 0) else {
        return Ok(Arc::clone(column));
    };
    Ok(match column.data_type() {
        DataType::Boolean => {
            let values = column.as_boolean().values() & nulls.inner();
            Arc::new(BooleanArray::new(values, Some(nulls.clone())))
        }
        DataType::Utf8 => Arc::new(column.as_string::<i32>().iter().collect::<StringArray>()),
        DataType::Binary => Arc::new(column.as_binary::<i32>().iter().collect::<BinaryArray>()),
        other => {
            let width = other.primitive_width().ok_or_else(|| {
                ArrowError::NotYetImplemented(format!("keeping a column of type {other}"))
            })?;
            let data = column.to_data();
            let cells = &data.buffers()[0][data.offset() * width..][..data.len() * width];
            let cells = zeroed(cells, width, nulls);
            let bare = data.into_builder().offset(0).buffers(vec![cells]);
            make_array(bare.nulls(Some(nulls.clone())).build()?)
        }
    })
}

/// Cells of `width` bytes, those that are missing zero.
fn zeroed(cells: &[u8], width: usize, nulls: &NullBuffer) -> Buffer {
    let mut all = MutableBuffer::new(cells.len());
    all.extend_from_slice(cells);
    for row in (!nulls.inner()).set_indices() {
        all[row * width..][..width].fill(0);
    }
    all.into()
}

#[cfg(test)]
mod tests {
    use arrow::{
        array::{Decimal128Array, Int64Array, UInt32Array},
        buffer::OffsetBuffer,
        compute::take,
    };

    use super::*;

    #[test]
    fn missing_cells_hide_nothing() {
        let nulls = || Some(NullBuffer::from(vec![true, false, true, false]));
        let columns: [ArrayRef; 4] = [
            Arc::new(Int64Array::new(vec![1, 2, 3, 4].into(), nulls())),
            Arc::new(Decimal128Array::new(vec![1, 2, 3, 4].into(), nulls())),
            Arc::new(BooleanArray::new(vec![true; 4].into(), nulls())),
            Arc::new(StringArray::new(
                OffsetBuffer::from_lengths([1, 1, 1, 1]),
                Buffer::from(b"abcd"),
                nulls(),
            )),
        ];
        let columns: Arc<[ArrayRef]> = columns.into();
        let mut kept = PassthroughValues::default();
        for at in [3, 2, 1] {
            kept.push(&columns, at);
        }
        let found = kept.into_columns(4).unwrap();
        let places = UInt32Array::from(vec![3, 2, 1]);
        for (found, column) in found.iter().zip(&*columns) {
            assert_eq!(found, &take(column, &places, None).unwrap());
        }
        assert_eq!(
            found[0].to_data().buffers()[0].typed_data::<i64>(),
            [0, 3, 0]
        );
        assert_eq!(
            found[1].to_data().buffers()[0].typed_data::<i128>(),
            [0, 3, 0]
        );
        assert_eq!(
            found[2].as_boolean().values().iter().collect::<Vec<_>>(),
            [false, true, false]
        );
        assert_eq!(found[3].as_string::<i32>().value_data(), b"c");
    }

    #[test]
    fn columns_without_missing_cells_are_what_they_were() {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![5, 6]));
        assert!(Arc::ptr_eq(&bare(&column).unwrap(), &column));
    }
}
