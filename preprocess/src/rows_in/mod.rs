//! New rows from files and pipes, read like those that the transform was fitted on.
//!
//! A row is never lost: an unreadable or unusable row keeps its place, with the reason that ingest
//! or the build would give. Rows come in batches, and no cell depends on another row, so batches do
//! not affect the result. Memory is that of a batch.
//!
//! CSV has a header, NDJSON an object on each line; both may be compressed (`.gz`, `.zst`). Nested
//! keys are columns named by their path, as they land; a column is found by its landed name or by
//! its original name. Of Parquet files only the needed columns are decoded; from a pipe the
//! complete file is held in memory.

mod cell;
mod csv_rows;
mod held;
mod landed;
mod names;
mod ndjson_rows;
mod parquet_rows;
#[cfg(test)]
mod tests;
mod written;

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufReader, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::{
    array::{Array as _, AsArray as _, RecordBatch, RecordBatchOptions},
    datatypes::{Field, Schema, SchemaRef},
};
use feedline_schemas::{
    config::ContractConfig,
    csv_cell::CellFormat,
    format::TRANSFORM,
    ids::Hash128,
    record::ColumnType,
    transform::{InputColumn, InputKind, TransformArtefact},
};
use flate2::read::MultiGzDecoder;

pub use self::landed::landed_types;
use self::{
    cell::{Input, Raw},
    csv_rows::{CsvRows, Delimiter},
    held::{Conflict, LandedAs},
    names::Named,
    ndjson_rows::NdjsonRows,
    parquet_rows::ParquetRows,
    written::Written,
};
use crate::{
    Error, Transform,
    columns::{listed, nearest},
    sparse::{Sparse, TOO_MANY_MISSING},
    typing::Missing,
};

/// A batch of this many bytes ends, however few its rows are.
const BATCH_BYTES: usize = 32 << 20;

/// File format of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowFormat {
    /// CSV with a header line.
    Csv,
    /// One JSON object per line.
    Ndjson,
    /// Parquet.
    Parquet,
}

/// Compression of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    Plain,
    Gzip,
    Zstd,
}

impl RowFormat {
    /// Recognizes the format by the ending of a file name, ignoring the one of its compression.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        match ending(unpacked(&name).0) {
            "csv" | "tsv" => Some(Self::Csv),
            "ndjson" | "jsonl" => Some(Self::Ndjson),
            "parquet" => Some(Self::Parquet),
            _ => None,
        }
    }
}

fn ending(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(_, ending)| ending)
}

fn unpacked(name: &str) -> (&str, Packing) {
    match name.rsplit_once('.') {
        Some((stem, "gz")) => (stem, Packing::Gzip),
        Some((stem, "zst")) => (stem, Packing::Zstd),
        _ => (name, Packing::Plain),
    }
}

/// Origin of the rows.
pub enum RowSource {
    /// A local file.
    File(PathBuf),
    /// A pipe.
    Stream(Box<dyn Read + Send>),
}

impl std::fmt::Debug for RowSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Stream(_) => f.write_str("Stream"),
        }
    }
}

/// Settings for reading CSV.
#[derive(Clone, Debug, Default)]
pub struct CsvReading {
    /// Field separator; absent: a tab for `.tsv`, else a comma, or that of `;`, tab and `|` which
    /// splits the header into columns of the training data where the usual one does not.
    pub delimiter: Option<u8>,
    /// Cells that are missing besides the empty one, compared after trimming spaces.
    pub null_values: Vec<String>,
    /// Format of numbers and missing values.
    pub format: CellFormat,
}

/// Settings for reading new rows.
#[derive(Clone, Debug)]
pub struct RowsReading {
    /// Format; absent: by the ending of the file's name, NDJSON for a pipe.
    pub format: Option<RowFormat>,
    /// Details of CSV.
    pub csv: CsvReading,
    /// Types of the landed columns that the transform was fitted on, as far as they are known: [`landed_types`].
    pub landed: BTreeMap<String, ColumnType>,
    /// Contracts of the sources that the rows may come from. They decide about a cell that does not
    /// fit its landed column. Without contracts such a row is rejected.
    pub contracts: Vec<ContractConfig>,
    /// True if names are as files or a query write them: `a.b` is then a key with a dot, otherwise
    /// it is the key `b` of an object `a`.
    pub names_as_written: bool,
    /// Passthrough columns, as text.
    pub keep: Vec<String>,
    /// `dataset.max_missing_fraction`.
    pub max_missing_fraction: Option<f64>,
    /// Most rows of a batch, at least 1.
    pub batch_rows: usize,
}

