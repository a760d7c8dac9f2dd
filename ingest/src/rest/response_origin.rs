//! Responses of a `rest` source: from a server or an archive. Archives them, and remembers
//! validators for conditional requests.

use std::{slice, sync::Arc};

use bytes::Bytes;
use feedline_http::{Again, Failure, Got, Http, Request};
use feedline_schemas::{
    commit::DataFile,
    config::{PaginationKind, Refresh, SourceConfig},
    ids::Hash128,
};
use feedline_storage::Store;
use reqwest::{
    StatusCode,
    header::{HeaderMap, HeaderName},
};

use super::response::Form;
use crate::{
    error::Error,
    pagination::{Contents, Paginator, suggest::FurtherPages},
    raw::{Came, Keeper, Kept, Tape, name},
    validators::{self, Validator, Validators},
};

/// Archived reason for a missing response: the server no longer knew the cursor.
const GONE: &str = "gone";
/// Archived reason: no page exists after the last one.
const END: &str = "end";

/// A page that was answered.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) contents: Contents,
    pub(super) headers: HeaderMap,
    /// Decompressed body; empty without an archive.
    pub(super) body: Bytes,
    /// Size of the decompressed body in bytes.
    pub(super) size: u64,
    pub(super) form: Form,
    /// True if null is in place of the list of records, and may be an error.
    pub(super) is_null: bool,
    /// Sign of further pages, if it is looked for.
    pub(super) further: Option<FurtherPages>,
    /// GraphQL: accepted errors beside the data.
    pub(super) errors: Option<String>,
}

/// Origin of responses: a server or an archive.
#[derive(Debug, Default)]
pub(super) struct Origin {
    /// Validators of the pages of earlier runs.
    validators: Validators,
    tape: Option<Arc<Tape>>,
    /// Headers that pages are read by.
    wanted: Vec<HeaderName>,
    /// True if responses are archived.
    is_archived: bool,
}

impl Origin {
    /// Returns true if they come from an archive.
    pub(super) fn is_replayed(&self) -> bool {
        self.tape.is_some()
    }

    /// Returns the response to `request`; `None` if the page has not changed.
    pub(super) async fn get(
        &self,
        http: &Http,
        request: &Request,
    ) -> Result<Option<Got>, Failure<Error>> {
        if let Some(tape) = &self.tape {
            return self.replayed(tape, http, request);
        }
        let known = self.validators.of(&name(request, http.origin()));
        let conditions = known.map(Validator::conditions).unwrap_or_default();
        let got = http.fetch_changed(request, &conditions).await;
        got.map_err(Failure::into_error_of)
    }

    fn replayed(
        &self,
        tape: &Tape,
        http: &Http,
        request: &Request,
    ) -> Result<Option<Got>, Failure<Error>> {
        let failed = |error, again| Failure {
            error: Box::new(error),
            again,
        };
        let exchange = tape
            .take(request, http.origin(), &self.wanted)
            .map_err(|error| failed(error, Again::Never))?;
        if let Some((reason, detail)) = exchange.reason() {
            let again = match reason {
                GONE => Again::Gone,
                END => Again::End,
                _ => Again::Never,
            };
            return Err(failed(Error::Archived(detail.to_owned()), again));
        }
        let is_unchanged = exchange.status() == Some(StatusCode::NOT_MODIFIED);
        Ok((!is_unchanged).then(|| Got {
            url: exchange.from(&request.url),
            status: exchange.status().unwrap_or_default(),
            headers: exchange.headers(),
            body: exchange.body().clone(),
            // The archive does not have it.
            has_known_end: true,
        }))
    }

