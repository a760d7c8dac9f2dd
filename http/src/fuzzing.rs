//! Fuzz targets: each reads the bytes of one part of a response, and checks what must hold for any bytes.
//!
//! They are built for tests, which replay `fuzz/corpus/`, and for `cargo fuzz`, which sets
//! `cfg(fuzzing)`.

#![expect(
    clippy::missing_panics_doc,
    reason = "a panic is the finding of a target"
)]

pub use crate::auth::fuzzing::set_cookie;
use crate::encoding::{BodyEncoding, Error, FREE_BYTES};

/// Most bytes of a body here.
const MOST: u64 = 4 << 20;

/// A body in each of the encodings that are accepted. None becomes more than its bounds allow.
pub fn content_encoding(data: &[u8]) {
    for encoding in [
        BodyEncoding::Gzip,
        BodyEncoding::Deflate,
        BodyEncoding::Brotli,
        BodyEncoding::Zstd,
    ] {
        let bound = FREE_BYTES.max(1_000 * data.len() as u64);
        match encoding.decode(data, MOST) {
            Ok(body) => assert!(body.len() as u64 <= MOST.min(bound)),
            Err(Error::Damaged(reason)) => assert!(!reason.is_empty()),
            Err(Error::Bomb(limit)) => assert!(limit <= MOST),
        }
    }
}

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
    let Some(wait) = crate::retry_after(value, date, now) else {
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
mod tests {
    feedline_testkit::fuzz_replay::replays! { content_encoding retry_after set_cookie }
}
