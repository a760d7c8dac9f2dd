//! Settings for reading new rows: their source, their format, and the landed columns they are read as.

use std::{collections::BTreeMap, io::Read, path::PathBuf};

use feedline_schemas::{config::ContractConfig, csv_cell::CellFormat, record::ColumnType};

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
pub(super) enum Packing {
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

/// Ending of a file name.
pub(super) fn ending(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(_, ending)| ending)
}

/// The name without the ending of its compression, and that compression.
pub(super) fn unpacked(name: &str) -> (&str, Packing) {
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

/// Bytes of a file.
type RowBytes = Box<dyn Read + Send>;

/// Decodes the file of this name to UTF-8: by its byte order mark, else by the label of an encoding,
/// else as UTF-8.
///
/// An error is the reason why the file is unreadable, and its remedy.
pub(super) type Decode = fn(RowBytes, Option<&str>, &str) -> Result<RowBytes, String>;

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
    /// Character around fields; an empty text for none, `"` by default.
    pub quote: Option<String>,
    /// First character of lines that are left out.
    pub comment: Option<String>,
    /// Lines before the header that are left out.
    pub skip_rows: u64,
    /// True if the first row holds no names.
    pub is_without_header: bool,
    /// Names of the columns, in place of those of the header.
    pub columns: Vec<String>,
    /// Label of the encoding of a file without a byte order mark; absent: UTF-8.
    pub encoding: Option<String>,
    /// Decoder of files; absent: they are UTF-8.
    pub decode: Option<Decode>,
}

/// Settings for reading new rows.
#[derive(Clone, Debug)]
pub struct RowsReading {
    /// Format; absent: by the ending of the file's name, NDJSON for a pipe.
    pub format: Option<RowFormat>,
    /// Details of CSV.
    pub csv: CsvReading,
    /// Types of the landed columns that the transform was fitted on, as far as they are known: [`landed_types`](super::landed_types).
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
