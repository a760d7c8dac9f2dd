//! Rules for the requests of a store over http, kept by its caller.

use std::fmt::{self, Debug};

use async_trait::async_trait;
use futures::future::BoxFuture;
use object_store::client::{HttpError, HttpErrorKind, HttpResponse};
use reqwest::{Method, header::HeaderMap};
use url::Url;

use crate::{failed_response::BodyStart, secret_masks::SecretMasks};

/// Sends one request with these credentials, as often as it is called.
pub type SendOnce<'s> = dyn Fn(TryCredentials) -> BoxFuture<'s, Sent> + Send + Sync + 's;

/// Credentials of one try of a request. Default: none.
#[derive(Clone, Default)]
pub struct TryCredentials {
    /// Headers beside those of the request.
    pub headers: HeaderMap,
    /// URL with credentials in its query. Default: the URL of the request.
    pub url: Option<Url>,
}

impl Debug for TryCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TryCredentials").finish_non_exhaustive()
    }
}

/// Head of a response, or the failure of a request.
#[derive(Clone, Debug)]
pub enum Sent {
    /// A response.
    Response {
        /// Its status.
        status: u16,
        /// Its headers.
        headers: HeaderMap,
        /// Start of its body, if it is a failure.
        body_start: BodyStart,
    },
    /// No response, or one with a truncated body.
    Failed {
        /// Reason.
        reason: String,
        /// True if another try could succeed.
        is_transient: bool,
    },
}

/// Rates, waits, retries and credentials of requests that share hosts with other requests.
///
/// ```
/// use async_trait::async_trait;
/// use feedline_http::{RequestPolicy, SendOnce, Sent, TryCredentials};
/// use reqwest::Method;
/// use url::Url;
///
/// /// Sends every request twice if the first has no response.
/// #[derive(Debug)]
/// struct Twice;
///
/// #[async_trait]
/// impl RequestPolicy for Twice {
///     async fn send(&self, _: &Method, _: &Url, once: &SendOnce<'_>) -> Result<(), String> {
///         for _ in 0..2 {
///             match once(TryCredentials::default()).await {
///                 Sent::Response { .. } => return Ok(()),
///                 Sent::Failed { .. } => {}
///             }
///         }
///         Err("it failed twice".to_owned())
///     }
/// }
/// ```
#[async_trait]
pub trait RequestPolicy: Debug + Send + Sync {
    /// Sends a request to `url`: waits until it may be sent, calls `once` with the credentials for
    /// that URL, and calls it again as often as the policy retries. The last response is the store's,
    /// with its complete body.
    ///
    /// # Errors
    /// The reason and remedy. The store does not retry then.
    async fn send(&self, method: &Method, url: &Url, once: &SendOnce<'_>) -> Result<(), String>;

    /// Secrets of the requests so far: a response that repeats one is shown with a mask. Default: none.
    fn secret_masks(&self) -> SecretMasks {
        SecretMasks::default()
    }

    /// Returns ``: `start of a body` `` for an error, on one line and with masked secrets; nothing for a body that is
    /// no text. Default: no body is shown.
    fn excerpt(&self, _body_start: &BodyStart) -> String {
        String::new()
    }
}

impl Sent {
    /// The head of an outcome, whose body begins with `body_start` if it is a failure.
    pub(crate) fn of(
        outcome: &Result<HttpResponse, HttpError>,
        body_start: BodyStart,
        is_refused: bool,
    ) -> Self {
        match outcome {
            Ok(response) => Self::Response {
                status: response.status().as_u16(),
                headers: response.headers().clone(),
                body_start,
            },
            Err(error) => Self::Failed {
                reason: innermost(error),
                is_transient: !is_refused && error.kind() != HttpErrorKind::Decode,
            },
        }
    }
}

/// Innermost cause, which names the problem. None shows the URL.
pub(crate) fn innermost(error: &HttpError) -> String {
    let first: &dyn std::error::Error = error;
    let causes = std::iter::successors(Some(first), |error| error.source());
    causes.last().map(ToString::to_string).unwrap_or_default()
}
