//! CSV, with the rules and reject reasons of ingest: blank lines are no rows, cells have no type, a
//! row with another number of cells than the header is bad.

use std::{
    collections::HashSet,
    io::{BufRead, BufReader, Cursor, Read},
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
};

use feedline_schemas::{csv_cell::DELIMITERS, file_signature::format_by_signature};

use super::{
    assembly::Assembly, fault::Fault, names::Named, raw_cell::Raw, reading::CsvReading,
    row_reader::RowReader,
};

/// Most bytes of one row: a quote that is never closed must not read the rest of a file into memory.
const ROW: u64 = 64 << 20;

/// A reader that fails when one row takes too many bytes; [`CsvRows`] reports the starts of rows to
/// it.
struct RowLimit<R> {
    inner: R,
    left: Arc<AtomicU64>,
    /// Last byte read that ends no line.
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

/// Rows of a CSV file.
pub(super) struct CsvRows {
    reader: csv::Reader<RowLimit<Box<dyn Read + Send>>>,
    left: Arc<AtomicU64>,
    last_byte: Arc<AtomicU8>,
    /// Line of the last row, if it may be in an open quote: at the end of the file that is an error.
    open_quote: Option<u64>,
    header: Named,
    detected_delimiter: Option<char>,
    null_values: Vec<String>,
    /// Character around fields.
    quote: Option<u8>,
    /// Lines before the parsed part.
    base_line: u64,
    row: csv::ByteRecord,
    /// True while `row` is the first row of a file without a header and has not been returned yet.
    is_ahead: bool,
    has_header: bool,
}

/// Size of the sample that a header is looked for in, in bytes.
const SAMPLE: u64 = 64 << 10;

/// Delimiter of a file.
#[derive(Clone, Copy, Debug)]
pub(super) enum Delimiter {
    /// As configured.
    Given(u8),
    /// By the file's name; another one that splits the header into wanted columns replaces it.
    Usual(u8),
}

impl Delimiter {
    /// The delimiter that splits the header of `sample` into the most wanted columns.
    fn of(self, sample: &[u8], csv: &CsvReading, wanted: &[String]) -> u8 {
        let usual = match self {
            Self::Given(delimiter) => return delimiter,
            Self::Usual(delimiter) => delimiter,
        };
        let found = |delimiter: u8| {
            let mut reader = builder(csv, delimiter).from_reader(sample);
            let mut row = csv::ByteRecord::new();
            let names = match reader.read_byte_record(&mut row) {
                Ok(true) => names(&row, csv).unwrap_or_default(),
                _ => Vec::new(),
            };
            names.iter().filter(|name| wanted.contains(name)).count()
        };
        if found(usual) > 0 {
            return usual;
        }
        let most = DELIMITERS
            .into_iter()
            .max_by_key(|delimiter| found(*delimiter));
        most.filter(|delimiter| found(*delimiter) > 0)
            .unwrap_or(usual)
    }
}

/// A reader of rows, the header one of them, by the quote and the comment of the source.
fn builder(csv: &CsvReading, delimiter: u8) -> csv::ReaderBuilder {
    let one = |text: &str| text.as_bytes().first().copied();
    let mut builder = csv::ReaderBuilder::new();
    builder
        .delimiter(delimiter)
        .comment(csv.comment.as_deref().and_then(one))
        .has_headers(false)
        .flexible(true);
    match csv.quote.as_deref() {
        Some("") => builder.quoting(false),
        quote => builder.quote(quote.and_then(one).unwrap_or(b'"')),
    };
    builder
}

/// The bytes behind the first `count` lines.
fn without_lines(reader: Box<dyn Read + Send>, count: u64) -> Result<Box<dyn Read + Send>, String> {
    let mut lines = BufReader::new(reader);
    for number in 1..=count {
        let mut line = Vec::new();
        let read = (&mut lines).take(ROW).read_until(b'\n', &mut line);
        if read.map_err(|e| e.to_string())? as u64 == ROW {
            return Err(format!(
                "line {number}, which `csv.skip_rows` passes over, is longer than 64 MiB"
            ));
        }
    }
    Ok(Box::new(lines))
}

impl CsvRows {
    pub(super) fn new(
        mut reader: Box<dyn Read + Send>,
        delimiter: Delimiter,
        csv: &CsvReading,
        wanted: &[String],
    ) -> Result<Self, String> {
        if csv.skip_rows > 0 {
            reader = without_lines(reader, csv.skip_rows)?;
        }
        let mut sample = Vec::new();
        (&mut reader)
            .take(SAMPLE)
            .read_to_end(&mut sample)
            .map_err(|e| e.to_string())?;
        if let Some(format) = format_by_signature(&sample) {
            return Err(format!(
                "it is {format} by its first bytes, and no CSV file"
            ));
        }
        let (given, delimiter) = (delimiter, delimiter.of(&sample, csv, wanted));
        let is_detected = matches!(given, Delimiter::Usual(usual) if usual != delimiter);
        let reader: Box<dyn Read + Send> = Box::new(Cursor::new(sample).chain(reader));
        let left = Arc::new(AtomicU64::new(ROW));
        let last_byte = Arc::new(AtomicU8::new(0));
        let mut reader = builder(csv, delimiter)
            .buffer_capacity(1 << 18)
            .from_reader(RowLimit {
                inner: reader,
                left: Arc::clone(&left),
                last_byte: Arc::clone(&last_byte),
            });
        let mut row = csv::ByteRecord::new();
        let is_any = reader
            .read_byte_record(&mut row)
            .map_err(|e| e.to_string())?;
        Ok(Self {
            header: Named::new(names(&row, csv)?, wanted),
            base_line: csv.skip_rows,
            is_ahead: is_any && csv.is_without_header,
            has_header: !csv.is_without_header,
            detected_delimiter: is_detected.then_some(char::from(delimiter)),
            reader,
            left,
            last_byte,
            open_quote: None,
            quote: match csv.quote.as_deref() {
                None => Some(b'"'),
                Some(quote) => quote.as_bytes().first().copied(),
            },
            null_values: csv
                .null_values
                .iter()
                .map(|v| v.trim().to_owned())
                .collect(),
            row,
        })
    }

