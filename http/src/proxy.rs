//! Failures of the proxy from the environment. Its URL may have a password, so none is shown.

use reqwest::{StatusCode, header::HeaderMap};
use url::Url;

use crate::{
    classification::{has_cause, root_cause, terminal},
    retry::failed_try::{Again, Failure},
};

/// Headers of a response that a proxy has made itself (RFC 9209, and squid's).
const OF_PROXY: [&str; 2] = ["proxy-status", "x-squid-error"];
const CREDENTIALS: &str =
    "check the user and the password in the URL of the proxy (`HTTPS_PROXY` or `HTTP_PROXY`)";
const ACCESS: &str = "the refusal comes from the proxy of the environment, not from the server: check that it allows this host, or name the host in `NO_PROXY`";

/// Advice for a refusal by a proxy; `None` for a response of the server.
pub(crate) fn advice(status: StatusCode, headers: &HeaderMap) -> Option<&'static str> {
    if status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
        return Some(CREDENTIALS);
    }
    let is_by_proxy = OF_PROXY.iter().any(|name| headers.contains_key(*name));
    is_by_proxy.then_some(ACCESS)
}

/// Failure of a proxy to connect to the host of `url`; `None` for other errors.
pub(crate) fn failure(url: &Url, error: &reqwest::Error) -> Option<Failure> {
    let is = |kind: &str| has_cause(error, &format!("tunnel error: {kind}"));
    if is("proxy authorization required") {
        let what = "the proxy of the environment refused to connect (status 407)";
        return Some(terminal(url, what, CREDENTIALS));
    }
    let (what, advice) = if is("failed to create underlying connection") {
        (
            format!(
                "cannot connect to the proxy of the environment: {}",
                root_cause(error)
            ),
            "check the host and the port in the URL of the proxy (`HTTPS_PROXY`) and that it is up",
        )
    } else if is("unsuccessful") || is("unexpected end of file") {
        let what = "the proxy of the environment did not connect to the host";
        let advice = "check that it allows this host and port and can reach it, or name the host in `NO_PROXY`";
        (what.to_owned(), advice)
    } else {
        return None;
    };
    Some(Failure {
        again: Again::Unprocessed,
        ..terminal(url, what, advice)
    })
}
