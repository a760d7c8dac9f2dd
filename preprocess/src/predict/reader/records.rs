//! New rows of a file, in any format that ingest reads, by the readers of ingest.
//!
//! A wanted column of a table is found by its place. A wanted key of an object is found by its path;
//! an absent one is a missing value, as it lands. A key with a dot and a nested key are different
//! columns: the name of the column decides between them.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashSet},
    sync::MutexGuard,
};

use feedline_readers::{
    json::{JsonRecord, WantedPaths},
    record::Record,
    rows::{NextRow, Rows},
    value::{Fault as ValueFault, Value},
    value_view::ValueView,
};
use feedline_schemas::{
    config::{ContractConfig, DeclaredType, DuplicateKeys},
    record::{ColumnType, join_path, split_path},
};

use super::{
    assembly::Assembly, fault::Fault, names::Named, raw_cell::Raw, reading::RowsReading,
    row_batcher::SharedAssembly,
};

/// Maximum number of ignored keys of objects that are reported.
const MAX_IGNORED: usize = 256;

/// Maximum number of keys of objects that are looked at.
const MAX_NOTED: usize = 1 << 14;

/// Rows of a file.
pub(super) struct Records {
    rows: Box<dyn Rows>,
    columns: WantedColumns,
}

/// Places of the wanted columns.
enum WantedColumns {
    /// In a table.
    Table {
        names: Named,
        cells: Vec<WantedCell>,
    },
    /// In objects.
    Keys(WantedKeys),
}

/// Place of a wanted column in a row of a table.
struct WantedCell {
    /// Index of its cell in those of a row.
    index: Option<usize>,
    /// Keys of the value below that cell; none for a column that is not nested.
    below: Vec<String>,
    /// True if its bytes are read as text.
    reads_bytes: bool,
}

/// Wanted keys of objects.
struct WantedKeys {
    keys: Vec<WantedKey>,
    /// Their paths in records that are no trees.
    paths: WantedPaths,
    /// True if a duplicate key has its last value, otherwise its row is rejected.
    keeps_last_key: bool,
    inputs_met: bool,
    ignored: IgnoredKeys,
}

/// Keys of objects below which nothing is wanted.
#[derive(Default)]
struct IgnoredKeys {
    /// The first of them in their order, at most [`MAX_IGNORED`].
    names: Vec<String>,
    /// Keys that were looked at, at most [`MAX_NOTED`].
    noted: HashSet<String>,
}

impl IgnoredKeys {
    /// Notes a key, which is ignored unless `is_used` returns true.
    fn note(&mut self, key: &str, is_used: impl FnOnce() -> bool) {
        if self.noted.len() == MAX_NOTED || self.noted.contains(key) {
            return;
        }
        self.noted.insert(key.to_owned());
        if self.names.len() < MAX_IGNORED && !is_used() {
            self.names.push(key.to_owned());
        }
    }
}

/// A wanted key of objects.
struct WantedKey {
    /// Key of the row itself, looked for before the path.
    written: Option<WantedPath>,
    path: WantedPath,
}

/// A path of keys.
struct WantedPath {
    steps: Vec<PathStep>,
    /// Index of it in the [`WantedPaths`].
    index: usize,
}

impl WantedPath {
    fn new(keys: Vec<String>, paths: &mut WantedPaths) -> Self {
        Self {
            index: paths.add(keys.iter().map(String::as_str)),
            steps: keys.into_iter().map(PathStep::new).collect(),
        }
    }

    fn find<'v>(&mut self, row: &'v Value) -> Option<&'v Value> {
        let mut steps = self.steps.iter_mut();
        steps.try_fold(row, |at, step| step.find(at))
    }
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
    fn new(name: &str, wanted: &[String], as_written: bool, paths: &mut WantedPaths) -> Self {
        let landed = join_path([name]);
        let is_written = as_written && landed != name && !wanted.contains(&landed);
        Self {
            written: is_written.then(|| WantedPath::new(vec![name.to_owned()], paths)),
            path: WantedPath::new(split_path(name), paths),
        }
    }

    fn find<'v>(&mut self, row: &'v Value) -> Option<&'v Value> {
        let written = self.written.as_mut().and_then(|path| path.find(row));
        written.or_else(|| self.path.find(row))
    }

    /// Its node in the record that `paths` has found last.
    fn place(&self, paths: &WantedPaths) -> Option<u32> {
        let written = self.written.as_ref();
        let written = written.and_then(|path| paths.place(path.index));
        written.or_else(|| paths.place(self.path.index))
    }
}