    fn note_open_quote(&mut self) {
        // A cell that spans lines is quoted; as the last of the file it must end with a quote.
        let last = self.row.iter().next_back();
        let spans_lines = last.is_some_and(|cell| cell.contains(&b'\n'));
        let is_whole = self.row.len() == self.header.names().len()
            && Some(self.last_byte.load(Ordering::Relaxed)) == self.quote;
        self.open_quote = (spans_lines && !is_whole).then(|| self.line());
    }

    fn line(&self) -> u64 {
        self.base_line + self.row.position().map_or(0, csv::Position::line)
    }

    /// Reason why the row is unusable.
    fn fault(&self) -> Option<Fault> {
        let names = self.header.names();
        if self.row.len() != names.len() {
            let first = match self.has_header {
                true => "the header",
                false => "the first row",
            };
            let detail = format!("{} fields, {first} has {}", self.row.len(), names.len());
            return Some(Fault::new("ragged_row", detail));
        }
        let mut cells = names.iter().zip(&self.row);
        let (name, _) = cells.find(|(_, cell)| std::str::from_utf8(cell).is_err())?;
        Some(Fault::new(
            "invalid_utf8",
            format!("column `{name}` is not UTF-8"),
        ))
    }
}

impl RowReader for CsvRows {
    fn columns(&self) -> Option<&Named> {
        Some(&self.header)
    }

    fn detected_delimiter(&self) -> Option<char> {
        self.detected_delimiter
    }

    fn fill(&mut self, rows: &mut Assembly) -> Result<bool, String> {
        self.left.store(ROW, Ordering::Relaxed);
        let more = match std::mem::take(&mut self.is_ahead) {
            true => Ok(true),
            false => self.reader.read_byte_record(&mut self.row),
        };
        if !more.map_err(|e| e.to_string())? {
            return match self.open_quote {
                Some(line) => Err(format!(
                    "the row that begins in line {line} reaches to the end of the file: a quote is left open there"
                )),
                None => Ok(false),
            };
        }
        self.note_open_quote();
        rows.bytes += self.row.as_slice().len();
        rows.met.fill(true);
        if let Some(fault) = self.fault() {
            rows.add_bad(fault.at(&format!("line {}", self.line())));
            return Ok(true);
        }
        let cell = |column: usize| {
            // One that is absent is refused before any row is read.
            let place = self.header.places()[column];
            let bytes = place.and_then(|place| self.row.get(place));
            let bytes = bytes.unwrap_or_default();
            let text = std::str::from_utf8(bytes).unwrap_or_default();
            let trimmed = text.trim();
            match trimmed.is_empty() || self.null_values.iter().any(|null| null == trimmed) {
                true => Raw::Null,
                false => Raw::Cell(text),
            }
        };
        rows.add(cell, || format!("line {}", self.line()));
        Ok(true)
    }
}

/// Names of the columns of a file whose first row is `row`.
fn names(row: &csv::ByteRecord, csv: &CsvReading) -> Result<Vec<String>, String> {
    let given = &csv.columns;
    if given.is_empty() && !csv.is_without_header {
        return header(row);
    }
    if given.is_empty() {
        return Ok((1..=row.len()).map(|i| format!("column_{i}")).collect());
    }
    if !row.is_empty() && row.len() != given.len() {
        return Err(format!(
            "its first line has {} fields, and `csv.columns` names {}; new rows need a field for each of them, also for the target, \
             which may be empty",
            row.len(),
            given.len()
        ));
    }
    Ok(given.clone())
}

fn header(row: &csv::ByteRecord) -> Result<Vec<String>, String> {
    let mut names = Vec::with_capacity(row.len());
    for (i, bytes) in row.iter().enumerate() {
        let name = std::str::from_utf8(bytes).map_err(|_| {
            "its header line is not UTF-8; set `csv.encoding` of the source, or convert the file"
                .to_owned()
        })?;
        let name = if i == 0 {
            name.trim_start_matches('\u{feff}')
        } else {
            name
        };
        names.push(match name.trim().is_empty() {
            true => format!("column_{}", i + 1),
            false => name.to_owned(),
        });
    }
    let mut seen = HashSet::new();
    match names.iter().find(|name| !seen.insert(name.as_str())) {
        None => Ok(names),
        Some(name) => Err(format!(
            "its header line has `{name}` twice; give every column a name of its own"
        )),
    }
}
