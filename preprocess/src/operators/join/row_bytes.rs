//! Bytes of joined rows: each row gets the cells of its partner, so these limit the rows of a batch.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, Int64Array},
    datatypes::{DataType, Int64Type},
};
use datafusion::{
    error::Result as EngineResult,
    functions_aggregate::expr_fn::max,
    logical_expr::{Expr, ident},
    prelude::SessionContext,
};
use feedline_schemas::record::ColumnType;
use serde::{Deserialize, Serialize};

use super::resolved_join::{Join, taken_cells};
use crate::{
    Error, engine::scalar_function::RowFunction, schema::landed_columns::MergedColumn,
    source::landed_scan::read_all,
};

/// Most bytes of joined cells in a batch, unless one row has more. A column of a batch has less than 2 GiB.
const BATCH_BYTES: u64 = 64 << 20;

/// Bytes of an item of a list, unless it is a string.
const ITEM_BYTES: i64 = 8;

const BYTES: &str = "_join_bytes";

/// Limits the batches of `session`, so that the cells that `joins` bring to one have at most [`BATCH_BYTES`]. Reads the columns
/// of strings, bytes and lists once.
pub(crate) async fn limit_batches(session: &SessionContext, joins: &[Join]) -> Result<(), Error> {
    let mut bytes = 0_u64;
    for join in joins {
        bytes = bytes.saturating_add(join.largest_row_bytes(session).await?);
    }
    let state = session.state_ref();
    let mut state = state.write();
    let config = state.config_mut();
    let rows = rows_of_batch(config.batch_size(), bytes);
    if rows < config.batch_size() {
        tracing::info!(
            rows,
            bytes,
            "batches have fewer rows, since joined cells are large"
        );
    }
    *config = config.clone().with_batch_size(rows);
    Ok(())
}

/// Rows of a batch, at most `rows`, when each has up to `bytes` bytes.
fn rows_of_batch(rows: usize, bytes: u64) -> usize {
    let fitting = BATCH_BYTES / bytes.max(1);
    usize::try_from(fitting).map_or(rows, |fitting| fitting.clamp(1, rows.max(1)))
}

