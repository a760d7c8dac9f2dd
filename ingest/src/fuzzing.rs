//! Fuzz targets: each reads the bytes of one foreign format, and checks what must hold for any bytes.
//!
//! They are built for tests, which replay `fuzz/corpus/`, and for `cargo fuzz`, which sets
//! `cfg(fuzzing)`.

#![expect(
    clippy::missing_panics_doc,
    reason = "a panic is the finding of a target"
)]

use crate::retry;
pub use crate::{
    html::fuzzing::{html, robots, sitemap},
    http::fuzzing::{content_encoding, set_cookie},
    pagination::fuzzing::link_header,
};

/// A `Retry-After` header, and the `Date` after a line end. A wait is never zero, and a date in the
/// header is as far away as it says.
pub fn retry_after(data: &[u8]) {
    use std::time::Duration;

    let text = String::from_utf8_lossy(data);
    let (value, date) = match text.split_once('\n') {
        Some((value, date)) => (value, Some(date)),
        None => (&*text, None),
    };
    let now = Duration::from_secs(1_800_000_000);
    let Some(wait) = retry::retry_after(value, date, now) else {
        return;
    };
    assert!(!wait.is_zero());
    if let Ok(until) = httpdate::parse_http_date(value.trim()) {
        let since = date.and_then(|date| httpdate::parse_http_date(date).ok());
        let since = since.unwrap_or(std::time::UNIX_EPOCH + now);
        assert_eq!(until.duration_since(since).ok(), Some(wait));
    }
}

#[cfg(test)]
#[path = "../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    super::replay::replays! {
        content_encoding html link_header retry_after robots set_cookie sitemap
    }
}
