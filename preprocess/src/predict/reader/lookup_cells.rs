//! Keys and times of new rows that joins look up.
//!
//! A cell is read as its column landed, so that a key has the string that the build compares, and a
//! cell that could not land rejects its row.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, TimestampMicrosecondArray},
    datatypes::{Field, Int64Type, Schema},
};
use feedline_schemas::{
    record::ColumnType,
    report::Warning,
    transform::{InputColumn, InputKind, TransformArtefact},
};

use super::{
    cell::Input,
    fault::Fault,
    held::{Conflict, LandedAs},
    raw_cell::Raw,
    reading::RowsReading,
    written::Written,
};
use crate::{
    Error,
    engine::scalar_function::RowFunction,
    operators::{
        coerce::Missing,
        join::new_rows::{LookupColumns, LookupTime, key_column, time_column},
        time_series::Instant,
    },
    predict::{joins::RowJoins, repeated_times::RepeatedTimes},
    warnings::RepeatedHour,
};

/// Keys and times of some rows.
#[derive(Clone, Debug)]
pub(super) struct LookupRows {
    /// Key and time columns of the joins, a cell for each row.
    pub(super) cells: RecordBatch,
    /// True for rows with joined columns of their own, which are not looked up.
    pub(super) is_joined: Vec<bool>,
}

/// Key and time columns of the joins that grow row by row.
#[derive(Debug)]
pub(super) struct LookupCells {
    joins: Vec<LookupColumns>,
    columns: Vec<LookupColumn>,
    /// Indexes of the joined columns among the wanted ones.
    added: Vec<usize>,
    is_joined: Vec<bool>,
    /// True if the next row has a joined column.
    next_is_joined: bool,
    /// True if any row has had a joined column or a key.
    pub(super) met: bool,
    /// Rows before the next batch.
    before: u64,
    /// Local times that clocks show twice, by the place of the join.
    repeated: BTreeMap<usize, RepeatedTimes>,
}

/// A column that joins look rows up by, as strings.
#[derive(Debug)]
struct LookupColumn {
    input: Input,
    /// Type that it landed with.
    landed: Option<ColumnType>,
    /// Index among the wanted columns.
    wanted: usize,
}

impl LookupCells {
    /// Makes the columns of `joins`. Adds those that are not `wanted` yet.
    pub(super) fn new(
        joins: &RowJoins,
        wanted: &mut Vec<String>,
        reading: &RowsReading,
        artefact: &TransformArtefact,
    ) -> Self {
        let lookups = joins.lookups();
        let added = joins.added().iter();
        let added = added.filter_map(|added| wanted.iter().position(|name| *name == added.name));
        let added = added.collect();
        let mut columns: Vec<LookupColumn> = Vec::new();
        for name in lookups.iter().flat_map(LookupColumns::names) {
            if columns.iter().any(|column| column.input.name == name) {
                continue;
            }
            let place = wanted.iter().position(|wanted| wanted == name);
            columns.push(LookupColumn {
                input: read_as_text(name, reading, artefact),
                landed: reading.landed.get(name).copied(),
                wanted: place.unwrap_or(wanted.len()),
            });
            if place.is_none() {
                wanted.push(name.to_owned());
            }
        }
        Self {
            joins: lookups,
            columns,
            added,
            is_joined: Vec::new(),
            next_is_joined: false,
            met: false,
            before: 0,
            repeated: BTreeMap::new(),
        }
    }

    /// Warnings of local times that clocks show twice, of the rows that were taken.
    pub(super) fn repeated_times(&self) -> Vec<Warning> {
        let found = self.repeated.iter().filter_map(|(join, found)| {
            let time = self.joins.get(*join)?.time.as_ref()?;
            found.warning(RepeatedHour::Rows, &time.column, time.instant.zone())
        });
        found.collect()
    }

    /// Notes the wanted columns that the next row has, which are those that `is_found` returns true
    /// for.
    pub(super) fn note_found(&mut self, is_found: impl Fn(usize) -> bool) {
        self.next_is_joined = self.added.iter().any(|column| is_found(*column));
        let has_key = || self.columns.iter().any(|column| is_found(column.wanted));
        self.met = self.met || self.next_is_joined || has_key();
    }

