//! Bodies of failed responses. A server may quote the request there, with its credentials, and clients quote the body
//! in their errors.

use std::time::Duration;

use futures::StreamExt as _;
use object_store::client::{HttpResponse, HttpResponseBody};
use reqwest::header::CONTENT_LENGTH;
use tokio::time::{Instant, timeout_at};

use crate::secret_masks::{SecretMasks, without_split_char};

/// Bytes that are read of the body of a failed response, to show its beginning.
pub(crate) const EXCERPT_BYTES: usize = 2_048;

/// Most bytes that are kept of such a body, and the time limit of reading them.
const KEPT_BYTES: usize = 65_536;
const READ_WITHIN: Duration = Duration::from_secs(5);

/// Start of the body of a failed response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BodyStart {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// True if more may have followed them: their end may have split a secret.
    pub is_truncated: bool,
}

/// Mark of a response whose body is the start of a longer one.
#[derive(Clone, Copy, Debug)]
struct HasStartAlone;

fn is_failed(response: &HttpResponse) -> bool {
    let status = response.status();
    status.is_client_error() || status.is_server_error()
}

/// Reads the body of `response`, if its status is that of a failure, and returns its first [`EXCERPT_BYTES`]. The response
/// keeps the start of a long, slow or truncated body, as text: a client does not show the status of other bodies.
pub(crate) async fn with_body_start(response: HttpResponse) -> (HttpResponse, BodyStart) {
    if !is_failed(&response) {
        return (response, BodyStart::default());
    }
    let (mut head, body) = response.into_parts();
    let mut chunks = body.bytes_stream();
    let mut kept = Vec::new();
    let until = Instant::now() + READ_WITHIN;
    let is_all = loop {
        match timeout_at(until, chunks.next()).await {
            Ok(Some(Ok(chunk))) => {
                let most = KEPT_BYTES - kept.len();
                kept.extend_from_slice(&chunk[..chunk.len().min(most)]);
                if chunk.len() > most {
                    break false;
                }
            }
            Ok(None) => break true,
            Ok(Some(Err(_))) | Err(_) => break false,
        }
    };
    let is_truncated = !is_all || head.extensions.get::<HasStartAlone>().is_some();
    if is_truncated {
        // A split character would become another one, behind a part of a secret.
        kept.truncate(without_split_char(&kept).len());
        head.extensions.insert(HasStartAlone);
    }
    head.headers.remove(CONTENT_LENGTH);
    let body = HttpResponseBody::from(String::from_utf8_lossy(&kept).into_owned());
    let is_truncated = is_truncated || kept.len() > EXCERPT_BYTES;
    kept.truncate(EXCERPT_BYTES);
    let start = BodyStart {
        bytes: kept,
        is_truncated,
    };
    (HttpResponse::from_parts(head, body), start)
}

/// Puts a mask in place of each secret in the body of `response`, if its status is that of a failure. The start of a longer
/// body also loses its end from a secret on that it may have split. A truncated body becomes empty, so that errors show
/// the status. A body that is no text stays as it is: no error shows it.
pub async fn mask_failed(response: HttpResponse, masks: &SecretMasks) -> HttpResponse {
    if !is_failed(&response) || masks.is_empty() {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let body = body.bytes().await.unwrap_or_default();
    head.headers.remove(CONTENT_LENGTH);
    let has_start_alone = head.extensions.get::<HasStartAlone>().is_some();
    let body = match str::from_utf8(&body) {
        Ok(start) if has_start_alone => HttpResponseBody::from(masks.mask_start(start)),
        Ok(text) => HttpResponseBody::from(masks.mask(text)),
        Err(_) => HttpResponseBody::from(body),
    };
    HttpResponse::from_parts(head, body)
}

#[cfg(test)]
mod tests {
    use reqwest::StatusCode;

    use super::*;

    async fn check(status: StatusCode, body: &[u8], expected: &[u8]) {
        let masks = SecretMasks::of(vec!["canary/0123".to_owned()]);
        let mut response = HttpResponse::new(HttpResponseBody::from(body.to_vec()));
        *response.status_mut() = status;
        let masked = mask_failed(response, &masks).await;
        assert_eq!(masked.status(), status);
        assert_eq!(masked.into_body().bytes().await.unwrap(), expected);
    }

    #[tokio::test]
    async fn the_body_of_a_failure_has_a_mask_where_a_secret_was() {
        let body = br#"refused: Bearer canary/0123, {"a":"canary\/0123"}"#;
        let masked = br#"refused: Bearer ***, {"a":"***"}"#;
        for status in [
            StatusCode::BAD_REQUEST,
            StatusCode::FORBIDDEN,
            StatusCode::SERVICE_UNAVAILABLE,
        ] {
            check(status, body, masked).await;
        }
        check(StatusCode::FORBIDDEN, b"\xff\0", b"\xff\0").await;
        check(StatusCode::OK, body, body).await;
    }

    #[tokio::test]
    async fn the_start_of_the_body_of_a_failure_is_read_and_no_other_body() {
        let long = vec![b'x'; EXCERPT_BYTES + 1];
        let start = &long[..EXCERPT_BYTES];
        let (short, latin) = (&b"gone"[..], &b"caf\xe9"[..]);
        let words = "caf\u{e9} ".repeat(KEPT_BYTES / 5).into_bytes();
        // The last character is split.
        let most = &words[..KEPT_BYTES - 1];
        for (status, body, expected, left) in [
            (StatusCode::CONFLICT, short, short, short),
            (StatusCode::BAD_GATEWAY, &long[..], start, &long[..]),
            (
                StatusCode::NOT_FOUND,
                &words[..],
                &words[..EXCERPT_BYTES],
                most,
            ),
            (
                StatusCode::FORBIDDEN,
                latin,
                latin,
                "caf\u{fffd}".as_bytes(),
            ),
            (StatusCode::OK, &long[..], &start[..0], &long[..]),
        ] {
            let mut response = HttpResponse::new(HttpResponseBody::from(body.to_vec()));
            *response.status_mut() = status;
            let (response, found) = with_body_start(response).await;
            assert_eq!((response.status(), &found.bytes[..]), (status, expected));
            assert_eq!(found.is_truncated, expected.len() == EXCERPT_BYTES);
            assert_eq!(
                response.into_body().bytes().await.unwrap(),
                left,
                "{status}"
            );
        }
    }

    #[tokio::test]
    async fn the_start_of_a_long_body_without_spaces_has_no_part_of_a_secret_that_its_end_splits() {
        let masks = SecretMasks::of(vec!["canary/0123".to_owned()]);
        for (secret, kept) in [
            ("canary/0123", 1),
            ("canary/0123", 10),
            (r"canary\/0123", 7),
            ("canary%2F0123", 8),
        ] {
            let shown = vec![b'x'; KEPT_BYTES - kept];
            let body = [&shown[..], secret.as_bytes(), b"xxxxxxxxx"].concat();
            let mut response = HttpResponse::new(HttpResponseBody::from(body));
            *response.status_mut() = StatusCode::CONFLICT;
            let (response, start) = with_body_start(response).await;
            assert_eq!(start.bytes, &shown[..EXCERPT_BYTES]);
            // It is masked after it was read once more.
            let (response, start) = with_body_start(response).await;
            assert!(start.is_truncated);
            let masked = mask_failed(response, &masks).await;
            let found = masked.into_body().bytes().await.unwrap();
            assert_eq!(found.len(), shown.len(), "{secret}, {kept}");
        }
    }
}