impl WantedKeys {
    /// The `wanted` keys of objects that a file has in its lines or its list.
    fn of_objects(wanted: &[String], reading: &RowsReading) -> Self {
        let mut paths = WantedPaths::default();
        let key =
            |name: &String| WantedKey::new(name, wanted, reading.names_as_written, &mut paths);
        Self {
            keys: wanted.iter().map(key).collect(),
            paths,
            keeps_last_key: keeps_last_key(&reading.contracts),
            inputs_met: false,
            ignored: IgnoredKeys::default(),
        }
    }

    /// Adds a record that is found at `place`.
    fn fill(&mut self, record: Record, rows: &mut Assembly, place: impl Fn() -> String) {
        match record {
            Record::Value(value) => match settled(value, self.keeps_last_key) {
                Ok(row) => self.fill_tree(&row, rows, place),
                Err(fault) => rows.add_bad(fault.at(&place())),
            },
            Record::Json(record) => self.fill_json(&record, rows, place),
            Record::Bad { reason, detail, .. } => rows.add_bad(Fault::new(reason, detail)),
        }
    }

    fn fill_tree(&mut self, row: &Value, rows: &mut Assembly, place: impl FnOnce() -> String) {
        if let Value::Object(entries) = row {
            for (key, _) in entries {
                self.ignored.note(key, || self.paths.uses(key));
            }
        }
        let found: Vec<Option<&Value>> = self.keys.iter_mut().map(|key| key.find(row)).collect();
        rows.note_found(|column| found[column].is_some());
        self.note_inputs(rows);
        let cell = |column: usize| found[column].map_or(Raw::Null, |value| raw(value.view()));
        rows.add(cell, place);
    }

    fn fill_json(
        &mut self,
        record: &JsonRecord,
        rows: &mut Assembly,
        place: impl FnOnce() -> String,
    ) {
        for key in self.paths.find(record) {
            self.ignored.note(key, || false);
        }
        let (keys, paths) = (&self.keys, &self.paths);
        let found = |column: usize| keys[column].place(paths);
        rows.note_found(|column| found(column).is_some());
        let cell =
            |column: usize| found(column).map_or(Raw::Null, |place| raw(record.tape.view(place)));
        rows.add(cell, place);
        self.note_inputs(rows);
    }

    /// Records that a row has inputs, if it does; until then, objects are not those of the dataset.
    fn note_inputs(&mut self, rows: &mut Assembly) {
        if !self.inputs_met {
            self.inputs_met = rows.has_met();
            rows.is_foreign = !self.inputs_met;
        }
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
                let cells = wanted_cells(wanted, &flat, indexes, &reading.contracts);
                WantedColumns::Table { names, cells }
            }
            None => WantedColumns::Keys(WantedKeys::of_objects(wanted, reading)),
        };
        Ok(Self { rows, columns })
    }

    /// Columns of the file that nothing wants; for a format that does not list them, those of the
    /// rows so far.
    pub(super) fn ignored(&self) -> Vec<String> {
        match &self.columns {
            WantedColumns::Keys(keys) => keys.ignored.names.clone(),
            WantedColumns::Table { names, .. } => names.ignored(),
        }
    }

    /// Columns of the file, if its format lists them.
    pub(super) fn columns(&self) -> Option<&Named> {
        match &self.columns {
            WantedColumns::Table { names, .. } => Some(names),
            WantedColumns::Keys(_) => None,
        }
    }

    /// Type that the file declares for the wanted column at this place; `None` for a format without
    /// types, and for a column that the file lacks.
    pub(super) fn declared_type(&self, wanted: usize) -> Option<ColumnType> {
        let WantedColumns::Table { names, cells } = &self.columns else {
            return None;
        };
        let place = (*names.places().get(wanted)?)?;
        let cell = cells.get(wanted)?;
        let found = self.rows.declared_type(place, &cell.below);
        match found {
            Some(ColumnType::Binary) if cell.reads_bytes => Some(ColumnType::Utf8),
            found => found,
        }
    }

    /// Adds a row, good or bad, and returns the batch; `None` at the end. `rows` are free while it
    /// waits for input.
    ///
    /// # Errors
    /// The reason why the rest is unreadable.
    pub(super) fn fill<'a>(
        &mut self,
        rows: &'a SharedAssembly,
    ) -> Result<Option<MutexGuard<'a, Assembly>>, String> {
        match &mut self.columns {
            WantedColumns::Table { cells, .. } => {
                let Some(next) = self.rows.next_row()? else {
                    return Ok(None);
                };
                let mut rows = rows.lock();
                fill_row(next, cells, &*self.rows, &mut rows)?;
                Ok(Some(rows))
            }
            WantedColumns::Keys(keys) => {
                let Some(record) = self.rows.next()? else {
                    return Ok(None);
                };
                let mut rows = rows.lock();
                rows.bytes += usize::try_from(record.size()).unwrap_or(usize::MAX);
                keys.fill(record, &mut rows, || self.rows.place());
                Ok(Some(rows))
            }
        }
    }
}