    /// Body to hold until it is archived: empty without an archive.
    pub(super) fn body(&self, body: &Bytes) -> Bytes {
        if self.is_archived {
            body.clone()
        } else {
            Bytes::new()
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Answers {
    again: Refresh,
    /// True if there is one page.
    is_single: bool,
    keeper: Option<Keeper>,
    kept: Kept,
    origin: Arc<Origin>,
}

impl Answers {
    pub(super) fn new(config: &SourceConfig, pages: &Paginator) -> Self {
        let wanted = pages.headers();
        Self {
            again: config.refresh,
            is_single: config.pagination.way.kind() == PaginationKind::None
                && config.for_each.is_none(),
            keeper: config.archive_raw.then(|| Keeper::new(wanted.clone())),
            kept: Kept::default(),
            origin: Arc::new(Origin {
                wanted,
                is_archived: config.archive_raw,
                ..Origin::default()
            }),
        }
    }

    /// Returns true if a source that has been read to its end is read again.
    pub(super) fn are_asked_again(&self) -> bool {
        !self.again.is_never()
    }

    /// Returns true if they come from an archive.
    pub(super) fn are_replayed(&self) -> bool {
        self.origin.is_replayed()
    }

    /// Origin of the responses.
    pub(super) fn origin(&self) -> &Arc<Origin> {
        &self.origin
    }

    pub(super) fn replay(&mut self, tape: Arc<Tape>) {
        self.set_origin(Validators::default(), Some(tape));
    }

    fn set_origin(&mut self, validators: Validators, tape: Option<Arc<Tape>>) {
        self.origin = Arc::new(Origin {
            validators,
            tape,
            wanted: self.origin.wanted.clone(),
            is_archived: self.keeper.is_some(),
        });
    }

    /// Restores the validators of pages that `files` have.
    ///
    /// # Errors
    /// [`Error::Landed`], [`Error::Storage`].
    pub(super) async fn restore(
        &mut self,
        landing: &Store,
        files: &[DataFile],
    ) -> Result<(), Error> {
        if !self.are_asked_again() {
            return Ok(());
        }
        // Of a single page the latest is all that counts.
        let files = match files.last() {
            Some(last) if self.is_single => slice::from_ref(last),
            _ => files,
        };
        let validators = Validators::restore(landing, files).await?;
        self.set_origin(validators, self.origin.tape.clone());
        Ok(())
    }

    /// Archives the response to `request`, if there is an archive.
    pub(super) fn keep(&mut self, http: &Http, request: &Request, answered: Option<&Answered>) {
        let Some(keeper) = &self.keeper else { return };
        let (none, empty) = (HeaderMap::new(), Bytes::new());
        let came = match answered {
            Some(answered) => Came {
                status: StatusCode::OK,
                headers: &answered.headers,
                body: &answered.body,
                from: &answered.contents.url,
            },
            None => Came {
                status: StatusCode::NOT_MODIFIED,
                headers: &none,
                body: &empty,
                from: &request.url,
            },
        };
        self.kept.push(keeper.answer(http, request, came));
    }

    /// Archives that the cursor in `request` was no longer known.
    pub(super) fn keep_gone(&mut self, http: &Http, request: &Request, error: &Error) {
        if let Some(keeper) = &self.keeper {
            let detail = Some(error.to_string());
            self.kept.push(keeper.nothing(http, request, GONE, detail));
        }
    }

    /// Archives that no page exists at `request`, after the last one.
    pub(super) fn keep_end(&mut self, http: &Http, request: &Request, error: &Error) {
        if let Some(keeper) = &self.keeper {
            let detail = Some(error.to_string());
            self.kept.push(keeper.nothing(http, request, END, detail));
        }
    }

    /// Responses since they were last taken; `None` without an archive.
    pub(super) fn kept(&mut self) -> Option<&mut Kept> {
        self.keeper.is_some().then_some(&mut self.kept)
    }

    /// Validator of the page of `request` for its next reading; `None` if it came from another URL.
    pub(super) fn validator(
        &self,
        http: &Http,
        request: &Request,
        contents: &Contents,
        headers: &HeaderMap,
    ) -> Option<(Hash128, Validator)> {
        if !self.are_asked_again() || contents.url != request.url {
            return None;
        }
        let validator = Validator::of(headers)?;
        Some((validators::page(&name(request, http.origin())), validator))
    }
}
