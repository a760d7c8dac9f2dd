//! New rows from files and pipes, read like those that the transform was fitted on.
//!
//! A row is never lost: an unreadable or unusable row keeps its place, with the reason that ingest
//! or the build would give. Rows come in batches, and no cell depends on another row, so batches do
//! not affect the result. Memory is that of a batch.
//!
//! Files are read by `feedline-readers`, as ingest reads them: the dialect of CSV is that of the
//! source, and nested keys are columns named by their path, as they land. A column is found by its
//! landed name or by its original name. Of Parquet files only the needed columns are decoded; from a
//! pipe, such a file is held in memory completely.

mod assembly;
mod cell;
mod fault;
mod held;
mod joined_batches;
pub(super) mod landed;
mod lookup_cells;
mod names;
mod new_rows;
mod pipe_reader;
mod piped_rows;
mod raw_cell;
mod reading;
mod records;
mod row_batcher;
#[cfg(test)]
mod tests;
mod written;

use std::{fs::File, io::Read, path::Path};

use feedline_readers::{
    csv_dialect,
    file_format::{self, Kind, Packing, TABLE_ENDINGS},
    notices::Notices,
    rows::{Layout, Rows, one_pass::of_reader, open::open_local, unpack},
};
use feedline_schemas::{
    config::{CsvConfig, FileFormat, JsonConfig, TextConfig},
    csv_cell::CellFormat,
    format::TRANSFORM,
    ids::Hash128,
    report::Warning,
    transform::{InputColumn, InputKind, TransformArtefact},
};

use self::{
    assembly::Assembly,
    joined_batches::JoinedBatches,
    pipe_reader::PipeReader,
    piped_rows::{BatchChannel, PipedRows},
    records::Records,
    row_batcher::{RowBatcher, SharedAssembly},
};
pub use self::{
    fault::Fault,
    joined_batches::JoinedRows,
    landed::landed_types,
    new_rows::{Features, NewRows, NewTexts, UnusualCells},
    pipe_reader::PauseRule,
    reading::{RowSource, RowsReading},
};
use crate::{Error, ExpectedInputs, predict::passthrough_type::PassthroughType};

/// Reads new rows.
pub struct RowsIn {
    name: String,
    rows: NewRowReader,
    joins: RowsJoining,
    passthrough: Vec<PassthroughType>,
    expected: Option<ExpectedInputs>,
}

/// Way in which rows get the columns of joins.
enum RowsJoining {
    /// No input is joined.
    Nothing,
    /// The rows have the joined columns, so many rows so far.
    HaveColumns(u64),
    /// Rows without the columns are joined.
    Joins(Box<JoinedBatches>),
}

/// Rows that are read where they are asked for, or ahead of that from a pipe.
enum NewRowReader {
    Direct(Box<RowBatcher>),
    Piped(Box<PipedRows>),
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
            csv: CsvConfig {
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
        let wanted = assembly.wanted();
        let assembly = SharedAssembly::new(assembly);
        let notices = Notices::default();
        let refused = |reason: String| unreadable(&name, reason);
        let mut layout = Layout {
            notices: notices.clone(),
            known_columns: wanted.clone(),
            ..layout(&source, &name, reading)?
        };
        let (source, channel) = ahead(source, reading, &mut layout, &assembly).map_err(refused)?;
        let mut rows = rows(source, &layout).map_err(refused)?;
        let columns = rows.columns().map_err(refused)?;
        let joins = choose_joining(reading, columns.as_deref(), &assembly, &name)?;
        let wanted = assembly.lock().wanted();
        let records = Records::new(rows, &wanted, reading).map_err(refused)?;
        check_columns(&records, &assembly, &name)?;
        let passthrough = passthrough_types(&records, artefact.inputs.len(), reading, layout.kind);
        let batcher = RowBatcher {
            records,
            assembly,
            notices,
            name: name.clone(),
            batch_rows: reading.batch_rows.max(1),
            ended: false,
        };
        Ok(Self {
            name,
            rows: match channel {
                None => NewRowReader::Direct(Box::new(batcher)),
                Some(channel) => NewRowReader::Piped(Box::new(PipedRows::spawn(batcher, channel))),
            },
            joins,
            passthrough,
            expected: None,
        })
    }

    /// Counts the violations of `expected` in all rows, for [`found`](Self::found).
    #[must_use]
    pub fn expecting(self, expected: Option<ExpectedInputs>) -> Self {
        Self { expected, ..self }
    }

    /// Types of the passthrough columns, in their order: those that the file declares, otherwise
    /// those that all contracts declare, otherwise text.
    #[must_use]
    pub fn passthrough_types(&self) -> &[PassthroughType] {
        &self.passthrough
    }

