//! Classification of failures: transient or permanent, and the advice for them.

use reqwest::StatusCode;
use url::Url;

use crate::{
    error::Error,
    hosts::Quota,
    http_cause::HttpCause,
    redact::redacted,
    retry::failed_try::{Again, Failure},
};

/// Beginning of the message about a response; its status follows.
pub(crate) const ANSWERED: &str = "the server answered";

/// Advice for a failed connection to a host that data lead to.
pub(crate) const PROXY_ADVICE: &str = "the host comes from data, so it is requested without the proxy of the environment; if it is only reachable through that, set the source's `trust_proxy = true`, otherwise check that it is up, or run again later";

pub(crate) const PUBLIC_ADVICE: &str = "name it in the source's `private_hosts` if data may lead to it (for the files of rows, `fetch.private` lets them all in)";

pub(crate) const ENCODING_ADVICE: &str =
    "only one of gzip, br, zstd and deflate is supported; ask the server's owner";

pub(crate) const BODY_ADVICE: &str =
    "request smaller pages, or raise `retry.max_body_bytes` if the size is right";

/// Failures of a handshake in which a server refuses the certificate of this client or its absence.
const REFUSALS: [&str; 8] = [
    "CertificateRequired",
    "BadCertificate",
    "UnsupportedCertificate",
    "CertificateRevoked",
    "CertificateExpired",
    "CertificateUnknown",
    "UnknownCA",
    "AccessDenied",
];

pub(crate) const REFUSAL_ADVICE: &str =
    "check `tls.client_cert` and `tls.client_key`: the server wants a certificate that it accepts";

/// A failure that may be gone at the next try.
pub(crate) fn transient(url: &Url, what: String) -> Failure {
    let advice = "check that the server is up and reachable, or run again later";
    Failure {
        again: Again::Backoff,
        ..terminal(url, what, advice)
    }
}

/// A response with this status that may be another one at the next try.
pub(crate) fn transient_response(
    url: &Url,
    status: StatusCode,
    quota: Option<Quota>,
    what: String,
) -> Failure {
    let is_limit = status == StatusCode::TOO_MANY_REQUESTS || is_used_up(status, quota);
    let advice = match is_limit {
        true => {
            "the server limits requests: run again later, or lower the source's `limits.requests_per_s`"
        }
        false => "run again later, or ask the server's owner",
    };
    Failure {
        again: Again::Backoff,
        ..terminal(url, what, advice)
    }
}

/// A permanent failure.
pub(crate) fn terminal(url: &Url, what: impl Into<String>, advice: impl Into<String>) -> Failure {
    let error = Error::Http {
        url: redacted(url),
        cause: HttpCause::Other,
        what: what.into(),
        advice: advice.into(),
    };
    Failure {
        error: Box::new(error),
        again: Again::Never,
    }
}

pub(crate) fn advice(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 | 403 | 407 => {
            "check the credentials in the source's `auth` or `headers` and their permissions"
        }
        404 | 410 => "check the source's `url`",
        _ => "check the source's `url`, `params`, `headers` and `pagination`",
    }
}

pub(crate) fn is_transient(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 429)
        || status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED
}

/// Returns true if a refusal means that the quota is used up. Some servers use 403 for that.
pub(crate) fn is_used_up(status: StatusCode, quota: Option<Quota>) -> bool {
    status == StatusCode::FORBIDDEN && quota.is_some_and(|quota| quota.left == 0)
}

/// Returns true if one of the causes of `error` has this text. It is for errors of hyper and hyper-util whose types are
/// private: a ping without a response, and a tunnel through a proxy that fails.
pub(crate) fn has_cause(error: &reqwest::Error, text: &str) -> bool {
    let mut causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| {
        error.source()
    });
    causes.any(|cause| cause.to_string() == text)
}

/// Innermost cause, which names the problem; outer layers only name the place. None of them shows
/// the URL.
pub(crate) fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    if std::ptr::addr_eq(cause, error) {
        "no further details".into()
    } else {
        cause.to_string()
    }
}

/// Returns true if this client does not trust the certificate of a server, by the cause of a failure. It is a text of
/// rustls, whose types belong to the version that reqwest chooses.
pub(crate) fn is_untrusted(cause: &str) -> bool {
    cause.contains("invalid peer certificate")
}

/// Returns true if a server has refused the certificate of this client, by the cause of a failure: a text of rustls, as
/// in [`is_untrusted`].
pub(crate) fn is_refusal(cause: &str) -> bool {
    let alert = cause.split_once("received fatal alert: ");
    alert.is_some_and(|(_, alert)| REFUSALS.contains(&alert.trim()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_server_that_responded_is_not_doubted() {
        let url = Url::parse("http://h/").unwrap();
        let quota = Some(Quota {
            left: 0,
            reset: Duration::ZERO,
        });
        for (status, quota, advice) in [
            (429, None, "`limits.requests_per_s`"),
            (403, quota, "`limits.requests_per_s`"),
            (503, None, "run again later, or ask"),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let failure = transient_response(&url, status, quota, "no".to_owned());
            let text = failure.error.to_string();
            assert!(text.contains(advice), "{text}");
            assert!(!text.contains("is up"), "{text}");
        }
    }
}