impl Join {
    /// Bytes of strings, bytes and lists in the largest row of the source, of the columns that are taken.
    async fn largest_row_bytes(&self, session: &SessionContext) -> Result<u64, Error> {
        let taken = self.taken.iter();
        let taken = taken.filter(|(_, column)| has_length(column.r#type));
        let taken: Vec<(String, MergedColumn)> = taken.cloned().collect();
        if taken.is_empty() {
            return Ok(0);
        }
        let all = read_all(session, &self.source, |schema| {
            let cells = taken_cells(&taken, schema)?.into_iter();
            let bytes = RowBytes.over(cells.map(Expr::unalias).collect());
            Ok(vec![bytes.alias(BYTES)])
        })?;
        let Some(all) = all else { return Ok(0) };
        let found = all.aggregate(Vec::new(), vec![max(ident(BYTES))])?;
        let found = found.collect().await?;
        let cell = found
            .first()
            .map(|batch| batch.column(0).as_primitive::<Int64Type>());
        let cell = cell.filter(|cell| !cell.is_empty() && cell.is_valid(0));
        Ok(cell.map_or(0, |cell| u64::try_from(cell.value(0)).unwrap_or(0)))
    }
}

/// Returns true if cells of this type differ in their length.
fn has_length(r#type: ColumnType) -> bool {
    let is_text = matches!(
        r#type,
        ColumnType::Utf8 | ColumnType::Json | ColumnType::Binary
    );
    is_text || r#type.is_list()
}

/// Bytes of the strings, bytes and lists of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct RowBytes;

impl RowFunction for RowBytes {
    const NAME: &'static str = "feedline_row_bytes";
    const RETURNS: DataType = DataType::Int64;

    fn call(&self, columns: &[ArrayRef], rows: usize) -> EngineResult<ArrayRef> {
        let mut bytes = vec![0_i64; rows];
        for column in columns {
            add_bytes(column, &mut bytes);
        }
        Ok(Arc::new(Int64Array::from(bytes)))
    }
}

/// Adds the bytes of each cell to those of its row.
fn add_bytes(column: &ArrayRef, bytes: &mut [i64]) {
    let wide = |offset: &i32| i64::from(*offset);
    match column.data_type() {
        DataType::Utf8 => {
            let offsets = column.as_string::<i32>().value_offsets();
            add_lengths(offsets.iter().map(wide), bytes);
        }
        DataType::Binary => {
            let offsets = column.as_binary::<i32>().value_offsets();
            add_lengths(offsets.iter().map(wide), bytes);
        }
        DataType::List(_) => {
            let list = column.as_list::<i32>();
            let strings = list.values().as_string_opt::<i32>();
            let offsets = list.value_offsets().iter().map(|item| match strings {
                Some(strings) => {
                    let item = usize::try_from(*item).unwrap_or_default();
                    strings.value_offsets().get(item).map_or(0, wide)
                }
                None => wide(item) * ITEM_BYTES,
            });
            add_lengths(offsets, bytes);
        }
        _ => {}
    }
}

/// Adds the differences of neighbouring `offsets`.
fn add_lengths(mut offsets: impl Iterator<Item = i64>, bytes: &mut [i64]) {
    let mut start = offsets.next().unwrap_or(0);
    for (bytes, end) in bytes.iter_mut().zip(offsets) {
        *bytes += end - start;
        start = end;
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{BinaryArray, ListArray, ListBuilder, StringArray, StringBuilder};
    use feedline_schemas::record::ColumnType::{Int64, Utf8};
    use feedline_storage::Store;
    use serde_json::json;

    use super::*;
    use crate::{
        engine::session,
        operators::join::resolve,
        source::landing_zone::Landed,
        testing::{Cells, LandingZone, context, pipeline},
    };

    #[test]
    fn bytes_of_a_row_are_those_of_its_strings_bytes_and_lists() {
        let numbers = [Some(vec![Some(1), None]), None, Some(vec![])];
        let mut names = ListBuilder::new(StringBuilder::new());
        for items in [&["ab", "c"][..], &[], &["defg"]] {
            for item in items {
                names.values().append_value(item);
            }
            names.append(true);
        }
        let columns: [ArrayRef; 5] = [
            Arc::new(StringArray::from(vec![Some("abc"), None, Some("")])),
            Arc::new(BinaryArray::from_vec(vec![&b"a"[..], b"bc", b""])),
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(numbers)),
            Arc::new(names.finish()),
            Arc::new(Int64Array::from(vec![1, 2, 3])),
        ];
        let all = RowBytes.call(&columns, 3).unwrap();
        assert_eq!(all.as_primitive::<Int64Type>().values()[..], [23, 2, 4]);
        // Of a part of the rows as well.
        let last = columns.map(|column| column.slice(1, 2));
        let last = RowBytes.call(&last, 2).unwrap();
        assert_eq!(last.as_primitive::<Int64Type>().values()[..], [2, 4]);
    }

    #[test]
    fn a_batch_has_fewer_rows_the_larger_they_are_and_one_at_least() {
        for (bytes, expected) in [(0, 8192), (100, 8192), (1 << 20, 64), (1 << 30, 1)] {
            assert_eq!(rows_of_batch(8192, bytes), expected, "{bytes}");
        }
    }

    #[tokio::test]
    async fn batches_are_limited_by_the_largest_row_of_a_joined_source() {
        let root = Store::memory();
        let mut zone = LandingZone::new(&root, "a", &[("k", Int64), ("y", Int64)]);
        zone.batch(&[vec![json!(1), json!(2)]]).await;
        let columns = [("k", Int64), ("v", Int64), ("blob", Utf8)];
        let mut zone = LandingZone::new(&root, "b", &columns);
        let row = |k: i64, bytes: usize| vec![json!(k), json!(k), json!("x".repeat(bytes))];
        let rows: Vec<Cells> = vec![row(1, 1), row(2, 1 << 20)];
        zone.batch(&rows).await;
        let (context, scratch) = context(&root, 2);
        for (columns, expected) in [("[\"v\"]", 8192), ("[\"v\", \"blob\"]", 64)] {
            let join = format!("source = \"b\", left = \"k\", columns = {columns}");
            let config = pipeline(&format!("target = \"y\"\njoin = [{{ {join} }}]\n"));
            let [a, b] = [0, 1].map(|at: usize| Landed::read(&root, &config.source[at], None));
            let (a, b) = (a.await.unwrap(), b.await.unwrap());
            let mut merged = crate::schema::landed_columns::merge(
                a.generations.iter().map(|generation| &generation.schema),
            );
            let joins = resolve(config.dataset.as_ref().unwrap(), &mut merged, &[b]).unwrap();
            let session = session::session(&context, scratch.path(), 2, None, 0).unwrap();
            limit_batches(&session, &joins).await.unwrap();
            let rows = session.state().config().batch_size();
            assert_eq!(rows, expected, "{columns}");
        }
    }
}
