//! Requests of a `files` source over http: they take turns at their host with those of other
//! sources, wait as long as it asks for, are repeated as `retry` says, and have the credentials of
//! `auth`.

use std::{
    fmt,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use feedline_schemas::config::SourceConfig;
use reqwest::{Method, StatusCode, header::HeaderMap};
use url::{Origin, Url};

use super::{Http, credentials::Proved};
use crate::{
    auth::aws::Unsigned,
    classification::{ANSWERED, is_transient, is_used_up, terminal, transient, transient_response},
    context::RequestContext,
    error::Error,
    failed_response::BodyStart,
    hosts::{Speculation, Turn},
    http_cause::HttpCause,
    request_policy::{RequestPolicy, SendOnce, Sent, TryCredentials},
    retry::{
        Retry,
        failed_try::{Again, Failure, TriedError},
    },
    secret_masks::SecretMasks,
};

/// Requests of a source at a time.
const CONCURRENCY: usize = 4;

/// A response whose body another client reads.
struct FileResponse {
    status: StatusCode,
    headers: HeaderMap,
    /// Start of the body of a failure.
    body_start: BodyStart,
}

/// Policy of the requests of one source, whose errors are `E`.
pub struct FileRequests<E> {
    http: Http,
    retry: Retry,
    /// Requests so far, the tries of one counted once.
    sent: AtomicU64,
    retries: AtomicU64,
    /// Error of the last request that was given up.
    failed: Mutex<Option<E>>,
}

impl<E> fmt::Debug for FileRequests<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileRequests").finish_non_exhaustive()
    }
}

impl<E: TriedError> FileRequests<E> {
    /// The policy of `config`, whose files are below `base`.
    ///
    /// # Errors
    /// [`Error::Config`] for a header that cannot be sent, or a secret that cannot be found.
    pub fn new(base: &Url, config: &SourceConfig, context: &RequestContext) -> Result<Self, Error> {
        let http = Http::new(base, &config.headers, &config.retry, context)?;
        let http = http.with_tls(config, context)?;
        // Redirects are judged by the store, which follows them.
        let http = http.with_limits(config, CONCURRENCY).trusting();
        Ok(Self {
            http: http.with_auth(config.auth.as_ref(), context)?,
            retry: Retry::new(config.name.as_str(), &config.retry, context),
            sent: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            failed: Mutex::new(None),
        })
    }

    /// Origin of the source, and the headers of requests to it.
    #[must_use]
    pub fn headers(&self) -> (Origin, HeaderMap) {
        (self.http.origin.clone(), self.http.headers.clone())
    }

    /// Requests for tokens and logins so far. The store counts its own.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.http.requests()
    }

    /// Tries beyond the first of all requests.
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// Secrets of the requests so far, to mask in messages about records.
    #[must_use]
    pub fn secret_masks(&self) -> SecretMasks {
        self.http.secret_masks()
    }

    /// Returns the error of the last request that was given up, once.
    pub fn take_failure(&self) -> Option<E> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.take()
    }

    /// One try. A refused token or session is replaced and the request sent again, once.
    async fn attempt(
        &self,
        method: &Method,
        url: &Url,
        once: &SendOnce<'_>,
    ) -> Result<(), Failure> {
        let http = &self.http;
        let (_slot, mut turn) = http.turn(url, &Speculation::default()).await?;
        let outcome = async {
            let unsigned = Unsigned {
                method,
                url,
                headers: &http.headers,
                body: b"",
            };
            let proved = http.prove(&unsigned, None).await?;
            let mut answer = self.send_once(url, &proved, once, &mut turn).await?;
            if http.is_proof_refused(url, answer.status, &answer.headers) {
                let proved = http.prove(&unsigned, Some(&proved)).await?;
                answer = self.send_once(url, &proved, once, &mut turn).await?;
            }
            http.judge(url, &answer)
        };
        let outcome = outcome.await;
        turn.settle(outcome)
    }

    /// Sends the request with the credentials `proved`, and returns the response without most of its body.
    async fn send_once(
        &self,
        url: &Url,
        proved: &Proved,
        once: &SendOnce<'_>,
        turn: &mut Turn,
    ) -> Result<FileResponse, Failure> {
        let Http {
            meter, transport, ..
        } = &self.http;
        match once(proved.of_try(url)).await {
            Sent::Response {
                status,
                headers,
                body_start,
            } => {
                meter.asked(Some(status));
                let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
                turn.answered(status, transport.quota(&headers));
                Ok(FileResponse {
                    status,
                    headers,
                    body_start,
                })
            }
            Sent::Failed {
                reason,
                is_transient,
            } => {
                meter.asked(None);
                let advice = "check the source's `url`, and that its host is up";
                Err(match is_transient {
                    true => transient(url, reason),
                    false => terminal(url, reason, advice),
                })
            }
        }
    }
}

