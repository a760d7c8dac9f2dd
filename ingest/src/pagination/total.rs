//! Checks that all records have come.
//!
//! APIs stop at round numbers. A total is often an estimate, so a total above the number of records
//! proves little; at a multiple of [`ROUND`] records it is trusted. Without a total, numbers at
//! which many APIs stop are only reported.

use feedline_readers::record::Record;
use feedline_schemas::{
    commit::PageRun,
    config::{Bounded, Pagination, PaginationKind},
    count::counted,
    report::Warning,
};

use super::{At, Contents, Paginator, REMEMBERED, overlap::content_hash};
use crate::{error::Error, warnings::COMMON_CAP};

/// A value of `pagination.max_records` that no page run reaches.
const NO_CAP: u64 = 1_000_000_000;

/// A total above a multiple of this many records, reached exactly, is no estimate: a list ends
/// there by chance only once in as many cases.
const ROUND: u64 = 1_000;

/// Warning that the records that came are not as many as the total.
const TOTAL_DIFFERS: &str = "total_differs";

/// Warning that the total changed while pages were read.
const TOTAL_CHANGED: &str = "total_changed";

/// Advice to read the source again.
pub(super) const REREAD: &str = "run `feedline ingest reset PIPELINE.toml SOURCE`, which saves landed data under another name and re-reads everything";

impl Paginator {
    /// Returns true if the page at `at` has no record and the API's total says that more follow, so
    /// that the page seems to be broken. A total that has differed before proves nothing, and at a
    /// multiple of [`ROUND`] records the API stops.
    pub(crate) fn is_hole(&self, at: &At, contents: &Contents) -> bool {
        let total = contents.total.filter(|total| *total > 0).or(self.total);
        let cap = self.config.common.max_records.map(Bounded::get);
        let is_trusted = self.config.common.strict_total || !self.warnings.has(TOTAL_DIFFERS);
        self.hashes_pages()
            && self.counts()
            && is_trusted
            && at.page > 0
            && contents.records.is_empty()
            && contents.has_more != Some(false)
            && !at.run.records.is_multiple_of(ROUND)
            && total.is_some_and(|total| total > at.run.records)
            && cap.is_none_or(|cap| cap > at.run.records)
    }

    /// Notes the total of a page of `count` records. A total that changes while pages are read by
    /// number or offset shows that records may have moved past the place of reading. The total of a
    /// page without records, and one that is the count of the page, say nothing.
    pub(crate) fn note_total(&mut self, total: Option<u64>, count: u64) {
        let is_moving = self.hashes_pages() && self.config.way.overlap() == 0;
        if let (Some(before), Some(now)) = (self.total, total)
            && before != now
            && count > 0
            && now != count
            && is_moving
        {
            self.warnings.raise(
                TOTAL_CHANGED,
                "pagination.type",
                format!(
                    "the API's total went from {before} to {now} while pages were read: records that came or went meanwhile move the others from page to page, so some may be missing; read by `pagination.type` = `cursor` or `keyset` if the API has one, or by `offset` with `pagination.overlap`, and {REREAD}"
                ),
            );
        }
        self.total = total.or(self.total);
    }

    /// Returns true if the API reports more records than it returns.
    pub(crate) fn is_beyond_cap(&self, total: Option<u64>) -> bool {
        self.config
            .common
            .max_records
            .map(Bounded::get)
            .zip(total)
            .is_some_and(|(most, total)| total > most)
    }

    /// Refuses a page run that reaches the number of records at which the API stops.
    ///
    /// # Errors
    /// [`Error::Incomplete`].
    pub(super) fn check_cap(&self, run: &PageRun, total: Option<u64>) -> Result<(), Error> {
        match self.config.common.max_records.map(Bounded::get) {
            Some(most) if run.records >= most && total != Some(run.records) => {
                let total = total
                    .map(|total| format!(" of {total}"))
                    .unwrap_or_default();
                let reason = format!(
                    "{}{total} records have come, and at `pagination.max_records` = {most} the API stops; ask for less at a time: by `slices` if the API takes a range, by `for_each`, or by `params` in sources of their own",
                    run.records
                );
                let url = self.urls.shown_base();
                Err(Error::Incomplete { url, reason })
            }
            _ => Ok(()),
        }
    }

