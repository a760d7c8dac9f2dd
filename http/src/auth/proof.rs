//! Credentials of a request, and the secrets they are made of.

use feedline_schemas::config::SecretRef;
use reqwest::{
    Client,
    header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue},
};
use url::{Url, form_urlencoded};

use crate::{context::RequestContext, error::Error, redact::Secretive};

/// Credentials added to a request.
#[derive(Clone, Default)]
pub(crate) struct Proof {
    pub(super) header: Option<(HeaderName, HeaderValue)>,
    pub(super) param: Option<(String, String)>,
    /// URL as it is signed, and headers with the signature.
    pub(super) signed: Option<(Url, HeaderMap)>,
}

impl Proof {
    pub(super) fn bearer(token: &str) -> Result<Self, String> {
        Self::header(AUTHORIZATION, &format!("Bearer {token}"))
    }

    pub(super) fn header(name: HeaderName, value: &str) -> Result<Self, String> {
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
    pub(crate) fn sign(&self, headers: &mut HeaderMap) {
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
    pub(crate) fn target(&self, url: &Url) -> Url {
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
#[must_use]
pub fn without_param(mut url: Url, param: &str) -> Url {
    let is_it = |pair: &str| form_urlencoded::parse(pair.as_bytes()).any(|(name, _)| name == param);
    let Some(query) = url.query().filter(|query| query.split('&').any(is_it)) else {
        return url;
    };
    let kept: Vec<&str> = query.split('&').filter(|pair| !is_it(pair)).collect();
    let kept = kept.join("&");
    url.set_query((!kept.is_empty()).then_some(kept.as_str()));
    url
}

pub(super) fn secret(
    key: &str,
    reference: &SecretRef,
    context: &RequestContext,
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

pub(super) fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// `Authorization: Basic`, as the HTTP library writes it.
pub(super) fn basic(
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