/// Adds the row `next` of the table `source`, with its wanted `cells`.
fn fill_row(
    next: NextRow,
    cells: &[WantedCell],
    source: &dyn Rows,
    rows: &mut Assembly,
) -> Result<(), String> {
    let bytes = match &next {
        NextRow::Cells { bytes } => *bytes,
        NextRow::Record(record) => record.size(),
    };
    rows.bytes += usize::try_from(bytes).unwrap_or(usize::MAX);
    let record = match next {
        NextRow::Cells { .. } => None,
        NextRow::Record(Record::Bad { reason, detail, .. }) => {
            rows.add_bad(Fault::new(reason, detail));
            return Ok(());
        }
        NextRow::Record(record) => record.into_value(),
    };
    let entries = match &record {
        None => None,
        Some(Value::Object(entries)) => Some(entries),
        Some(_) => return Err("a row of a table is no object".to_owned()),
    };
    let find = |column: usize| -> Option<ValueView<'_>> {
        let WantedCell { index, below, .. } = &cells[column];
        match (entries, (*index)?) {
            (None, index) if below.is_empty() => Some(source.cell(index)),
            (None, index) => source.value_below(index, below),
            (Some(entries), index) => {
                let (_, value) = entries.get(index)?;
                below.iter().try_fold(value, field).map(Value::view)
            }
        }
    };
    // Columns are in every row, even where they are null.
    match cells.iter().all(|cell| cell.below.is_empty()) {
        true => rows.met.fill(true),
        false => rows.note_found(|column| find(column).is_some()),
    }
    let read = |column: usize| match find(column) {
        Some(ValueView::Bytes(bytes)) if cells[column].reads_bytes => raw_text(bytes),
        found => found.map_or(Raw::Null, raw),
    };
    rows.add(read, || source.place());
    Ok(())
}

/// The value of the key in `object`, if that is an object with the key.
fn field<'v>(object: &'v Value, key: &String) -> Option<&'v Value> {
    let Value::Object(entries) = object else {
        return None;
    };
    let found = entries.iter().find(|(name, _)| name == key);
    found.map(|(_, value)| value)
}

/// Places of the `wanted` columns: those of `flat` are whole cells, the others nested in cells.
fn wanted_cells(
    wanted: &[String],
    flat: &Named,
    indexes: Vec<Option<usize>>,
    contracts: &[ContractConfig],
) -> Vec<WantedCell> {
    let all = wanted.iter().zip(flat.places()).zip(indexes);
    all.map(|((name, place), index)| WantedCell {
        index,
        below: match place {
            Some(_) => Vec::new(),
            None => split_path(name).into_iter().skip(1).collect(),
        },
        reads_bytes: reads_bytes(contracts, name),
    })
    .collect()
}

/// Returns true if the `contracts` that declare a type of the column called `name`, at least one, declare
/// another one than bytes. Ingest then reads bytes as text.
fn reads_bytes(contracts: &[ContractConfig], name: &str) -> bool {
    let columns = contracts
        .iter()
        .filter_map(|contract| contract.column.get(name));
    let mut types = columns.filter_map(|own| own.r#type).peekable();
    types.peek().is_some() && types.all(|own| own != DeclaredType::Bytes)
}

/// The text of bytes that are UTF-8.
fn raw_text(bytes: &[u8]) -> Raw<'_> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Raw::Text(Cow::Borrowed(text)),
        Err(_) => Raw::Nested("bytes that are no UTF-8"),
    }
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

fn raw(value: ValueView<'_>) -> Raw<'_> {
    match value {
        ValueView::Null => Raw::Null,
        ValueView::Bool(value) => Raw::Bool(value),
        ValueView::Int(value) => Raw::Int(value),
        ValueView::Float(value) => Raw::Float(value),
        ValueView::Written(value, text) => Raw::Written(value, text),
        ValueView::Digits(text) => Raw::Digits(text),
        ValueView::Text(text) => Raw::Text(text),
        ValueView::Cell(text) => Raw::Cell(text),
        ValueView::Time(text) => Raw::Time(text),
        ValueView::Bytes(_) => Raw::Nested("bytes"),
        ValueView::List => Raw::Nested("a list"),
        ValueView::Object => Raw::Nested("an object"),
    }
}
