//! Lines before the header that `csv.skip_rows` passes over.

use std::io::{BufRead as _, BufReader, Read as _};

use super::{Dialect, Text, builder, delimiter_line::DelimiterLine};
use crate::notices::Notices;

/// Longest line that is passed over.
const LINE: u64 = 1 << 20;

/// Lines that were passed over.
#[derive(Debug, Default)]
pub(super) struct SkippedLines {
    count: u64,
    /// Delimiter that the first one names.
    pub(super) named: Option<u8>,
    /// The last one.
    last: Vec<u8>,
}

impl SkippedLines {
    /// Passes over the first `count` lines of `text`, whose first byte has the offset `base_byte` in its file. Returns the
    /// text behind them, with its offset.
    ///
    /// # Errors
    /// The number of a line that is too long, and errors of reading.
    pub(super) fn pass_over(
        text: Text,
        count: u64,
        mut base_byte: Option<u64>,
    ) -> Result<(Text, Option<u64>, Self), String> {
        let mut skipped = Self {
            count,
            ..Self::default()
        };
        if count == 0 {
            return Ok((text, base_byte, skipped));
        }
        let mut lines = BufReader::new(text);
        for number in 1..=count {
            let mut line = Vec::new();
            let read = (&mut lines).take(LINE).read_until(b'\n', &mut line);
            let read = read.map_err(|e| e.to_string())? as u64;
            if read == LINE {
                return Err(format!(
                    "line {number}, which `csv.skip_rows` passes over, is longer than 1 MiB; lower it"
                ));
            }
            base_byte = base_byte.map(|byte| byte + read);
            if number == 1 {
                skipped.named = DelimiterLine::of(&line).map(|line| line.delimiter);
            }
            skipped.last = line;
        }
        Ok((Box::new(lines), base_byte, skipped))
    }

    /// Notes the kind of these lines in the file `name`, in which `sample` follows them.
    pub(super) fn note(&self, sample: &[u8], dialect: &Dialect, name: &str, notices: &Notices) {
        if self.named.is_some() {
            notices.note_skipped(self.count, |rows| &mut rows.with_delimiter_line, name);
        } else if (self.count == 1 || dialect.has_header) && self.ends_with_row(sample, dialect) {
            notices.note_skipped(self.count, |rows| &mut rows.with_row, name);
        }
    }

    /// Returns true if the last line has as many fields as the first one of `sample`, and text in each. A title has one
    /// field, or is padded with empty ones.
    fn ends_with_row(&self, sample: &[u8], dialect: &Dialect) -> bool {
        let first_row = |text: &[u8]| {
            let mut row = csv::ByteRecord::new();
            let mut reader = builder(dialect).from_reader(text);
            let is_read = reader.read_byte_record(&mut row).unwrap_or_default();
            is_read.then_some(row)
        };
        let Some(last) = first_row(&self.last) else {
            return false;
        };
        let is_full = last.iter().all(|cell| !cell.trim_ascii().is_empty());
        let next = first_row(sample);
        last.len() > 1 && is_full && next.is_some_and(|next| next.len() == last.len())
    }
}
