//! Target of a redirect.

use reqwest::{
    Method, StatusCode,
    header::{HeaderMap, LOCATION},
};
use url::Url;

use crate::{
    classification::terminal, location::redirected, redact::redacted, request::Request,
    retry::failed_try::Failure,
};

/// Returns the target of a redirect response of `from`; `None` for other responses.
///
/// # Errors
/// A redirect that is not followed.
pub(crate) fn target(
    from: &Url,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<Option<Url>, Failure> {
    let location = headers.get(LOCATION).and_then(|value| value.to_str().ok());
    redirected(from, status.as_u16(), location)
        .map_err(|what| terminal(from, what, "set the source's `url` to the final URL"))
}

/// Refuses to send a request with a body to `next`, where `status` turns it into a GET or another
/// server would receive its body.
pub(crate) fn check_resent(from: &Request, status: StatusCode, next: &Url) -> Result<(), Failure> {
    if from.method == Method::GET {
        return Ok(());
    }
    let keeps = matches!(status.as_u16(), 307 | 308);
    if keeps && from.url.origin() == next.origin() {
        return Ok(());
    }
    let (method, next) = (&from.method, redacted(next));
    let what = if keeps {
        format!("it redirects a {method} to another server, `{next}`, which would receive its body")
    } else {
        format!(
            "it redirects a {method} to `{next}` with status {status}, after which a GET follows"
        )
    };
    let advice = "set the source's `url` to that URL if it belongs to the API";
    Err(terminal(&from.url, what, advice))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        from: &str,
        status: u16,
        location: Option<&str>,
        expected: Result<Option<&str>, &str>,
    ) {
        let headers = location.map(|location| (LOCATION, location.parse().unwrap()));
        let headers = HeaderMap::from_iter(headers);
        match target(
            &Url::parse(from).unwrap(),
            StatusCode::from_u16(status).unwrap(),
            &headers,
        ) {
            Ok(next) => assert_eq!(Ok(next.as_ref().map(Url::as_str)), expected),
            Err(failure) => {
                let part = expected.expect_err("a refusal");
                assert!(
                    failure.error.to_string().contains(part),
                    "{}",
                    failure.error
                );
            }
        }
    }

    #[test]
    fn fault_21_redirects_lead_on_within_http_and_never_from_https_to_http() {
        let secure = "https://a.example/v1/x?k=1";
        check(secure, 200, Some("/y"), Ok(None));
        check(secure, 304, Some("/y"), Ok(None));
        check(secure, 301, Some("y"), Ok(Some("https://a.example/v1/y")));
        check(
            secure,
            302,
            Some("//b.example"),
            Ok(Some("https://b.example/")),
        );
        check(
            "http://a.example",
            303,
            Some("https://a.example/"),
            Ok(Some("https://a.example/")),
        );
        check(
            "http://a.example",
            307,
            Some("http://b.example/"),
            Ok(Some("http://b.example/")),
        );
        check(
            secure,
            308,
            Some("http://a.example/"),
            Err("from `https` to `http`"),
        );
        for place in ["file:///etc/passwd", "ftp://host/", "data:text/plain,x"] {
            check(secure, 302, Some(place), Err("which is not followed"));
        }
        check(secure, 302, Some("http://"), Err("no readable place"));
        check(secure, 302, None, Err("no readable place"));
    }
}
