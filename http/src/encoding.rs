//! Encodings of bodies (RFC 9110, section 8.4), decompressed with a limit.

use std::io::Read;

use brotli_decompressor::Decompressor;
use flate2::{Decompress, FlushDecompress, Status, bufread::MultiGzDecoder};
use reqwest::header::{CONTENT_ENCODING, HeaderMap};
use zstd::stream::read::Decoder;

/// `Accept-Encoding`. `deflate` is understood but not requested: servers disagree on its format.
pub(crate) const ACCEPTED: &str = "gzip, br, zstd";
/// Any body may inflate to this many bytes, as far as the configured limit allows.
pub(crate) const FREE_BYTES: u64 = 1 << 20;
/// A larger window is refused, as browsers do (RFC 9659): it is memory for a body of any size.
const ZSTD_WINDOW_LOG: u32 = 23;
const BUFFER_BYTES: usize = 64 << 10;

#[derive(Debug, PartialEq)]
pub(crate) enum Error {
    /// It has another format, ends early, or its checksum is wrong.
    Damaged(String),
    /// It inflates to more than this many bytes.
    Bomb(u64),
}

/// Encoding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyEncoding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

impl BodyEncoding {
    /// Encoding that the headers of a response name; `None` for a body that is not encoded.
    ///
    /// # Errors
    /// The header, if it names an unknown encoding or more than one.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Option<Self>, String> {
        let values = headers.get_all(CONTENT_ENCODING).iter();
        let values: Vec<_> = values
            .map(|value| String::from_utf8_lossy(value.as_bytes()))
            .collect();
        let all = values.join(", ");
        let names = all.split(',').map(|name| name.trim().to_ascii_lowercase());
        let mut names = names.filter(|name| !name.is_empty() && name != "identity");
        let encoding = match names.next().as_deref() {
            None => return Ok(None),
            Some("gzip" | "x-gzip") => Self::Gzip,
            Some("deflate") => Self::Deflate,
            Some("br") => Self::Brotli,
            Some("zstd") => Self::Zstd,
            Some(_) => return Err(all),
        };
        match names.next() {
            None => Ok(Some(encoding)),
            Some(_) => Err(all),
        }
    }

    /// Name for messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Brotli => "brotli",
            Self::Zstd => "zstd",
        }
    }

    /// A larger body may inflate to this many times its size. JSON stays far below; a bomb is at
    /// 1,000 with gzip and deflate, and above 10,000 with the others.
    fn max_ratio(self) -> u64 {
        match self {
            Self::Gzip | Self::Deflate => 200,
            Self::Brotli | Self::Zstd => 1_000,
        }
    }

    /// Decompresses `body` to at most `max_bytes`; memory stays below that and a window.
    pub(crate) fn decode(self, body: &[u8], max_bytes: u64) -> Result<Vec<u8>, Error> {
        let by_ratio = (body.len() as u64).saturating_mul(self.max_ratio());
        let limit = max_bytes.min(by_ratio.max(FREE_BYTES));
        let damaged = |e: std::io::Error| Error::Damaged(e.to_string());
        if body.is_empty() {
            return Err(Error::Damaged("it is empty".into()));
        }
        match self {
            Self::Gzip => read(MultiGzDecoder::new(body), limit, damaged),
            Self::Deflate => inflate(body, limit),
            Self::Brotli if has_large_window(body) => {
                Err(Error::Damaged("its window is larger than 16 MiB".into()))
            }
            // The library has one error for all faults.
            Self::Brotli => read(Decompressor::new(body, BUFFER_BYTES), limit, |_| {
                Error::Damaged("it ends early or is corrupt".into())
            }),
            Self::Zstd => {
                let mut decoder = Decoder::with_buffer(body).map_err(damaged)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG).map_err(damaged)?;
                read(decoder, limit, damaged)
            }
        }
    }
}

fn read(
    decoder: impl Read,
    limit: u64,
    damaged: impl Fn(std::io::Error) -> Error,
) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    let mut limited = decoder.take(limit.saturating_add(1));
    limited.read_to_end(&mut out).map_err(damaged)?;
    within(out, limit)
}

fn within(out: Vec<u8>, limit: u64) -> Result<Vec<u8>, Error> {
    if out.len() as u64 > limit {
        Err(Error::Bomb(limit))
    } else {
        Ok(out)
    }
}

/// Decompresses `deflate`: in the zlib format, as the standard has it, or raw, as some servers do.
/// The reader of the library would take a truncated body for a short one.
fn inflate(body: &[u8], limit: u64) -> Result<Vec<u8>, Error> {
    let is_zlib = match body {
        [first, second, ..] => {
            first & 0x0f == 8 && (u16::from(*first) << 8 | u16::from(*second)) % 31 == 0
        }
        _ => false,
    };
    let mut state = Decompress::new(is_zlib);
    let mut out = Vec::new();
    while out.len() as u64 <= limit {
        let (read, written) = (state.total_in(), out.len());
        let rest = usize::try_from(read).ok().and_then(|at| body.get(at..));
        out.reserve(BUFFER_BYTES);
        let status =
            state.decompress_vec(rest.unwrap_or_default(), &mut out, FlushDecompress::None);
        match status {
            Ok(Status::StreamEnd) => return within(out, limit),
            Ok(_) if state.total_in() > read || out.len() > written => {}
            Ok(_) => return Err(Error::Damaged("it ends early".into())),
            Err(e) => return Err(Error::Damaged(e.to_string())),
        }
    }
    Err(Error::Bomb(limit))
}