/// Reason why a row cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// A fixed word, as ingest or the build gives it, such as `type_conflict` or `integer_too_large`.
    pub reason: &'static str,
    /// Location and details.
    pub detail: String,
}

impl Fault {
    fn new(reason: &'static str, detail: String) -> Self {
        Self { reason, detail }
    }

    fn at(self, place: &str) -> Self {
        Self::new(self.reason, format!("{place}: {}", self.detail))
    }
}

/// Some new rows, in their order.
#[derive(Clone, Debug)]
pub struct NewRows {
    first: u64,
    inputs: RecordBatch,
    bad: BTreeMap<usize, Fault>,
    kept: Vec<Vec<Option<String>>>,
}

/// Some new texts, in their order.
#[derive(Clone, Debug, PartialEq)]
pub struct NewTexts {
    /// Number of the first row, from 0.
    pub first: u64,
    /// Texts; those of bad rows have no meaning.
    pub texts: Vec<Option<String>>,
    /// Rows that cannot be read, by index from 0.
    pub bad: BTreeMap<usize, Fault>,
    /// Passthrough columns, each with a cell per row.
    pub kept: Vec<Vec<Option<String>>>,
}

/// Features of some new rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Features {
    /// Number of the first row, from 0 as in the files of rejects.
    pub first: u64,
    /// Rows, the bad ones included.
    pub rows: usize,
    /// `[rows, features]`, row-major; values of bad rows have no meaning.
    pub x: Vec<f32>,
    /// Rows that cannot be used, by index from 0.
    pub bad: BTreeMap<usize, Fault>,
    /// Passthrough columns, each with a cell per row.
    pub kept: Vec<Vec<Option<String>>>,
    /// Unusual cells of usable rows.
    pub unusual: UnusualCells,
}

/// Rows, by index from 0, with a cell that a model has little experience with, by column. Columns
/// without any are absent, and so are rows that cannot be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnusualCells {
    /// Inputs without a value.
    pub missing: BTreeMap<String, Vec<usize>>,
    /// Categories with a value that the transform does not know.
    pub unknown: BTreeMap<String, Vec<usize>>,
    /// Numbers far outside of the training rows.
    pub far_outside: BTreeMap<String, Vec<usize>>,
}

impl UnusualCells {
    /// Inputs of `rows` without those that are `bad`; `unknown` are those of unknown categories.
    fn of(
        rows: &RecordBatch,
        bad: &BTreeMap<usize, Fault>,
        transform: &Transform,
        unknown: BTreeMap<String, Vec<usize>>,
    ) -> Result<Self, Error> {
        let schema = rows.schema();
        let columns = schema.fields().iter().zip(rows.columns());
        let columns = columns.filter(|(_, column)| column.null_count() > 0);
        let missing = columns.map(|(field, column)| {
            let rows = (0..column.len()).filter(|row| column.is_null(*row));
            (field.name().clone(), rows.collect())
        });
        let mut found = Self {
            missing: missing.collect(),
            unknown,
            far_outside: transform.far_outside(rows)?,
        };
        for columns in [
            &mut found.missing,
            &mut found.unknown,
            &mut found.far_outside,
        ] {
            columns.retain(|_, rows: &mut Vec<usize>| {
                rows.retain(|row| !bad.contains_key(row));
                !rows.is_empty()
            });
        }
        Ok(found)
    }