    /// Adds the next row with these cells of the wanted columns. Returns its fault, if any.
    pub(super) fn push<'a>(&mut self, cell: impl Fn(usize) -> Raw<'a>) -> Option<Fault> {
        let is_joined = std::mem::take(&mut self.next_is_joined);
        self.is_joined.push(is_joined);
        let mut fault = None;
        for column in &mut self.columns {
            let cell = match is_joined {
                true => Raw::Null,
                false => cell(column.wanted),
            };
            fault = fault.or(column.input.push(&cell));
        }
        fault
    }

    /// Takes the rows, which leaves none.
    pub(super) fn take(&mut self) -> Result<LookupRows, Error> {
        let texts = self.columns.iter_mut().map(|column| column.input.take());
        let texts: Vec<ArrayRef> = texts.collect();
        let find = |name: &str| {
            let mut columns = self.columns.iter();
            columns.position(|column| column.input.name == name)
        };
        let mut cells: Vec<(String, ArrayRef)> = Vec::new();
        for (place, join) in self.joins.iter().enumerate() {
            if let Some(column) = join.key.as_deref().and_then(find) {
                cells.push((key_column(join.index), Arc::clone(&texts[column])));
            }
            if let Some(time) = &join.time
                && let Some(column) = find(&time.column)
            {
                let clock = time.clock.as_deref().and_then(find);
                let clock = clock.map(|clock| &texts[clock]);
                let landed = self.columns[column].landed;
                let times = read_times(time, landed, &texts[column], clock)?;
                cells.push((time_column(join.index), times));
                for row in repeated_rows(time, landed, &texts[column], clock)? {
                    let text = texts[column].as_string::<i32>().value(row);
                    let found = self.repeated.entry(place).or_default();
                    found.note(self.before + row as u64, text);
                }
            }
        }
        let fields = cells.iter();
        let fields = fields.map(|(name, cells)| Field::new(name, cells.data_type().clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let cells = cells.into_iter().map(|(_, cells)| cells).collect();
        // There may be no column where joins are not possible.
        let options = RecordBatchOptions::new().with_row_count(Some(self.is_joined.len()));
        self.before += self.is_joined.len() as u64;
        Ok(LookupRows {
            cells: RecordBatch::try_new_with_options(schema, cells, &options)?,
            is_joined: std::mem::take(&mut self.is_joined),
        })
    }
}

/// Column `name` as strings, where nothing but an empty cell is missing.
fn read_as_text(name: &str, reading: &RowsReading, artefact: &TransformArtefact) -> Input {
    let column = InputColumn {
        name: name.to_owned(),
        kind: InputKind::Categorical,
    };
    let known = reading.landed.get(name).copied();
    let landed = LandedAs::of(known, &reading.contracts, &column, artefact);
    let conflict = Conflict::of(&reading.contracts, name);
    let missing = Missing::new(&[], &[]);
    Input::new(&column, (landed, conflict), missing, None).written(Written::of(known, reading))
}

/// Timestamps of the strings that a column of type `landed` has.
fn read_times(
    time: &LookupTime,
    landed: Option<ColumnType>,
    texts: &ArrayRef,
    clock: Option<&ArrayRef>,
) -> Result<ArrayRef, Error> {
    let cells = texts.as_string::<i32>().iter();
    let instant = &time.instant;
    let micros: TimestampMicrosecondArray = match landed {
        Some(ColumnType::Timestamp) => {
            let iso = Instant::iso();
            cells.map(|text| iso.of_text(text?)).collect()
        }
        Some(ColumnType::Int64) => cells.map(|text| of_number(instant, text?)).collect(),
        Some(ColumnType::Float64) => {
            let float = |text: &str| instant.of_float(text.parse().ok()?);
            cells.map(|text| float(text?)).collect()
        }
        _ => {
            let columns = std::iter::once(texts).chain(clock);
            let columns: Vec<ArrayRef> = columns.map(Arc::clone).collect();
            let micros = instant.call(&columns, texts.len())?;
            micros.as_primitive::<Int64Type>().iter().collect()
        }
    };
    Ok(Arc::new(micros.with_timezone("UTC")))
}

/// Rows whose time is a local one in the hour that clocks repeat, if the configuration does not say
/// how such times are read.
fn repeated_rows(
    time: &LookupTime,
    landed: Option<ColumnType>,
    texts: &ArrayRef,
    clock: Option<&ArrayRef>,
) -> Result<Vec<usize>, Error> {
    let is_text = matches!(landed, None | Some(ColumnType::Null | ColumnType::Utf8));
    let local = time.instant.local_times(std::iter::once(&time.column));
    let Some(local) = local.filter(|_| is_text) else {
        return Ok(Vec::new());
    };
    let columns: Vec<ArrayRef> = std::iter::once(texts)
        .chain(clock)
        .map(Arc::clone)
        .collect();
    let found = local.check().call(&columns, texts.len())?;
    let found = found.as_boolean();
    Ok((0..texts.len()).filter(|row| found.value(*row)).collect())
}

/// Timestamp of a number in a column of integers; a fraction has made the column one of floats.
fn of_number(instant: &Instant, text: &str) -> Option<i64> {
    match text.parse() {
        Ok(integer) => instant.of_integer(integer),
        Err(_) => instant.of_float(text.parse().ok()?),
    }
}

#[cfg(test)]
mod tests {
    use arrow::{
        array::{Float64Array, Int64Array, StringArray},
        datatypes::TimestampMicrosecondType,
    };

    use super::*;
    use crate::operators::{canonical_text::CanonicalText, coerce::Category};

    /// Checks that times which were read as strings are those of the landed column.
    fn check(unit: &str, landed: ColumnType, column: ArrayRef) {
        let instant = format!(
            "{{\"format\":null,\"unit\":{unit},\"zone\":\"Europe/Rome\",\"is_later\":false}}"
        );
        let instant: Instant = serde_json::from_str(&instant).unwrap();
        let expected = instant.call(&[Arc::clone(&column)], column.len()).unwrap();
        let texts = match landed {
            ColumnType::Timestamp => CanonicalText.call(&[column], 3).unwrap(),
            _ => column,
        };
        let category = Category(Missing::new(&[], &[]));
        let texts = category.call(&[texts], 3).unwrap();
        let time = LookupTime {
            column: "at".into(),
            clock: None,
            instant,
        };
        let found = read_times(&time, Some(landed), &texts, None).unwrap();
        let found: Vec<Option<i64>> = found
            .as_primitive::<TimestampMicrosecondType>()
            .iter()
            .collect();
        let expected: Vec<Option<i64>> = expected.as_primitive::<Int64Type>().iter().collect();
        assert_eq!(found, expected, "{unit} {landed:?}");
        assert!(found[0].is_some() && found[2].is_none());
    }

    #[test]
    fn rows_with_a_local_time_that_clocks_show_twice_are_found() {
        let time = |zone: &str| LookupTime {
            column: "at".into(),
            clock: None,
            instant: serde_json::from_str(&format!(
                "{{\"format\":null,\"unit\":null,\"zone\":\"{zone}\",\"is_later\":false}}"
            ))
            .unwrap(),
        };
        let texts: ArrayRef = Arc::new(StringArray::from(vec![
            Some("2024-10-27 01:30:00"),
            Some("2024-10-27 02:30:00"),
            Some("2024-10-27 02:30:00+01:00"),
            None,
            Some("soon"),
        ]));
        let find = |zone: &str, landed| repeated_rows(&time(zone), landed, &texts, None).unwrap();
        assert_eq!(find("Europe/Rome", Some(ColumnType::Utf8)), [1]);
        assert_eq!(find("Europe/Rome", None), [1]);
        assert_eq!(find("UTC", None), [0; 0]);
        // Such a column holds instants.
        assert_eq!(find("Europe/Rome", Some(ColumnType::Timestamp)), [0; 0]);
    }

    #[test]
    fn times_of_any_type_are_those_of_their_landed_column() {
        for (unit, scale) in [
            ("\"s\"", 1_u32),
            ("\"ms\"", 1_000),
            ("\"us\"", 1_000_000),
            ("\"ns\"", 1_000_000_000),
        ] {
            let second = 1_711_866_600 * i64::from(scale);
            let integers = [Some(second + 7), Some(-i64::from(scale)), None];
            check(
                unit,
                ColumnType::Int64,
                Arc::new(Int64Array::from(integers.to_vec())),
            );
            let floats = [Some(1.711_866_600_5e9 * f64::from(scale)), Some(-0.5), None];
            check(
                unit,
                ColumnType::Float64,
                Arc::new(Float64Array::from(floats.to_vec())),
            );
        }
        let texts = ["2024-03-31 08:30:00", " 2024-03-31", "soon"];
        check(
            "null",
            ColumnType::Utf8,
            Arc::new(StringArray::from(texts.to_vec())),
        );
        let micros = vec![Some(1_711_866_600_123_456), Some(-1), None];
        let stamps = TimestampMicrosecondArray::from(micros).with_timezone("UTC");
        check("null", ColumnType::Timestamp, Arc::new(stamps));
    }
}
