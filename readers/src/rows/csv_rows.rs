//! Rows of CSV.

use std::{
    collections::HashSet,
    io::{Cursor, Read},
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
};

use feedline_schemas::count::counted;

use super::{
    Layout, NextRow, PlaceUnit, RecordPlace, Rows, loose_quotes::QuoteScan, row_places::RowPlaces,
};
use crate::{
    csv_dialect::{self, Delimiters, Dialect, Text},
    file_bytes::Begin,
    file_format::Kind,
    likely_encoding::likely_label,
    line_ends::LineEnds,
    notices::Notices,
    record::Record,
    remedy::Remedy,
    value::{Value, shorten},
    value_view::ValueView,
};

/// Maximum bytes of one CSV row: an unclosed quote must not read the rest of a file into memory.
const ROW: u64 = 64 << 20;

/// Bytes of a cell besides its text, in the size of a row.
const CELL_BYTES: usize = 8;

/// A reader that fails when one row takes too many bytes. [`CsvRows`] reports where rows begin.
struct RowLimit<R> {
    inner: R,
    left: Arc<AtomicU64>,
    /// Last byte read, other than line ends.
    last_byte: Arc<AtomicU8>,
    quotes: QuoteScan,
    places: RowPlaces,
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
        self.quotes.scan(&buffer[..count]);
        self.places.push(&buffer[..count]);
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
/// skipped. The place of a row is that of its first byte.
pub(crate) struct CsvRows {
    reader: csv::Reader<RowLimit<Text>>,
    /// Bytes left for the current row.
    left: Arc<AtomicU64>,
    /// Last byte read, other than line ends.
    last_byte: Arc<AtomicU8>,
    /// Line of the last row, if it may be in an open quote: at the end of the file that is an
    /// error.
    open_quote: Option<u64>,
    /// Line of the last row.
    line: u64,
    pub(crate) header: Vec<String>,
    null_values: Vec<String>,
    dialect: Dialect,
    row: csv::ByteRecord,
    /// True while `row` is the first row of a file without a header and has not been returned yet.
    is_ahead: bool,
    name: String,
    notices: Notices,
    /// True if text behind a closing quote was reported.
    has_noted_quote: bool,
}

impl CsvRows {
    pub(crate) fn new(reader: Text, layout: &Layout) -> Result<Self, String> {
        let usual = match layout.kind {
            Kind::Csv { delimiter } => delimiter,
            _ => b',',
        };
        let delimiters = Delimiters {
            configured: layout.delimiter,
            usual,
            known_columns: &layout.known_columns,
        };
        let (name, notices) = (&layout.name, &layout.notices);
        let (reader, dialect) = csv_dialect::open(
            reader,
            &layout.csv,
            delimiters,
            layout.sample_bytes,
            name,
            notices,
        )?;
        let left = Arc::new(AtomicU64::new(ROW));
        let last_byte = Arc::new(AtomicU8::new(0));
        let mut reader = csv_dialect::builder(&dialect).from_reader(RowLimit {
            inner: reader,
            left: Arc::clone(&left),
            last_byte: Arc::clone(&last_byte),
            quotes: QuoteScan::new(&dialect),
            places: RowPlaces::new(&dialect, LineEnds::default()),
        });
        let mut row = csv::ByteRecord::new();
        let is_any = reader
            .read_byte_record(&mut row)
            .map_err(|e| e.to_string())?;
        let header = names(&row, &dialect, notices)?;
        let null_values = layout.csv.null_values.iter();
        let null_values = null_values.map(|value| value.trim().to_owned()).collect();
        Ok(Self {
            reader,
            left,
            last_byte,
            open_quote: None,
            line: 0,
            header,
            null_values,
            is_ahead: is_any && !dialect.has_header,
            dialect,
            row,
            name: name.clone(),
            notices: notices.clone(),
            has_noted_quote: false,
        })
    }