impl Proved {
    /// The credentials, as a store adds them to a request for `url`.
    fn of_try(&self, url: &Url) -> TryCredentials {
        let mut headers = HeaderMap::new();
        self.proof.sign(&mut headers);
        TryCredentials {
            headers,
            url: Some(self.proof.target(url)).filter(|target| target != url),
        }
    }
}

impl Http {
    /// Judges a response whose body another client reads: a failure is one that may be gone at the next try.
    fn judge(&self, url: &Url, response: &FileResponse) -> Result<(), Failure> {
        let FileResponse {
            status,
            headers,
            body_start,
        } = response;
        let status = *status;
        let quota = self.transport.quota(headers);
        if !(is_transient(status) || is_used_up(status, quota)) {
            return Ok(());
        }
        let unasked = match status {
            StatusCode::TOO_MANY_REQUESTS => Again::Unprocessed,
            _ => Again::Backoff,
        };
        let asked = self.transport.asked_wait(status, headers, quota);
        let reason = self.transport.secretive.excerpt_of_start(body_start);
        Err(Failure {
            again: asked.map_or(unasked, Again::After),
            ..transient_response(url, status, quota, format!("{ANSWERED} {status}{reason}"))
                .caused_by(HttpCause::Status(status.as_u16()))
        })
    }
}

#[async_trait]
impl<E: TriedError + Send + Sync> RequestPolicy for FileRequests<E> {
    async fn send(&self, method: &Method, url: &Url, once: &SendOnce<'_>) -> Result<(), String> {
        let mut retry = self.retry.beside(self.sent.fetch_add(1, Ordering::Relaxed));
        let sent = retry.run(|| async {
            let tried = self.attempt(method, url, once).await;
            tried.map_err(Failure::into_error_of::<E>)
        });
        let sent = sent.await;
        self.retries.fetch_add(retry.retries(), Ordering::Relaxed);
        sent.map_err(|error| {
            let reason = error.to_string();
            let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            *failed = Some(error);
            reason
        })
    }

    fn secret_masks(&self) -> SecretMasks {
        self.http.secret_masks()
    }

