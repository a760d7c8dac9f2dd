//! A page that is being gathered from one file, or from several images.

use feedline_readers::record::Record;
use feedline_schemas::commit::Position;

use crate::source::{Page, PagePart};

/// Most records of a page.
const PAGE: u64 = 4096;
/// A page ends with the record that brings it to this many bytes.
const PAGE_BYTES: u64 = 32 << 20;

/// Records of a page.
pub(super) struct Gathered {
    pub(super) records: Vec<Record>,
    pub(super) parts: Vec<PagePart>,
    /// Number of files that may still be added.
    pub(super) room: u64,
    pub(super) bytes: u64,
}

impl Gathered {
    /// Begins a page of at most `rows` records.
    pub(super) fn new(rows: u64) -> Self {
        Self {
            records: Vec::new(),
            parts: Vec::new(),
            room: PAGE.min(rows),
            bytes: 0,
        }
    }

    pub(super) const fn is_full(&self) -> bool {
        self.room == 0 || self.bytes >= PAGE_BYTES
    }

    pub(super) fn page(self, next: Position) -> Page {
        Page {
            records: self.records,
            next,
            crawled: None,
            parts: self.parts,
        }
    }
}
