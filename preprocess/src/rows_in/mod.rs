//! New rows from files and pipes, read like those that the transform was fitted on.
//!
//! A row is never lost: an unreadable or unusable row keeps its place, with the reason that ingest
//! or the build would give. Rows come in batches, and no cell depends on another row, so batches do
//! not affect the result. Memory is that of a batch.
//!
//! CSV has the dialect of the source, NDJSON an object on each line; both may be compressed (`.gz`, `.zst`). Nested
//! keys are columns named by their path, as they land; a column is found by its landed name or by
//! its original name. Of Parquet files only the needed columns are decoded; from a pipe the
//! complete file is held in memory.

mod assembly;
mod cell;
mod csv_rows;
mod fault;
mod held;
mod landed;
mod names;
mod ndjson_rows;
mod new_rows;
mod parquet_rows;
mod raw_cell;
mod reading;
mod row_reader;
#[cfg(test)]
mod tests;
mod written;

use std::{
    fs::File,
    io::{BufReader, Read},
    path::Path,
};

use feedline_schemas::{
    format::TRANSFORM,
    ids::Hash128,
    transform::{InputColumn, InputKind, TransformArtefact},
};
use flate2::read::MultiGzDecoder;

use self::{
    assembly::Assembly,
    csv_rows::{CsvRows, Delimiter},
    names::Named,
    ndjson_rows::NdjsonRows,
    parquet_rows::ParquetRows,
    reading::{Packing, ending, unpacked},
    row_reader::RowReader,
};
pub use self::{
    fault::Fault,
    landed::landed_types,
    new_rows::{Features, NewRows, NewTexts, UnusualCells},
    reading::{CsvReading, RowFormat, RowSource, RowsReading},
};
use crate::Error;

/// A batch of this many bytes ends, however few its rows are.
const BATCH_BYTES: usize = 32 << 20;

/// Reads new rows.
pub struct RowsIn {
    reader: Box<dyn RowReader>,
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
        let reader: Box<dyn RowReader> = match format {
            RowFormat::Parquet => {
                Box::new(ParquetRows::open(source, &wanted, reading.batch_rows).map_err(refused)?)
            }
            RowFormat::Csv => {
                let mut bytes = stream(source, &name)?;
                if let Some(decode) = reading.csv.decode {
                    let encoding = reading.csv.encoding.as_deref();
                    bytes = decode(bytes, encoding, &name).map_err(refused)?;
                }
                let csv =
                    CsvRows::new(bytes, delimiter(&reading.csv, &name), &reading.csv, &wanted);
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
