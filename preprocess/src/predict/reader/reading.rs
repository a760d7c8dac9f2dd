//! Settings for reading new rows: their source, their format, and the landed columns they are read as.

use std::{collections::BTreeMap, io::Read, path::PathBuf};

use feedline_schemas::{
    config::{ArchiveConfig, ContractConfig, CsvConfig, FileFormat},
    record::ColumnType,
};

use crate::predict::joins::RowJoins;

use super::pipe_reader::PauseRule;

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

/// Settings for reading new rows.
#[derive(Clone, Debug)]
pub struct RowsReading {
    /// Format; `Auto`: by the ending of the file's name, NDJSON for a pipe.
    pub format: FileFormat,
    /// Details of CSV. Without a delimiter it is a tab for `.tsv`, else a comma, or another one that
    /// splits the header into wanted columns where the usual one does not.
    pub csv: CsvConfig,
    /// JSON: path of the list of rows; empty for the document itself.
    pub records: String,
    /// Bounds of compressed columns.
    pub archive: ArchiveConfig,
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
    /// Joins that add columns to rows without them.
    pub joins: Option<RowJoins>,
    /// Longest time that complete rows of a pipe wait for further input before they become a batch;
    /// absent: until the batch is full.
    pub pause: Option<PauseRule>,
}
