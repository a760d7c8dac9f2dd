//! Credentials: tokens, keys and passwords, for the source's own origin only.
//!
//! Credentials are attached at send time, so no URL that is stored, compared or shown contains
//! them.

mod aws;
mod cookie;
#[cfg(any(test, fuzzing))]
pub(super) mod fuzzing;
mod oauth;
mod session;

use std::fmt;

use feedline_schemas::config::{AuthConfig, GivenCookies, SecretRef, TextOrSecret};
use reqwest::{
    Client, Response, StatusCode,
    header::{ACCEPT, AUTHORIZATION, COOKIE, HeaderMap, HeaderName, HeaderValue},
};
use url::{Url, form_urlencoded};
use xxhash_rust::xxh3::xxh3_128;

pub(crate) use self::oauth::Rotated;
use self::{
    aws::{Aws, Unsigned},
    oauth::OAuth,
    session::Session,
};
use super::{
    Context, Error, Failure, Http, Request, Secretive, Turn, built, client, is_used_up, terminal,
};

const AWS_ADVICE: &str = "check the keys of `auth` and this machine's clock";

/// Authentication of a client.
#[derive(Default)]
pub(super) enum Auth {
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

/// Credentials added to a request.
#[derive(Clone, Default)]
pub(super) struct Proof {
    header: Option<(HeaderName, HeaderValue)>,
    param: Option<(String, String)>,
    /// URL as it is signed, and headers with the signature.
    signed: Option<(Url, HeaderMap)>,
}

impl Proof {
    fn bearer(token: &str) -> Result<Self, String> {
        Self::header(AUTHORIZATION, &format!("Bearer {token}"))
    }

    fn header(name: HeaderName, value: &str) -> Result<Self, String> {
        let mut value = HeaderValue::try_from(value).map_err(|_| {
            "has characters that a header cannot carry, such as a line end".to_owned()
        })?;
        value.set_sensitive(true);
        Ok(Self {
            header: Some((name, value)),
            ..Self::default()
        })
    }

    /// Adds its headers.
    pub(super) fn sign(&self, headers: &mut HeaderMap) {
        if let Some((_, signed)) = &self.signed {
            for (name, value) in signed {
                headers.insert(name.clone(), value.clone());
            }
        }
        if let Some((name, value)) = &self.header {
            headers.insert(name.clone(), value.clone());
        }
    }

