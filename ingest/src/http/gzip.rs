//! Decompression with a limit.

use std::io::Read;

use flate2::bufread::MultiGzDecoder;

/// Any body may inflate to this many bytes, as far as the configured limit allows.
const FREE_BYTES: u64 = 1 << 20;
/// A larger body may inflate to this many times its size. JSON stays far below; a bomb is at 1,000.
const MAX_RATIO: u64 = 200;

#[derive(Debug, PartialEq)]
pub(super) enum Error {
    /// It is not gzip, ends early, or its checksum is wrong.
    Damaged(String),
    /// It inflates to more than this many bytes.
    Bomb(u64),
}

/// Decompresses `body` to at most `max_bytes`; memory stays below that.
pub(super) fn gunzip(body: &[u8], max_bytes: u64) -> Result<Vec<u8>, Error> {
    let limit = max_bytes.min(
        (body.len() as u64)
            .saturating_mul(MAX_RATIO)
            .max(FREE_BYTES),
    );
    let mut out = Vec::new();
    let mut limited = MultiGzDecoder::new(body).take(limit.saturating_add(1));
    limited
        .read_to_end(&mut out)
        .map_err(|e| Error::Damaged(e.to_string()))?;
    if out.len() as u64 > limit {
        Err(Error::Bomb(limit))
    } else {
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::testing::gzip;

    #[test]
    fn a_body_comes_back_and_a_damaged_one_is_refused() {
        let zipped = gzip(b"{\"a\":1}");
        assert_eq!(gunzip(&zipped, 100), Ok(b"{\"a\":1}".to_vec()));
        assert!(matches!(
            gunzip(&zipped[..zipped.len() - 1], 100),
            Err(Error::Damaged(_))
        ));
        assert!(matches!(gunzip(b"{}", 100), Err(Error::Damaged(_))));
        assert!(matches!(gunzip(b"", 100), Err(Error::Damaged(_))));
    }

    #[test]
    fn fault_22_a_bomb_is_stopped_by_size_and_by_ratio() {
        let bomb = gzip(&vec![b' '; 16 << 20]);
        assert_eq!(gunzip(&bomb, 1_000), Err(Error::Bomb(1_000)));
        let by_ratio = bomb.len() as u64 * MAX_RATIO;
        assert!(by_ratio > FREE_BYTES && by_ratio < 16 << 20);
        assert_eq!(gunzip(&bomb, u64::MAX), Err(Error::Bomb(by_ratio)));
        let small = gzip(&vec![b' '; 1 << 20]);
        assert_eq!(gunzip(&small, u64::MAX).map(|out| out.len()), Ok(1 << 20));
    }
}
