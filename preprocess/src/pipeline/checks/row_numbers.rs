//! Features that number the rows of each group or file: only the order of the landed rows shows them.

use arrow::{array::AsArray, datatypes::Int64Type};
use datafusion::{
    logical_expr::{Expr, ident},
    prelude::SessionContext,
};
use feedline_schemas::{
    record::{ColumnType, RecordSchema, system},
    report::Warning,
    row_counter::{IndexCounter, RestartingCounter, is_pandas_index, names_index},
    transform::{InputKind, TransformArtefact},
};

use crate::{
    Error,
    pipeline::prepare::Build,
    source::{
        landed_scan,
        landing_zone::{Generation, Landed},
    },
    warnings,
};

/// First rows of a source that are compared.
const ROWS: usize = 10_000;

/// Most files that they are read from.
const FILES: usize = 16;

impl Build<'_> {
    /// Warns of features by default that number the rows of each group, by the first rows of the first source, and of those that
    /// are the index of pandas.
    pub(in crate::pipeline) async fn row_numbers(
        &self,
        session: &SessionContext,
        artefact: &TransformArtefact,
    ) -> Result<Vec<Warning>, Error> {
        let inputs = self.spec.inputs.iter().filter(|input| {
            let is_number = input.column.kind == InputKind::Numeric;
            input.by_default && is_number && artefact.inputs.contains(&input.column)
        });
        let inputs = inputs.map(|input| input.column.name.as_str());
        let mut indexes: Vec<&str> = inputs.filter(|name| is_pandas_index(name)).collect();
        let mut of_groups = Vec::new();
        let source = self.tables().first();
        // Rows of a query have another order, and files that are read in place have no batches.
        let source = source.filter(|source| source.local.is_none() && source.in_place.is_none());
        if let Some((source, first)) = source.and_then(|s| Some((s, s.generations.first()?))) {
            let mut names = self.integers_by_default(artefact);
            names.retain(|name| is_integer(&first.schema, name) && !indexes.contains(name));
            let (counters, rows) = Box::pin(count(session, source, first, &names)).await?;
            for (name, (counter, index)) in names.into_iter().zip(&counters) {
                if counter.is_row_number(rows) {
                    of_groups.push(name);
                } else if is_index(&first.schema, name, (index, rows)) {
                    indexes.push(name);
                }
            }
        }
        let of_groups = warnings::looks_like_row_number(&of_groups);
        let indexes = warnings::looks_like_index(&indexes);
        Ok(of_groups.into_iter().chain(indexes).collect())
    }
}

/// Returns true for a column with the name and the integers of an index in the first `rows` rows.
fn is_index(schema: &RecordSchema, name: &str, (index, rows): (&IndexCounter, u64)) -> bool {
    let is_rising = index.is_rising(rows);
    let is_unnamed = has_empty_header(schema, name) && (is_rising || index.is_restarting(rows));
    is_unnamed || is_rising && names_index(name)
}

fn is_integer(schema: &RecordSchema, name: &str) -> bool {
    let mut columns = schema.columns.iter();
    columns.any(|column| column.name == name && column.r#type == ColumnType::Int64)
}

/// Returns true for the first column without a name in its header, as pandas writes an index. Where no column has
/// a name, there is no header.
fn has_empty_header(schema: &RecordSchema, name: &str) -> bool {
    let mut columns = schema.columns.iter().map(|column| column.name.as_str());
    let is_first = columns.next() == Some(name);
    is_first && name == "column_1" && columns.any(|column| !column.starts_with("column_"))
}

/// Compares the columns `names` in the first rows of `generation`, and returns the number of rows too.
async fn count(
    session: &SessionContext,
    source: &Landed,
    generation: &Generation,
    names: &[&str],
) -> Result<(Vec<(RestartingCounter, IndexCounter)>, u64), Error> {
    let mut counters = vec![<(RestartingCounter, IndexCounter)>::default(); names.len()];
    let mut rows = 0;
    if names.is_empty() {
        return Ok((counters, 0));
    }
    for file in generation.files.iter().take(FILES) {
        if rows == ROWS {
            break;
        }
        let file = Generation {
            schema: generation.schema.clone(),
            files: vec![file.clone()],
        };
        let position = [system::SEQUENCE, system::ROW].map(ident);
        let order = position
            .iter()
            .map(|column| column.clone().sort(true, false));
        let order = order.collect();
        let columns = names.iter().map(|name| ident(*name)).chain(position);
        let columns: Vec<Expr> = columns.collect();
        let found = landed_scan::read(session, source, &file)?.select(columns)?;
        let found = found.sort(order)?.limit(0, Some(ROWS - rows))?;
        for batch in Box::pin(found.collect()).await? {
            rows += batch.num_rows();
            for (at, (counter, index)) in counters.iter_mut().enumerate() {
                for cell in batch.column(at).as_primitive::<Int64Type>() {
                    counter.add(cell);
                    index.add(cell);
                }
            }
        }
    }
    Ok((counters, rows as u64))
}
