//! The records of one file, one after another, in the order of the file. Bad records are included,
//! with their place.

use std::{
    collections::HashSet,
    io::{BufRead, BufReader, Cursor, Read},
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
};

use feedline_schemas::{
    config::{ArchiveConfig, CsvConfig, FileFormat, JsonConfig, TextConfig},
    record::split_path,
};
use flate2::read::MultiGzDecoder;

use crate::{
    archive,
    csv_dialect::{self, Dialect, Text},
    file_bytes::FileBytes,
    file_format::{Kind, Packing},
    idx_rows::IdxRows,
    image_rows::ImageRows,
    json::{JsonRecord, NodeKind, Reader},
    notices::Notices,
    parquet_rows::ParquetRows,
    source::Record,
    text_rows::TextRows,
    value::{Value, shorten},
};

/// Longest line of an NDJSON file, in bytes.
const LINE: u64 = 64 << 20;
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

/// Position in a file where a read resumes after an earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Begin {
    pub(crate) byte: u64,
    /// Number of line ends before that byte.
    pub(crate) lines: u64,
}

/// Opens the records of `file` that begin at `from`, without the first `skip`. Only plain CSV and
/// NDJSON can begin in the middle. Images may have `labels` in a separate file.
pub(crate) fn open(
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
        Kind::Csv { .. } | Kind::Ndjson | Kind::Json | Kind::Text => {
            of_reader(unpacked(file, layout.packing)?, layout)?
        }
        Kind::Image => {
            let reader = unpacked(file, layout.packing)?;
            Box::new(ImageRows::new(read_whole(reader), file.path()))
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
    };
    for _ in 0..skip {
        rows.next()?;
    }
    Ok(rows)
}