    /// Describes the unusual cells of each row; `inputs` is the number of columns of a row.
    #[must_use]
    pub fn describe(&self, rows: usize, inputs: usize) -> Vec<Option<String>> {
        let mut lacking = vec![0_usize; rows];
        for row in self.missing.values().flatten() {
            lacking[*row] += 1;
        }
        let mut flags: Vec<Vec<String>> = lacking
            .into_iter()
            .map(|lacking| match lacking {
                0 => Vec::new(),
                lacking => vec![format!("{lacking} of {inputs} inputs are missing")],
            })
            .collect();
        for (columns, what) in [
            (&self.unknown, "has an unknown category"),
            (&self.far_outside, "is far outside of the training rows"),
        ] {
            for (column, rows) in columns {
                for row in rows {
                    flags[*row].push(format!("`{column}` {what}"));
                }
            }
        }
        let flags = flags.into_iter();
        flags
            .map(|flags| (!flags.is_empty()).then(|| flags.join("; ")))
            .collect()
    }
}

impl NewRows {
    /// Returns the texts of rows that were opened by [`RowsIn::open_texts`].
    #[must_use]
    pub fn into_texts(self) -> NewTexts {
        let texts = self.inputs.column(0).as_string::<i32>().iter();
        NewTexts {
            first: self.first,
            texts: texts.map(|text| text.map(str::to_owned)).collect(),
            bad: self.bad,
            kept: self.kept,
        }
    }

    /// Applies `transform`, the function that the build applies.
    ///
    /// # Errors
    /// As [`Transform::apply`]; none for rows that were read for this transform.
    pub fn features(self, transform: &Transform) -> Result<Features, Error> {
        let applied = transform.apply(&self.inputs)?;
        let mut bad = self.bad;
        for (row, reason, detail) in applied.bad {
            let number = self.first + row as u64;
            bad.entry(row)
                .or_insert_with(|| Fault::new(reason, detail).at(&format!("row {number}")));
        }
        let unusual = UnusualCells::of(&self.inputs, &bad, transform, applied.unknown)?;
        Ok(Features {
            unusual,
            first: self.first,
            rows: self.inputs.num_rows(),
            x: applied.x,
            bad,
            kept: self.kept,
        })
    }
}

/// Reads new rows.
pub struct RowsIn {
    reader: Box<dyn Reader>,
    assembly: Assembly,
    name: String,
    batch_rows: usize,
    ended: bool,
}

