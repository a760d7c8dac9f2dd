//! New rows of a file, in any format that ingest reads, by the readers of ingest.
//!
//! A wanted column of a table is found by its place. A wanted key of an object is found by its path;
//! an absent one is a missing value, as it lands. A key with a dot and a nested key are different
//! columns: the name of the column decides between them.

use std::collections::BTreeSet;

use feedline_readers::{
    record::Record,
    rows::Rows,
    value::{Fault as ValueFault, Value},
};
use feedline_schemas::{
    config::{ContractConfig, DuplicateKeys},
    record::{join_path, split_path},
};

use super::{assembly::Assembly, fault::Fault, names::Named, raw_cell::Raw, reading::RowsReading};

/// Rows of a file.
pub(super) struct Records {
    rows: Box<dyn Rows>,
    columns: WantedColumns,
    /// True if a duplicate key has its last value, otherwise its row is rejected.
    keeps_last_key: bool,
    inputs_met: bool,
}

/// Places of the wanted columns.
enum WantedColumns {
    /// In a table.
    Table {
        names: Named,
        /// Index of each wanted column in the entries of a record.
        indexes: Vec<Option<usize>>,
    },
    /// In objects. A table with nested columns has names too.
    Keys {
        keys: Vec<WantedKey>,
        names: Option<Named>,
    },
}

/// A wanted key of objects.
struct WantedKey {
    /// Key of the row itself, looked for before the path.
    written: Option<PathStep>,
    path: Vec<PathStep>,
}

/// One key of a path, and its index in the last object that had it: objects of a file mostly have
/// their keys in one order.
struct PathStep {
    key: String,
    index: usize,
}

impl PathStep {
    fn new(key: String) -> Self {
        Self { key, index: 0 }
    }

    /// The value of the key in `object`, if that is an object with the key.
    fn find<'v>(&mut self, object: &'v Value) -> Option<&'v Value> {
        let Value::Object(entries) = object else {
            return None;
        };
        let is_own = |(key, _): &(String, Value)| *key == self.key;
        if !entries.get(self.index).is_some_and(is_own) {
            self.index = entries.iter().position(is_own)?;
        }
        entries.get(self.index).map(|(_, value)| value)
    }
}

impl WantedKey {
    /// With `as_written`, a name with a dot is first a key of the row itself, and a path only where
    /// that is absent.
    fn new(name: &str, wanted: &[String], as_written: bool) -> Self {
        let landed = join_path([name]);
        let is_written = as_written && landed != name && !wanted.contains(&landed);
        Self {
            written: is_written.then(|| PathStep::new(name.to_owned())),
            path: split_path(name).into_iter().map(PathStep::new).collect(),
        }
    }

    fn find<'v>(&mut self, row: &'v Value) -> Option<&'v Value> {
        if let Some(found) = self.written.as_mut().and_then(|step| step.find(row)) {
            return Some(found);
        }
        let mut path = self.path.iter_mut();
        path.try_fold(row, |at, step| step.find(at))
    }
}

impl Records {
    /// Finds the `wanted` columns in `rows`: the inputs, then those that are carried along.
    ///
    /// # Errors
    /// The reason why the file is unreadable.
    pub(super) fn new(
        mut rows: Box<dyn Rows>,
        wanted: &[String],
        reading: &RowsReading,
    ) -> Result<Self, String> {
        let columns = match rows.columns()? {
            Some(names) => {
                let flat = Named::new(names, wanted);
                let names = flat.with_nested(wanted, |place| rows.is_nested(place));
                let indexes = select(&mut *rows, names.places())?;
                match names.places() == flat.places() {
                    true => WantedColumns::Table { names, indexes },
                    false => WantedColumns::Keys {
                        keys: keys_of_table(&flat, wanted),
                        names: Some(names),
                    },
                }
            }
            None => {
                let key = |name: &String| WantedKey::new(name, wanted, reading.names_as_written);
                WantedColumns::Keys {
                    keys: wanted.iter().map(key).collect(),
                    names: None,
                }
            }
        };
        Ok(Self {
            rows,
            columns,
            keeps_last_key: keeps_last_key(&reading.contracts),
            inputs_met: false,
        })
    }

    /// Columns of the file, if its format lists them.
    pub(super) fn columns(&self) -> Option<&Named> {
        match &self.columns {
            WantedColumns::Table { names, .. } => Some(names),
            WantedColumns::Keys { names, .. } => names.as_ref(),
        }
    }

