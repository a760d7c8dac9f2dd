//! Statuses of responses to reads of files that the client of the store has no message for.

use object_store::client::{HttpError, HttpResponse};
use reqwest::{Method, StatusCode};

use super::refused;
use crate::{failed_response::with_body_start, request_policy::RequestPolicy};

/// Statuses that the client of the store classifies or sends the request again for.
const CLASSIFIED: [StatusCode; 7] = [
    StatusCode::UNAUTHORIZED,
    StatusCode::FORBIDDEN,
    StatusCode::NOT_FOUND,
    StatusCode::METHOD_NOT_ALLOWED,
    StatusCode::REQUEST_TIMEOUT,
    StatusCode::PRECONDITION_FAILED,
    StatusCode::TOO_MANY_REQUESTS,
];

/// Returns true for the status of a failure that the client of the store has no message for, and that another try would
/// not change. A removed file (410) is a missing one.
pub(super) fn lacks_message(status: StatusCode) -> bool {
    status.is_client_error() && status != StatusCode::GONE && !CLASSIFIED.contains(&status)
}

/// Refuses a response to a read whose status no other attempt would change, with the status and the start of its body
/// as `policy` shows it. The status of a removed file (410) is changed to that of a missing one. A read of a range may
/// begin behind the end of the file.
///
/// # Errors
/// The status, the server's reason and the remedy.
pub(super) async fn check_status(
    method: &Method,
    has_range: bool,
    mut response: HttpResponse,
    policy: Option<&dyn RequestPolicy>,
) -> Result<HttpResponse, HttpError> {
    let status = response.status();
    if ![Method::GET, Method::HEAD].contains(method) {
        return Ok(response);
    }
    if status == StatusCode::GONE {
        *response.status_mut() = StatusCode::NOT_FOUND;
        return Ok(response);
    }
    let is_past_end = has_range && status == StatusCode::RANGE_NOT_SATISFIABLE;
    if is_past_end || !lacks_message(status) {
        return Ok(response);
    }
    let reason = match policy {
        Some(policy) => policy.excerpt(&with_body_start(response).await.1),
        None => String::new(),
    };
    Err(refused(format!(
        "the server answered {status}{reason}; check the `url` and the `headers` of the source, run again later, or ask the server's owner"
    )))
}

#[cfg(test)]
mod tests {
    use object_store::client::HttpResponseBody;

    use super::*;
    use crate::store_connector::refusal;

    /// The status that the client of the store gets, or the refusal.
    async fn check(method: &Method, has_range: bool, status: u16) -> Result<u16, String> {
        let mut response = HttpResponse::new(HttpResponseBody::from(Vec::new()));
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        let checked = check_status(method, has_range, response, None).await;
        let checked = checked.map(|response| response.status().as_u16());
        checked.map_err(|error| refusal(&error).unwrap())
    }

    #[tokio::test]
    async fn a_status_without_a_message_of_the_store_is_named_with_a_remedy() {
        for method in [Method::GET, Method::HEAD] {
            for status in [400, 402, 407, 409, 416, 418, 423, 451] {
                let reason = check(&method, false, status).await.unwrap_err();
                let start = format!("the server answered {status}");
                assert!(reason.starts_with(&start), "{reason}");
                assert!(reason.contains("check the `url`"), "{reason}");
            }
            for status in [200, 206, 304, 401, 403, 404, 405, 408, 412, 429, 500, 503] {
                assert_eq!(check(&method, false, status).await, Ok(status));
            }
            assert_eq!(check(&method, false, 410).await, Ok(404));
            assert_eq!(check(&method, true, 416).await, Ok(416));
        }
        assert_eq!(check(&Method::PUT, false, 409).await, Ok(409));
        assert_eq!(check(&Method::DELETE, false, 410).await, Ok(410));
    }
}
