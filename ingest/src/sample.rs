//! Sample of files, read before any of their records land.
//!
//! A source with few rows is sampled completely. Otherwise up to 64 files, spread evenly over the
//! list, share the limits on rows and bytes. Later files get the unused share of earlier ones. The
//! sample holds the first records of a file. A CSV or NDJSON file that is uncompressed and longer
//! than its limit gives eight parts instead, spread evenly over it. So memory holds a few MiB, and
//! the time does not grow with the files. The same files give the same sample.

use std::io::{self, Cursor};

use feedline_readers::{
    file_bytes::{Begin, FileBytes},
    file_format::{Kind, Packing},
    rows::{self, Layout, PlaceUnit, RecordPlace},
};
use feedline_schemas::{
    commit::FilePart,
    config::{FileFormat, SourceConfig},
};

use crate::{
    blocking::blocking, csv_header::header_of, error::Error, file_list::Found, infer::Survey,
    record_places::has_end_place,
};

/// Maximum bytes of sampled records.
const BYTES: u64 = 32 << 20;
/// Maximum number of sampled files.
const FILES: usize = 64;
/// Bytes used to estimate the length of a line.
const HEAD: u64 = 64 << 10;
/// Number of parts taken from a long file.
const PARTS: u64 = 8;

/// Rows and bytes that a sample may still take.
#[derive(Clone, Copy, Debug)]
struct Left {
    rows: u64,
    bytes: u64,
}

/// URL of a file, and the names in its header.
pub(crate) type FileHeader = (String, Vec<String>);

/// A sample of files.
pub(crate) struct Sampled {
    /// Survey with its records.
    pub(crate) survey: Survey,
    /// Headers of its CSV files.
    pub(crate) headers: Vec<FileHeader>,
    /// Error of its first file that cannot be opened. A run has the same when it reads that file.
    pub(crate) unreadable: Option<Error>,
}

/// Adds a sample of the records of `found` to `survey`, without those of unreadable files.
///
/// # Errors
/// [`Error::Storage`], and [`Error::File`] for an object that is listed and not found.
pub(crate) async fn survey(
    mut survey: Survey,
    config: &SourceConfig,
    found: &[Found],
) -> Result<Sampled, Error> {
    let (mut headers, mut unreadable) = (Vec::new(), None);
    let mut left = Left {
        rows: config.infer.rows.get(),
        bytes: BYTES,
    };
    let count = found.len().min(FILES);
    if count < found.len() {
        survey.leave_out();
    }
    for number in 0..count {
        if left.rows == 0 || left.bytes == 0 {
            survey.leave_out();
            break;
        }
        let file = &found[number * found.len() / count];
        if !is_table(&file.layout) {
            survey.leave_out();
            continue;
        }
        let more = (count - number) as u64;
        let share = Left {
            rows: left.rows.div_ceil(more),
            bytes: left.bytes.div_ceil(more),
        };
        let bytes = file.peek_bytes().await?;
        let layout = file.layout.clone();
        let (source, url) = (config.url.clone(), file.url.clone());
        let begin = survey.seen();
        let used;
        let header;
        (survey, used, header) = blocking(move || Ok(look(survey, &bytes, &layout, share))).await?;
        match header {
            Ok(header) if header.is_empty() => {}
            Ok(header) => headers.push((file.url.clone(), header)),
            Err(reason) => {
                let url = file.url.clone();
                unreadable = unreadable.or(Some(Error::File { url, reason }));
            }
        }
        let records = survey.seen() - begin;
        let part = FilePart { url, records };
        survey.places_mut().push_file(&source, &part);
        left.rows -= used.rows.min(left.rows);
        left.bytes -= used.bytes.min(left.bytes);
    }
    Ok(Sampled {
        survey,
        headers,
        unreadable,
    })
}

/// Returns true if such records have columns whose types are not known in advance.
fn is_table(layout: &Layout) -> bool {
    let is_one = matches!(
        layout.kind,
        Kind::Csv { .. } | Kind::Ndjson | Kind::Json | Kind::Tar | Kind::Zip
    );
    is_one && layout.format != FileFormat::Image
}

