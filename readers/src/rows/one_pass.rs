//! Records of formats that are read in one pass.

use std::io::Read;

use super::{
    Layout, Rows,
    csv_rows::CsvRows,
    json_rows::{Elements, Lines},
    read_whole,
};
use crate::{
    arrow_rows::ArrowRows, file_bytes::Begin, file_format::Kind, parquet_rows::ParquetRows,
    text_rows::TextRows,
};

/// Reads the records of the decompressed bytes of `reader`; only for formats that are read in one
/// pass.
///
/// # Errors
/// The reason why nothing of the file is readable, and its remedy.
pub fn of_reader(reader: Box<dyn Read + Send>, layout: &Layout) -> Result<Box<dyn Rows>, String> {
    Ok(match layout.kind {
        Kind::Csv { .. } => Box::new(CsvRows::new(reader, layout)?),
        Kind::Ndjson => Box::new(Lines::new(reader, layout, Begin::default())),
        Kind::Json => Box::new(Elements::new(reader, layout)?),
        Kind::Parquet => {
            let bytes = bytes::Bytes::from(read_whole(reader)?);
            ParquetRows::boxed(bytes, 0, layout.archive.max_ratio.get())?
        }
        Kind::Arrow => ArrowRows::boxed(reader, layout.archive.max_ratio.get())?,
        Kind::Text => Box::new(TextRows::new(
            read_whole(reader)?,
            layout.text.separator.as_deref(),
        )),
        Kind::Idx | Kind::Image | Kind::Tar | Kind::Zip => {
            return Err("it is an archive or an image where a table or a text should be".into());
        }
    })
}

/// Reads the rows of a table. Returns the names of its columns too.
///
/// # Errors
/// As [`of_reader`].
pub fn table(
    reader: Box<dyn Read + Send>,
    layout: &Layout,
) -> Result<(Vec<String>, Box<dyn Rows>), String> {
    let rows = CsvRows::new(reader, layout)?;
    Ok((rows.header.clone(), Box::new(rows)))
}
