//! The archive of responses that the pages of a batch came from, kept with `archive_raw`.
//!
//! A batch lands its responses as a Parquet file of its own, named by the same log entry as its
//! rows, in the order in which they were read. `feedline ingest replay` reads them instead of
//! sending requests ([`Tape`]). Failed and retried tries are not archived. A `rest` source has one
//! row for each page, a crawl one for each URL of its frontier. The verdict of robots.txt on a URL
//! is kept as a reason, but not robots.txt itself.
//!
//! | column | type | |
//! |---|---|---|
//! | `_feedline_seq`, `_feedline_row` | u64, u32 | the batch, and the number of the response in it |
//! | `request` | text | xxh3-128 of the requested URL, with method and body unless it is a GET, as hexadecimal digits: a URL may hold a secret |
//! | `url` | text | the requested URL for display: the values of its query are masked |
//! | `from` | text | URL of the body after redirects, if they led elsewhere, without its query |
//! | `status` | u16 | status; null without a response |
//! | `headers` | text | headers that pages are read by, a JSON object of lists |
//! | `reason`, `detail` | text | reason for a missing or ignored response |
//! | `masked` | u32 | secrets in body and headers, each replaced by `***` |
//! | `body` | binary | the body, decompressed |
//!
//! URLs of the source's own origin are written without it, so an archive can be replayed after the
//! source has moved. It holds no time, neither `Date` nor a cookie: equal responses make equal
//! files.

mod file;
mod tape;

use std::collections::BTreeMap;

use bytes::Bytes;
use feedline_schemas::ids::Hash128;
use reqwest::{
    StatusCode,
    header::{
        CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, LAST_MODIFIED, LINK, LOCATION,
    },
};
use url::{Origin, Url};

pub(crate) use self::{file::file, tape::Tape};
use feedline_http::{Http, Request, redacted};

/// Bytes of bodies after which a batch is committed at the end of its page.
const MOST_BYTES: u64 = 128 << 20;

/// A response, or the reason for its absence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exchange {
    request: Hash128,
    url: String,
    from: Option<String>,
    status: Option<u16>,
    headers: BTreeMap<String, Vec<String>>,
    reason: Option<String>,
    detail: Option<String>,
    masked: u32,
    body: Bytes,
}

impl Exchange {
    /// Status of the response; `None` without a response.
    pub(crate) fn status(&self) -> Option<StatusCode> {
        StatusCode::from_u16(self.status?).ok()
    }

    /// Reason for a missing or ignored response: one of a few fixed words, and the details.
    pub(crate) fn reason(&self) -> Option<(&str, &str)> {
        let reason = self.reason.as_deref()?;
        Some((reason, self.detail.as_deref().unwrap_or_default()))
    }

    /// The archived headers.
    pub(crate) fn headers(&self) -> HeaderMap {
        let all = self.headers.iter();
        let pairs = all.flat_map(|(name, values)| values.iter().map(move |value| (name, value)));
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            if let (Ok(name), Ok(value)) =
                (HeaderName::try_from(name), HeaderValue::try_from(value))
            {
                headers.append(name, value);
            }
        }
        headers
    }

    /// URL of the response to a request for `url`, after redirects.
    pub(crate) fn from(&self, url: &Url) -> Url {
        let from = self.from.as_ref().and_then(|from| url.join(from).ok());
        from.unwrap_or_else(|| url.clone())
    }

    /// The body.
    pub(crate) fn body(&self) -> &Bytes {
        &self.body
    }
}

/// A response as received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Came<'a> {
    pub(crate) status: StatusCode,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a Bytes,
    /// URL of the response after redirects.
    pub(crate) from: &'a Url,
}

/// Converts responses into exchanges.
#[derive(Clone, Debug)]
pub(crate) struct Keeper {
    /// Headers to archive in addition to the usual ones; their absence is archived too.
    others: Vec<HeaderName>,
}

impl Keeper {
    /// Creates a keeper that also archives the headers called `others`.
    pub(crate) fn new(others: Vec<HeaderName>) -> Self {
        Self { others }
    }

    /// Records the response to `request`.
    pub(crate) fn answer(&self, http: &Http, request: &Request, came: Came<'_>) -> Exchange {
        let mut masked = 0;
        let mut mask = |bytes: &Bytes| {
            let (kept, count) = http.masked(bytes);
            masked += count;
            kept
        };
        let body = mask(came.body);
        let mut headers = BTreeMap::new();
        let usual = [
            CONTENT_TYPE,
            ETAG,
            LAST_MODIFIED,
            LINK,
            LOCATION,
            HeaderName::from_static("x-robots-tag"),
        ];
        let usual = usual.iter().filter(|name| came.headers.contains_key(*name));
        for name in usual.chain(&self.others) {
            let values = came.headers.get_all(name).iter();
            let values = values.map(|value| {
                let bytes = mask(&Bytes::copy_from_slice(value.as_bytes()));
                String::from_utf8_lossy(&bytes).into_owned()
            });
            headers.insert(name.as_str().to_owned(), values.collect());
        }
        let (home, from) = (http.origin(), came.from);
        let place = || {
            let mut place = from.clone();
            place.set_query(None);
            self::place(&place, home)
        };
        Exchange {
            from: (*from != request.url).then(place),
            status: Some(came.status.as_u16()),
            headers,
            masked,
            body,
            ..unanswered(request, home)
        }
    }

    /// Records `request` without a usable response.
    pub(crate) fn nothing(
        &self,
        http: &Http,
        request: &Request,
        reason: &str,
        detail: Option<String>,
    ) -> Exchange {
        Exchange {
            reason: Some(reason.to_owned()),
            detail,
            ..unanswered(request, http.origin())
        }
    }
}

/// A request without a response.
fn unanswered(request: &Request, home: &Origin) -> Exchange {
    Exchange {
        request: Hash128::of(name(request, home).as_bytes()),
        url: shown(&request.url, home),
        from: None,
        status: None,
        headers: BTreeMap::new(),
        reason: None,
        detail: None,
        masked: 0,
        body: Bytes::new(),
    }
}

/// Name of a request: its [`place`], with method and body unless it is a plain GET.
pub(crate) fn name(request: &Request, home: &Origin) -> String {
    place(&request.url, home) + &request.variant()
}

/// Returns a URL without fragment, user and password, and without its origin if that is `home`.
pub(crate) fn place(url: &Url, home: &Origin) -> String {
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

/// The same with masked values, for display.
fn shown(url: &Url, home: &Origin) -> String {
    let shown = redacted(url);
    let host = shown.find("://").map_or(0, |at| at + 3);
    match shown[host..].find('/') {
        Some(path) if url.origin() == *home => shown[host + path..].to_owned(),
        _ => shown,
    }
}

/// The exchanges of the batch that is being read.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    exchanges: Vec<Exchange>,
    bytes: u64,
}

impl Kept {
    pub(crate) fn push(&mut self, exchange: Exchange) {
        self.bytes += exchange.body.len() as u64;
        self.exchanges.push(exchange);
    }

    /// Returns true if it is time to commit.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= MOST_BYTES
    }

    /// All of them; none is left.
    pub(crate) fn take(&mut self) -> Vec<Exchange> {
        std::mem::take(self).exchanges
    }
}

#[cfg(test)]
mod tests;