    /// Resumes with `reader`, which begins at `from`, unless the header reaches beyond it.
    pub(crate) fn go_on(
        &mut self,
        reader: Text,
        layout: &Layout,
        from: Begin,
    ) -> Result<(), String> {
        let end = self.reader.position();
        let header = self.dialect.base_feeds + end.line() - 1;
        // A header that ends with the file has no line end to count.
        let is_within = |base| from.byte < base + end.byte();
        if from.lines.feeds() < header || self.dialect.base_byte.is_some_and(is_within) {
            return Ok(());
        }
        self.dialect.base_byte = self.dialect.base_byte.map(|_| from.byte);
        self.dialect.base_line = from.lines.count();
        self.dialect.base_feeds = from.lines.feeds();
        self.is_ahead = false;
        let rest = csv_dialect::go_on(reader, &layout.csv)?;
        self.reader = csv_dialect::builder(&self.dialect).from_reader(RowLimit {
            inner: first_byte_alone(rest)?,
            left: Arc::clone(&self.left),
            last_byte: Arc::clone(&self.last_byte),
            quotes: QuoteScan::new(&self.dialect),
            places: RowPlaces::new(&self.dialect, from.lines.restart()),
        });
        Ok(())
    }

    /// Returns true if a cell with this text is null.
    fn is_null(&self, text: &str) -> bool {
        let trimmed = text.trim();
        trimmed.is_empty() || self.null_values.iter().any(|null| null == trimmed)
    }

    /// Checks that the row has cells of text, one for each column.
    ///
    /// # Errors
    /// Reason and detail.
    fn check_row(&self) -> Result<(), (&'static str, String)> {
        if self.row.len() != self.header.len() {
            let first = match self.dialect.has_header {
                true => "the header",
                false => "the first row",
            };
            let fields = counted(self.row.len() as u64, "field");
            let detail = format!("{fields}, {first} has {}", self.header.len());
            return Err(("ragged_row", detail));
        }
        if self.row.as_slice().is_ascii() {
            return Ok(());
        }
        let mut cells = self.header.iter().zip(&self.row);
        let invalid = cells.find(|(_, bytes)| std::str::from_utf8(bytes).is_err());
        invalid.map_or(Ok(()), |(name, _)| {
            let detail = format!(
                "column `{name}` is not UTF-8: set `csv.encoding`, such as to `windows-1252`"
            );
            Err(("invalid_utf8", detail))
        })
    }

    /// The row as an object.
    fn record(&self) -> Record {
        let cell = |(name, bytes): (&String, &[u8])| {
            let text = checked_text(bytes);
            let value = match self.is_null(text) {
                true => Value::Null,
                false => Value::Cell(text.to_owned()),
            };
            (name.clone(), value)
        };
        let cells = self.header.iter().zip(&self.row).map(cell);
        Record::Value(Value::Object(cells.collect()))
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

impl CsvRows {
    /// Reads the next row; a bad record in place of one without a cell for each column.
    fn read_row(&mut self) -> Result<Option<Result<(), Record>>, String> {
        self.left.store(ROW, Ordering::Relaxed);
        let is_ahead = std::mem::take(&mut self.is_ahead);
        if !is_ahead {
            let byte = self.reader.position().byte();
            self.reader.get_mut().places.begin_row(byte);
        }
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
        let is_open = self.may_be_open();
        let place = self.reader.get_ref().places.place();
        let line = self.dialect.base_line + place.lines + 1;
        self.line = line;
        self.open_quote = is_open.then_some(line);
        self.note_loose_quote();
        Ok(Some(self.check_row().map_err(|(reason, detail)| {
            let byte = self.dialect.base_byte.map(|base| base + place.byte);
            let byte = byte.map(|byte| format!(" (byte {byte} of the file)"));
            Record::Bad {
                raw: self.raw(),
                reason,
                detail: format!("line {line}{}: {detail}", byte.unwrap_or_default()),
            }
        })))
    }
}

impl CsvRows {
    /// Returns true if the row, as the last one of the file, has a quote that is not closed.
    fn may_be_open(&self) -> bool {
        // A cell that spans lines is quoted, and must end with a quote.
        let Some(cell) = self
            .row
            .iter()
            .next_back()
            .filter(|cell| cell.contains(&b'\n'))
        else {
            return false;
        };
        let last_byte = self.last_byte.load(Ordering::Relaxed);
        let ends = self.row.len() == self.header.len() && self.dialect.quote == Some(last_byte);
        // That quote may be the opening one of a cell that has line ends only.
        let is_blank = cell.iter().all(|byte| matches!(byte, b'\r' | b'\n'));
        !ends || is_blank && self.reader.get_ref().quotes.is_open()
    }

    /// Reports the row if it has text behind a closing quote, once.
    fn note_loose_quote(&mut self) {
        let found = self.reader.get_ref().quotes.found();
        let is_read = self.reader.position().byte();
        let Some(found) = found.filter(|found| found.byte < is_read && !self.has_noted_quote)
        else {
            return;
        };
        let place = format!("the row in line {} of `{}`", self.line, self.name);
        let example = shorten(&found.example, 60);
        let (key, message) = match found.has_backslash {
            true => (
                "csv.escape",
                format!(
                    "{place} has a backslash before a quote, `{example}`: without `csv.escape` that quote ends the field, and the text \
                     behind it is joined to it; set `csv.escape = \"\\\\\"`"
                ),
            ),
            false => (
                "csv.quote",
                format!(
                    "{place} has text behind the closing quote of a field, `{example}`: it is joined to the field and the quote is \
                     dropped; write quotes inside of quoted fields twice, set `csv.escape` to the character before them, or set \
                     `csv.quote = \"\"` if quotes are text"
                ),
            ),
        };
        self.notices.push("csv_quotes", key, message);
        self.has_noted_quote = true;
    }
}

/// The text of a cell of a checked row.
fn checked_text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the row was checked")
}

impl Rows for CsvRows {
    fn next(&mut self) -> Result<Option<Record>, String> {
        let row = self.read_row()?;
        Ok(row.map(|row| row.map_or_else(|bad| bad, |()| self.record())))
    }

