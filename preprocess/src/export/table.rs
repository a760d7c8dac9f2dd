//! Rows to export: their columns, and the files that have them.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, RecordBatch},
    datatypes::{DataType, Field, Schema, SchemaRef},
    error::ArrowError,
};
use bytes::Bytes;
use feedline_image::Format;
use feedline_schemas::{
    export::{ExportedRoles, ExportedRows},
    ids::Hash128,
    manifest::Split,
    report::Warning,
};
use feedline_storage::Store;

use super::{cells::bytes_of, widen::RoundedNumbers};
use crate::{Error, pass_progress::PassProgress, source::superseded_files};

/// The rows of an export.
pub(super) struct ExportTable {
    /// Their identity.
    pub(super) of: ExportedRows,
    /// Folder of their files.
    pub(super) store: Store,
    /// Columns of every part.
    pub(super) columns: Vec<ExportColumn>,
    /// Splits of a dataset; one part for landed rows.
    pub(super) parts: Vec<ExportPart>,
    /// Landed rows that a later version of their key replaces.
    pub(super) older_versions: u64,
    /// Warnings of the choice of the rows.
    pub(super) warnings: Vec<Warning>,
    /// Columns that differ from the landed ones or those of the shards, with the reason.
    pub(super) converted: BTreeMap<String, String>,
    /// Columns that are not exported, with the reason.
    pub(super) left_out: BTreeMap<String, String>,
    /// Columns with JSON text, as it landed.
    pub(super) json_text: Vec<String>,
    /// Facts for the metadata of files, by key.
    pub(super) facts: Vec<(String, String)>,
    /// Use of the columns of a dataset; absent for landed rows.
    pub(super) roles: Option<ExportedRoles>,
    /// Paragraphs for people.
    pub(super) notes: Vec<String>,
    /// Further files, with their content.
    pub(super) beside: Vec<(&'static str, Bytes)>,
    /// Column that has the text of a document, where there is one.
    pub(super) text: Option<String>,
}

/// A column of an export.
#[derive(Clone, Debug)]
pub(super) struct ExportColumn {
    pub(super) name: String,
    pub(super) r#type: DataType,
    /// True if a cell may be null.
    pub(super) nullable: bool,
    pub(super) content: ColumnContent,
}

/// Content of a column beyond its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ColumnContent {
    /// Values.
    Plain,
    /// An image file in each cell.
    Image,
    /// Class ids, with their names.
    Classes(Vec<String>),
}

impl ExportColumn {
    pub(super) fn plain(name: impl Into<String>, r#type: DataType, nullable: bool) -> Self {
        Self {
            name: name.into(),
            r#type,
            nullable,
            content: ColumnContent::Plain,
        }
    }

    pub(super) const fn is_binary(&self) -> bool {
        matches!(self.r#type, DataType::Binary | DataType::LargeBinary)
    }
}

/// Rows of a split, or all of them.
pub(super) struct ExportPart {
    pub(super) split: Option<Split>,
    /// Rows that will be written.
    pub(super) rows: u64,
    pub(super) files: Vec<RowFile>,
}

/// A file with rows.
#[derive(Clone)]
pub(super) struct RowFile {
    /// Path in the folder of the table.
    pub(super) path: String,
    pub(super) bytes: u64,
    pub(super) hash: Hash128,
    /// All of its rows.
    pub(super) rows: u64,
    pub(super) reader: Arc<dyn ReadRows>,
}

/// Takes rows.
pub(super) type TakeRows<'a> = dyn FnMut(&RecordBatch) -> Result<(), Error> + 'a;

/// Reads the exported columns from a file.
pub(super) trait ReadRows: Send + Sync + Debug {
    /// Gives the rows of the file to `take`, in their order, and returns the numbers in them that their columns round.
    /// Blocks the thread.
    fn read(&self, file: Bytes, take: &mut TakeRows<'_>) -> Result<RoundedNumbers, Error>;
}

impl ExportTable {
    /// Schema of the rows.
    pub(super) fn schema(&self) -> SchemaRef {
        schema_of(self.columns.iter().cloned())
    }

