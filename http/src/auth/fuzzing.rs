//! Fuzz target of `Set-Cookie` headers.

#![expect(
    clippy::missing_panics_doc,
    reason = "a panic is the finding of a target"
)]

use std::time::Duration;

use url::Url;

use super::cookie::{Jar, Now};

/// `Set-Cookie` headers, one a line. A request sends only what a header can carry, and never what
/// has expired.
pub fn set_cookie(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let from = Url::parse("https://www.example.org/a/b").expect("a URL");
    let now = Now {
        monotonic: Duration::from_secs(100),
        unix: Duration::from_secs(1_800_000_000),
    };
    let mut jar = Jar::default();
    for line in text.split('\n') {
        jar.set(line, &from, now);
    }
    for (url, at) in [
        ("https://www.example.org/a/b/c", 100),
        ("http://www.example.org/", 1_000_000),
    ] {
        let url = Url::parse(url).expect("a URL");
        if let Some(header) = jar.header(&url, Duration::from_secs(at)) {
            assert!(header.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
        }
    }
}