    /// The next rows, at least one; `None` at the end. Blocks.
    ///
    /// # Errors
    /// [`Error::Input`] for a fault that makes the rest unreadable, and for objects that have none
    /// of the columns. With [`RowsReading::joins`] also faults of the joined sources, and failures of
    /// the store and the engine.
    pub fn next_rows(&mut self) -> Result<Option<NewRows>, Error> {
        let batch = self.next_batch()?;
        if let (Some(expected), Some(batch)) = (&mut self.expected, &batch) {
            let is_bad = |row: usize| batch.bad.contains_key(&row);
            expected.count(batch.first, &batch.inputs, is_bad);
        }
        Ok(batch)
    }

    fn next_batch(&mut self) -> Result<Option<NewRows>, Error> {
        let rows = &mut self.rows;
        let mut next = || match rows {
            NewRowReader::Direct(rows) => rows.next_rows(),
            NewRowReader::Piped(rows) => rows.next_rows(),
        };
        match &mut self.joins {
            RowsJoining::Nothing => next(),
            RowsJoining::Joins(joins) => joins.next_rows(next),
            RowsJoining::HaveColumns(rows) => {
                let batch = next()?;
                *rows += batch.as_ref().map_or(0, NewRows::usable);
                Ok(batch)
            }
        }
    }

    /// Result of the joins so far.
    #[must_use]
    pub fn joined(&self) -> JoinedRows {
        match &self.joins {
            RowsJoining::Nothing => JoinedRows::default(),
            RowsJoining::Joins(joins) => joins.found(),
            RowsJoining::HaveColumns(rows) => JoinedRows {
                joined_before: *rows,
                ..JoinedRows::default()
            },
        }
    }

    /// Columns of the file that the transform does not use. For a format that does not list its
    /// columns they are those of the rows so far, at most 256; with [`RowsReading::pause`] they are
    /// known at the end.
    #[must_use]
    pub fn ignored(&self) -> Vec<String> {
        match &self.rows {
            NewRowReader::Direct(rows) => rows.ignored(),
            NewRowReader::Piped(rows) => rows.ignored(),
        }
    }

    /// Decisions about the file so far, such as the delimiter of CSV.
    #[must_use]
    pub fn warnings(&self) -> Vec<Warning> {
        match &self.rows {
            NewRowReader::Direct(rows) => rows.warnings(),
            NewRowReader::Piped(rows) => rows.warnings(),
        }
    }

    /// Observations about the rows so far: local times that name two instants, which with
    /// [`RowsReading::pause`] are known at the end, joins that find few rows, which are known at the
    /// end, and cells that are not as expected.
    #[must_use]
    pub fn found(&self) -> Vec<Warning> {
        let mut found = match &self.rows {
            NewRowReader::Direct(rows) => rows.repeated_times(),
            NewRowReader::Piped(rows) => rows.repeated_times(),
        };
        if let RowsJoining::Joins(joins) = &self.joins {
            found.extend(joins.warnings());
        }
        let expected = self.expected.iter();
        found.extend(expected.flat_map(ExpectedInputs::warnings));
        found
    }

    /// Input columns that no row has had so far; with [`RowsReading::pause`] they are known at the
    /// end.
    #[must_use]
    pub fn absent(&self) -> Vec<String> {
        let mut absent = match &self.rows {
            NewRowReader::Direct(rows) => rows.absent(),
            NewRowReader::Piped(rows) => rows.absent(),
        };
        if let RowsJoining::Joins(joins) = &self.joins {
            absent.retain(|name| !joins.has_added(name));
        }
        absent
    }
}

/// Checks that the file `name` has columns, and all wanted ones, if its format lists them.
///
/// # Errors
/// [`Error::Input`] for a file without one of them.
fn check_columns(records: &Records, assembly: &SharedAssembly, name: &str) -> Result<(), Error> {
    let Some(names) = records.columns() else {
        return Ok(());
    };
    if names.names().is_empty() {
        let reason = "it has no columns: is it empty?".to_owned();
        return Err(unreadable(name, reason));
    }
    assembly.lock().check(names, name)
}

/// Types of the passthrough columns of a file of this kind, which are wanted after `inputs` columns.
fn passthrough_types(
    records: &Records,
    inputs: usize,
    reading: &RowsReading,
    kind: Kind,
) -> Vec<PassthroughType> {
    let is_csv = matches!(kind, Kind::Csv { .. });
    let format = is_csv.then(|| CellFormat::new(&reading.csv));
    let columns = reading.keep.iter().enumerate();
    let types = columns.map(
        |(place, name)| match records.declared_type(inputs + place) {
            Some(declared) => PassthroughType::of(declared),
            None => PassthroughType::by_contracts(&reading.contracts, name, format),
        },
    );
    types.collect()
}

