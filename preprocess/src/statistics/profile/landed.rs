//! Missing cells by their landed value: a null, NaN, an empty text, a declared null value, or no
//! number at all.
//!
//! A typed cell has lost this, so the landed columns are read a second time.

use arrow::{
    array::{Array, ArrayRef, AsArray},
    datatypes::{DataType, Float64Type, Int64Type},
};
use datafusion::prelude::SessionContext;
use feedline_schemas::{
    profile::MissingCells,
    transform::{InputKind, NumberSigns, TransformArtefact},
};
use futures::TryStreamExt;

use super::columns;
use crate::{
    Error,
    operators::{
        coerce::{Missing, to_float},
        number_format,
    },
    schema::landed_cells,
    source::{landed_scan, landing_zone::Landed},
};

/// Counts them in all rows of `sources`, of the columns that these have and `artefact` reads. Those without one are left out.
pub(crate) async fn missing(
    session: &SessionContext,
    sources: &[Landed],
    artefact: &TransformArtefact,
) -> Result<Vec<MissingCells>, Error> {
    let mut found = Vec::new();
    for kind in [InputKind::Numeric, InputKind::Categorical] {
        for column in columns(artefact, kind) {
            let mut schemas = sources.iter().flat_map(|source| &source.generations);
            let is_landed = schemas.any(|generation| {
                let mut names = generation.schema.columns.iter().map(|c| &c.name);
                names.any(|name| *name == column.name)
            });
            let cells = MissingCells {
                name: column.name,
                ..MissingCells::default()
            };
            found.extend(is_landed.then_some((kind, cells)));
        }
    }
    let declared = Missing::new(&artefact.null_values, &artefact.missing_values);
    for source in sources {
        for generation in &source.generations {
            let schema = &generation.schema;
            let rows: u64 = generation.files.iter().map(|file| file.rows).sum();
            let mut there = Vec::new();
            for column in &mut found {
                if schema.columns.iter().any(|c| c.name == column.1.name) {
                    there.push(column);
                } else {
                    column.1.null += rows;
                }
            }
            if there.is_empty() {
                continue;
            }
            let cells = there
                .iter()
                .map(|(_, cells)| landed_cells::landed(schema, &cells.name).alias(&cells.name));
            let rows = landed_scan::read(session, source, generation)?
                .select(cells.collect::<Vec<_>>())?;
            let mut stream = rows.execute_stream().await?;
            while let Some(batch) = stream.try_next().await? {
                for (array, (kind, cells)) in batch.columns().iter().zip(&mut there) {
                    let signs = number_format::of_column(artefact.signs, schema, &cells.name);
                    add(array, *kind, &declared, signs, cells);
                }
            }
        }
    }
    let found = found.into_iter().map(|(_, cells)| cells);
    Ok(found.filter(|cells| cells.cells() > 0).collect())
}

/// Adds the cells of `array` that are read as missing.
fn add(
    array: &ArrayRef,
    kind: InputKind,
    declared: &Missing,
    signs: Option<NumberSigns>,
    found: &mut MissingCells,
) {
    found.null += array.null_count() as u64;
    let is_numeric = kind == InputKind::Numeric;
    match array.data_type() {
        DataType::Boolean if is_numeric => {
            for value in array.as_boolean().iter().flatten() {
                add_number(f64::from(u8::from(value)), declared, found);
            }
        }
        DataType::Int64 => {
            for value in array.as_primitive::<Int64Type>().iter().flatten() {
                add_number(to_float(value), declared, found);
            }
        }
        DataType::Float64 => {
            for value in array.as_primitive::<Float64Type>().iter().flatten() {
                add_number(value, declared, found);
            }
        }
        DataType::Utf8 => {
            for text in array.as_string::<i32>().iter().flatten() {
                if text.trim().is_empty() {
                    found.empty += 1;
                } else if declared.text(text) {
                    found.declared += 1;
                } else if is_numeric {
                    match number_format::number(text, signs) {
                        Some(value) => add_number(value, declared, found),
                        None => found.no_number += 1,
                    }
                }
            }
        }
        _ => {}
    }
}

fn add_number(value: f64, declared: &Missing, found: &mut MissingCells) {
    if value.is_nan() {
        found.nan += 1;
    } else if declared.number(value) {
        found.declared += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{BooleanArray, Float64Array, Int64Array, StringArray};

    use super::*;
    use crate::{
        engine::scalar_function::RowFunction,
        operators::coerce::{Category, Numeric},
    };

    /// Counts `[null, nan, empty, declared, no_number]`, which are all cells that the build reads as missing.
    fn check(array: ArrayRef, kind: InputKind, expected: [u64; 5]) {
        let missing = Missing::new(&["N/A".into()], &[1.0]);
        let mut found = MissingCells::default();
        add(&array, kind, &missing, None, &mut found);
        let counts = [
            found.null,
            found.nan,
            found.empty,
            found.declared,
            found.no_number,
        ];
        assert_eq!(counts, expected, "{array:?}");
        let (cells, rows) = ([Arc::clone(&array)], array.len());
        let read = match kind {
            InputKind::Numeric => Numeric(missing, None).call(&cells, rows),
            InputKind::Categorical => Category(missing).call(&cells, rows),
        };
        assert_eq!(
            found.cells(),
            read.unwrap().null_count() as u64,
            "{array:?}"
        );
    }

    #[test]
    fn trap_06_the_kinds_add_up_to_what_is_read_as_missing() {
        use InputKind::{Categorical, Numeric};
        let texts: ArrayRef = Arc::new(StringArray::from(vec![
            None,
            Some(""),
            Some("  "),
            Some(" N/A"),
            Some("NaN"),
            Some("1.0"),
            Some("one"),
            Some("2"),
        ]));
        check(Arc::clone(&texts), Numeric, [1, 1, 2, 2, 1]);
        check(texts, Categorical, [1, 0, 2, 1, 0]);
        let floats = vec![
            None,
            Some(f64::NAN),
            Some(1.0),
            Some(2.0),
            Some(f64::INFINITY),
        ];
        let floats: ArrayRef = Arc::new(Float64Array::from(floats));
        check(Arc::clone(&floats), Numeric, [1, 1, 0, 1, 0]);
        check(floats, Categorical, [1, 1, 0, 1, 0]);
        let whole: ArrayRef = Arc::new(Int64Array::from(vec![None, Some(1), Some(2)]));
        check(Arc::clone(&whole), Numeric, [1, 0, 0, 1, 0]);
        check(whole, Categorical, [1, 0, 0, 1, 0]);
        let truths: ArrayRef = Arc::new(BooleanArray::from(vec![None, Some(true), Some(false)]));
        check(Arc::clone(&truths), Numeric, [1, 0, 0, 1, 0]);
        check(truths, Categorical, [1, 0, 0, 0, 0]);
    }
}
