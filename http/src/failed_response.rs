//! Bodies of failed responses. A server may quote the request there, with its credentials, and clients quote the body
//! in their errors.

use object_store::client::{HttpResponse, HttpResponseBody};
use reqwest::header::CONTENT_LENGTH;

use crate::secret_masks::SecretMasks;

/// Puts a mask in place of each secret in the body of `response`, if its status is that of a failure. A truncated body
/// becomes empty, so that errors show the status. A body that is no text stays as it is: no error shows it.
pub async fn mask_failed(response: HttpResponse, masks: &SecretMasks) -> HttpResponse {
    let status = response.status();
    let is_failed = status.is_client_error() || status.is_server_error();
    if !is_failed || masks.is_empty() {
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
}
