//! A request as a value: it can be compared, and used as the key of a map.

use std::fmt;

use bytes::Bytes;
use feedline_schemas::ids::Hash128;
use reqwest::{
    Method,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use url::Url;

use crate::hosts::Speculation;

/// A request, but for what is the same in every request of a source: its headers and credentials.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Request {
    /// URL without credentials.
    pub url: Url,
    /// Method.
    pub method: Method,
    /// Headers that differ from request to request; sent to the source's own origin only.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Body; `None` sends an empty one.
    pub body: Option<RequestBody>,
    /// True if the server does the same however often it receives it.
    pub is_repeatable: bool,
    /// Mark of a request for a page that may not exist.
    pub speculation: Speculation,
}

/// Body of a request.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RequestBody {
    /// Media type.
    pub content_type: HeaderValue,
    /// The body as it is sent, with its secrets.
    pub bytes: Bytes,
    /// Hash of the body without its secrets.
    pub name: Hash128,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Request");
        shown
            .field("method", &self.method)
            .field("url", &crate::redacted(&self.url));
        shown.finish_non_exhaustive()
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("RequestBody");
        shown.field("content_type", &self.content_type);
        shown.finish_non_exhaustive()
    }
}

impl Request {
    /// A GET request for `url`.
    #[must_use]
    pub fn get(url: Url) -> Self {
        Self {
            url,
            method: Method::GET,
            headers: Vec::new(),
            body: None,
            is_repeatable: true,
            speculation: Speculation::default(),
        }
    }

    /// Its difference from other requests for the same URL, without secrets; empty for a plain GET.
    #[must_use]
    pub fn variant(&self) -> String {
        let mut variant = String::new();
        if self.method != Method::GET {
            variant += &format!(" {}", self.method);
        }
        for (name, value) in &self.headers {
            let value = String::from_utf8_lossy(value.as_bytes());
            variant += &format!("\n{name}: {value}");
        }
        if let Some(body) = &self.body {
            variant += &format!("\n\n{}", body.name);
        }
        variant
    }

    /// Adds its own headers to `headers`.
    pub(crate) fn add_headers(&self, headers: &mut HeaderMap) {
        for (name, value) in &self.headers {
            headers.insert(name.clone(), value.clone());
        }
    }

    /// Type of its body, as a header.
    pub(crate) fn content_type(&self) -> Option<(HeaderName, HeaderValue)> {
        let body = self.body.as_ref()?;
        Some((CONTENT_TYPE, body.content_type.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_for_one_url_differ_by_method_headers_and_body_but_not_by_a_secret() {
        let url = Url::parse("http://h/x?key=canary").unwrap();
        let get = Request::get(url);
        assert_eq!(get.variant(), "");
        let body = |bytes: &'static str, name: &str| RequestBody {
            content_type: HeaderValue::from_static("application/json"),
            bytes: bytes.into(),
            name: Hash128::of(name.as_bytes()),
        };
        let post = |body| Request {
            method: Method::POST,
            body: Some(body),
            ..get.clone()
        };
        let (one, other) = (post(body("{1}", "{}")), post(body("{2}", "{}")));
        assert_ne!(one, other);
        assert_eq!(one.variant(), other.variant());
        assert_ne!(one.variant(), post(body("{1}", "[]")).variant());
        let with_header = Request {
            headers: vec![(CONTENT_TYPE, HeaderValue::from_static("a/b"))],
            ..get.clone()
        };
        assert_eq!(with_header.variant(), "\ncontent-type: a/b");
        assert!(!format!("{one:?}").contains("canary"));
    }
}
