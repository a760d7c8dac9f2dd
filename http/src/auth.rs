//! Credentials: tokens, keys and passwords, for the source's own origin only.
//!
//! Credentials are attached at send time, so no URL that is stored, compared or shown contains
//! them.

pub(crate) mod aws;
mod cookie;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod oauth;
pub(crate) mod proof;
mod session;

use std::fmt;

use feedline_schemas::config::{AuthConfig, GivenCookies, SecretRef, TextOrSecret};
use reqwest::{
    Client,
    header::{AUTHORIZATION, COOKIE, HeaderName},
};
use xxhash_rust::xxh3::xxh3_128;

use self::{
    aws::Aws,
    oauth::OAuth,
    proof::{Proof, basic, secret},
    session::Session,
};
use crate::{context::RequestContext, error::Error, redact::Secretive};

/// Authentication of a client.
#[derive(Default)]
pub(crate) enum Auth {
    #[default]
    None,
    Fixed(Box<Proof>),
    Credentials(Box<OAuth>),
    Session(Box<Session>),
    Aws(Box<Aws>),
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Fixed(_) => "fixed",
            Self::Credentials(_) => "oauth2",
            Self::Session(_) => "session",
            Self::Aws(_) => "aws",
        })
    }
}

impl Auth {
    /// Checks `config` and resolves its secrets, which are added to `secretive`.
    ///
    /// # Errors
    /// [`Error::Config`] for secrets that cannot be found or sent.
    pub(crate) fn new(
        config: &AuthConfig,
        client: &Client,
        context: &RequestContext,
        secretive: &mut Secretive,
    ) -> Result<Self, Error> {
        let mut found =
            |key: &str, reference: &SecretRef| secret(key, reference, context, secretive);
        let wrong = |key: &str, reason: String| Error::config(format!("auth.{key}"), reason);
        let proof = match config {
            AuthConfig::Bearer(keys) => Proof::bearer(&found("secret", &keys.secret)?)
                .map_err(|reason| wrong("secret", reason))?,
            AuthConfig::ApiKey(keys) => {
                let key = found("secret", &keys.secret)?;
                match (&keys.header, &keys.param) {
                    (Some(name), _) => {
                        let name = HeaderName::try_from(name)
                            .map_err(|_| wrong("header", "is not a header's name".into()))?;
                        Proof::header(name, &key).map_err(|reason| wrong("secret", reason))?
                    }
                    (None, param) => Proof {
                        param: param.clone().map(|param| (param, key)),
                        ..Proof::default()
                    },
                }
            }
            AuthConfig::Basic(keys) => {
                let user = match &keys.user {
                    TextOrSecret::Text(user) => user.clone(),
                    TextOrSecret::Secret(reference) => found("user", reference)?,
                };
                let password = found("password", &keys.password)?;
                basic(client, &user, &password, secretive)?
            }
            AuthConfig::Oauth2(keys) => {
                let oauth = OAuth::new(keys, client, context, secretive)?;
                return Ok(Self::Credentials(Box::new(oauth)));
            }
            AuthConfig::Cookies(keys) => cookies(keys, context, secretive)?,
            AuthConfig::Session(keys) => {
                let session = Session::new(keys, context, secretive)?;
                return Ok(Self::Session(Box::new(session)));
            }
            AuthConfig::Aws(keys) => {
                let aws = Aws::new(keys, context, secretive)?;
                return Ok(Self::Aws(Box::new(aws)));
            }
        };
        Ok(Self::Fixed(Box::new(proof)))
    }

    /// Hash that identifies a user of a server; 0 without credentials.
    pub(crate) fn credential(&self) -> u128 {
        match self {
            Self::None => 0,
            Self::Fixed(proof) => {
                let header = proof.header.as_ref().map(|(_, value)| value.as_bytes());
                let param = proof.param.as_ref().map(|(_, key)| key.as_bytes());
                xxh3_128(header.or(param).unwrap_or_default())
            }
            Self::Credentials(oauth) => oauth.credential(),
            Self::Session(session) => session.credential(),
            Self::Aws(aws) => aws.credential(),
        }
    }

    /// Header that it sends.
    pub(crate) fn header(&self) -> Option<&HeaderName> {
        match self {
            Self::Fixed(proof) => proof.header.as_ref().map(|(name, _)| name),
            Self::Credentials(_) | Self::Aws(_) => Some(&AUTHORIZATION),
            Self::Session(_) => Some(&COOKIE),
            Self::None => None,
        }
    }

    /// Query parameter that it sends.
    pub(crate) fn param(&self) -> Option<&str> {
        match self {
            Self::Fixed(proof) => proof.param.as_ref().map(|(name, _)| name.as_str()),
            Self::None | Self::Credentials(_) | Self::Session(_) | Self::Aws(_) => None,
        }
    }
}

/// `Cookie`, as the configuration has it.
fn cookies(
    config: &GivenCookies,
    context: &RequestContext,
    secretive: &mut Secretive,
) -> Result<Proof, Error> {
    let mut pairs = Vec::new();
    for (name, reference) in &config.cookies {
        let key = format!("cookies.{name}");
        let wrong = |reason: &str| Err(Error::config(format!("auth.{key}"), reason));
        if !cookie::is_name(name) {
            return wrong("is not a cookie's name; use letters, digits, `-`, `_` and `.`");
        }
        let value = secret(&key, reference, context, secretive)?;
        if !cookie::is_value(&value) {
            return wrong(
                "has characters that a cookie cannot carry, such as a space, a quote or a semicolon; give the value of one cookie alone, as the server has written it",
            );
        }
        pairs.push((name.as_str(), value));
    }
    let pairs = pairs.iter().map(|(name, value)| (*name, value.as_str()));
    Proof::header(COOKIE, &cookie::header(pairs))
        .map_err(|reason| Error::config("auth.cookies", reason))
}

#[cfg(test)]
mod tests;
