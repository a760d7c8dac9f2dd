//! The request of a page: sent, tried again, and read.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU32, Ordering},
};

use bytes::Bytes;
use feedline_http::{
    Again, Failure, Got, Http, Request, Retry,
    server_time::{Clocks, date_of},
};
use feedline_readers::{file_format, json::Reader};
use feedline_schemas::config::{FileFormat, MissingValue, ResponseFormat};
use feedline_storage::clock::Clock;
use reqwest::{
    StatusCode,
    header::{CONTENT_RANGE, CONTENT_TYPE},
};
use url::Url;

use super::{
    layout::{Body, Layout, Unusable},
    response_origin::{Answered, Origin},
};
use crate::{
    blocking::computing,
    error::Error,
    pagination::{Contents, Fields, Partial},
    uncertain_end,
};

/// Fetches pages; shared by the tasks that do.
#[derive(Debug)]
pub(super) struct Fetcher {
    pub(super) http: Http,
    layout: Layout,
    fields: Fields,
    /// Action for a value that the API does not know; `None` without a list of values.
    missing: Option<MissingValue>,
    clock: Arc<dyn Clock>,
    /// Readers of bodies that are not in use. Each keeps its buffers.
    readers: Arc<Mutex<Vec<Reader>>>,
}

/// Result of the request of a page, with the clocks at that time.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) outcome: Result<FetchOutcome, Error>,
    pub(super) clocks: Clocks,
    pub(super) retries: u64,
}

/// A final response.
#[derive(Debug)]
pub(super) enum FetchOutcome {
    /// A page; `None` if it has not changed.
    Answered(Option<Box<Answered>>),
    /// A refusal that no retry changes.
    Refused(Refused),
}

/// A refusal, and the number of tries that it took.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) failure: Failure<Error>,
    pub(super) tries: u32,
}

impl Fetched {
    /// Approximate size in bytes.
    pub(super) fn size(&self) -> u64 {
        match &self.outcome {
            Ok(FetchOutcome::Answered(Some(answered))) => answered.size,
            _ => 0,
        }
    }
}

