//! What becomes of the answers of a `rest` source besides records: by what a page can be told to be unchanged is remembered.

use std::slice;

use feedline_schemas::{
    commit::CommitEntry,
    config::{CrawlAgain, PaginationKind, SourceConfig},
    ids::Hash128,
};
use feedline_storage::Store;
use reqwest::header::HeaderMap;
use url::{Origin, Url};

use crate::{
    error::Error,
    http::{Got, Http},
    pagination::Contents,
    retry::Failure,
    validators::{self, Validator, Validators},
};

/// A page that was answered.
pub(super) struct Answered {
    pub(super) contents: Contents,
    pub(super) headers: HeaderMap,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Answers {
    again: CrawlAgain,
    /// Whether there is one page.
    is_single: bool,
    /// Of the pages of earlier runs.
    validators: Validators,
}

impl Answers {
    pub(super) fn new(config: &SourceConfig) -> Self {
        Self {
            again: config.again,
            is_single: config.pagination.r#type == PaginationKind::None,
            validators: Validators::default(),
        }
    }

    /// Whether a source that has been read to its end is read again.
    pub(super) fn are_asked_again(&self) -> bool {
        !self.again.is_never()
    }

    /// Takes over by what the pages that `entries` landed can be told to be unchanged.
    ///
    /// # Errors
    /// [`Error::Landed`], [`Error::Storage`].
    pub(super) async fn restore(
        &mut self,
        landing: &Store,
        entries: &[CommitEntry],
    ) -> Result<(), Error> {
        if !self.are_asked_again() {
            return Ok(());
        }
        // Of a single page the latest is all that counts.
        let last = entries.iter().rfind(|entry| !entry.validators.is_empty());
        let entries = match last {
            Some(last) if self.is_single => slice::from_ref(last),
            _ => entries,
        };
        self.validators = Validators::restore(landing, entries).await?;
        Ok(())
    }

    /// The answer to a request for `url`; `None` when the page has not changed.
    pub(super) async fn get(&self, http: &Http, url: &Url) -> Result<Option<Got>, Failure> {
        let known = self.validators.of(&place(url, http.origin()));
        let conditions = known.map(Validator::conditions).unwrap_or_default();
        http.fetch_changed(url, &conditions).await
    }

    /// By what the page at `url` can be told to be unchanged when it is read again; none for one that came from elsewhere.
    pub(super) fn validator(
        &self,
        http: &Http,
        url: &Url,
        contents: &Contents,
        headers: &HeaderMap,
    ) -> Option<(Hash128, Validator)> {
        if !self.are_asked_again() || contents.url != *url {
            return None;
        }
        let validator = Validator::of(headers)?;
        Some((validators::page(&place(url, http.origin())), validator))
    }
}

/// A URL without fragment, user and password, and without its origin where that is `home`.
fn place(url: &Url, home: &Origin) -> String {
    let query = url
        .query()
        .map_or_else(String::new, |query| format!("?{query}"));
    let path = format!("{}{query}", url.path());
    if url.origin() == *home {
        path
    } else {
        url.origin().ascii_serialization() + &path
    }
}