    /// The roles of the columns as JSON.
    pub(super) fn roles_text(&self) -> Result<Option<String>, Error> {
        let text = self.roles.as_ref().map(serde_json::to_string).transpose();
        text.map_err(|e| Error::Arrow(ArrowError::JsonError(e.to_string())))
    }

    /// Rows that will be written.
    pub(super) fn rows(&self) -> u64 {
        self.parts.iter().map(|part| part.rows).sum()
    }

    /// Rows in all files.
    pub(super) fn rows_in_files(&self) -> u64 {
        let files = self.parts.iter().flat_map(|part| &part.files);
        files.map(|file| file.rows).sum()
    }

    /// Reads a file and gives its rows to `state` on a thread that may be blocked. Returns the state, and the numbers
    /// that were rounded. One file is in memory at a time. It may have been superseded since the log was read.
    ///
    /// # Errors
    /// [`Error::Input`] for a file that differs from its entry in the log or the manifest.
    pub(super) async fn read<S: Send + 'static>(
        &self,
        file: &RowFile,
        mut state: S,
        mut take: impl FnMut(&mut S, &RecordBatch) -> Result<(), Error> + Send + 'static,
    ) -> Result<(S, RoundedNumbers), Error> {
        let bytes = superseded_files::get(&self.store, &file.path).await?;
        let (file, url) = (file.clone(), self.store.url_of(&file.path));
        let work = move || {
            check_file(&bytes, &file, url)?;
            let rounded = file
                .reader
                .read(bytes, &mut |rows| take(&mut state, rows))?;
            Ok((state, rounded))
        };
        tokio::task::spawn_blocking(work).await?
    }

    /// Looks at every cell of the columns, for formats whose types depend on it.
    pub(super) async fn survey(&self, meter: &PassProgress) -> Result<Vec<ColumnFacts>, Error> {
        let mut facts = vec![ColumnFacts::default(); self.columns.len()];
        for file in self.parts.iter().flat_map(|part| &part.files) {
            (facts, _) = self
                .read(file, facts, |facts, rows| {
                    let columns = facts.iter_mut().zip(rows.columns());
                    columns.for_each(|(facts, column)| facts.add(column));
                    Ok(())
                })
                .await?;
            meter.add(file.rows);
        }
        Ok(facts)
    }
}

/// Schema of rows with these columns.
pub(super) fn schema_of(columns: impl Iterator<Item = ExportColumn>) -> SchemaRef {
    let fields = columns.map(|c| Field::new(c.name, c.r#type, c.nullable));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Facts about the cells of a column.
#[derive(Clone, Debug, Default)]
pub(super) struct ColumnFacts {
    pub(super) nulls: u64,
    pub(super) values: u64,
    /// Values that begin as image files do.
    pub(super) images: u64,
    /// Format of the first image.
    pub(super) first: Option<Format>,
    /// Images of other formats.
    pub(super) others: u64,
}

impl ColumnFacts {
    fn add(&mut self, column: &ArrayRef) {
        let nulls = column.null_count() as u64;
        self.nulls += nulls;
        self.values += column.len() as u64 - nulls;
        if !matches!(column.data_type(), DataType::Binary | DataType::LargeBinary) {
            return;
        }
        for cell in (0..column.len()).filter_map(|row| bytes_of(column, row)) {
            if let Ok(format) = Format::of(cell) {
                self.images += 1;
                let first = *self.first.get_or_insert(format);
                self.others += u64::from(format != first);
            }
        }
    }

    /// Returns true if the cells of `column` are image files.
    pub(super) fn are_images(&self, column: &ExportColumn) -> bool {
        let known = column.content == ColumnContent::Image;
        known || (column.is_binary() && self.values > 0 && self.images == self.values)
    }
}

fn check_file(bytes: &Bytes, file: &RowFile, url: String) -> Result<(), Error> {
    let (found, hash) = (bytes.len() as u64, Hash128::of(bytes));
    if found == file.bytes && hash == file.hash {
        return Ok(());
    }
    Err(Error::input(
        format!("`{url}`"),
        format!(
            "it has {found} bytes with hash {hash}, expected {} bytes with hash {}",
            file.bytes, file.hash
        ),
        "it was changed or damaged: restore it, or run `feedline ingest verify` or `feedline shards verify` for all damage",
    ))
}