/// Reads the records of the decompressed bytes of `reader`; only for formats that are read in one
/// pass.
pub(crate) fn of_reader(
    reader: Box<dyn Read + Send>,
    layout: &Layout,
) -> Result<Box<dyn Rows>, String> {
    Ok(match layout.kind {
        Kind::Csv { .. } => Box::new(CsvRows::new(reader, layout)?),
        Kind::Ndjson => Box::new(Lines::new(reader, layout, Begin::default())),
        Kind::Json => Box::new(Elements::new(reader, layout)?),
        Kind::Parquet => {
            let bytes = bytes::Bytes::from(read_whole(reader)?);
            ParquetRows::boxed(bytes, 0, layout.archive.max_ratio.get())?
        }
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
pub(crate) fn table(
    reader: Box<dyn Read + Send>,
    layout: &Layout,
) -> Result<(Vec<String>, Box<dyn Rows>), String> {
    let rows = CsvRows::new(reader, layout)?;
    Ok((rows.header.clone(), Box::new(rows)))
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

/// Maximum bytes of one CSV row: an unclosed quote must not read the rest of a file into memory.
const ROW: u64 = 64 << 20;

/// A reader that fails when one row takes too many bytes. [`CsvRows`] reports where rows begin.
struct RowLimit<R> {
    inner: R,
    left: Arc<AtomicU64>,
    /// Last byte read, other than line ends.
    last_byte: Arc<AtomicU8>,
}

impl<R: Read> Read for RowLimit<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.inner.read(buffer)?;
        let left = self.left.load(Ordering::Relaxed);
        if (count as u64) > left {
            return Err(std::io::Error::other(
                "a row is longer than 64 MiB: is a quote left open?",
            ));
        }
        self.left.store(left - count as u64, Ordering::Relaxed);
        let mut bytes = buffer[..count].iter().rev();
        if let Some(last) = bytes.find(|byte| !matches!(byte, b'\r' | b'\n')) {
            self.last_byte.store(*last, Ordering::Relaxed);
        }
        Ok(count)
    }
}

/// `reader`, whose first byte comes alone. So the library does not take U+FEFF in the middle of a
/// file for the mark at its beginning, which it removes.
fn first_byte_alone(mut reader: Text) -> Result<Text, String> {
    let mut first = Vec::new();
    let read = (&mut reader).take(1).read_to_end(&mut first);
    read.map_err(|e| e.to_string())?;
    Ok(Box::new(Cursor::new(first).chain(reader)))
}

/// CSV: an object for each row, with the header's names and [`Value::Cell`]s. Blank lines are
/// skipped. The line of a bad row is where the reader began to look for it, so blank lines before
/// it count as its own.
struct CsvRows {
    reader: csv::Reader<RowLimit<Text>>,
    /// Bytes left for the current row.
    left: Arc<AtomicU64>,
    /// Last byte read, other than line ends.
    last_byte: Arc<AtomicU8>,
    /// Line of the last row, if it may be in an open quote: at the end of the file that is an
    /// error.
    open_quote: Option<u64>,
    header: Vec<String>,
    null_values: Vec<String>,
    dialect: Dialect,
    row: csv::ByteRecord,
    /// True while `row` is the first row of a file without a header and has not been returned yet.
    is_ahead: bool,
}

impl CsvRows {
    fn new(reader: Text, layout: &Layout) -> Result<Self, String> {
        let usual = match layout.kind {
            Kind::Csv { delimiter } => delimiter,
            _ => b',',
        };
        let delimiters = (layout.delimiter, usual);
        let (name, notices) = (&layout.name, &layout.notices);
        let (reader, dialect) = csv_dialect::open(reader, &layout.csv, delimiters, name, notices)?;
        let left = Arc::new(AtomicU64::new(ROW));
        let last_byte = Arc::new(AtomicU8::new(0));
        let mut reader = csv_dialect::builder(&dialect).from_reader(RowLimit {
            inner: reader,
            left: Arc::clone(&left),
            last_byte: Arc::clone(&last_byte),
        });
        let mut row = csv::ByteRecord::new();
        let is_any = reader
            .read_byte_record(&mut row)
            .map_err(|e| e.to_string())?;
        let header = names(&row, &dialect)?;
        if dialect.has_header && dialect.columns.is_empty() && csv_dialect::looks_like_data(&header)
        {
            let message = format!(
                "the first line of `{name}` looks like a row and not like names: `{}`",
                shorten(&header.join("`, `"), 200)
            );
            notices.push("header_looks_like_data", "csv.header", message);
        }
        let null_values = layout.csv.null_values.iter();
        let null_values = null_values.map(|value| value.trim().to_owned()).collect();
        Ok(Self {
            reader,
            left,
            last_byte,
            open_quote: None,
            header,
            null_values,
            is_ahead: is_any && !dialect.has_header,
            dialect,
            row,
        })
    }

    /// Resumes with `reader`, which begins at `from`, unless the header reaches beyond it.
    fn go_on(&mut self, reader: Text, layout: &Layout, from: Begin) -> Result<(), String> {
        let header = self.dialect.base_line + self.reader.position().line() - 1;
        if from.lines < header {
            return Ok(());
        }
        self.dialect.base_byte = self.dialect.base_byte.map(|_| from.byte);
        self.dialect.base_line = from.lines;
        self.is_ahead = false;
        let rest = csv_dialect::go_on(reader, &layout.csv)?;
        self.reader = csv_dialect::builder(&self.dialect).from_reader(RowLimit {
            inner: first_byte_alone(rest)?,
            left: Arc::clone(&self.left),
            last_byte: Arc::clone(&self.last_byte),
        });
        Ok(())
    }

    fn cell(&self, text: &str) -> Value {
        let trimmed = text.trim();
        if trimmed.is_empty() || self.null_values.iter().any(|null| null == trimmed) {
            Value::Null
        } else {
            Value::Cell(text.to_owned())
        }
    }

    /// The row as an object, or the reason and detail of why it is none.
    fn record(&self) -> Result<Value, (&'static str, String)> {
        if self.row.len() != self.header.len() {
            let first = match self.dialect.has_header {
                true => "the header",
                false => "the first row",
            };
            let detail = format!(
                "{} fields, {first} has {}",
                self.row.len(),
                self.header.len()
            );
            return Err(("ragged_row", detail));
        }
        let cell = |(name, bytes): (&String, &[u8])| match std::str::from_utf8(bytes) {
            Ok(text) => Ok((name.clone(), self.cell(text))),
            Err(_) => Err((
                "invalid_utf8",
                format!(
                    "column `{name}` is not UTF-8: set `csv.encoding`, such as to `windows-1252`"
                ),
            )),
        };
        self.header
            .iter()
            .zip(&self.row)
            .map(cell)
            .collect::<Result<_, _>>()
            .map(Value::Object)
    }

    /// Encodes the row as CSV.
    fn raw(&self) -> String {
        let mut writer = csv::WriterBuilder::new()
            .delimiter(self.dialect.delimiter)
            .flexible(true)
            .from_writer(Vec::new());
        let written = writer
            .write_byte_record(&self.row)
            .ok()
            .and_then(|()| writer.into_inner().ok());
        String::from_utf8_lossy(&written.unwrap_or_default())
            .trim_end_matches('\n')
            .to_owned()
    }
}

impl Rows for CsvRows {
    fn next(&mut self) -> Result<Option<Record>, String> {
        self.left.store(ROW, Ordering::Relaxed);
        let is_ahead = std::mem::take(&mut self.is_ahead);
        if !is_ahead
            && !self
                .reader
                .read_byte_record(&mut self.row)
                .map_err(|e| e.to_string())?
        {
            return match self.open_quote {
                Some(line) => Err(format!(
                    "the row that begins in line {line} reaches to the end of the file: a quote is not closed; \
                     close or remove it"
                )),
                None => Ok(None),
            };
        }
        // A cell that spans lines is quoted; as the last one of the file it must end with a quote.
        let spans_lines = self
            .row
            .iter()
            .next_back()
            .is_some_and(|cell| cell.contains(&b'\n'));
        let is_whole = self.row.len() == self.header.len()
            && self.dialect.quote == Some(self.last_byte.load(Ordering::Relaxed));
        let is_open = spans_lines && !is_whole;
        let place = self.row.position();
        let line = self.dialect.base_line + place.map_or(0, csv::Position::line);
        self.open_quote = is_open.then_some(line);
        Ok(Some(self.record().map_or_else(
            |(reason, detail)| {
                let byte = place.map_or(0, csv::Position::byte);
                let byte = self.dialect.base_byte.map(|base| base + byte);
                let byte = byte.map(|byte| format!(" (byte {byte} of the file)"));
                Record::Bad {
                    raw: self.raw(),
                    reason,
                    detail: format!("line {line}{}: {detail}", byte.unwrap_or_default()),
                }
            },
            Record::Value,
        )))
    }
}

/// Column names of a file whose first row is `row`.
fn names(row: &csv::ByteRecord, dialect: &Dialect) -> Result<Vec<String>, String> {
    let given = &dialect.columns;
    if given.is_empty() && dialect.has_header {
        return header(row);
    }
    if given.is_empty() {
        return Ok((1..=row.len()).map(|i| format!("column_{i}")).collect());
    }
    if !row.is_empty() && row.len() != given.len() {
        return Err(format!(
            "its first line has {} fields, and `csv.columns` names {}; give each of them a name, or correct `csv.delimiter`",
            row.len(),
            given.len()
        ));
    }
    Ok(given.clone())
}

/// Names of the columns. A nameless one (from a comma at the end of each line) is called
/// `column_<number>`.
fn header(row: &csv::ByteRecord) -> Result<Vec<String>, String> {
    let mut names = Vec::with_capacity(row.len());
    for (i, bytes) in row.iter().enumerate() {
        let name = std::str::from_utf8(bytes)
            .map_err(|_| "its header line is not UTF-8: set `csv.encoding` to the encoding that it is written in, such as `windows-1252`".to_owned())?;
        names.push(if name.trim().is_empty() {
            format!("column_{}", i + 1)
        } else {
            name.to_owned()
        });
    }
    let mut seen = HashSet::new();
    match names.iter().find(|name| !seen.insert(name.as_str())) {
        None => Ok(names),
        Some(name) => Err(format!(
            "its header line has `{name}` twice; give every column a name of its own, or set `csv.header = false` if it is no header"
        )),
    }
}

/// NDJSON: one document per line; blank lines are no records.
struct Lines {
    reader: BufReader<Text>,
    bounds: JsonConfig,
    json: Reader,
    /// Number of the line just read, from 1.
    number: u64,
    /// Offset of the next one in the decompressed file.
    at: u64,
}

impl Rows for Lines {
    fn next(&mut self) -> Result<Option<Record>, String> {
        loop {
            let mut line = Vec::new();
            self.number += 1;
            let number = self.number;
            (&mut self.reader)
                .take(LINE)
                .read_until(b'\n', &mut line)
                .map_err(|e| format!("line {number}: {e}"))?;
            let begin = self.at;
            self.at += line.len() as u64;
            match line.trim_ascii() {
                _ if line.is_empty() => return Ok(None),
                _ if line.len() as u64 == LINE => {
                    return Err(format!("line {number} is longer than 64 MiB; split it"));
                }
                b"" => {}
                _ => return Ok(Some(self.record(line, begin))),
            }
        }
    }
}

impl Lines {
    /// Reads the lines of `reader`, which begins at `from`.
    fn new(reader: Text, layout: &Layout, from: Begin) -> Self {
        Self {
            reader: BufReader::new(reader),
            bounds: layout.json.clone(),
            json: Reader::default(),
            number: from.lines,
            at: from.byte,
        }
    }

    /// Parses a line that begins at byte `begin` of the file.
    fn record(&mut self, line: Vec<u8>, begin: u64) -> Record {
        let line = match self.json.read(line, &self.bounds) {
            Ok(tape) if tape.node(0).kind == NodeKind::Object => {
                return Record::Json(JsonRecord {
                    tape: Arc::new(tape),
                    place: 0,
                });
            }
            Ok(tape) => tape.into_bytes(),
            Err(line) => line,
        };
        let line = line.trim_ascii();
        let place = || format!("line {} (byte {begin} of the file)", self.number);
        Value::parse_within(line, &self.bounds, self.number).map_or_else(
            |e| Record::Bad {
                raw: String::from_utf8_lossy(line).into_owned(),
                reason: "malformed_line",
                detail: format!("{}: {e}", place()),
            },
            |value| Record::of(value, place),
        )
    }
}

/// JSON: the elements of one list.
struct Elements {
    elements: std::vec::IntoIter<Value>,
    number: u64,
}

impl Elements {
    fn new(reader: impl Read, layout: &Layout) -> Result<Self, String> {
        let document = Value::parse_within(&read_whole(reader)?, &layout.json, 0)
            .map_err(|e| format!("it is not JSON: {e}"))?;
        let elements = list_at(document, &layout.records)?.into_iter();
        Ok(Self {
            elements,
            number: 0,
        })
    }
}

impl Rows for Elements {
    fn next(&mut self) -> Result<Option<Record>, String> {
        self.number += 1;
        Ok(self
            .elements
            .next()
            .map(|value| Record::of(value, || format!("element {}", self.number))))
    }
}

/// The list at `path`.
fn list_at(document: Value, path: &str) -> Result<Vec<Value>, String> {
    let mut at = document;
    let keys = if path.is_empty() {
        Vec::new()
    } else {
        split_path(path)
    };
    for key in keys {
        let Value::Object(entries) = at else {
            return Err(format!(
                "`{key}` of `records` = `{path}` is looked for in {}",
                at.kind()
            ));
        };
        let names: Vec<&str> = entries.iter().map(|(name, _)| name.as_str()).collect();
        let names = names.join("`, `");
        let found = entries
            .into_iter()
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value);
        at = found.ok_or_else(|| {
            format!(
                "no `{key}` exists at `records` = `{path}`, only `{}`",
                shorten(&names, 200)
            )
        })?;
    }
    match at {
        Value::List(elements) => Ok(elements),
        Value::Object(entries) => {
            let lists = entries
                .iter()
                .filter(|(_, value)| matches!(value, Value::List(_)));
            let lists: Vec<&str> = lists.map(|(name, _)| name.as_str()).collect();
            Err(format!(
                "an object is in the place of the list of records; set `records` to the path of the list (lists in it: `{}`)",
                lists.join("`, `")
            ))
        }
        other => Err(format!(
            "{} is in the place of the list of records; set `records`",
            other.kind()
        )),
    }
}
