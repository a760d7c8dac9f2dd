//! Requests of a crawl: every response is inspected, and no redirect is followed.

use bytes::Bytes;
use reqwest::{
    Response, StatusCode,
    header::{ACCEPT, HeaderMap, HeaderValue},
};
use url::Url;

use super::Http;
use crate::{
    auth::proof::Proof,
    classification::{is_transient, is_used_up},
    encoding,
    hosts::Speculation,
    pace::Pace,
    redirect,
    request::Request,
    retry::failed_try::Failure,
};

/// Part of a body to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All of it; a larger one than `retry.max_body_bytes` is a failure.
    Whole,
    /// The first so many bytes.
    Start(usize),
    /// Nothing.
    Nothing,
}

/// A final response: success, redirect, or a refusal.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status of the response.
    pub status: StatusCode,
    /// Headers of the response.
    pub headers: HeaderMap,
    /// Decompressed body; empty except for a success with a wanted body.
    pub body: Bytes,
    /// Target of a redirect.
    pub redirect: Option<Url>,
}

impl Answer {
    /// Rebuilds the response to a request for `url` from its parts.
    ///
    /// # Errors
    /// A redirect that is not followed.
    pub fn from_parts(
        url: &Url,
        status: StatusCode,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Self, Failure> {
        Ok(Self {
            redirect: redirect::target(url, status, &headers)?,
            status,
            headers,
            body,
        })
    }

    /// Value of a header; empty if it is absent.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name).and_then(|v| v.to_str().ok());
        value.unwrap_or_default()
    }
}

impl Http {
    /// Requests a page once, with `headers`. `wanted` decides about the body of a success by its
    /// head.
    ///
    /// # Errors
    /// A failure that may be gone at the next try, or one below HTTP.
    pub async fn ask(
        &self,
        url: &Url,
        accept: &'static str,
        headers: &HeaderMap,
        wanted: impl Fn(&HeaderMap) -> Wanted,
    ) -> Result<Answer, Failure> {
        self.ask_with(url, accept, headers, wanted, true).await
    }

    /// Like [`Self::ask`], for a page that failed in an earlier run: if it fails again, that is no
    /// evidence against its host, whose other pages are still requested.
    ///
    /// # Errors
    /// Like [`Self::ask`].
    pub async fn ask_again(
        &self,
        url: &Url,
        accept: &'static str,
        headers: &HeaderMap,
        wanted: impl Fn(&HeaderMap) -> Wanted,
    ) -> Result<Answer, Failure> {
        self.ask_with(url, accept, headers, wanted, false).await
    }

    async fn ask_with(
        &self,
        url: &Url,
        accept: &'static str,
        headers: &HeaderMap,
        wanted: impl Fn(&HeaderMap) -> Wanted,
        is_evidence: bool,
    ) -> Result<Answer, Failure> {
        let speculation = Speculation::default();
        let (_slot, mut turn) = self.turn(url, &speculation).await?;
        // Set after the turn is granted, so that the request may probe a host that failed.
        speculation.set(!is_evidence);
        let answer = self.in_time(url, async {
            let mut headers = headers.clone();
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            let request = Request::get(url.clone());
            let response = self
                .send(&request, headers, &Proof::default(), &mut turn)
                .await?;
            self.answer(url, response, wanted).await
        });
        let answer = answer.await;
        turn.settle(answer)
    }

    async fn answer(
        &self,
        url: &Url,
        response: Response,
        wanted: impl Fn(&HeaderMap) -> Wanted,
    ) -> Result<Answer, Failure> {
        let status = response.status();
        if is_transient(status) || is_used_up(status, self.transport.quota(response.headers())) {
            return Err(self.transport.refused(url, response).await);
        }
        let headers = response.headers().clone();
        let body = match wanted(&headers) {
            _ if !status.is_success() => Bytes::new(),
            Wanted::Whole => self.transport.whole(url, response).await?,
            Wanted::Start(bytes) => self.start(url, response, bytes).await?,
            Wanted::Nothing => Bytes::new(),
        };
        Ok(Answer {
            redirect: redirect::target(url, status, &headers)?,
            status,
            headers,
            body,
        })
    }

    /// The first `bytes` of a body, decompressed.
    async fn start(
        &self,
        url: &Url,
        mut response: Response,
        bytes: usize,
    ) -> Result<Bytes, Failure> {
        if response.headers().contains_key("content-encoding") {
            let body = self.transport.whole(url, response).await?;
            return Ok(body.slice(..body.len().min(bytes)));
        }
        let mut body = Vec::new();
        let mut pace = Pace::new(self.transport.limits.min_bytes_per_s.get());
        while body.len() < bytes {
            match response.chunk().await {
                Ok(Some(chunk)) => {
                    self.transport.keeps_up(url, &mut pace, chunk.len())?;
                    body.extend_from_slice(&chunk);
                }
                Ok(None) => break,
                Err(e) => return Err(self.transport.broken(url, e)),
            }
        }
        body.truncate(bytes);
        Ok(body.into())
    }
}