    /// `url` with its query parameter.
    pub(super) fn target(&self, url: &Url) -> Url {
        if let Some((signed, _)) = &self.signed {
            return signed.clone();
        }
        let Some((param, key)) = &self.param else {
            return url.clone();
        };
        let mut url = without_param(url.clone(), param);
        url.query_pairs_mut().append_pair(param, key);
        url
    }
}

/// Removes the query parameter `param` from `url`. The rest stays as written.
pub(crate) fn without_param(mut url: Url, param: &str) -> Url {
    let is_it = |pair: &str| form_urlencoded::parse(pair.as_bytes()).any(|(name, _)| name == param);
    let Some(query) = url.query().filter(|query| query.split('&').any(is_it)) else {
        return url;
    };
    let kept: Vec<&str> = query.split('&').filter(|pair| !is_it(pair)).collect();
    let kept = kept.join("&");
    url.set_query((!kept.is_empty()).then_some(kept.as_str()));
    url
}

impl Auth {
    /// Checks `config` and resolves its secrets, which are added to `secretive`.
    ///
    /// # Errors
    /// [`Error::Config`] for secrets that cannot be found or sent.
    pub(super) fn new(
        config: &AuthConfig,
        client: &Client,
        context: &Context,
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
    fn credential(&self) -> u128 {
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
    pub(super) fn header(&self) -> Option<&HeaderName> {
        match self {
            Self::Fixed(proof) => proof.header.as_ref().map(|(name, _)| name),
            Self::Credentials(_) | Self::Aws(_) => Some(&AUTHORIZATION),
            Self::Session(_) => Some(&COOKIE),
            Self::None => None,
        }
    }

    /// Query parameter that it sends.
    pub(super) fn param(&self) -> Option<&str> {
        match self {
            Self::Fixed(proof) => proof.param.as_ref().map(|(name, _)| name.as_str()),
            Self::None | Self::Credentials(_) | Self::Session(_) | Self::Aws(_) => None,
        }
    }
}

fn secret(
    key: &str,
    reference: &SecretRef,
    context: &Context,
    secretive: &mut Secretive,
) -> Result<String, Error> {
    let wrong = |reason: String| Error::config(format!("auth.{key}"), reason);
    if !reference.prefix.is_empty() {
        let reason = "has a `prefix`, which `auth` puts itself; remove it";
        return Err(wrong(reason.into()));
    }
    let text = context.secrets.resolve(reference).map_err(wrong)?;
    if text.is_empty() {
        return Err(wrong("is empty; set it to the secret".into()));
    }
    // A user name alone is no secret, and may be a word of the data.
    let is_name = matches!(key, "user" | "client_id" | "access_key_id");
    for text in [&text, &encoded(&text)] {
        secretive.add_proof(text);
        if !is_name {
            secretive.mask(text);
        }
    }
    Ok(text)
}

fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// `Authorization: Basic`, as the HTTP library writes it.
fn basic(
    client: &Client,
    user: &str,
    password: &str,
    secretive: &mut Secretive,
) -> Result<Proof, Error> {
    let request = client.get("http://localhost/");
    let request = request.basic_auth(user, Some(password)).build();
    let value = request
        .ok()
        .and_then(|request| request.headers().get(AUTHORIZATION).cloned());
    let value = value.ok_or_else(|| Error::config("auth.user", "cannot be sent in a header"))?;
    let text = value.to_str().unwrap_or_default();
    text.split_whitespace().for_each(|word| secretive.add(word));
    secretive.mask(text.split_whitespace().next_back().unwrap_or_default());
    Proof::header(AUTHORIZATION, text).map_err(|reason| Error::config("auth.user", reason))
}

/// `Cookie`, as the configuration has it.
fn cookies(
    config: &GivenCookies,
    context: &Context,
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

impl Http {
    /// Adds the credentials of `config` to the client, if it has any.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub(crate) fn with_auth(
        mut self,
        config: Option<&AuthConfig>,
        context: &Context,
    ) -> Result<Self, Error> {
        let Some(config) = config else {
            return Ok(self);
        };
        let client = built(client(&self.limits))?;
        let auth = Auth::new(config, &client, context, &mut self.secretive)?;
        if let Some(name) = auth.header()
            && self.headers.contains_key(name)
        {
            let reason = format!("`headers` has `{name}`, which `auth` sends; remove one of them");
            return Err(Error::config("auth.type", reason));
        }
        if let Auth::Credentials(oauth) = &auth {
            self.guard.configure(oauth.url());
        }
        if let Auth::Session(session) = &auth
            && session.url().origin() != self.origin
        {
            let reason = "has another scheme, host or port than `url`: its cookies would not be for that; give the login of the same host";
            return Err(Error::config("auth.login_url", reason));
        }
        // One budget for each user of a server, identified by a hash of the secrets.
        self.credential ^= auth.credential();
        self.auth = auth;
        Ok(self)
    }

    /// Sends `request` with `headers`, and with credentials where they belong. A refused
    /// token or session is replaced and the request sent again, once.
    pub(super) async fn send_proved(
        &self,
        request: &Request,
        mut headers: HeaderMap,
        turn: &mut Turn,
    ) -> Result<Response, Failure> {
        let url = &request.url;
        headers.insert(ACCEPT, HeaderValue::from_static(self.accept));
        let is_home = url.origin() == self.origin;
        match &self.auth {
            Auth::Fixed(proof) if is_home => self.send(request, headers, proof, turn).await,
            Auth::Credentials(oauth) if is_home => {
                let proof = oauth.proof(self, None).await?;
                let response = self.send(request, headers.clone(), &proof, turn).await?;
                if response.status() != StatusCode::UNAUTHORIZED {
                    return Ok(response);
                }
                let proof = oauth.proof(self, Some(&proof)).await?;
                self.send(request, headers, &proof, turn).await
            }
            Auth::Session(session) if is_home => {
                let (proof, login) = session.proof(self, url, None).await?;
                let response = self.send(request, headers.clone(), &proof, turn).await?;
                if !self.is_logged_out(&response) {
                    return Ok(response);
                }
                let (proof, _) = session.proof(self, url, Some(login)).await?;
                self.send(request, headers, &proof, turn).await
            }
            Auth::Aws(aws) if is_home => {
                let mut all = self.headers.clone();
                request.add_headers(&mut all);
                all.extend(request.content_type());
                all.extend(headers.clone());
                let unsigned = Unsigned {
                    method: &request.method,
                    url,
                    headers: &all,
                    body: request.body.as_ref().map_or(b"", |body| &body.bytes),
                };
                let proof = aws.sign(&unsigned, self.clock.unix());
                let proof = proof.map_err(|what| terminal(url, what, AWS_ADVICE))?;
                self.send(request, headers, &proof, turn).await
            }
            _ => self.send(request, headers, &Proof::default(), turn).await,
        }
    }

    /// Returns true if a response means that the session has ended.
    fn is_logged_out(&self, response: &Response) -> bool {
        let status = response.status();
        matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
            && !is_used_up(status, self.quota(response.headers()))
    }

    /// Returns true if `text` contains a credential and must not be written anywhere.
    pub(crate) fn is_revealed_by(&self, text: &str) -> bool {
        self.secretive.is_revealed_by(text)
    }

    /// Returns `url` without credentials in its query, as it may be stored. They are sent to the
    /// source's own origin anyway.
    pub(super) fn without_proof(&self, url: Url) -> Url {
        match self.auth.param() {
            Some(param) if url.origin() == self.origin => without_param(url, param),
            _ => url,
        }
    }
}

#[cfg(test)]
mod tests;
