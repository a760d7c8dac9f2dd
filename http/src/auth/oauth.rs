//! Tokens of a token endpoint (RFC 6749).

mod jwt;
mod refresh;
mod token_requests;

use feedline_schemas::config::{
    CredentialsIn, OauthConfig, OauthGrant, SecretRef, TextOrSecret, TokenEndpoint,
};
use reqwest::Client;
use tokio::sync::Mutex;
use url::Url;
use xxhash_rust::xxh3::xxh3_128;

use self::{
    jwt::Jwt,
    refresh::Refresh,
    token_requests::{Token, TokenRequests},
};
use super::proof::{Proof, basic, encoded, secret};
use crate::{
    classification::terminal,
    context::RequestContext,
    error::Error,
    http_cause::HttpCause,
    location::is_loopback,
    redact::Secretive,
    retry::failed_try::{Again, Failure},
    transport::Transport,
};

/// A token endpoint, the credentials for it, and the token obtained with them.
pub(crate) struct OAuth {
    requests: TokenRequests,
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

impl Grant {
    /// Advice for a refusal.
    fn advice(&self) -> &'static str {
        match self {
            Self::Fixed(advice) => advice,
            Self::Refresh(refresh) => refresh.advice(),
            Self::Jwt(_) => jwt::ADVICE,
        }
    }
}

/// A grant with the client that asks for it.
struct ClientGrant<'c> {
    /// `grant_type` of a request.
    kind: &'static str,
    /// Id and secret of the client.
    client: (Option<&'c SecretRef>, Option<&'c SecretRef>),
    /// Further fields of each request.
    fields: Vec<(&'static str, String)>,
    grant: Grant,
}

impl<'c> ClientGrant<'c> {
    fn new(
        grant: &'c OauthGrant,
        url: &Url,
        scope: Option<&str>,
        context: &RequestContext,
        found: &mut impl FnMut(&str, &SecretRef) -> Result<String, Error>,
    ) -> Result<Self, Error> {
        let mut fields = Vec::new();
        let (kind, client, grant) = match grant {
            OauthGrant::ClientCredentials(keys) => (
                "client_credentials",
                (Some(&keys.client_id), Some(&keys.client_secret)),
                Grant::Fixed("check `auth.client_id` and `auth.client_secret`"),
            ),
            OauthGrant::RefreshToken(keys) => (
                "refresh_token",
                (Some(&keys.client_id), keys.client_secret.as_ref()),
                Grant::Refresh(Refresh::new(keys, url, context, found)?),
            ),
            OauthGrant::Password(keys) => {
                let user = match &keys.user {
                    TextOrSecret::Text(user) => user.clone(),
                    TextOrSecret::Secret(reference) => found("user", reference)?,
                };
                fields.push(("username", user));
                fields.push(("password", found("password", &keys.password)?));
                (
                    "password",
                    (keys.client_id.as_ref(), keys.client_secret.as_ref()),
                    Grant::Fixed("check `auth.user` and `auth.password`"),
                )
            }
            OauthGrant::JwtBearer(keys) => {
                let key = found("private_key", &keys.private_key)?;
                let jwt = Jwt::new(keys, &key, url, scope, &context.run_id)?;
                (jwt::GRANT, (None, None), Grant::Jwt(Box::new(jwt)))
            }
        };
        Ok(Self {
            kind,
            client,
            fields,
            grant,
        })
    }
}

#[derive(Default)]
struct TokenState {
    token: Option<Token>,
    /// Cause, event and advice of a final refusal: no further token is requested.
    refusal: Option<(HttpCause, String, String)>,
}