    /// Adds a row, good or bad; `false` at the end.
    ///
    /// # Errors
    /// The reason why the rest is unreadable.
    pub(super) fn fill(&mut self, rows: &mut Assembly) -> Result<bool, String> {
        let Some(record) = self.rows.next()? else {
            return Ok(false);
        };
        rows.bytes += usize::try_from(record.size()).unwrap_or(usize::MAX);
        let row = match record {
            Record::Value(value) => value,
            Record::Json(record) => record.value(),
            Record::Bad { reason, detail, .. } => {
                rows.add_bad(Fault::new(reason, detail));
                return Ok(true);
            }
        };
        let source = &*self.rows;
        match &mut self.columns {
            WantedColumns::Table { indexes, .. } => {
                rows.met.fill(true);
                let Value::Object(entries) = &row else {
                    return Err("a row of a table is no object".to_owned());
                };
                let cell = |column: usize| {
                    let entry = indexes[column].and_then(|index| entries.get(index));
                    entry.map_or(Raw::Null, |(_, value)| raw(value))
                };
                rows.add(cell, || source.place());
            }
            WantedColumns::Keys { keys, names } => match settled(row, self.keeps_last_key) {
                Ok(row) => {
                    let found: Vec<Option<&Value>> =
                        keys.iter_mut().map(|key| key.find(&row)).collect();
                    for (met, found) in rows.met.iter_mut().zip(&found) {
                        *met |= found.is_some();
                    }
                    // A table has its columns in every row, even where they are null.
                    if names.is_none() && !self.inputs_met {
                        self.inputs_met = rows.met.is_empty() || rows.met.contains(&true);
                        rows.is_foreign = !self.inputs_met;
                    }
                    rows.add(
                        |column| found[column].map_or(Raw::Null, raw),
                        || source.place(),
                    );
                }
                Err(fault) => rows.add_bad(fault.at(&source.place())),
            },
        }
        Ok(true)
    }
}

/// The wanted columns of a table, some of them nested in those of `flat`.
fn keys_of_table(flat: &Named, wanted: &[String]) -> Vec<WantedKey> {
    let keys = wanted.iter().zip(flat.places());
    let key = |(name, place): (&String, &Option<usize>)| match place {
        Some(place) => WantedKey {
            written: None,
            path: vec![PathStep::new(flat.names()[*place].clone())],
        },
        None => WantedKey::new(name, wanted, false),
    };
    keys.map(key).collect()
}

/// Asks `rows` for the columns at `places` alone. Returns the index of each in the entries of a
/// record.
fn select(rows: &mut dyn Rows, places: &[Option<usize>]) -> Result<Vec<Option<usize>>, String> {
    let read: BTreeSet<usize> = places.iter().flatten().copied().collect();
    if !rows.select(&read)? {
        return Ok(places.to_vec());
    }
    let index = |place: &Option<usize>| {
        let place = (*place)?;
        read.iter().position(|read| *read == place)
    };
    Ok(places.iter().map(index).collect())
}

/// Setting of all `contracts`; where they differ, rows with duplicate keys are rejected.
fn keeps_last_key(contracts: &[ContractConfig]) -> bool {
    let keeps = |contract: &ContractConfig| contract.duplicate_keys == DuplicateKeys::Last;
    !contracts.is_empty() && contracts.iter().all(keeps)
}

/// The row without flaws.
fn settled(row: Value, keeps_last_key: bool) -> Result<Value, Fault> {
    let fault = |fault: &ValueFault| Fault::new(fault.reason, fault.detail.clone());
    if keeps_last_key {
        let settled = row.settle("", &mut |_, _| ());
        return settled.map_err(|(_, found)| fault(&found));
    }
    match row.fault() {
        Some((_, found)) => Err(fault(found)),
        None => Ok(row),
    }
}

fn raw(value: &Value) -> Raw<'_> {
    match value {
        Value::Null => Raw::Null,
        Value::Bool(value) => Raw::Bool(*value),
        Value::Int(value) => Raw::Int(*value),
        Value::Float(value) => Raw::Float(*value),
        Value::Digits(text) | Value::Text(text) => Raw::Text(text.as_str().into()),
        Value::Cell(text) => Raw::Cell(text),
        Value::Time(text) => Raw::Time(text),
        Value::Bytes(_) | Value::ByteCell(_) => Raw::Nested("bytes"),
        Value::List(_) => Raw::Nested("a list"),
        Value::Object(_) => Raw::Nested("an object"),
        Value::Fault(fault) => raw(&fault.kept),
    }
}
