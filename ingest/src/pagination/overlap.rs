//! Pages by offset that overlap, so that records removed meanwhile are noticed.
//!
//! When a record before the offset is removed, all after it move up by one, and the first of the
//! next page is never returned. With an overlap each page begins with the last records of the page
//! before. If none of them appears, more records were removed than the overlap bridges. Then
//! reading goes back by a page at a time until one appears.

use std::collections::HashSet;

use feedline_readers::record::Record;
use feedline_schemas::{commit::PageRun, ids::Hash128};

use super::{Contents, Paginator};
use crate::error::Error;

impl Paginator {
    /// Removes the records that the page before returned, and records the last ones. If none of
    /// them appears, returns the offset to go back to. The page's records are then removed, since
    /// they will be returned again.
    pub(super) fn overlap(
        &mut self,
        cursor: Option<&str>,
        run: &mut PageRun,
        contents: &mut Contents,
    ) -> Result<Option<String>, Error> {
        let hashes: Vec<Hash128> = contents.records.iter().map(content_hash).collect();
        let before: HashSet<Hash128> = run.boundary.iter().copied().collect();
        let is_found = hashes.iter().any(|hash| before.contains(hash));
        if !before.is_empty() && !is_found {
            let at = self.offset_at(cursor)?;
            if let Some(back) = self.back(at, hashes.len() as u64) {
                tracing::warn!(
                    offset = at,
                    back,
                    "records were removed while pages were read: going back to where the last ones are"
                );
                contents.records.clear();
                // The pages on the way back may be ones that have been.
                self.seen.clear();
                return Ok(Some(back.to_string()));
            }
            tracing::warn!("all records of the page before were removed while pages were read");
        }
        let overlap = usize::try_from(self.config.way.overlap()).unwrap_or(usize::MAX);
        if !hashes.is_empty() {
            run.boundary = hashes[hashes.len().saturating_sub(overlap)..].to_vec();
        }
        let mut hashes = hashes.iter();
        contents
            .records
            .retain(|_| hashes.next().is_none_or(|hash| !before.contains(hash)));
        Ok(None)
    }

    /// The offset a page before `at`; none at the beginning.
    fn back(&self, at: u64, count: u64) -> Option<u64> {
        let first = self.config.way.first_offset();
        let page = count
            .max(self.config.common.page_size)
            .max(self.config.way.overlap());
        (at > first).then(|| at.saturating_sub(page).max(first))
    }
}

/// Hash of the content of a record.
pub(super) fn content_hash(record: &Record) -> Hash128 {
    match record {
        Record::Bad { raw, .. } => Hash128::of(raw.as_bytes()),
        record => Hash128::of(record.canonical().as_bytes()),
    }
}