impl std::fmt::Debug for RowsIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowsIn")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl RowsIn {
    /// Opens `source` for the transform of `artefact`, and checks that its columns exist, if the
    /// format lists them beforehand. Blocks.
    ///
    /// # Errors
    /// [`Error::Input`] for a file that cannot be read or lacks columns, and for a dataset whose
    /// rows are not made of numbers and categories.
    pub fn open(
        source: RowSource,
        reading: &RowsReading,
        artefact: &TransformArtefact,
    ) -> Result<Self, Error> {
        if artefact.inputs.is_empty() || artefact.images.is_some() || artefact.tokens.is_some() {
            return Err(Error::input(
                "the dataset",
                "its rows are images or texts, or have them beside their numbers",
                "new rows are read for datasets of numbers and categories only",
            ));
        }
        Self::open_inputs(source, reading, artefact)
    }

    /// As [`open`](Self::open), for a dataset whose rows have images or texts besides their
    /// numbers, as passthrough columns. Blocks.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_parts(
        source: RowSource,
        reading: &RowsReading,
        artefact: &TransformArtefact,
    ) -> Result<Self, Error> {
        Self::open_inputs(source, reading, artefact)
    }

    /// Opens `source` for the texts in the column `column`. Blocks.
    ///
    /// # Errors
    /// [`Error::Input`] for a file that cannot be read or lacks the column.
    pub fn open_texts(
        source: RowSource,
        reading: &RowsReading,
        column: &str,
    ) -> Result<Self, Error> {
        // Of texts nothing is missing but the empty cell: `NA` is a text.
        let reading = RowsReading {
            csv: CsvReading {
                null_values: Vec::new(),
                ..reading.csv.clone()
            },
            max_missing_fraction: None,
            ..reading.clone()
        };
        let artefact = TransformArtefact {
            format: TRANSFORM.format.to_owned(),
            version: TRANSFORM.version,
            hash: Hash128::new(0),
            fitted_rows: 0,
            null_values: Vec::new(),
            missing_values: Vec::new(),
            inputs: vec![InputColumn {
                name: column.to_owned(),
                kind: InputKind::Categorical,
            }],
            steps: Vec::new(),
            features: Vec::new(),
            target: None,
            other_targets: Vec::new(),
            characters: None,
            images: None,
            tokens: None,
            signs: None,
        };
        Self::open_inputs(source, &reading, &artefact)
    }

    /// Opens `source` for the input columns of `artefact`.
    fn open_inputs(
        source: RowSource,
        reading: &RowsReading,
        artefact: &TransformArtefact,
    ) -> Result<Self, Error> {
        let name = match &source {
            RowSource::File(path) => path.display().to_string(),
            RowSource::Stream(_) => "standard input".to_owned(),
        };
        let assembly = Assembly::new(reading, artefact);
        let refused = |reason: String| unreadable(&name, reason);
        let format = match (
            reading.format.or_else(|| RowFormat::of_name(&name)),
            &source,
        ) {
            (Some(format), _) => format,
            (None, RowSource::Stream(_)) => RowFormat::Ndjson,
            (None, RowSource::File(_)) => {
                return Err(refused(
                    "the format does not follow from its name; set `--format`".into(),
                ));
            }
        };
        let wanted = assembly.wanted();
        let reader: Box<dyn Reader> = match format {
            RowFormat::Parquet => {
                Box::new(ParquetRows::open(source, &wanted, reading.batch_rows).map_err(refused)?)
            }
            RowFormat::Csv => {
                let csv = CsvRows::new(
                    stream(source, &name)?,
                    delimiter(&reading.csv, &name),
                    &reading.csv.null_values,
                    &wanted,
                );
                Box::new(csv.map_err(refused)?)
            }
            RowFormat::Ndjson => Box::new(NdjsonRows::new(
                Box::new(BufReader::with_capacity(1 << 18, stream(source, &name)?)),
                &wanted,
                reading.names_as_written,
            )),
        };
        if let Some(names) = reader.columns() {
            assembly.check(names, &name)?;
        }
        Ok(Self {
            reader,
            assembly,
            name,
            batch_rows: reading.batch_rows.max(1),
            ended: false,
        })
    }

    /// The next rows, at least one; `None` at the end. Blocks.
    ///
    /// # Errors
    /// [`Error::Input`] for a fault that makes the rest unreadable, and for objects that have none
    /// of the columns.
    pub fn next_rows(&mut self) -> Result<Option<NewRows>, Error> {
        while !self.ended
            && self.assembly.rows < self.batch_rows
            && self.assembly.bytes < BATCH_BYTES
        {
            let more = self.reader.fill(&mut self.assembly);
            self.ended = !more.map_err(|reason| unreadable(&self.name, reason))?;
            self.assembly.check_first(&self.name)?;
        }
        if self.ended {
            self.assembly.tell_unread(&self.name);
        }
        self.assembly.take()
    }

    /// Columns of the file that the transform does not use, if the format lists them.
    #[must_use]
    pub fn ignored(&self) -> Vec<String> {
        self.reader
            .columns()
            .map(Named::ignored)
            .unwrap_or_default()
    }

    /// Delimiter of a CSV file that was detected in place of the usual one.
    #[must_use]
    pub fn detected_delimiter(&self) -> Option<char> {
        self.reader.detected_delimiter()
    }

    /// Input columns that no row has had so far.
    #[must_use]
    pub fn absent(&self) -> Vec<String> {
        let inputs = self.assembly.inputs.iter().zip(&self.assembly.met);
        let absent = inputs.filter(|(_, met)| !**met);
        absent.map(|(input, _)| input.name.clone()).collect()
    }
}

fn unreadable(name: &str, reason: String) -> Error {
    Error::input(
        format!("`{name}`"),
        reason,
        "correct the file or its format options, and rerun the prediction",
    )
}

fn delimiter(csv: &CsvReading, name: &str) -> Delimiter {
    let name = name.to_ascii_lowercase();
    let usual = if ending(unpacked(&name).0) == "tsv" {
        b'\t'
    } else {
        b','
    };
    csv.delimiter
        .map_or(Delimiter::Usual(usual), Delimiter::Given)
}

