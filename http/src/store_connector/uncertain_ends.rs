//! Files whose end only the end of a connection shows: a truncated one looks like a complete one.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use object_store::client::HttpResponse;
use reqwest::{
    Version,
    header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap, TRANSFER_ENCODING},
};
use url::Url;

/// Extension of a response whose end only the end of the connection shows.
#[derive(Clone, Copy, Debug)]
struct EndsWithConnection;

/// Files that were received in responses without a known end. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct UncertainEnds {
    paths: Arc<Mutex<BTreeSet<String>>>,
}

impl UncertainEnds {
    /// Records the file at `url`.
    pub fn add(&self, url: &Url) {
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        paths.insert(url.path().to_owned());
    }

    /// Returns true if the file at `url` was recorded. Its query does not count.
    #[must_use]
    pub fn contain(&self, url: &str) -> bool {
        let paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        !paths.is_empty() && Url::parse(url).is_ok_and(|url| paths.contains(url.path()))
    }

    /// Records the file at `url` if `response` is marked.
    pub(super) fn note(&self, url: &Url, response: &HttpResponse) {
        if response.extensions().get::<EndsWithConnection>().is_some() {
            self.add(url);
        }
    }
}

/// Marks a response whose end only the end of the connection shows.
pub(super) fn mark(mut response: HttpResponse) -> HttpResponse {
    if !has_known_end(response.version(), response.headers()) {
        response.extensions_mut().insert(EndsWithConnection);
    }
    response
}

/// Returns true if a body with these headers that ends too early is known to be truncated: its length
/// is announced, or it has a mark of its end.
pub(crate) fn has_known_end(version: Version, headers: &HeaderMap) -> bool {
    let is_chunked = headers.get(TRANSFER_ENCODING).is_some_and(|coding| {
        let coding = coding.to_str().unwrap_or_default().to_ascii_lowercase();
        coding.trim_end().ends_with("chunked")
    });
    version > Version::HTTP_11
        || is_chunked
        || headers.contains_key(CONTENT_LENGTH)
        || headers.contains_key(CONTENT_ENCODING)
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    #[test]
    fn an_end_is_known_by_a_length_a_coding_or_the_protocol() {
        let headers = |name, value| HeaderMap::from_iter([(name, HeaderValue::from_static(value))]);
        let none = HeaderMap::new();
        assert!(!has_known_end(Version::HTTP_11, &none));
        assert!(!has_known_end(Version::HTTP_10, &none));
        assert!(has_known_end(Version::HTTP_2, &none));
        for (name, value, expected) in [
            (CONTENT_LENGTH, "3", true),
            (TRANSFER_ENCODING, "gzip, Chunked", true),
            (TRANSFER_ENCODING, "gzip", false),
            (CONTENT_ENCODING, "gzip", true),
        ] {
            let headers = headers(name, value);
            let is_known = has_known_end(Version::HTTP_11, &headers);
            assert_eq!(is_known, expected, "{value}");
        }
    }
}