/// Samples records of one file, and returns how much it took, and the header of a CSV file with records, or the reason why
/// the file cannot be opened.
fn look(
    mut survey: Survey,
    file: &FileBytes,
    layout: &Layout,
    share: Left,
) -> (Survey, Left, Result<Vec<String>, String>) {
    let mut used = Left { rows: 0, bytes: 0 };
    let mut is_from_begin = true;
    let opened = match parts(file, layout, share) {
        Ok(Some(parts)) => {
            survey.leave_out();
            is_from_begin = false;
            // Its lines have other numbers in the file, which is read from its beginning later.
            let layout = Layout {
                notices: layout.notices.of_sample(),
                ..layout.clone()
            };
            rows::one_pass::of_reader(Box::new(Cursor::new(parts)), &layout)
        }
        Ok(None) => rows::open::open(file, None, layout, Begin::default(), 0),
        Err(e) => Err(e.to_string()),
    };
    let Ok(mut records) = opened else {
        survey.leave_out();
        // Parts of it may have another dialect than its beginning.
        let opened = rows::open::open(file, None, layout, Begin::default(), 0);
        return (survey, used, opened.map(|_| Vec::new()));
    };
    let begin = survey.seen();
    let mut first = None;
    // Number of records from the first one to the place at the end.
    let steps = loop {
        match records.next() {
            Ok(Some(record)) if used.rows < share.rows && used.bytes < share.bytes => {
                if used.rows == 0 {
                    first = records.numbered_place();
                }
                used.rows += 1;
                used.bytes += record.size();
                survey.add(&record);
            }
            Ok(None) if has_end_place(layout.kind) => break Some(used.rows),
            Ok(None) => break used.rows.checked_sub(1),
            Ok(Some(_)) => {
                survey.leave_out();
                break Some(used.rows);
            }
            Err(_) => {
                survey.leave_out();
                break None;
            }
        }
    };
    if is_from_begin && used.rows > 0 {
        let now = records.numbered_place();
        let is_regular = |first: &RecordPlace| steps.is_some_and(|n| first.leads_to(now, n));
        let first = first.filter(is_regular);
        let first = first.unwrap_or_else(|| RecordPlace::new(PlaceUnit::Record, 1));
        survey.places_mut().push_part(begin, used.rows, first);
    }
    let header = match used.rows {
        0 => Vec::new(),
        _ => header_of(records.as_mut(), layout).unwrap_or_default(),
    };
    (survey, used, Ok(header))
}

/// Complete lines from all over a line-based file that is longer than `share`, with its first lines
/// in front. `None` for any other file, and for CSV whose header may be behind the first part.
fn parts(file: &FileBytes, layout: &Layout, share: Left) -> io::Result<Option<Vec<u8>>> {
    let is_of_lines = matches!(layout.kind, Kind::Csv { .. } | Kind::Ndjson);
    if !is_of_lines || layout.packing != Packing::Plain {
        return Ok(None);
    }
    let bytes = file.mark.bytes;
    // About as many bytes as the permitted rows take.
    let head = file.range(0, bytes.min(HEAD))?;
    let lines = head.iter().filter(|byte| **byte == b'\n').count() as u64;
    let a_line = (head.len() as u64).div_ceil(lines.max(1));
    let most = share.bytes.min(share.rows.saturating_mul(a_line));
    if bytes <= most {
        return Ok(None);
    }
    let part = (most / PARTS).max(1);
    let quote = match layout.csv.quote.as_deref() {
        Some(sign) => sign.bytes().next(),
        None => Some(b'"'),
    };
    // Quotes are counted, and escaped ones are none.
    let may_have_lines_in_quotes =
        |bytes: &[u8]| layout.csv.escape.is_some() || has_lines_in_quotes(bytes, quote);
    // Otherwise a row from the middle of the file takes the place of a skipped line or of the header.
    let lacks_header = |bytes: &[u8]| {
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        matches!(layout.kind, Kind::Csv { .. }) && lines <= layout.csv.skip_rows
    };
    let mut lines = Vec::new();
    for number in 0..PARTS {
        let start = number * (bytes / PARTS);
        let found = file.range(start, bytes.min(start + part))?;
        let first = match number {
            // A part may split a character of a multi-byte encoding, and a quoted line end does not
            // end a record. Such files are read from the beginning.
            0 if found.contains(&0) || may_have_lines_in_quotes(&found) => return Ok(None),
            0 if lacks_header(&found) => return Ok(None),
            0 => 0,
            _ => match found.iter().position(|byte| *byte == b'\n') {
                Some(end) => end + 1,
                None => continue,
            },
        };
        if let Some(last) = found[first..].iter().rposition(|byte| *byte == b'\n') {
            lines.extend_from_slice(&found[first..=first + last]);
        }
    }
    Ok((!lines.is_empty()).then_some(lines))
}

/// Returns true if a line ends inside a quote.
fn has_lines_in_quotes(bytes: &[u8], quote: Option<u8>) -> bool {
    let mut is_quoted = false;
    bytes.iter().any(|byte| {
        is_quoted ^= Some(*byte) == quote;
        is_quoted && *byte == b'\n'
    })
}
