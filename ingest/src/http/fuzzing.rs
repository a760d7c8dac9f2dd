//! Fuzz targets of the parts of a response.

#![expect(
    clippy::missing_panics_doc,
    reason = "a panic is the finding of a target"
)]

pub use super::auth::fuzzing::set_cookie;
use super::encoding::{BodyEncoding, Error, FREE_BYTES};

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
