//! Places of the rows of a CSV file.
//!
//! The parser ends a row at the `\r` of a `\r\n` and counts `\n` only, so its position may be within
//! a line end, or before blank lines and comments. Here the bytes from that position on are scanned
//! for the first byte of the row. They are the bytes of the last read: the parser reads more only
//! once it has passed over these.

use crate::{csv_dialect::Dialect, line_ends::LineEnds};

/// Bytes and line ends before the first byte of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowPlace {
    pub(super) byte: u64,
    pub(super) lines: u64,
}

/// Kind of the next byte to scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScanState {
    /// Between rows.
    Gap,
    /// In a comment, which ends with `\n`.
    Comment,
    /// In a row, whose bytes are not examined.
    Row,
}

/// Scan for the places of rows.
#[derive(Debug)]
pub(super) struct RowPlaces {
    comment: Option<u8>,
    /// Bytes of the last read.
    part: Vec<u8>,
    /// Count of its bytes that are scanned.
    scanned: usize,
    /// Count of the bytes before it.
    before: u64,
    /// Line ends in the scanned bytes.
    lines: LineEnds,
    state: ScanState,
    place: RowPlace,
}

impl RowPlaces {
    /// Scans from the beginning of a line; `lines` is restarted there.
    pub(super) const fn new(dialect: &Dialect, lines: LineEnds) -> Self {
        Self {
            comment: dialect.comment,
            part: Vec::new(),
            scanned: 0,
            before: 0,
            lines,
            state: ScanState::Gap,
            place: RowPlace { byte: 0, lines: 0 },
        }
    }

    /// Place of the row that was read last.
    pub(super) const fn place(&self) -> RowPlace {
        self.place
    }

    /// Begins to look for the next row at this byte, where the parser ended the row before.
    pub(super) fn begin_row(&mut self, byte: u64) {
        let end = usize::try_from(byte.saturating_sub(self.before));
        self.scan_to(end.unwrap_or(usize::MAX).min(self.part.len()));
        self.state = ScanState::Gap;
        self.find_row();
    }

    /// Takes the next bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.scan_to(self.part.len());
        self.before += self.part.len() as u64;
        self.part.clear();
        self.part.extend_from_slice(bytes);
        self.scanned = 0;
        self.find_row();
    }

    fn find_row(&mut self) {
        while self.state != ScanState::Row
            && let Some(byte) = self.part.get(self.scanned).copied()
        {
            match (self.state, byte) {
                (ScanState::Comment, b'\n') => self.state = ScanState::Gap,
                (ScanState::Comment, _) | (_, b'\r' | b'\n') => {}
                _ if self.comment == Some(byte) => self.state = ScanState::Comment,
                _ => {
                    self.state = ScanState::Row;
                    self.place = RowPlace {
                        byte: self.before + self.scanned as u64,
                        lines: self.lines.count(),
                    };
                    return;
                }
            }
            self.scan_to(self.scanned + 1);
        }
    }

    fn scan_to(&mut self, end: usize) {
        if let Some(bytes) = self.part.get(self.scanned..end) {
            self.lines.add(bytes);
            self.scanned = end;
        }
    }
}
