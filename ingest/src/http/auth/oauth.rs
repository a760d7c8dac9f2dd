//! Tokens of a token endpoint (RFC 6749).

mod jwt;
mod refresh;

use std::time::Duration;

use feedline_schemas::config::{
    CredentialsIn, JsonConfig, OauthConfig, OauthGrant, SecretRef, TextOrSecret, TokenEndpoint,
};
use reqwest::{
    Client,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue},
};
use tokio::sync::Mutex;
use url::{Url, form_urlencoded};
use xxhash_rust::xxh3::xxh3_128;

pub(crate) use self::refresh::Rotated;
use self::{jwt::Jwt, refresh::Refresh};
use super::{
    super::{Again, Ordering, is_loopback, redacted, terminal},
    Context, Error, Failure, Http, Proof, Secretive, basic, encoded, secret,
};
use crate::value::Value;

/// Error code of a token endpoint for a refused grant (RFC 6749, section 5.2).
const INVALID_GRANT: &str = "invalid_grant";
const ADVICE: &str = "check `auth.token_url` and the credentials in `auth`";

/// A token endpoint, the credentials for it, and the token obtained with them.
pub(in crate::http) struct OAuth {
    url: Url,
    /// Fields of each request.
    form: Vec<(&'static str, String)>,
    basic: Proof,
    grant: Grant,
    credential: u128,
    state: Mutex<TokenState>,
}

enum Grant {
    /// All fields are the same each time. Has the advice for a refusal.
    Fixed(&'static str),
    Refresh(Refresh),
    Jwt(Box<Jwt>),
}

#[derive(Default)]
struct TokenState {
    token: Option<Token>,
    /// Event and advice of a final refusal: no further token is requested.
    refusal: Option<(String, String)>,
}

#[derive(Clone)]
struct Token {
    proof: Proof,
    /// Expiry on the monotonic clock.
    until: Option<Duration>,
}

/// Response of a token endpoint.
struct Granted {
    token: Token,
    /// Refresh token for the next request.
    refresh_token: Option<String>,
}

impl OAuth {
    pub(super) fn new(
        config: &OauthConfig,
        client: &Client,
        context: &Context,
        secretive: &mut Secretive,
    ) -> Result<Self, Error> {
        let OauthConfig { endpoint, grant } = config;
        let url = url_of(endpoint)?;
        secretive.add_url(&url);
        let mut own = Vec::new();
        let mut found =
            |key: &str, reference: &SecretRef| secret(key, reference, context, secretive);
        let (kind, id, secret, grant) = match grant {
            OauthGrant::ClientCredentials(keys) => (
                "client_credentials",
                Some(&keys.client_id),
                Some(&keys.client_secret),
                Grant::Fixed("check `auth.client_id` and `auth.client_secret`"),
            ),
            OauthGrant::RefreshToken(keys) => (
                "refresh_token",
                Some(&keys.client_id),
                keys.client_secret.as_ref(),
                Grant::Refresh(Refresh::new(keys, &url, context, &mut found)?),
            ),
            OauthGrant::Password(keys) => {
                let user = match &keys.user {
                    TextOrSecret::Text(user) => user.clone(),
                    TextOrSecret::Secret(reference) => found("user", reference)?,
                };
                own.push(("username", user));
                own.push(("password", found("password", &keys.password)?));
                (
                    "password",
                    keys.client_id.as_ref(),
                    keys.client_secret.as_ref(),
                    Grant::Fixed("check `auth.user` and `auth.password`"),
                )
            }
            OauthGrant::JwtBearer(keys) => {
                let key = found("private_key", &keys.private_key)?;
                let scope = endpoint.scope.as_deref();
                let jwt = Jwt::new(keys, &key, &url, scope, &context.run_id)?;
                (jwt::GRANT, None, None, Grant::Jwt(Box::new(jwt)))
            }
        };
        let id = id.map(|id| found("client_id", id)).transpose()?;
        let secret = secret.map(|secret| found("client_secret", secret));
        let secret = secret.transpose()?;
        let scope = endpoint.scope.clone().map(|scope| ("scope", scope));
        let kind = ("grant_type", kind.to_owned());
        let mut form: Vec<_> = [kind].into_iter().chain(scope).chain(own).collect();
        let basic = match (id, secret, endpoint.credentials) {
            // RFC 6749, section 2.3.1: id and secret are encoded as in a form first.
            (Some(id), Some(secret), CredentialsIn::Header) => {
                basic(client, &encoded(&id), &encoded(&secret), secretive)?
            }
            (None, Some(_), _) => {
                let reason = "is missing: `auth.client_secret` is the secret of a client; add it";
                return Err(Error::config("auth.client_id", reason));
            }
            (id, secret, _) => {
                form.extend(id.map(|id| ("client_id", id)));
                form.extend(secret.map(|secret| ("client_secret", secret)));
                Proof::default()
            }
        };
        let credential = credential(&url, &form, &basic, &grant);
        Ok(Self {
            url,
            form,
            basic,
            grant,
            credential,
            state: Mutex::default(),
        })
    }