    /// Counts those of `records` that have the content of earlier ones of the page run, where such
    /// records land once and there is a total to compare with.
    pub(super) fn count_repeats(&mut self, records: &[Record]) {
        if !self.land_once || !self.asks_total() {
            return;
        }
        for record in records {
            if matches!(record, Record::Bad { .. }) {
                continue;
            }
            if self.distinct.len() >= REMEMBERED {
                self.distinct.clear();
            }
            self.repeats += u64::from(!self.distinct.insert(content_hash(record)));
        }
    }

    /// Returns true if the configuration names a total.
    const fn asks_total(&self) -> bool {
        let common = &self.config.common;
        common.total_path.is_some() || common.total_header.is_some()
    }

    /// Compares the records of a complete page run with the API's total.
    ///
    /// # Errors
    /// [`Error::Incomplete`] if it stopped at a round number below its total, [`Error::Body`] for a
    /// wrong total under `strict_total`.
    pub(super) fn check_total(&mut self, run: &PageRun, total: Option<u64>) -> Result<(), Error> {
        let config = &self.config;
        let is_asked = self.asks_total();
        let received = run.records;
        if let Some(total) = total
            && total > received
            && received > 0
            && received.is_multiple_of(ROUND)
        {
            return Err(self.stopped_short(received, total));
        }
        if let (Some(cap), Some(records)) = (self.possible_cap, self.came)
            && records > cap
        {
            self.possible_cap = None;
            self.warnings.lift(COMMON_CAP);
        }
        if total.is_none()
            && config.common.max_records.is_none()
            && let Some(records) = self.came.filter(|records| is_common_cap(*records))
        {
            self.possible_cap = Some(records);
            self.warnings.raise(
                COMMON_CAP,
                "pagination.max_records",
                // The message begins with the number, which `possible_cap` reads from a held warning.
                format!(
                    "{records} records have come, a number at which many APIs stop; if this one does, ask for less at a time (`slices`, `for_each` or `params`) and {REREAD}; if these are all, set `pagination.max_records` = {NO_CAP}, or name its total by `pagination.total_path`; a later reading of more records ends this warning"
                ),
            );
        }
        let repeats = self.repeats;
        if total == Some(received) && repeats > 0 {
            // A later reading of the rest cannot change it, so it is no error under `strict_total`.
            self.warn_of_repeats(received);
            self.warnings.lift("no_total");
            return Ok(());
        }
        // Equal records land once, so the total may not count them either.
        let is_reached = total
            .is_some_and(|total| total == received || received.checked_sub(repeats) == Some(total));
        if is_reached {
            self.warnings.lift(TOTAL_DIFFERS);
        }
        if total.is_some() {
            self.warnings.lift("no_total");
        }
        let zero = total.map_or("", |total| self.page_zero_advice(received, total));
        let have = if received == 1 { "has" } else { "have" };
        let came = format!("{} {have} come", counted(received, "record"));
        let are = if total == Some(1) { "is" } else { "are" };
        match total {
            Some(total) if !is_reached && config.common.strict_total => Err(self.wrong(format!(
                "{came}, and it says that there {are} {total}{zero}; run again, or remove `pagination.strict_total` if records come and go while they are read"
            ))),
            Some(total) if !is_reached => {
                self.warnings.raise(
                    TOTAL_DIFFERS,
                    "pagination.strict_total",
                    format!(
                        "{came}, and the API says that there {are} {total}{zero}; if some are missing, {REREAD}; set `pagination.strict_total` to make this an error in later readings, or remove `pagination.total_path` or `pagination.total_header` if the total is an estimate"
                    ),
                );
                Ok(())
            }
            None if is_asked => self.check_missing_total(),
            _ => Ok(()),
        }
    }