    fn next_row(&mut self) -> Result<Option<NextRow>, String> {
        let row = self.read_row()?;
        let cells = |()| NextRow::Cells {
            bytes: (self.row.as_slice().len() + CELL_BYTES * self.row.len()) as u64,
        };
        Ok(row.map(|row| row.map_or_else(NextRow::Record, cells)))
    }

    fn cell(&self, index: usize) -> ValueView<'_> {
        match self.row.get(index).map(checked_text) {
            Some(text) if !self.is_null(text) => ValueView::Cell(text),
            _ => ValueView::Null,
        }
    }

    fn numbered_place(&self) -> Option<RecordPlace> {
        Some(RecordPlace::new(PlaceUnit::Line, self.line))
    }

    fn columns(&mut self) -> Result<Option<Vec<String>>, String> {
        Ok(Some(self.header.clone()))
    }
}

/// Column names of a file whose first row is `row`.
fn names(
    row: &csv::ByteRecord,
    dialect: &Dialect,
    notices: &Notices,
) -> Result<Vec<String>, String> {
    let given = &dialect.columns;
    if given.is_empty() && dialect.has_header {
        return header(row, notices);
    }
    if given.is_empty() {
        return Ok((1..=row.len()).map(|i| format!("column_{i}")).collect());
    }
    if !row.is_empty() && row.len() != given.len() {
        return Err(format!(
            "its first line has {}, and `csv.columns` names {}; give each of them a name, or correct `csv.delimiter`",
            counted(row.len() as u64, "field"),
            given.len()
        ));
    }
    Ok(given.clone())
}

/// Names of the columns. A nameless one (from a comma at the end of each line) is called
/// `column_<number>`.
fn header(row: &csv::ByteRecord, notices: &Notices) -> Result<Vec<String>, String> {
    let mut names = Vec::with_capacity(row.len());
    for (i, bytes) in row.iter().enumerate() {
        let name = std::str::from_utf8(bytes)
            .map_err(|_| {
                let likely = likely_label(row.as_slice());
                notices.push_remedy(Remedy::Encoding(Some(likely.clone())));
                format!(
                    "its header line is not UTF-8: set `csv.encoding` to `{likely}`, which its bytes look like, or to the encoding \
                     that it is written in"
                )
            })?;
        names.push(if name.trim().is_empty() {
            format!("column_{}", i + 1)
        } else {
            name.to_owned()
        });
    }
    let mut seen = HashSet::new();
    match names.iter().find(|name| !seen.insert(name.as_str())) {
        None => Ok(names),
        Some(name) => {
            notices.push_remedy(Remedy::Header);
            Err(format!(
                "its header line has `{name}` twice; give every column a name of its own, or set `csv.header = false` if it is no header"
            ))
        }
    }
}
