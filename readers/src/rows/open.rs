//! Opening the records of a file by its format.

use std::{fs::File, io::BufReader, path::Path};

use super::{
    Layout, Rows, csv_rows::CsvRows, json_rows::Lines, one_pass::of_reader, read_whole, unpack,
    unpacked,
};
use crate::{
    archive,
    file_bytes::{Begin, FileBytes},
    file_format::{Kind, Packing},
    idx_rows::IdxRows,
    image_rows::ImageRows,
    parquet_rows::ParquetRows,
    text_rows::TextRows,
};

/// Opens the records of `file` that begin at `from`, without the first `skip`. Only plain CSV and
/// NDJSON can begin in the middle. Images may have `labels` in a separate file.
///
/// # Errors
/// The reason why nothing of the file is readable, and its remedy.
pub fn open(
    file: &FileBytes,
    labels: Option<&(FileBytes, Packing)>,
    layout: &Layout,
    from: Begin,
    skip: u64,
) -> Result<Box<dyn Rows>, String> {
    let mut rows: Box<dyn Rows> = match layout.kind {
        Kind::Csv { .. } if from.byte > 0 => {
            let mut rows = CsvRows::new(unpacked(file, layout.packing)?, layout)?;
            rows.go_on(Box::new(file.reader(from.byte)), layout, from)?;
            Box::new(rows)
        }
        Kind::Ndjson if from.byte > 0 => {
            Box::new(Lines::new(Box::new(file.reader(from.byte)), layout, from))
        }
        _ if from.byte > 0 => return Err("a file of its format cannot be read on".into()),
        Kind::Image => {
            let reader = unpacked(file, layout.packing)?;
            Box::new(ImageRows::new(read_whole(reader), file.path()))
        }
        Kind::Text => {
            let bytes = read_whole(unpacked(file, layout.packing)?)?;
            let (separator, path) = (layout.text.separator.as_deref(), file.path());
            let rows = TextRows::new(bytes, separator);
            Box::new(rows.with_path(path, path.rsplit('/').nth(1)))
        }
        Kind::Tar => archive::tar(file, layout)?,
        Kind::Zip if layout.packing == Packing::Plain => archive::zip(file, layout)?,
        Kind::Zip => return Err("a zip archive is packed already; unpack it once".into()),
        Kind::Idx => Box::new(IdxRows::open(file, layout.packing, labels)?),
        Kind::Parquet if layout.packing == Packing::Plain => {
            return ParquetRows::boxed(file.clone(), skip, layout.archive.max_ratio.get());
        }
        Kind::Parquet => {
            let bytes = read_whole(unpacked(file, layout.packing)?)?;
            return ParquetRows::boxed(
                bytes::Bytes::from(bytes),
                skip,
                layout.archive.max_ratio.get(),
            );
        }
        // Formats that are read in one pass.
        _ => of_reader(unpacked(file, layout.packing)?, layout)?,
    };
    for _ in 0..skip {
        rows.next()?;
    }
    Ok(rows)
}

/// Opens the records of the local file at `path`. Archives, images and idx files are refused: they
/// are opened through a store.
///
/// # Errors
/// As [`open`].
pub fn open_local(path: &Path, layout: &Layout) -> Result<Box<dyn Rows>, String> {
    let file = File::open(path).map_err(|e| e.to_string())?;
    match (layout.kind, layout.packing) {
        (Kind::Parquet, Packing::Plain) => {
            ParquetRows::boxed(file, 0, layout.archive.max_ratio.get())
        }
        (_, packing) => of_reader(unpack(BufReader::new(file), packing)?, layout),
    }
}