/// Returns `body` unchanged, or decompressed to at most `max_bytes` if it is a gzip file.
///
/// # Errors
/// The reason why it cannot be decompressed.
pub fn unzipped(body: Bytes, max_bytes: u64) -> Result<Bytes, String> {
    if !body.starts_with(&[0x1f, 0x8b]) {
        return Ok(body);
    }
    match encoding::gunzip(&body, max_bytes) {
        Ok(bytes) => Ok(bytes.into()),
        Err(encoding::Error::Damaged(reason)) => {
            Err(format!("it is a damaged gzip file: {reason}"))
        }
        Err(encoding::Error::Bomb(bytes)) => Err(format!("it inflates to more than {bytes} bytes")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use feedline_schemas::config::RetryConfig;
    use reqwest::header::USER_AGENT;

    use super::*;
    use crate::testing::{Scripted, Step, answer, context, gzip, ok, raw};

    async fn ask(step: Step, wanted: Wanted) -> Result<Answer, String> {
        let server = Scripted::start([step]).await;
        let limits = RetryConfig {
            max_body_bytes: feedline_schemas::units::ByteSize::new(100),
            ..RetryConfig::default()
        };
        let http = Http::new(&server.url, &BTreeMap::new(), &limits, &context()).unwrap();
        let agent = [(USER_AGENT, HeaderValue::from_static("robot"))];
        let agent = HeaderMap::from_iter(agent);
        let asked = http.ask(&server.url, "text/html", &agent, |_| wanted).await;
        assert!(server.heads()[0].contains("user-agent: robot\r\n"));
        asked.map_err(|failure| failure.error.to_string())
    }

    #[tokio::test]
    async fn redirects_and_refusals_are_answers() {
        let moved = ask(answer("301 Moved\r\nLocation: /b", "x"), Wanted::Whole)
            .await
            .unwrap();
        assert!(moved.redirect.unwrap().path() == "/b" && moved.body.is_empty());
        let absent = ask(answer("404 Not Found", "x"), Wanted::Whole)
            .await
            .unwrap();
        assert_eq!((absent.status.as_u16(), absent.redirect), (404, None));
        assert!(
            ask(answer("503 Oops", ""), Wanted::Whole)
                .await
                .unwrap_err()
                .contains("503")
        );
    }

    #[tokio::test]
    async fn no_more_of_a_body_is_read_than_wanted() {
        let body =
            |wanted| async move { ask(ok(&"x".repeat(90)), wanted).await.unwrap().body.len() };
        assert_eq!(body(Wanted::Whole).await, 90);
        assert_eq!(body(Wanted::Start(7)).await, 7);
        assert_eq!(body(Wanted::Nothing).await, 0);
        assert!(
            ask(ok(&"x".repeat(101)), Wanted::Whole)
                .await
                .unwrap_err()
                .contains("max_body_bytes")
        );
        assert_eq!(
            ask(ok(&"x".repeat(101)), Wanted::Start(99))
                .await
                .unwrap()
                .body
                .len(),
            99
        );
        let zipped = raw("200 OK\r\nContent-Encoding: gzip", &gzip(b"twelve bytes"));
        assert_eq!(ask(zipped, Wanted::Start(6)).await.unwrap().body, "twelve");
    }

    #[tokio::test]
    async fn pages_that_fail_again_do_not_open_the_circuit_of_their_host() {
        let server = Scripted::answering(|_, _| answer("500 Oops", "")).await;
        let limits = RetryConfig::default();
        let http = Http::new(&server.url, &BTreeMap::new(), &limits, &context()).unwrap();
        let (headers, wanted) = (HeaderMap::new(), |_: &HeaderMap| Wanted::Whole);
        let tries = limits.circuit_failures.get() as usize + 2;
        for _ in 0..tries {
            let asked = http.ask_again(&server.url, "text/html", &headers, wanted);
            let failure = asked.await.unwrap_err().error.to_string();
            assert!(failure.contains("500"), "{failure}");
        }
        assert_eq!(server.heads().len(), tries);
    }

    #[test]
    fn gzip_files_are_told_by_their_first_bytes() {
        assert_eq!(unzipped("plain".into(), 9), Ok("plain".into()));
        assert_eq!(unzipped(gzip(b"packed").into(), 9), Ok("packed".into()));
        assert!(
            unzipped(gzip(b"packed").into(), 3)
                .unwrap_err()
                .contains("more than 3 bytes")
        );
        assert!(
            unzipped(gzip(b"packed")[..9].to_vec().into(), 9)
                .unwrap_err()
                .contains("damaged")
        );
    }
}
