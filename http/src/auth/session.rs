//! Cookies by a login: fields are sent to a URL of the source's own origin, and the cookies of its
//! response with each request.

use std::{collections::BTreeMap, sync::atomic::Ordering};

use feedline_schemas::config::{LoginBody, LoginSession, TextOrSecret};
use reqwest::header::{ACCEPT, CONTENT_TYPE, COOKIE, HeaderMap, HeaderValue, SET_COOKIE};
use tokio::sync::Mutex;
use url::{Url, form_urlencoded};
use xxhash_rust::xxh3::xxh3_128;

use super::{
    cookie::{Jar, Now},
    proof::{Proof, secret},
};
use crate::{
    classification::terminal,
    context::RequestContext,
    error::Error,
    location::is_loopback,
    redact::Secretive,
    retry::failed_try::{Again, Failure},
    transport::Transport,
};

const ADVICE: &str = "check `auth.login_url` and `auth.fields`";

/// A login, and its cookies.
pub(crate) struct Session {
    url: Url,
    kind: &'static str,
    body: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Logins so far.
    logins: u64,
    jar: Jar,
}

impl Session {
    pub(super) fn new(
        config: &LoginSession,
        context: &RequestContext,
        secretive: &mut Secretive,
    ) -> Result<Self, Error> {
        let wrong = |reason: &str| Error::config("auth.login_url", reason);
        let url = Url::parse(&config.login_url)
            .map_err(|_| wrong("is not a URL; write `https://host/path`"))?;
        match url.scheme() {
            "https" => {}
            "http" if is_loopback(&url) => {}
            _ => {
                return Err(wrong(
                    "is not https: the secret would be readable on its way",
                ));
            }
        }
        secretive.add_url(&url);
        let mut fields = BTreeMap::new();
        for (name, value) in &config.fields {
            let text = match value {
                TextOrSecret::Text(text) => text.clone(),
                TextOrSecret::Secret(reference) => {
                    secret(&format!("fields.{name}"), reference, context, secretive)?
                }
            };
            fields.insert(name.as_str(), text);
        }
        let (kind, body) = match config.login_body {
            LoginBody::Form => {
                let mut form = form_urlencoded::Serializer::new(String::new());
                form.extend_pairs(&fields);
                ("application/x-www-form-urlencoded", form.finish())
            }
            LoginBody::Json => {
                let json = serde_json::to_string(&fields);
                ("application/json", json.expect("texts are valid JSON"))
            }
        };
        Ok(Self {
            url,
            kind,
            body,
            state: Mutex::default(),
        })
    }

    /// URL of the login.
    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// Hash of the login fields.
    pub(super) fn credential(&self) -> u128 {
        xxh3_128(format!("{}\n{}", self.url, self.body).as_bytes())
    }

    /// Returns the cookies for a request for `url`, and the number of their login, other than
    /// `refused`. Concurrent requests wait for the first one to log in.
    pub(crate) async fn proof(
        &self,
        transport: &Transport,
        url: &Url,
        refused: Option<u64>,
    ) -> Result<(Proof, u64), Failure> {
        let mut state = self.state.lock().await;
        let is_fresh = state.logins > 0 && refused != Some(state.logins);
        let kept = state.jar.header(url, transport.clock.monotonic());
        let text = match kept.filter(|_| is_fresh) {
            Some(text) => text,
            None => {
                state.jar = self.log_in(transport).await?;
                state.logins += 1;
                let sent = state.jar.header(url, transport.clock.monotonic());
                sent.ok_or_else(|| {
                    let what = "the login has set no cookie that may be sent to it (by `Path`, `Secure`, `Domain` and end)";
                    terminal(url, what, ADVICE)
                })?
            }
        };
        let proof = Proof::header(COOKIE, &text)
            .map_err(|reason| terminal(&self.url, format!("its cookie {reason}"), ADVICE))?;
        Ok((proof, state.logins))
    }

    /// Logs in; one try. A refusal is final: after repeated tries, a server may lock the account.
    async fn log_in(&self, transport: &Transport) -> Result<Jar, Failure> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.kind));
        transport.requests.fetch_add(1, Ordering::Relaxed);
        let client = transport.client(&self.url).await?;
        let request = client.post(self.url.clone()).headers(headers);
        let response = request.body(self.body.clone()).send().await;
        let response = response.map_err(|e| transport.broken(&self.url, e))?;
        let status = response.status();
        if !status.is_success() && !status.is_redirection() {
            let mut failure = transport.refused(&self.url, response).await;
            // Here this status means wrong fields, not a missing page.
            if failure.again == Again::Gone {
                failure.again = Again::Never;
            }
            return Err(failure);
        }
        let now = Now {
            monotonic: transport.clock.monotonic(),
            unix: transport.clock.unix(),
        };
        let mut jar = Jar::default();
        for value in response.headers().get_all(SET_COOKIE) {
            if let Ok(text) = value.to_str() {
                jar.set(text, &self.url, now);
            }
        }
        if jar.values().next().is_none() {
            let what = format!("the login was answered {status} and set no cookie for this host");
            return Err(terminal(&self.url, what, ADVICE));
        }
        jar.values()
            .for_each(|value| transport.secretive.add_late_cookie(value));
        Ok(jar)
    }
}