    /// Configured token endpoint.
    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// A hash of the credentials.
    pub(super) fn credential(&self) -> u128 {
        self.credential
    }

    /// Returns a token other than the `refused` one. Concurrent requests wait for the first one to
    /// get it.
    pub(super) async fn proof(
        &self,
        http: &Http,
        refused: Option<&Proof>,
    ) -> Result<Proof, Failure> {
        let mut state = self.state.lock().await;
        if let Some(Token { proof, until }) = &state.token {
            let is_fresh = until.is_none_or(|until| http.clock.monotonic() < until);
            if is_fresh && refused.is_none_or(|refused| refused.header != proof.header) {
                return Ok(proof.clone());
            }
        }
        if let Some((what, advice)) = &state.refusal {
            return Err(terminal(&self.url, what, advice));
        }
        let fresh = self.renew(http).await.inspect_err(|failure| {
            if let (Again::Never, Error::Http { what, advice, .. }) =
                (failure.again, &*failure.error)
            {
                state.refusal = Some((what.clone(), advice.clone()));
            }
        })?;
        let proof = fresh.proof.clone();
        state.token = Some(fresh);
        Ok(proof)
    }

    async fn renew(&self, http: &Http) -> Result<Token, Failure> {
        match &self.grant {
            Grant::Fixed(_) => self.ask(http, None).await.map(|granted| granted.token),
            Grant::Jwt(jwt) => {
                let assertion = jwt.sign(http.clock.unix()).map_err(|reason| {
                    let key = Error::config("auth.private_key", reason);
                    Failure {
                        error: Box::new(key),
                        again: Again::Never,
                    }
                })?;
                http.secretive.add_late(&assertion);
                let granted = self.ask(http, Some(("assertion", &assertion))).await;
                granted.map(|granted| granted.token)
            }
            Grant::Refresh(refresh) => refresh.renew(self, http).await,
        }
    }

    /// Requests a token with one more field; one try.
    async fn ask(&self, http: &Http, more: Option<(&str, &str)>) -> Result<Granted, Failure> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(CONTENT_TYPE, kind);
        self.basic.sign(&mut headers);
        let form = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(&self.form)
            .extend_pairs(more)
            .finish();
        http.requests.fetch_add(1, Ordering::Relaxed);
        let client = http.client(&self.url).await?;
        let request = client.post(self.url.clone()).headers(headers);
        let response = request.body(form).send().await;
        let response = response.map_err(|e| http.broken(&self.url, e))?;
        if !response.status().is_success() {
            let failure = http.refused(&self.url, response).await;
            return Err(self.refusal(failure));
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

    /// Adds the advice to a refusal.
    fn refusal(&self, mut failure: Failure) -> Failure {
        // Here these statuses mean wrong credentials, not a missing page.
        if matches!(failure.again, Again::Gone | Again::Absent) {
            failure.again = Again::Never;
        }
        if let (Again::Never, Error::Http { what, advice, .. }) =
            (failure.again, &mut *failure.error)
        {
            let own = match &self.grant {
                _ if !what.contains(INVALID_GRANT) => ADVICE,
                Grant::Fixed(advice) => *advice,
                Grant::Refresh(refresh) => refresh.advice(),
                Grant::Jwt(_) => jwt::ADVICE,
            };
            own.clone_into(advice);
        }
        failure
    }

    /// Reads the token of a response (RFC 6749, section 5.1). Messages quote nothing of the body.
    fn read(&self, http: &Http, body: &[u8]) -> Result<Granted, String> {
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
        let refresh_token = match document.at("refresh_token") {
            Some(Value::Text(text)) if !text.is_empty() => Some(text.clone()),
            _ => None,
        };
        Ok(Granted {
            token: Token { proof, until },
            refresh_token,
        })
    }
}

fn url_of(endpoint: &TokenEndpoint) -> Result<Url, Error> {
    let wrong = |reason: &str| Error::config("auth.token_url", reason);
    let url = Url::parse(&endpoint.token_url)
        .map_err(|_| wrong("is not a URL; write `https://host/path`"))?;
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_loopback(&url) => Ok(url),
        _ => Err(wrong(
            "is not https: the secret would be readable on its way",
        )),
    }
}

/// Hash of the configured credentials.
fn credential(url: &Url, form: &[(&str, String)], basic: &Proof, grant: &Grant) -> u128 {
    let mut text = format!("{url}\n{form:?}\n").into_bytes();
    let header = basic.header.as_ref().map(|(_, value)| value.as_bytes());
    text.extend_from_slice(header.unwrap_or_default());
    match grant {
        Grant::Fixed(_) => {}
        Grant::Refresh(refresh) => text.extend_from_slice(&refresh.key().to_le_bytes()),
        Grant::Jwt(jwt) => text.extend_from_slice(jwt.identity().as_bytes()),
    }
    xxh3_128(&text)
}

#[cfg(test)]
mod tests;
