//! Tokens by client credentials (RFC 6749, section 4.4).

use std::time::Duration;

use feedline_schemas::config::{ClientCredentials, CredentialsIn, JsonConfig};
use reqwest::{
    Client,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue},
};
use tokio::sync::Mutex;
use url::{Url, form_urlencoded};
use xxhash_rust::xxh3::xxh3_128;

use super::{
    super::{Again, Ordering, is_loopback, redacted},
    Error, Failure, Http, Proof, Secretive, basic, encoded,
};
use crate::value::Value;

/// Client credentials, and the token obtained with them.
pub(in crate::http) struct OAuth {
    url: Url,
    form: String,
    basic: Proof,
    token: Mutex<Option<Token>>,
}

#[derive(Clone)]
struct Token {
    proof: Proof,
    /// Expiry on the monotonic clock.
    until: Option<Duration>,
}

impl OAuth {
    pub(super) fn new(
        config: &ClientCredentials,
        id: &str,
        secret: &str,
        client: &Client,
        secretive: &mut Secretive,
    ) -> Result<Self, Error> {
        let wrong = |reason: &str| Error::config("auth.token_url", reason);
        let url = Url::parse(&config.token_url)
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
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "client_credentials");
        if let Some(scope) = &config.scope {
            form.append_pair("scope", scope);
        }
        let basic = match config.credentials {
            // RFC 6749, section 2.3.1: id and secret are encoded as in a form first.
            CredentialsIn::Header => basic(client, &encoded(id), &encoded(secret), secretive)?,
            CredentialsIn::Body => {
                form.append_pair("client_id", id);
                form.append_pair("client_secret", secret);
                Proof::default()
            }
        };
        Ok(Self {
            url,
            form: form.finish(),
            basic,
            token: Mutex::new(None),
        })
    }

    /// Configured token endpoint.
    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// A hash of the credentials.
    pub(super) fn credential(&self) -> u128 {
        let header = self
            .basic
            .header
            .as_ref()
            .map(|(_, value)| value.as_bytes());
        xxh3_128(&[self.form.as_bytes(), header.unwrap_or_default()].concat())
    }

    /// Returns a token other than the `refused` one. Concurrent requests wait for the first one to
    /// get it.
    pub(super) async fn proof(
        &self,
        http: &Http,
        refused: Option<&Proof>,
    ) -> Result<Proof, Failure> {
        let mut token = self.token.lock().await;
        if let Some(Token { proof, until }) = &*token {
            let is_fresh = until.is_none_or(|until| http.clock.monotonic() < until);
            if is_fresh && refused.is_none_or(|refused| refused.header != proof.header) {
                return Ok(proof.clone());
            }
        }
        let fresh = self.ask(http).await?;
        let proof = fresh.proof.clone();
        *token = Some(fresh);
        Ok(proof)
    }

    /// Requests a token; one try.
    async fn ask(&self, http: &Http) -> Result<Token, Failure> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(CONTENT_TYPE, form);
        self.basic.sign(&mut headers);
        http.requests.fetch_add(1, Ordering::Relaxed);
        let client = http.client(&self.url).await?;
        let request = client.post(self.url.clone()).headers(headers);
        let response = request.body(self.form.clone()).send().await;
        let response = response.map_err(|e| http.broken(&self.url, e))?;
        if !response.status().is_success() {
            let mut failure = http.refused(&self.url, response).await;
            // Here these statuses mean wrong credentials, not a missing page.
            if matches!(failure.again, Again::Gone | Again::Absent) {
                failure.again = Again::Never;
            }
            return Err(failure);
        }
        let body = http.whole(&self.url, response).await?;
        self.read(http, &body).map_err(|reason| Failure {
            error: Box::new(Error::Body {
                url: redacted(&self.url),
                reason,
            }),
            again: Again::Backoff,
        })
    }

    /// Reads the token of a response (RFC 6749, section 5.1). Messages quote nothing of the body.
    fn read(&self, http: &Http, body: &[u8]) -> Result<Token, String> {
        let document = Value::parse_within(body, &JsonConfig::default(), 0)
            .map_err(|reason| format!("it is no JSON: {reason}"))?;
        let Some(Value::Text(text)) = document.at("access_token") else {
            return Err("it has no text at `access_token`; check `auth.token_url`".into());
        };
        if let Some(Value::Text(kind)) = document.at("token_type")
            && !kind.eq_ignore_ascii_case("bearer")
        {
            return Err("its `token_type` is not `bearer`, the only one that is understood".into());
        }
        let seconds = match document.at("expires_in") {
            Some(Value::Int(seconds)) => u64::try_from(*seconds).ok(),
            Some(Value::Text(seconds)) => seconds.parse().ok(),
            _ => None,
        };
        http.secretive.add_late(text);
        let proof = Proof::bearer(text).map_err(|reason| format!("its token {reason}"))?;
        // A token may expire while a request is in flight, so it is replaced a little earlier.
        let until = seconds.map(|seconds| {
            let used = Duration::from_secs(seconds - (seconds / 10).min(60));
            http.clock.monotonic().saturating_add(used)
        });
        Ok(Token { proof, until })
    }
}