/// Reads the file at `path`, decompressed by its ending (`.gz`, `.zst`), at most `limit` bytes.
/// Blocks.
///
/// # Errors
/// [`Error::Input`] for a file that cannot be read, and for one of more bytes.
pub fn read_unpacked(path: &Path, limit: u64) -> Result<Vec<u8>, Error> {
    let name = path.display().to_string();
    let mut bytes = Vec::new();
    let stream = stream(RowSource::File(path.to_owned()), &name)?;
    let read = stream.take(limit.saturating_add(1)).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(&name, error.to_string()))?;
    match bytes.len() as u64 > limit {
        true => Err(unreadable(&name, format!("it has more than {limit} bytes"))),
        false => Ok(bytes),
    }
}

/// The bytes of `source`, unpacked.
fn stream(source: RowSource, name: &str) -> Result<Box<dyn Read + Send>, Error> {
    let opened = match source {
        RowSource::Stream(stream) => return Ok(stream),
        RowSource::File(path) => File::open(path),
    };
    let open = || -> std::io::Result<Box<dyn Read + Send>> {
        let file = opened?;
        let lower = name.to_ascii_lowercase();
        Ok(match unpacked(&lower).1 {
            Packing::Plain => Box::new(file),
            Packing::Gzip => Box::new(MultiGzDecoder::new(BufReader::new(file))),
            Packing::Zstd => Box::new(zstd::Decoder::new(file)?),
        })
    };
    open().map_err(|error| unreadable(name, error.to_string()))
}

/// Reads rows of one format. Wanted columns are known by their place: the inputs, then those that are carried along.
trait Reader: Send {
    /// Columns of the file, if it lists them beforehand.
    fn columns(&self) -> Option<&Named>;

    /// Delimiter that was detected in place of the usual one.
    fn detected_delimiter(&self) -> Option<char> {
        None
    }

    /// Adds some rows, good or bad; `false` at the end.
    ///
    /// # Errors
    /// The reason why the rest is unreadable.
    fn fill(&mut self, rows: &mut Assembly) -> Result<bool, String>;
}

/// A batch in the making.
struct Assembly {
    schema: SchemaRef,
    inputs: Vec<Input>,
    /// True for inputs that any row has had, even without a value.
    met: Vec<bool>,
    keep: Vec<String>,
    kept: Vec<Vec<Option<String>>>,
    sparse: Option<Sparse>,
    bad: BTreeMap<usize, Fault>,
    rows: usize,
    bytes: usize,
    /// Rows before this batch.
    before: u64,
    /// True if an object without any of the inputs came before any that has some.
    is_foreign: bool,
}

impl Assembly {
    fn new(reading: &RowsReading, artefact: &TransformArtefact) -> Self {
        let input = |column: &InputColumn| {
            let known = reading.landed.get(&column.name).copied();
            let landed = LandedAs::of(known, &reading.contracts, column, artefact);
            let conflict = Conflict::of(&reading.contracts, &column.name);
            let missing = Missing::new(&artefact.null_values, &artefact.missing_values);
            Input::new(column, (landed, conflict), missing, artefact.signs)
                .written(Written::of(known, reading))
        };
        let mut inputs: Vec<Input> = artefact.inputs.iter().map(input).collect();
        let field = |input: &mut Input| {
            let empty = input.take();
            Field::new(&input.name, empty.data_type().clone(), true)
        };
        let fields: Vec<Field> = inputs.iter_mut().map(field).collect();
        Self {
            schema: Arc::new(Schema::new(fields)),
            met: vec![false; inputs.len()],
            inputs,
            kept: vec![Vec::new(); reading.keep.len()],
            keep: reading.keep.clone(),
            sparse: reading.max_missing_fraction.map(Sparse::new),
            bad: BTreeMap::new(),
            rows: 0,
            bytes: 0,
            before: 0,
            is_foreign: false,
        }
    }