    fn excerpt(&self, body_start: &BodyStart) -> String {
        self.http.transport.secretive.excerpt_of_start(body_start)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use feedline_schemas::config::PaginationKind;
    use futures::TryStreamExt as _;
    use object_store::{
        ClientOptions, ObjectStore as _, ObjectStoreExt as _,
        http::{HttpBuilder, HttpStore},
        path::Path,
    };
    use serde_json::json;

    use super::*;
    use crate::{
        store_connector::{StoreConnector, WebOptions, refusal},
        testing::{Scripted, answer, config, context, raw},
    };

    /// A store at `server` with the policy of `config`.
    fn store_of(server: &Scripted, config: &SourceConfig) -> HttpStore {
        let policy = FileRequests::<Error>::new(&server.url, config, &context()).unwrap();
        let options = WebOptions {
            headers: Some(policy.headers()),
            policy: Some(Arc::new(policy)),
            ..WebOptions::default()
        };
        let store = HttpBuilder::new()
            .with_url(server.url.as_str())
            .with_client_options(ClientOptions::new().with_allow_http(true))
            .with_http_connector(StoreConnector::new(&server.url, &options, false))
            .build();
        store.unwrap()
    }

    #[tokio::test]
    async fn credentials_that_a_server_repeats_are_masked_in_the_errors_of_a_store() {
        // A file that is not below the listed folder.
        let listed = "<D:multistatus xmlns:D=\"DAV:\"><D:response><D:href>/CREDENTIALS/b.csv</D:href><D:propstat>\
                      <D:prop><D:getcontentlength>9</D:getcontentlength><D:resourcetype/></D:prop>\
                      <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response></D:multistatus>";
        let basic = STANDARD.encode("reader:secret-PASSWORD");
        for (auth, sent) in [
            (
                json!({ "type": "bearer", "secret": { "env": "TOKEN" } }),
                "secret-TOKEN",
            ),
            (
                json!({ "type": "basic", "user": "reader", "password": { "env": "PASSWORD" } }),
                &*basic,
            ),
        ] {
            let mut config = config("http://unused/", PaginationKind::None);
            config.auth = Some(serde_json::from_value(auth).unwrap());
            for (status, body) in [
                ("400 Bad Request", "refused: CREDENTIALS"),
                ("401 Unauthorized", "refused: CREDENTIALS"),
                ("403 Forbidden", "refused: CREDENTIALS"),
                ("409 Conflict", "refused: CREDENTIALS"),
                ("207 Multi-Status", listed),
            ] {
                let response = answer(status, &body.replace("CREDENTIALS", sent));
                let server = Scripted::start([response]).await;
                let store = store_of(&server, &config);
                let found = store.list(Some(&Path::from("d"))).try_collect::<Vec<_>>();
                let found = found.await.unwrap_err();
                let read = store.get(&Path::from("d/a.csv")).await.err();
                assert!(server.heads()[0].contains(sent));
                for error in [Some(found), read].into_iter().flatten() {
                    let shown = format!("{error} {error:?}");
                    assert!(!shown.contains(sent), "{status}: {shown}");
                }
            }
        }
    }

    #[tokio::test]
    async fn the_reason_in_the_body_of_a_failure_is_shown_with_masked_credentials() {
        let token = json!({ "type": "bearer", "secret": { "env": "TOKEN" } });
        for (status, end) in [
            ("400 Bad Request", "; check the `url` and the `headers`"),
            ("409 Conflict", "; check the `url`"),
            ("422 Unprocessable Entity", "; check the `url`"),
            ("503 Service Unavailable", " (the last of 5 tries)"),
        ] {
            let server =
                Scripted::answering(move |_, request| match request.starts_with("HEAD ") {
                    // A server has no body for `HEAD`, whatever the status.
                    true if status.starts_with('4') => raw(status, b""),
                    true => raw("405 Method Not Allowed", b""),
                    false => answer(status, "no version\n2 for secret-TOKEN"),
                })
                .await;
            let mut config = config("http://unused/", PaginationKind::None);
            config.auth = Some(serde_json::from_value(token.clone()).unwrap());
            let path = Path::from("d/a.csv");
            let looked_up = store_of(&server, &config).head(&path).await;
            let read = store_of(&server, &config).get(&path).await;
            for error in [looked_up.unwrap_err(), read.map(drop).unwrap_err()] {
                let reason = refusal(&error).unwrap();
                let expected = format!("the server answered {status}: `no version 2 for ***`{end}");
                assert!(reason.contains(&expected), "{reason}");
            }
        }
    }

    #[tokio::test]
    async fn a_head_that_a_server_refuses_and_the_get_in_its_place_are_two_requests() {
        let row = raw("200 OK\r\nContent-Length: 4", b"n\n1\n");
        let server = Scripted::start([raw("405 Method Not Allowed", b""), row]).await;
        let mut config = config(server.url.as_str(), PaginationKind::None);
        let token = json!({ "type": "bearer", "secret": { "env": "TOKEN" } });
        config.auth = Some(serde_json::from_value(token).unwrap());
        let policy = FileRequests::<Error>::new(&server.url, &config, &context());
        let policy = Arc::new(policy.unwrap());
        let options = WebOptions {
            policy: Some(Arc::clone(&policy) as Arc<dyn RequestPolicy>),
            ..WebOptions::default()
        };
        let store = HttpBuilder::new()
            .with_url(server.url.as_str())
            .with_client_options(ClientOptions::new().with_allow_http(true))
            .with_http_connector(StoreConnector::new(&server.url, &options, false))
            .build();
        let found = store.unwrap().head(&"a.csv".into()).await.unwrap();
        assert_eq!(found.size, 4);
        assert_eq!(options.requests.load(Ordering::Relaxed), 2);
        let metered: Vec<_> = policy.http.meter.read().requests.into_iter().collect();
        assert_eq!(metered, [(Some(200), 1), (Some(405), 1)]);
        let sent = server.heads();
        let is_signed = |head: &String| head.contains("secret-TOKEN");
        assert!(sent[1].starts_with("GET ") && sent.iter().all(is_signed));
    }

    #[tokio::test]
    async fn a_request_with_a_truncated_body_is_sent_again_for_the_whole_body() {
        // A client resumes a body with an `ETag` by itself, as often as its own settings say.
        let version = "ETag: \"1\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT";
        let head = format!("200 OK\r\n{version}\r\nContent-Length: 6");
        let server = Scripted::start([raw(&head, b"abc"), raw(&head, b"abcdef")]).await;
        let config = config(server.url.as_str(), PaginationKind::None);
        let policy = FileRequests::<Error>::new(&server.url, &config, &context());
        let policy = Arc::new(policy.unwrap());
        let options = WebOptions {
            policy: Some(Arc::clone(&policy) as Arc<dyn RequestPolicy>),
            ..WebOptions::default()
        };
        let store = HttpBuilder::new()
            .with_url(server.url.as_str())
            .with_client_options(ClientOptions::new().with_allow_http(true))
            .with_http_connector(StoreConnector::new(&server.url, &options, false))
            .build();
        let read = store.unwrap().get(&"a.csv".into()).await.unwrap();
        assert_eq!(read.bytes().await.unwrap(), "abcdef");
        assert!(!server.heads()[1].contains("range:"));
        assert_eq!(options.requests.load(Ordering::Relaxed), 2);
        assert_eq!((policy.retries(), policy.http.meter.read().retries), (1, 1));
    }
}