    /// Refuses a page run without a total under `strict_total`, and warns of it otherwise. A process
    /// that resumed behind the last record has seen no page that could have one.
    fn check_missing_total(&mut self) -> Result<(), Error> {
        let has_pages = self.came.is_some() || self.longest > 0;
        let (key, message) = match (has_pages, self.config.common.strict_total) {
            (true, true) => {
                return Err(self.wrong(
                    "the last page has no total; check `pagination.total_path` and `pagination.total_header`"
                        .into(),
                ));
            }
            (true, false) => (
                "pagination.total_path",
                "no page has a total; check `pagination.total_path` and `pagination.total_header`"
                    .to_owned(),
            ),
            (false, true) => (
                "pagination.strict_total",
                format!(
                    "the page run resumed behind its last record, where no page has a total, so its records were not compared with one; the next reading of all pages compares them, otherwise {REREAD}"
                ),
            ),
            (false, false) => return Ok(()),
        };
        self.warnings.raise("no_total", key, message);
        Ok(())
    }

    /// Warns that the total is reached only with records that have the content of earlier ones.
    fn warn_of_repeats(&mut self, received: u64) {
        let repeats = self.repeats;
        let have = if repeats == 1 { "has" } else { "have" };
        self.warnings.raise(
            TOTAL_DIFFERS,
            "pagination.strict_total",
            format!(
                "{} came, as many as the API's total, but {repeats} of them {have} the content of earlier ones, so as many others may be missing; if they are other records, set `batch.dedup_window = 0`, otherwise {REREAD}",
                counted(received, "record")
            ),
        );
    }

    /// Advice about the number of the first page, if the records of one page are missing from the
    /// total and pages are counted from 1; empty otherwise.
    fn page_zero_advice(&self, received: u64, total: u64) -> &'static str {
        let is_from_one =
            matches!(&self.config.way, Pagination::Page(keys) if keys.first_page == 1);
        let missing = total.saturating_sub(received);
        let is_one_page = missing > 0 && (received == 0 || missing == self.longest);
        if is_from_one && is_one_page {
            "; if the API counts its pages from 0, the first one is missing: set `pagination.first_page` = 0"
        } else {
            ""
        }
    }

    fn stopped_short(&self, received: u64, total: u64) -> Error {
        let zero = self.page_zero_advice(received, total);
        let way = match self.config.way.kind() {
            PaginationKind::None => {
                "`pagination.type` is `none`: set one, which `feedline plan --ask` suggests"
                    .to_owned()
            }
            _ => format!(
                "set `pagination.max_records` = {received} and ask for less at a time: by `slices` if the API takes a range, by `for_each`, or by `params` in sources of their own"
            ),
        };
        Error::Incomplete {
            url: self.urls.shown_base(),
            reason: format!(
                "{received} of {total} records have come, a number at which APIs stop{zero}; {way}; if these are all and the total is an estimate, remove `pagination.total_path` or `pagination.total_header`"
            ),
        }
    }
}

/// Returns the number of records in a warning about a possible cap that holds.
pub(super) fn possible_cap(held: &[Warning]) -> Option<u64> {
    let warning = held.iter().find(|held| held.code == COMMON_CAP)?;
    warning.message.split(' ').next()?.parse().ok()
}

/// Returns true if many APIs return no more than this: 1,000, 5,000, 10,000, 50,000 and so on.
fn is_common_cap(records: u64) -> bool {
    let mut digits = records;
    while digits.is_multiple_of(10) && digits > 0 {
        digits /= 10;
    }
    records >= ROUND && (digits == 1 || digits == 5)
}

#[cfg(test)]
mod tests {
    use super::is_common_cap;

    #[test]
    fn common_caps_are_ones_and_fives_from_a_thousand_on() {
        for cap in [1_000, 5_000, 10_000, 50_000, 100_000, 1_000_000] {
            assert!(is_common_cap(cap), "{cap}");
        }
        for other in [
            0, 1, 5, 10, 100, 500, 999, 1_001, 2_000, 9_999, 10_500, 15_000, 20_000,
        ] {
            assert!(!is_common_cap(other), "{other}");
        }
    }
}
