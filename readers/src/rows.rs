//! The records of one file, one after another, in the order of the file. Bad records are included,
//! with their place.

mod csv_rows;
mod gzip_reader;
mod json_rows;
mod loose_quotes;
pub mod one_pass;
pub mod open;
mod record_place;
mod row_places;

use std::{collections::BTreeSet, io::Read};

use feedline_schemas::{
    config::{ArchiveConfig, CsvConfig, FileFormat, JsonConfig, TextConfig},
    record::ColumnType,
};

use self::gzip_reader::GzipReader;
pub use self::record_place::{PlaceUnit, RecordPlace};
use crate::{
    file_bytes::FileBytes,
    file_format::{Kind, Packing},
    notices::Notices,
    record::Record,
    value_view::ValueView,
};

/// Maximum size of a JSON document or compressed Parquet file, in bytes after decompression; it is
/// held in memory completely.
const DOCUMENT: u64 = 1 << 30;

/// A record, or the cells of one.
#[derive(Debug)]
pub enum NextRow {
    /// A row whose cells [`Rows::cell`] returns, until the next one is read.
    Cells {
        /// Approximate size in bytes.
        bytes: u64,
    },
    /// Any other record.
    Record(Record),
}

/// Reads one record after another. Blocking.
pub trait Rows: Send {
    /// Reads the next record; `None` at the end of the file.
    ///
    /// # Errors
    /// The reason why the rest of the file is unreadable, and its remedy.
    fn next(&mut self) -> Result<Option<Record>, String>;

    /// Reads the next record, as cells if it is a row of a table: they are not copied.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    fn next_row(&mut self) -> Result<Option<NextRow>, String> {
        Ok(self.next()?.map(NextRow::Record))
    }

    /// The cell at `index` of the row that [`next_row`](Self::next_row) returned as cells; null where
    /// it has none.
    fn cell(&self, _index: usize) -> ValueView<'_> {
        ValueView::Null
    }

    /// The value at the path `below` that cell, which is not empty; `None` where there is none.
    fn value_below(&self, _index: usize, _below: &[String]) -> Option<ValueView<'_>> {
        None
    }

    /// Number of the last record among the lines, rows or elements of the file; `None` for a record that has none, as in
    /// a member of an archive.
    fn numbered_place(&self) -> Option<RecordPlace> {
        None
    }

    /// Place of the last record in the file, such as `line 7`.
    fn place(&self) -> String {
        let place = self.numbered_place();
        place.map_or_else(|| "the file".to_owned(), |place| place.to_string())
    }

    /// Names of the columns of a table, which every record has in this order. `None` for a format
    /// whose records name their keys themselves.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    fn columns(&mut self) -> Result<Option<Vec<String>>, String> {
        Ok(None)
    }

    /// Tables with headers and records in an archive that were opened since the last call: name of the
    /// member, and names of its columns.
    fn take_members(&mut self) -> Vec<(String, Vec<String>)> {
        Vec::new()
    }

    /// Returns true if the column at this place of a table holds objects.
    fn is_nested(&self, _place: usize) -> bool {
        false
    }

    /// Type that a file with types of its own declares for the column at this place of a table, or
    /// for the value at the path `below` in its objects: numbers and booleans, bytes, JSON for
    /// objects, and otherwise text. `None` for a format without types.
    fn declared_type(&self, _place: usize, _below: &[String]) -> Option<ColumnType> {
        None
    }

    /// Asks for the columns at these places alone, before the first record. Returns true if records
    /// have only these; a format that decodes whole rows returns false.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    fn select(&mut self, _places: &BTreeSet<usize>) -> Result<bool, String> {
        Ok(false)
    }
}

/// Format and options of a file.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Format of the records.
    pub kind: Kind,
    /// Compression of the file.
    pub packing: Packing,
    /// Name of the file, for messages.
    pub name: String,
    /// Collects the decisions about the file.
    pub notices: Notices,
    /// Configured format: members of an archive are read in it.
    pub format: FileFormat,
    /// CSV: its dialect and its null values.
    pub csv: CsvConfig,
    /// CSV: the configured delimiter.
    pub delimiter: Option<u8>,
    /// CSV without a configured delimiter: names that the header is expected to have. A delimiter that
    /// splits it into some of them goes before one that splits the lines alike.
    pub known_columns: Vec<String>,
    /// CSV from a pipe that has paused: the number of bytes that came before the pause, which decide
    /// about its dialect in place of the first 64 KiB.
    pub sample_bytes: Option<usize>,
    /// JSON: path of the list of records.
    pub records: String,
    /// JSON: its bounds.
    pub json: JsonConfig,
    /// Plain text: the separator of its documents.
    pub text: TextConfig,
    /// Archives: members and bounds. The ratio also bounds Parquet and Arrow files.
    pub archive: ArchiveConfig,
}

/// A file's bytes from its beginning, unpacked.
///
/// # Errors
/// The reason why it is no compressed file.
pub fn unpacked(file: &FileBytes, packing: Packing) -> Result<Box<dyn Read + Send>, String> {
    unpack(file.reader(0), packing)
}

/// Decompresses the bytes of `reader`.
///
/// # Errors
/// The reason why they are no compressed file.
pub fn unpack(
    reader: impl Read + Send + 'static,
    packing: Packing,
) -> Result<Box<dyn Read + Send>, String> {
    Ok(match packing {
        Packing::Plain => Box::new(reader),
        Packing::Gzip => Box::new(GzipReader::new(reader)),
        Packing::Zstd => Box::new(zstd::Decoder::new(reader).map_err(|e| e.to_string())?),
    })
}

fn read_whole(reader: impl Read) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    reader
        .take(DOCUMENT + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| e.to_string())?;
    if bytes.len() as u64 > DOCUMENT {
        return Err(
            "it holds more than 1 GiB and has to fit in memory; split it, or write its records as NDJSON"
                .into(),
        );
    }
    Ok(bytes)
}
