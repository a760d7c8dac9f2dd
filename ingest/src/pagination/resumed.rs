//! The last landed record of a page run that resumes in a later process.
//!
//! The number or offset of the next page fits only as long as the list is the same up to there:
//! records that come or go in front of it move the others from page to page. So each position has
//! the last record of its page. A process that resumes looks for it in the next page, and then in
//! the page before: the records that now follow it there have not landed. With an overlap of
//! offsets the next page itself shows it.

use feedline_readers::{record::Record, value::Value};
use feedline_schemas::{commit::PageRun, config::PaginationKind, ids::Hash128};

use super::{At, Paginator, overlap::content_hash, total::REREAD};
use crate::{error::Error, warnings::LIST_MOVED};

/// Field that identifies a record where the source has no `key`.
const ID: &str = "id";

impl Paginator {
    /// Sets what identifies a record of the source, and whether records of equal content land once.
    pub(crate) fn recognize_records(&mut self, key: &[String], land_once: bool) {
        self.key = key.to_vec();
        self.land_once = land_once;
    }

    /// Hashes of the last one of `records`: of its content, which an overlap is compared with too, and
    /// of its identity, unless it has none or the record in front of it has the same.
    pub(super) fn last_record(&self, records: &[Record]) -> Vec<Hash128> {
        let Some((last, before)) = records.split_last() else {
            return Vec::new();
        };
        let identity = self.identity(last);
        let is_shared = before
            .last()
            .is_some_and(|before| self.identity(before) == identity);
        let own = identity.filter(|_| !is_shared);
        [Some(content_hash(last)), own]
            .into_iter()
            .flatten()
            .collect()
    }

    /// Hash of the `key` of `record`, otherwise of its `id`; `None` if it has neither.
    fn identity(&self, record: &Record) -> Option<Hash128> {
        let value = record.value()?;
        let part = |path: &str| match value.at(path) {
            None | Some(Value::Null | Value::Object(_) | Value::List(_)) => None,
            Some(part) => Some(part.canonical()),
        };
        let key: Option<Vec<String>> = self.key.iter().map(|path| part(path)).collect();
        let key = key.filter(|parts| !parts.is_empty());
        let parts = key.or_else(|| Some(vec![part(ID)?]))?;
        Some(Hash128::of(parts.join("\u{1f}").as_bytes()))
    }

    /// Returns true for pages by offset without an overlap.
    pub(super) fn has_plain_offsets(&self) -> bool {
        self.config.way.kind() == PaginationKind::Offset && self.config.way.overlap() == 0
    }

    /// Returns the page before the one at `at`, as it was requested, and the most records between
    /// the two; `None` if the last landed record is not known, or the page at `at` overlaps it.
    pub(crate) fn page_before(&self, at: &At) -> Option<(At, usize)> {
        if !self.hashes_pages() || self.config.way.overlap() > 0 || at.run.boundary.is_empty() {
            return None;
        }
        let mut before = at.clone();
        before.page = at.page.checked_sub(1)?;
        if !self.has_plain_offsets() {
            return Some((before, usize::MAX));
        }
        let records = match (at.run.short, at.run.page_records) {
            (Some(short), _) => short.records,
            (None, 0) => self.config.common.page_size,
            (None, records) => records,
        };
        let offset = self.offset_at(at.cursor.as_deref()).ok()?;
        let first = self.config.way.first_offset();
        let from = offset.saturating_sub(records).max(first);
        before.cursor = Some(from.to_string());
        let between = offset.checked_sub(from).filter(|between| *between > 0)?;
        Some((before, usize::try_from(between).unwrap_or(usize::MAX)))
    }

    /// Place of the last landed record of `run` in `records`.
    pub(crate) fn place_of_last_record(&self, run: &PageRun, records: &[Record]) -> Option<usize> {
        if run.boundary.is_empty() {
            return None;
        }
        records.iter().rposition(|record| {
            run.boundary.contains(&content_hash(record))
                || self
                    .identity(record)
                    .is_some_and(|hash| run.boundary.contains(&hash))
        })
    }

    /// Adds to `error`, the failure of the second request of a page, why that ends the run.
    pub(crate) fn advise_check(error: Error) -> Error {
        let advise = |text: String| {
            format!(
                "{text}; this page had landed and was requested once more, to see whether the list changed while the page run was interrupted; nothing behind it lands until it comes: run again, or, if it never does, {REREAD}"
            )
        };
        match error {
            Error::Http {
                url,
                cause,
                what,
                advice,
            } => Error::Http {
                url,
                cause,
                what,
                advice: advise(advice),
            },
            Error::Body { url, reason } => Error::Body {
                url,
                reason: advise(reason),
            },
            Error::Incomplete { url, reason } => Error::Incomplete {
                url,
                reason: advise(reason),
            },
            other => other,
        }
    }

    /// Warns that the page run restarts at its first page, once more when that page has come: the
    /// beginning of a page run clears the warnings about the one before.
    pub(crate) fn warn_of_restart(&mut self) {
        self.warnings.raise(
            LIST_MOVED,
            "pagination.type",
            format!(
                "the last page that had landed no longer existed when its page run resumed, so the list has changed: the page run was read again from its first page, and landed records that came again are dropped as duplicates; those that the API no longer has stay, and to drop them {REREAD}"
            ),
        );
    }

    /// Warns that the page run continues though the list has moved.
    pub(crate) fn warn_of_moved(&mut self) {
        self.warnings.raise(
            LIST_MOVED,
            "pagination.type",
            format!(
                "records came or went while a page run was interrupted, which moved the others from page to page, and the last landed one is neither in the next page nor in the page before: records may be missing; with `refresh` the next reading of all pages lands them, otherwise {REREAD}; read by `pagination.type` = `cursor` or `keyset` if the API has one, or by `offset` with `pagination.overlap`"
            ),
        );
    }
}