impl Fetcher {
    pub(super) fn new(
        http: Http,
        layout: Layout,
        fields: Fields,
        missing: Option<MissingValue>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            http,
            layout,
            fields,
            missing,
            clock,
            readers: Arc::default(),
        }
    }

    /// Fetches the page of `request`, with retries; `is_first` is true for the first page of a page run.
    /// A refusal with a status for which `is_final` is true is not retried.
    pub(super) async fn fetch(
        &self,
        origin: &Origin,
        (request, is_first): (&Request, bool),
        mut retry: Retry,
        is_final: impl Fn(u16) -> bool,
    ) -> Fetched {
        let tries = AtomicU32::new(0);
        let tried = retry.run(|| async {
            let tries = tries.fetch_add(1, Ordering::Relaxed) + 1;
            let tried = self.try_once(origin, request, is_first).await;
            match tried.map_err(|failure| once(request, failure)) {
                Ok(answered) => Ok(FetchOutcome::Answered(answered.map(Box::new))),
                Err(failure)
                    if !failure.again.is_retried()
                        || failure.error.status().is_some_and(&is_final) =>
                {
                    Ok(FetchOutcome::Refused(Refused { failure, tries }))
                }
                Err(failure) => Err(failure),
            }
        });
        let outcome = tried.await;
        let headers = match &outcome {
            Ok(FetchOutcome::Answered(Some(answered))) => Some(&answered.headers),
            _ => None,
        };
        let server = || {
            let own = headers.and_then(date_of);
            own.or_else(|| self.http.server_time().server())
        };
        Fetched {
            clocks: Clocks {
                local: self.clock.unix(),
                server: if origin.is_replayed() { None } else { server() },
            },
            retries: retry.retries(),
            outcome,
        }
    }

    /// Requests the page once; `None` if it has not changed. A body that is not the expected document
    /// is retried: it may be an error page sent with 200.
    async fn try_once(
        &self,
        origin: &Origin,
        request: &Request,
        is_first: bool,
    ) -> Result<Option<Answered>, Failure<Error>> {
        let (http, url) = (&self.http, &request.url);
        let Some(Got {
            url: from,
            status,
            headers,
            body,
            has_known_end,
        }) = origin.get(http, request).await?
        else {
            return Ok(None);
        };
        let kept = origin.body(&body);
        let size = body.len() as u64;
        let is_end_certain = has_known_end || uncertain_end::ends_line(&body);
        let kind = headers.get(CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let found = if status == StatusCode::NO_CONTENT {
            self.layout.no_content()
        } else {
            let read = self.read(body, kind.to_owned()).await;
            let read = read.map_err(|error| Failure {
                error: Box::new(error),
                again: Again::Never,
            })?;
            read.map_err(|unusable| self.failure(url, (status, kind), is_first, unusable))?
        };
        if !is_end_certain && found.form.format == ResponseFormat::Csv {
            uncertain_end::note(&http.shown(url), self.layout.response.notices());
        }
        let wrong = |reason| self.wrong(url, reason);
        let total = self.fields.total_in(&headers).map_err(wrong)?;
        // A server that sends unreadable headers would send them again.
        let in_headers = self
            .fields
            .token_in(&headers)
            .map_err(|reason| self.incomplete(url, reason, Again::Never))?;
        let only = self.layout.only_page();
        let document = (found.beside.as_ref(), found.records.len());
        let further = only.and_then(|page| page.further(&headers, document, &from));
        let is_partial = status == StatusCode::PARTIAL_CONTENT;
        let range = headers.get(CONTENT_RANGE).and_then(|v| v.to_str().ok());
        Ok(Some(Answered {
            contents: Contents {
                records: found.records,
                token: found.token.or(in_headers.0),
                names_next: found.names_next || in_headers.1,
                has_more: found.has_more,
                partial: is_partial.then(|| Partial::of(range)),
                total: found.total.or(total),
                hash: found.hash,
                url: from,
            },
            headers,
            body: kept,
            size,
            form: found.form,
            is_null: found.is_null,
            further,
            errors: found.errors.map(|errors| http.excerpt(&errors.text)),
        }))
    }

    fn wrong(&self, url: &Url, reason: String) -> Failure<Error> {
        Failure {
            error: Box::new(Error::Body {
                url: self.http.shown(url),
                reason,
            }),
            again: Again::Backoff,
        }
    }

    fn incomplete(&self, url: &Url, reason: String, again: Again) -> Failure<Error> {
        Failure {
            error: Box::new(Error::Incomplete {
                url: self.http.shown(url),
                reason,
            }),
            again,
        }
    }

    /// The failure of a page without records that has `text` at `key`, with more advice.
    fn suspect(
        &self,
        url: &Url,
        status: StatusCode,
        (key, text): (&str, &str),
        (advice, again): (&str, Again),
    ) -> Failure<Error> {
        let text = self.http.excerpt(text);
        let reason = format!(
            "a page has status {}, no record and `{key}`{text}; set `error_path` to the path of the API's errors, or to \"\" if this is none{advice}",
            status.as_u16()
        );
        self.incomplete(url, reason, again)
    }

    /// The failure of a response of the media type `kind` whose body cannot be used. `is_first` is
    /// true for the first page of a page run.
    fn failure(
        &self,
        url: &Url,
        (status, kind): (StatusCode, &str),
        is_first: bool,
        unusable: Unusable,
    ) -> Failure<Error> {
        let (http, wrong) = (&self.http, |reason| self.wrong(url, reason));
        match unusable {
            // A retry would get the same table.
            Unusable::NotJson(reason) if is_csv(kind) => Failure {
                again: Again::Never,
                ..wrong(format!(
                    "{reason}, but a table (`Content-Type: {kind}`): set the source's `response.format = \"csv\"`"
                ))
            },
            Unusable::Wrong(reason) | Unusable::NotJson(reason) => wrong(reason),
            Unusable::Unfit(reason) => Failure {
                again: Again::Never,
                ..wrong(reason)
            },
            Unusable::Error(text) => {
                let text = http.excerpt(&text);
                wrong(format!(
                    "it has status 200 and an error at `error_path`{text}"
                ))
            }
            Unusable::NoTable(reason, start) => {
                let kind = match kind {
                    "" => "no `Content-Type`".to_owned(),
                    kind => format!("`Content-Type: {kind}`"),
                };
                wrong(format!("{reason} ({kind}){}", http.excerpt(&start)))
            }
            Unusable::Suspect(key, text) => {
                self.suspect(url, status, (&key, &text), ("", Again::Backoff))
            }
            Unusable::Failed(key, text) => {
                let unknown = match self.missing.filter(|_| is_first) {
                    None => ("", Again::Backoff),
                    Some(MissingValue::Stop) => (
                        ", or set `for_each.missing = \"skip\"` if the API does not know the value",
                        Again::Backoff,
                    ),
                    // Like status 404.
                    Some(MissingValue::Skip) => ("", Again::Absent),
                };
                self.suspect(url, status, (&key, &text), unknown)
            }
            Unusable::Query(errors) => {
                let again = if errors.is_transient {
                    Again::Backoff
                } else {
                    Again::Never
                };
                let text = http.excerpt(&errors.text);
                if errors.has_data {
                    let reason = format!(
                        "it has GraphQL errors beside its data{text}, so records or fields may be missing; correct the query or the rights of the credentials, or set `graphql.partial_data = \"warn\"` to land such pages"
                    );
                    return self.incomplete(url, reason, again);
                }
                Failure {
                    again,
                    ..wrong(format!("it has GraphQL errors and no data{text}"))
                }
            }
        }
    }

    /// Reads a body that came with this `Content-Type`.
    async fn read(
        &self,
        body: Bytes,
        content_type: String,
    ) -> Result<Result<Body, Unusable>, Error> {
        let (layout, readers) = (self.layout.clone(), Arc::clone(&self.readers));
        computing(move || {
            let locked = || readers.lock().unwrap_or_else(PoisonError::into_inner);
            let mut reader = locked().pop().unwrap_or_default();
            let read = layout.read(body.into(), &content_type, &mut reader);
            locked().push(reader);
            Ok(read)
        })
        .await
    }
}

fn is_csv(content_type: &str) -> bool {
    file_format::of_media_type(content_type) == Some(FileFormat::Csv)
}

/// The failure of a request, which is not retried if the server may have processed a request that
/// may not be repeated.
pub(super) fn once(request: &Request, mut failure: Failure<Error>) -> Failure<Error> {
    if request.is_repeatable || failure.again != Again::Backoff {
        return failure;
    }
    let advice = "the server may have processed this POST, so it is not repeated; if repeating it changes nothing there, as for a search, set the source's `idempotent = true`; otherwise find out, and run again";
    failure.again = Again::Never;
    match &mut *failure.error {
        Error::Http { advice: usual, .. } => *usual = advice.to_owned(),
        Error::Body { reason, .. } | Error::Incomplete { reason, .. } => {
            *reason = format!("{reason}; {advice}");
        }
        _ => {}
    }
    failure
}
