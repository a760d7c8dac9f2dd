//! Requests to a token endpoint (RFC 6749), and its responses.

use std::{sync::atomic::Ordering, time::Duration};

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use serde_json::Value;
use url::{Url, form_urlencoded};

use crate::{
    auth::proof::Proof,
    error::Error,
    http_cause::HttpCause,
    redact::redacted,
    retry::failed_try::{Again, Failure},
    transport::Transport,
};

/// Error code of a token endpoint for a refused grant (RFC 6749, section 5.2).
const INVALID_GRANT: &[u8] = b"invalid_grant";

const ADVICE: &str = "check `auth.token_url` and the credentials in `auth`";

/// A token endpoint, and the parts that all requests to it have.
pub(super) struct TokenRequests {
    pub(super) url: Url,
    /// Fields of each request.
    pub(super) form: Vec<(&'static str, String)>,
    pub(super) basic: Proof,
    /// Advice for a refused grant.
    pub(super) advice: &'static str,
}

#[derive(Clone)]
pub(super) struct Token {
    pub(super) proof: Proof,
    /// Expiry on the monotonic clock.
    pub(super) until: Option<Duration>,
}

/// Response of a token endpoint.
pub(super) struct Granted {
    pub(super) token: Token,
    /// Refresh token for the next request.
    pub(super) refresh_token: Option<String>,
}

impl TokenRequests {
    /// Requests a token with one more field; one try.
    pub(super) async fn ask(
        &self,
        transport: &Transport,
        more: Option<(&str, &str)>,
    ) -> Result<Granted, Failure> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(CONTENT_TYPE, kind);
        self.basic.sign(&mut headers);
        let form = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(&self.form)
            .extend_pairs(more)
            .finish();
        transport.requests.fetch_add(1, Ordering::Relaxed);
        let client = transport.client(&self.url).await?;
        let request = client.post(self.url.clone()).headers(headers);
        let response = request.body(form).send().await;
        let response = response.map_err(|e| transport.broken(&self.url, e))?;
        if !response.status().is_success() {
            let refused = transport.refused_with_start(&self.url, response).await;
            return Err(self.refusal(refused));
        }
        let body = transport.whole(&self.url, response).await?;
        self.read(transport, &body).map_err(|reason| Failure {
            error: Box::new(Error::Body {
                url: redacted(&self.url),
                reason,
            }),
            again: Again::Backoff,
        })
    }

    /// Adds the cause and the advice to a refusal, by the start of its body.
    fn refusal(&self, (mut failure, body): (Failure, Vec<u8>)) -> Failure {
        // Here these statuses mean wrong credentials, not a missing page.
        if matches!(failure.again, Again::Gone | Again::Absent) {
            failure.again = Again::Never;
        }
        let Error::Http { cause, advice, .. } = &mut *failure.error else {
            return failure;
        };
        if let HttpCause::Status(status) = *cause
            && names_invalid_grant(&body)
        {
            *cause = HttpCause::InvalidGrant(status);
        }
        if failure.again == Again::Never {
            let own = match cause {
                HttpCause::InvalidGrant(_) => self.advice,
                _ => ADVICE,
            };
            own.clone_into(advice);
        }
        failure
    }

    /// Reads the token of a response (RFC 6749, section 5.1). Messages quote nothing of the body.
    fn read(&self, transport: &Transport, body: &[u8]) -> Result<Granted, String> {
        let body = body.strip_prefix("\u{feff}".as_bytes()).unwrap_or(body);
        let document: Value =
            serde_json::from_slice(body).map_err(|reason| format!("it is no JSON: {reason}"))?;
        let Some(text) = document["access_token"].as_str() else {
            return Err("it has no text at `access_token`; check `auth.token_url`".into());
        };
        if let Some(kind) = document["token_type"].as_str()
            && !kind.eq_ignore_ascii_case("bearer")
        {
            return Err("its `token_type` is not `bearer`, the only one that is understood".into());
        }
        let seconds = match &document["expires_in"] {
            Value::String(seconds) => seconds.parse().ok(),
            seconds => seconds.as_u64(),
        };
        transport.secretive.add_late(text);
        let proof = Proof::bearer(text).map_err(|reason| format!("its token {reason}"))?;
        // A token may expire while a request is in flight, so it is replaced a little earlier.
        let until = seconds.map(|seconds| {
            let used = Duration::from_secs(seconds - (seconds / 10).min(60));
            transport.clock.monotonic().saturating_add(used)
        });
        let refresh_token = document["refresh_token"].as_str();
        Ok(Granted {
            token: Token { proof, until },
            refresh_token: refresh_token
                .filter(|text| !text.is_empty())
                .map(str::to_owned),
        })
    }
}

/// Returns true if the body of a refusal has the error code, in the document of the RFC or in one of
/// the server's own form.
fn names_invalid_grant(body: &[u8]) -> bool {
    body.windows(INVALID_GRANT.len())
        .any(|part| part == INVALID_GRANT)
}
