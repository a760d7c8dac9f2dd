//! The records of one file, one after another, in the order of the file. Bad records are included,
//! with their place.

mod csv_rows;
mod json_rows;
pub(crate) mod one_pass;
pub(crate) mod open;

use std::io::Read;

use feedline_schemas::config::{ArchiveConfig, CsvConfig, FileFormat, JsonConfig, TextConfig};
use flate2::read::MultiGzDecoder;

use crate::{
    file_bytes::FileBytes,
    file_format::{Kind, Packing},
    notices::Notices,
    source::record::Record,
};

/// Maximum size of a JSON document or compressed Parquet file, in bytes after decompression; it is
/// held in memory completely.
const DOCUMENT: u64 = 1 << 30;

/// Reads one record after another. Blocking.
pub(crate) trait Rows: Send {
    /// Reads the next record; `None` at the end of the file.
    ///
    /// # Errors
    /// The reason why the rest of the file is unreadable, and its remedy.
    fn next(&mut self) -> Result<Option<Record>, String>;
}

/// Format and options of a file.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) kind: Kind,
    pub(crate) packing: Packing,
    /// Name of the file, for messages.
    pub(crate) name: String,
    /// Collects the decisions about the file.
    pub(crate) notices: Notices,
    /// Configured format: members of an archive are read in it.
    pub(crate) format: FileFormat,
    pub(crate) csv: CsvConfig,
    /// CSV: the configured delimiter.
    pub(crate) delimiter: Option<u8>,
    /// JSON: path of the list of records.
    pub(crate) records: String,
    /// JSON: its bounds.
    pub(crate) json: JsonConfig,
    pub(crate) text: TextConfig,
    pub(crate) archive: ArchiveConfig,
}

/// A file's bytes from its beginning, unpacked.
pub(crate) fn unpacked(file: &FileBytes, packing: Packing) -> Result<Box<dyn Read + Send>, String> {
    unpack(file.reader(0), packing)
}

/// Decompresses the bytes of `reader`.
pub(crate) fn unpack(
    reader: impl Read + Send + 'static,
    packing: Packing,
) -> Result<Box<dyn Read + Send>, String> {
    Ok(match packing {
        Packing::Plain => Box::new(reader),
        Packing::Gzip => Box::new(MultiGzDecoder::new(reader)),
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