    /// Names of the inputs, then of what is carried along.
    fn wanted(&self) -> Vec<String> {
        let inputs = self.inputs.iter().map(|input| &input.name);
        inputs.chain(&self.keep).cloned().collect()
    }

    /// All wanted columns are among those of the file.
    fn check(&self, names: &Named, file: &str) -> Result<(), Error> {
        let wanted = self.wanted();
        let lacking = wanted.iter().zip(names.places());
        let lacking = lacking.filter(|(_, place)| place.is_none());
        let lacking: Vec<&str> = lacking.map(|(name, _)| name.as_str()).collect();
        let Some(first) = lacking.first() else {
            return Ok(());
        };
        let nearest = nearest(first, names.names().iter().map(String::as_str));
        Err(Error::input(
            format!("`{file}`"),
            format!(
                "it lacks {} of the {} columns that are asked for: {}{nearest}",
                lacking.len(),
                wanted.len(),
                listed(&lacking, "`")
            ),
            "give all columns of the training data, with an empty cell where a value is missing",
        ))
    }

    fn check_first(&self, file: &str) -> Result<(), Error> {
        if !self.is_foreign {
            return Ok(());
        }
        let names: Vec<&str> = self
            .inputs
            .iter()
            .map(|input| input.name.as_str())
            .collect();
        Err(Error::input(
            format!("`{file}`"),
            format!(
                "its first object has none of the columns that the transform was fitted on: {}",
                listed(&names, "`")
            ),
            "check that it is the file for this dataset",
        ))
    }

    /// Warns once per column of cells that could not be read and count as missing.
    fn tell_unread(&mut self, file: &str) {
        for input in &mut self.inputs {
            let Some(unread) = input.unread.take() else {
                continue;
            };
            tracing::warn!(
                file, column = %input.name, cells = unread.cells, example = %unread.example,
                "cells of a column could not be read and count as missing, as in the dataset; correct them, or list the \
                 spellings of a missing value in `dataset.null_values`"
            );
        }
    }

    /// The number of the row that comes next, from 0.
    fn number(&self) -> u64 {
        self.before + self.rows as u64
    }

    /// Adds a row with these cells of the wanted columns, found at `place`.
    fn add<'a>(&mut self, cell: impl Fn(usize) -> Raw<'a>, place: impl FnOnce() -> String) {
        let (mut fault, mut lacking) = (None, 0);
        for (i, input) in self.inputs.iter_mut().enumerate() {
            let found = input.push(&cell(i));
            lacking += usize::from(input.lacks);
            fault = fault.or(found);
        }
        let all = self.inputs.len();
        let is_too_many = |sparse: &Sparse| sparse.is_too_many(lacking, all);
        if fault.is_none() && self.sparse.as_ref().is_some_and(is_too_many) {
            let detail = format!("{lacking} of {all} features are missing");
            fault = Some(Fault::new(TOO_MANY_MISSING, detail));
        }
        for (i, kept) in self.kept.iter_mut().enumerate() {
            kept.push(cell(all + i).carried());
        }
        if let Some(fault) = fault {
            self.bad.insert(self.rows, fault.at(&place()));
        }
        self.rows += 1;
    }

    /// Adds a row that cannot be read at all.
    fn add_bad(&mut self, fault: Fault) {
        self.bad.insert(self.rows, fault);
        for input in &mut self.inputs {
            input.push(&Raw::Null);
        }
        self.kept.iter_mut().for_each(|kept| kept.push(None));
        self.rows += 1;
    }

    fn take(&mut self) -> Result<Option<NewRows>, Error> {
        if self.rows == 0 {
            return Ok(None);
        }
        let columns = self.inputs.iter_mut().map(Input::take).collect();
        // There may be none of them.
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        let schema = Arc::clone(&self.schema);
        let inputs = RecordBatch::try_new_with_options(schema, columns, &options)?;
        let first = self.before;
        self.before += self.rows as u64;
        (self.rows, self.bytes) = (0, 0);
        Ok(Some(NewRows {
            first,
            inputs,
            bad: std::mem::take(&mut self.bad),
            kept: self.kept.iter_mut().map(std::mem::take).collect(),
        }))
    }
}
