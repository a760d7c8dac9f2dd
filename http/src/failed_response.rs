//! Bodies of failed responses. A server may quote the request there, with its credentials, and clients quote the body
//! in their errors.

use std::time::Duration;

use futures::StreamExt as _;
use object_store::client::{HttpResponse, HttpResponseBody};
use reqwest::header::CONTENT_LENGTH;
use tokio::time::{Instant, timeout_at};

use crate::secret_masks::SecretMasks;

/// Bytes that are read of the body of a failed response, to show its beginning.
pub(crate) const EXCERPT_BYTES: usize = 2_048;

/// Most bytes that are kept of such a body, and the time limit of reading them.
const KEPT_BYTES: usize = 65_536;
const READ_WITHIN: Duration = Duration::from_secs(5);

fn is_failed(response: &HttpResponse) -> bool {
    let status = response.status();
    status.is_client_error() || status.is_server_error()
}

/// Reads the body of `response`, if its status is that of a failure, and returns its first [`EXCERPT_BYTES`]. The response
/// keeps the start of a long, slow or truncated body, as text: a client does not show the status of other bodies.
pub(crate) async fn with_body_start(response: HttpResponse) -> (HttpResponse, Vec<u8>) {
    if !is_failed(&response) {
        return (response, Vec::new());
    }
    let (mut head, body) = response.into_parts();
    let mut chunks = body.bytes_stream();
    let mut kept = Vec::new();
    let until = Instant::now() + READ_WITHIN;
    while kept.len() <= KEPT_BYTES
        && let Ok(Some(Ok(chunk))) = timeout_at(until, chunks.next()).await
    {
        kept.extend_from_slice(&chunk[..chunk.len().min(KEPT_BYTES + 1 - kept.len())]);
    }
    if kept.len() > KEPT_BYTES {
        // A truncated secret would have no mask.
        let space = kept.iter().rposition(u8::is_ascii_whitespace);
        kept.truncate(space.unwrap_or(0));
    }
    head.headers.remove(CONTENT_LENGTH);
    let body = HttpResponseBody::from(String::from_utf8_lossy(&kept).into_owned());
    kept.truncate(EXCERPT_BYTES);
    (HttpResponse::from_parts(head, body), kept)
}

/// Puts a mask in place of each secret in the body of `response`, if its status is that of a failure. A truncated body
/// becomes empty, so that errors show the status. A body that is no text stays as it is: no error shows it.
pub async fn mask_failed(response: HttpResponse, masks: &SecretMasks) -> HttpResponse {
    if !is_failed(&response) || masks.is_empty() {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let body = body.bytes().await.unwrap_or_default();
    head.headers.remove(CONTENT_LENGTH);
    let body = match str::from_utf8(&body) {
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
        let most = &words[..KEPT_BYTES - 5];
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
            assert_eq!((response.status(), &found[..]), (status, expected));
            assert_eq!(
                response.into_body().bytes().await.unwrap(),
                left,
                "{status}"
            );
        }
        // A longer body without spaces could end inside of a secret.
        let mut response = HttpResponse::new(HttpResponseBody::from(vec![b'x'; KEPT_BYTES + 1]));
        *response.status_mut() = StatusCode::CONFLICT;
        assert_eq!(with_body_start(response).await.1, b"");
    }
}
