//! The contract between the loop of a run and a source.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use feedline_http::SecretMasks;
use feedline_readers::{record::Record, remedy::Remedy, rows::RecordPlace};
use feedline_schemas::{
    commit::{FileMark, FilePart, Position},
    ids::Hash128,
    report::Warning,
};
use feedline_storage::Store;

use crate::{
    backfill::CursorLines,
    error::Error,
    frontier::discovery::Discovery,
    infer::Survey,
    log_entries::Resumed,
    raw::{Kept, Tape},
    validators::Validator,
    warnings::WarningChange,
};

/// Some records and the position after them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Page {
    /// Records in the source's order.
    pub records: Vec<Record>,
    /// Position of the next page; [`Position::Done`] after the last.
    pub next: Position,
    /// Additional results of a crawl, or of a source that is read again.
    pub crawled: Option<Crawled>,
    /// `files`: the files of the records, in their order.
    pub parts: Vec<PagePart>,
}

/// File that records of a page come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PagePart {
    pub part: FilePart,
    /// True if all earlier landed rows of the file are superseded.
    pub supersedes: bool,
    /// Place of its first record, if the others follow by one line each.
    pub place: Option<RecordPlace>,
}

/// Additional results of pages, besides records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Crawled {
    /// Number of fetched URLs.
    pub urls: u64,
    /// URLs without a record for a reason that is no failure, by reason.
    pub skipped: BTreeMap<&'static str, u64>,
    /// Discoveries to append to the frontier, in its order.
    pub found: Vec<Discovery>,
    /// Validators for later conditional requests.
    pub validators: Vec<(Hash128, Validator)>,
    /// Warnings about the source; each replaces an earlier one with its code.
    pub warnings: Vec<Warning>,
}

/// Requests of this process run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requests {
    /// All requests, retries included.
    pub requests: u64,
    /// Retries among them.
    pub retries: u64,
}

/// A source of pages.
///
/// A page is a pure function of its position. For the same position, a source returns the same
/// records and the same next position, in this process or another (as far as the server allows). A
/// run resumes at the committed position.
#[async_trait]
pub(crate) trait Source: Send {
    /// Reads the page at `at`. Waits and retries as configured; [`Error::Cancelled`] if the run
    /// should stop meanwhile.
    async fn next_page(&mut self, at: &Position) -> Result<Page, Error>;

    /// Passes over a value of a list whose page at `at` failed with `error`: returns an empty page that
    /// ends at the next value. [`Source::failed_values`] has them all.
    ///
    /// # Errors
    /// The error that ends the run: `error` itself if it is not about one value.
    fn pass_over_value(&mut self, _at: &Position, error: Error) -> Result<Page, Error> {
        Err(error)
    }

    /// The error about the values of a list that failed since the pass over them began; `None` if
    /// there are none.
    fn failed_values(&self) -> Option<Error> {
        None
    }

    /// Restores the state of a source from its landed data, before the first page is read.
    ///
    /// # Errors
    /// [`Error::Landed`], [`Error::Storage`].
    async fn restore(&mut self, _landing: &Store, _resumed: &Resumed) -> Result<(), Error> {
        Ok(())
    }

    /// Saves for later runs what positions refer to, before a run reads its first page.
    ///
    /// # Errors
    /// [`Error::Storage`].
    async fn save(&mut self, _landing: &Store) -> Result<(), Error> {
        Ok(())
    }

    /// Takes the marks of read files that positions no longer list, from the oldest to the newest.
    fn fold(&mut self, _marks: &[FileMark]) {}

    /// Responses of the pages since they were last taken; `None` for a source that archives none.
    fn raw(&mut self) -> Option<&mut Kept> {
        None
    }

    /// Takes responses from `tape` from now on, and sends no requests. Called before
    /// [`Source::restore`], for sources of the types `rest` and `html` only.
    fn replay(&mut self, _tape: Arc<Tape>) {}

    /// Settings that the errors about its unreadable files name; none for a source without files.
    fn remedies(&self) -> Vec<Remedy> {
        Vec::new()
    }

    /// Decisions that the source made itself since the last call.
    fn warnings(&mut self) -> Vec<Warning> {
        Vec::new()
    }

    /// Changes of its warnings since the last call; none for a source without warnings of its own.
    fn take_warnings(&mut self) -> Vec<WarningChange> {
        Vec::new()
    }

    /// Adds a sample of the records of all pages to the empty `survey`; `None` for a source that
    /// cannot look ahead. Called after the first pages; gives the same result for the same files.
    async fn survey(&mut self, _survey: Survey) -> Result<Option<Survey>, Error> {
        Ok(None)
    }

    /// Takes the error of the first file that the sample of [`Source::survey`] could not open, and that ends the run that
    /// reads it; none for a source without files.
    fn take_unreadable(&mut self) -> Option<Error> {
        None
    }

    /// Warnings about the run so far, in addition to those that depend on its positions.
    fn run_warnings(&self) -> Vec<Warning> {
        Vec::new()
    }

    /// The newest cursors of the values of a list, as the last page left them; `None` if there are none.
    fn value_cursors(&self) -> Option<CursorLines> {
        None
    }

    /// Requests so far; none for a source that makes no requests.
    fn requests(&self) -> Requests {
        Requests::default()
    }

    /// Secrets of the requests so far, to mask in messages about records; none for a source without
    /// secrets.
    fn secret_masks(&self) -> SecretMasks {
        SecretMasks::default()
    }
}