/// Chooses what is joined to the rows of the file `name`, which is a table if it has `columns`.
///
/// # Errors
/// [`Error::Input`] for a table without the joined columns, if they cannot be joined.
fn choose_joining(
    reading: &RowsReading,
    columns: Option<&[String]>,
    assembly: &SharedAssembly,
    name: &str,
) -> Result<RowsJoining, Error> {
    let Some(joins) = &reading.joins else {
        return Ok(RowsJoining::Nothing);
    };
    if let Some(columns) = columns {
        if assembly.lock().read_table(columns) {
            return Ok(RowsJoining::HaveColumns(0));
        }
        joins.check(name)?;
    }
    let joined = JoinedBatches::new(joins.clone(), name.to_owned(), reading);
    Ok(RowsJoining::Joins(Box::new(joined)))
}

/// Puts a reader between a pipe and its parser that hands out the complete rows of `assembly`
/// where the pipe pauses. Settings of CSV that the configuration leaves open are then taken from
/// the bytes before the first pause.
fn ahead(
    source: RowSource,
    reading: &RowsReading,
    layout: &mut Layout,
    assembly: &SharedAssembly,
) -> Result<(RowSource, Option<BatchChannel>), String> {
    let (stream, pause) = match (source, &reading.pause) {
        (RowSource::Stream(stream), Some(pause)) => (stream, pause.clone()),
        (source, _) => return Ok((source, None)),
    };
    let channel = BatchChannel::new();
    let mut pipe = PipeReader::spawn(stream, pause, channel.hook(assembly.clone()));
    if matches!(layout.kind, Kind::Csv { .. }) {
        let csv = &layout.csv;
        let comment = csv.comment.as_ref().and_then(|text| text.bytes().next());
        let head = pipe
            .read_head(csv_dialect::SAMPLE, csv.skip_rows + 1, comment)
            .map_err(|e| e.to_string())?;
        layout.sample_bytes = head.is_paused.then_some(head.bytes);
    }
    Ok((RowSource::Stream(Box::new(pipe)), Some(channel)))
}

fn unreadable(name: &str, reason: String) -> Error {
    Error::input(
        format!("`{name}`"),
        reason,
        "correct the file or its format options, and rerun the prediction",
    )
}

/// Layout of the file `name`.
fn layout(source: &RowSource, name: &str, reading: &RowsReading) -> Result<Layout, Error> {
    let delimiter = reading.csv.delimiter.as_ref();
    let delimiter = delimiter.and_then(|text| text.as_bytes().first().copied());
    let format = match (reading.format, source) {
        (FileFormat::Auto, RowSource::Stream(_)) => FileFormat::Ndjson,
        (format, _) => format,
    };
    let (kind, packing) = match source {
        RowSource::File(_) => file_format::named(name, format, delimiter),
        RowSource::Stream(_) => file_format::named("", format, delimiter),
    }
    .ok_or_else(|| {
        let reason = format!(
            "its name has no known extension ({}); set `--format`",
            TABLE_ENDINGS.join(", ")
        );
        unreadable(name, reason)
    })?;
    Ok(Layout {
        kind,
        packing,
        name: name.to_owned(),
        notices: Notices::default(),
        format,
        csv: reading.csv.clone(),
        delimiter,
        known_columns: Vec::new(),
        sample_bytes: None,
        records: reading.records.clone(),
        json: json_bounds(reading),
        text: TextConfig::default(),
        archive: reading.archive.clone(),
    })
}

/// Bounds of JSON of all contracts; where they differ, the usual ones.
fn json_bounds(reading: &RowsReading) -> JsonConfig {
    let mut bounds = reading.contracts.iter().map(|contract| &contract.json);
    let first = bounds.next();
    let first = first.filter(|first| bounds.all(|other| other == *first));
    first.cloned().unwrap_or_default()
}

/// The rows of `source`.
fn rows(source: RowSource, layout: &Layout) -> Result<Box<dyn Rows>, String> {
    if matches!(layout.kind, Kind::Tar | Kind::Zip) {
        return Err("it is an archive; unpack it, and give one of its files".into());
    }
    match source {
        RowSource::File(path) => open_local(&path, layout),
        RowSource::Stream(stream) => of_reader(stream, layout),
    }
}

/// Reads the file at `path`, decompressed by its ending (`.gz`, `.zst`), at most `limit` bytes.
/// Blocks.
///
/// # Errors
/// [`Error::Input`] for a file that cannot be read, and for one of more bytes.
pub fn read_unpacked(path: &Path, limit: u64) -> Result<Vec<u8>, Error> {
    let name = path.display().to_string();
    let packing = match file_format::packing(&name) {
        // An archive is no text.
        Packing::Gzip if name.to_ascii_lowercase().ends_with(".tgz") => Packing::Plain,
        packing => packing,
    };
    let read = || {
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(|e| e.to_string())?;
        let unpacked = unpack(file, packing)?;
        let read = unpacked
            .take(limit.saturating_add(1))
            .read_to_end(&mut bytes);
        read.map_err(|e| e.to_string())?;
        match bytes.len() as u64 > limit {
            true => Err(format!("it has more than {limit} bytes")),
            false => Ok(bytes),
        }
    };
    read().map_err(|reason: String| unreadable(&name, reason))
}