impl OAuth {
    pub(super) fn new(
        config: &OauthConfig,
        client: &Client,
        context: &RequestContext,
        secretive: &mut Secretive,
    ) -> Result<Self, Error> {
        let OauthConfig { endpoint, grant } = config;
        let url = url_of(endpoint)?;
        secretive.add_url(&url);
        let mut found =
            |key: &str, reference: &SecretRef| secret(key, reference, context, secretive);
        let scope = endpoint.scope.clone();
        let ClientGrant {
            kind,
            client: (id, secret),
            fields,
            grant,
        } = ClientGrant::new(grant, &url, scope.as_deref(), context, &mut found)?;
        let id = id.map(|id| found("client_id", id)).transpose()?;
        let secret = secret.map(|secret| found("client_secret", secret));
        let secret = secret.transpose()?;
        let scope = scope.map(|scope| ("scope", scope));
        let kind = ("grant_type", kind.to_owned());
        let mut form: Vec<_> = [kind].into_iter().chain(scope).chain(fields).collect();
        let credentials = (id, secret, endpoint.credentials);
        let basic = authenticate(credentials, &mut form, client, secretive)?;
        Ok(Self {
            credential: credential(&url, &form, &basic, &grant),
            requests: TokenRequests {
                url,
                form,
                basic,
                advice: grant.advice(),
            },
            grant,
            state: Mutex::default(),
        })
    }

    /// Configured token endpoint.
    pub(crate) fn url(&self) -> &Url {
        &self.requests.url
    }

    /// A hash of the credentials.
    pub(super) fn credential(&self) -> u128 {
        self.credential
    }

    /// Returns a token other than the `refused` one. Concurrent requests wait for the first one to
    /// get it.
    pub(crate) async fn proof(
        &self,
        transport: &Transport,
        refused: Option<&Proof>,
    ) -> Result<Proof, Failure> {
        let mut state = self.state.lock().await;
        if let Some(Token { proof, until }) = &state.token {
            let is_fresh = until.is_none_or(|until| transport.clock.monotonic() < until);
            if is_fresh && refused.is_none_or(|refused| refused.header != proof.header) {
                return Ok(proof.clone());
            }
        }
        if let Some((cause, what, advice)) = &state.refusal {
            return Err(terminal(&self.requests.url, what, advice).caused_by(*cause));
        }
        let fresh = self.renew(transport).await.inspect_err(|failure| {
            if let (
                Again::Never,
                Error::Http {
                    cause,
                    what,
                    advice,
                    ..
                },
            ) = (failure.again, &*failure.error)
            {
                state.refusal = Some((*cause, what.clone(), advice.clone()));
            }
        })?;
        let proof = fresh.proof.clone();
        state.token = Some(fresh);
        Ok(proof)
    }

    async fn renew(&self, transport: &Transport) -> Result<Token, Failure> {
        match &self.grant {
            Grant::Fixed(_) => self
                .requests
                .ask(transport, None)
                .await
                .map(|granted| granted.token),
            Grant::Jwt(jwt) => {
                let assertion = jwt.sign(transport.clock.unix()).map_err(|reason| {
                    let key = Error::config("auth.private_key", reason);
                    Failure {
                        error: Box::new(key),
                        again: Again::Never,
                    }
                })?;
                transport.secretive.add_late(&assertion);
                let granted = self
                    .requests
                    .ask(transport, Some(("assertion", &assertion)))
                    .await;
                granted.map(|granted| granted.token)
            }
            Grant::Refresh(refresh) => refresh.renew(&self.requests, transport).await,
        }
    }
}

/// Puts the id and secret of a client into the form, or returns the header that has them.
fn authenticate(
    credentials: (Option<String>, Option<String>, CredentialsIn),
    form: &mut Vec<(&'static str, String)>,
    client: &Client,
    secretive: &mut Secretive,
) -> Result<Proof, Error> {
    match credentials {
        // RFC 6749, section 2.3.1: id and secret are encoded as in a form first.
        (Some(id), Some(secret), CredentialsIn::Header) => {
            basic(client, &encoded(&id), &encoded(&secret), secretive)
        }
        (None, Some(_), _) => {
            let reason = "is missing: `auth.client_secret` is the secret of a client; add it";
            Err(Error::config("auth.client_id", reason))
        }
        (id, secret, _) => {
            form.extend(id.map(|id| ("client_id", id)));
            form.extend(secret.map(|secret| ("client_secret", secret)));
            Ok(Proof::default())
        }
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