/// Returns true if a brotli stream is of the variant with a window of up to 1 GiB, which HTTP does
/// not have.
fn has_large_window(body: &[u8]) -> bool {
    body.first().is_some_and(|first| first & 0x7f == 0x11)
}

/// Decompresses a gzip file.
pub(crate) fn gunzip(body: &[u8], max_bytes: u64) -> Result<Vec<u8>, Error> {
    BodyEncoding::Gzip.decode(body, max_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ENCODINGS, encode};

    fn all() -> impl Iterator<Item = (BodyEncoding, &'static str)> {
        ENCODINGS.into_iter().map(|name| {
            let headers = [(CONTENT_ENCODING, name.parse().unwrap())];
            let encoding = BodyEncoding::of(&HeaderMap::from_iter(headers)).unwrap();
            (encoding.unwrap(), name)
        })
    }

    #[test]
    fn a_body_comes_back_and_a_damaged_one_is_refused() {
        let text = br#"[{"id":1,"name":"feedline"},{"id":2,"name":"feedline"}]"#.as_slice();
        for (encoding, name) in all() {
            let packed = encode(name, text);
            assert_ne!(packed, text);
            assert_eq!(encoding.decode(&packed, 100), Ok(text.to_vec()), "{name}");
            for kept in 0..packed.len() {
                let cut = encoding.decode(&packed[..kept], 100);
                assert!(
                    matches!(cut, Err(Error::Damaged(_))),
                    "{name} {kept}: {cut:?}"
                );
            }
            let plain = encoding.decode(b"{\"a\":1}", 100);
            assert!(matches!(plain, Err(Error::Damaged(_))), "{name}: {plain:?}");
        }
    }

    #[test]
    fn deflate_is_read_with_and_without_the_zlib_format() {
        let mut raw = flate2::write::DeflateEncoder::new(Vec::new(), Default::default());
        std::io::Write::write_all(&mut raw, b"[1, 2, 3]").unwrap();
        let raw = raw.finish().unwrap();
        let decode = |body: &[u8]| BodyEncoding::Deflate.decode(body, 100);
        assert_eq!(decode(&raw), Ok(b"[1, 2, 3]".to_vec()));
        assert!(matches!(
            decode(&raw[..raw.len() - 1]),
            Err(Error::Damaged(_))
        ));
    }

    #[test]
    fn fault_22_a_bomb_is_stopped_by_size_and_by_ratio() {
        for (encoding, name) in all() {
            let bomb = encode(name, &vec![b' '; 16 << 20]);
            assert_eq!(encoding.decode(&bomb, 1_000), Err(Error::Bomb(1_000)));
            let by_ratio = (bomb.len() as u64 * encoding.max_ratio()).max(FREE_BYTES);
            assert!(by_ratio < 16 << 20, "{name}: {by_ratio}");
            let stopped = encoding.decode(&bomb, u64::MAX);
            assert_eq!(stopped, Err(Error::Bomb(by_ratio)), "{name}");
            let small = encode(name, &vec![b' '; 1 << 20]);
            let small = encoding.decode(&small, u64::MAX).map(|out| out.len());
            assert_eq!(small, Ok(1 << 20), "{name}");
        }
    }

    #[test]
    fn fault_22_a_window_larger_than_the_web_allows_is_refused() {
        // A frame of 20 bytes that asks for a window of 128 MiB.
        let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, (27 - 10) << 3];
        frame.extend_from_slice(&[0x01, 0x00, 0x00]);
        let zstd = BodyEncoding::Zstd.decode(&frame, 100);
        assert!(matches!(zstd, Err(Error::Damaged(_))), "{zstd:?}");
        frame[5] = (23 - 10) << 3;
        assert_eq!(BodyEncoding::Zstd.decode(&frame, 100), Ok(vec![]));
        let brotli = BodyEncoding::Brotli.decode(&[0x11, 0x1e, 0x03], 100);
        let reason = "its window is larger than 16 MiB";
        assert_eq!(brotli, Err(Error::Damaged(reason.into())));
    }

    #[test]
    fn one_known_encoding_is_accepted_in_any_spelling() {
        let of = |values: &[&str]| {
            let values = values.iter().map(|value| (CONTENT_ENCODING, *value));
            let values = values.map(|(name, value)| (name, value.parse().unwrap()));
            let mut headers = HeaderMap::new();
            values.for_each(|(name, value)| {
                headers.append(name, value);
            });
            BodyEncoding::of(&headers)
        };
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&["", "identity"]), Ok(None));
        assert_eq!(of(&[" GZIP "]), Ok(Some(BodyEncoding::Gzip)));
        assert_eq!(of(&["identity, br"]), Ok(Some(BodyEncoding::Brotli)));
        assert_eq!(of(&["compress"]), Err("compress".into()));
        assert_eq!(of(&["gzip", "br"]), Err("gzip, br".into()));
        assert_eq!(of(&["gzip, snappy"]), Err("gzip, snappy".into()));
    }
}
