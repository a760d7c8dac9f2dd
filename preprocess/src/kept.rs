//! Columns that shards hold beside their own as they landed, for whoever reads shards to find or check rows by.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, AsArray},
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
    columns::{MergedColumn, find},
    plan::landed_type,
};

const KEY: &str = "dataset.keep";

/// Columns that shards have anyway.
const OWN: [&str; 7] = ["x", "y", "key", "origin", "image", "tokens", "boxes"];

/// What names of kept columns begin with in the plan.
const PREFIX: &str = "_keep_";

/// The columns to keep; that they are there was checked.
///
/// # Errors
/// [`Error::Config`] for columns of lists, for names that shards use themselves, and for rows that are no rows of numbers.
pub(crate) fn resolve(
    config: &DatasetConfig,
    columns: &[MergedColumn],
) -> Result<Vec<KeptColumn>, Error> {
    if !config.keep.is_empty() && config.kind != DatasetKind::Rows {
        return Err(Error::config(
            KEY,
            "shards of this `dataset.kind` have no place for it; remove it",
        ));
    }
    let mut kept = Vec::with_capacity(config.keep.len());
    for name in &config.keep {
        let column = find(KEY, name, columns)?;
        let reason = match column.r#type {
            ColumnType::Null => Some("holds no value in any row"),
            list if list.is_list() => Some("holds lists, which shards cannot keep"),
            _ if OWN.contains(&name.as_str()) => Some(
                "is called as a column that every shard may have; rename it in the source, or with `dataset.sql`",
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

/// What a kept column is called in the plan, where the column itself may be a feature.
pub(crate) fn named(column: &KeptColumn) -> String {
    format!("{PREFIX}{}", column.name)
}

/// Whether a name could be that of a kept column in the plan.
pub(crate) fn is_reserved(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// The field of a kept column in a shard.
pub(crate) fn field(column: &KeptColumn) -> Field {
    let metadata = [(KEPT_FIELD.to_owned(), "1".to_owned())];
    Field::new(&column.name, landed_type(column.r#type), true).with_metadata(metadata.into())
}

/// Whether all values of a column take the same room.
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

/// What the rows of a block keep: which row of which batch each was.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    batches: Vec<Arc<[ArrayRef]>>,
    rows: Vec<(usize, usize)>,
}

impl Kept {
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
            interleave(&arrays, &self.rows)
        };
        (0..count).map(column).collect()
    }
}
