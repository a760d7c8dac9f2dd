//! Signatures of AWS, version 4 (SigV4): <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html>.

use std::{collections::BTreeMap, time::Duration};

use feedline_schemas::config::{AwsSignature, SecretRef, TextOrSecret};
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use reqwest::{
    Method,
    header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue},
};
use ring::{digest, hmac};
use url::Url;
use xxhash_rust::xxh3::xxh3_128;

use super::proof::{Proof, secret};
use crate::{context::RequestContext, error::Error, redact::Secretive};

/// All but the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
const RESERVED_IN_PATH: &AsciiSet = &RESERVED.remove(b'/');
const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const HASH: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");

/// Signer of requests for one service in one region.
pub(crate) struct Aws {
    region: String,
    service: String,
    key_id: String,
    secret: String,
    token: Option<HeaderValue>,
}

/// A request to sign.
pub(crate) struct Unsigned<'a> {
    pub(crate) method: &'a Method,
    pub(crate) url: &'a Url,
    /// Other headers of the request.
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a [u8],
}

impl Aws {
    pub(super) fn new(
        config: &AwsSignature,
        context: &RequestContext,
        secretive: &mut Secretive,
    ) -> Result<Self, Error> {
        let wrong = |key: &str, reason: &str| Error::config(format!("auth.{key}"), reason);
        let region = match &config.region {
            TextOrSecret::Text(region) => region.clone(),
            // It is no secret, and a part of many URLs.
            TextOrSecret::Secret(reference) => {
                let found = context.secrets.resolve(reference);
                found.map_err(|reason| wrong("region", &reason))?
            }
        };
        let mut found =
            |key: &str, reference: &SecretRef| secret(key, reference, context, secretive);
        let key_id = match &config.access_key_id {
            TextOrSecret::Text(id) => id.clone(),
            TextOrSecret::Secret(reference) => found("access_key_id", reference)?,
        };
        let words = [
            ("region", &region),
            ("service", &config.service),
            ("access_key_id", &key_id),
        ];
        for (key, word) in words {
            let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            if word.is_empty() || !word.chars().all(is_valid) {
                let reason = "is empty or has characters other than letters, digits, `-`, `_` and `.`; write it as AWS does";
                return Err(wrong(key, reason));
            }
        }
        let service = config.service.clone();
        let secret = found("secret_access_key", &config.secret_access_key)?;
        let token = config.session_token.as_ref();
        let token = token.map(|token| found("session_token", token));
        let token = token.transpose()?.map(HeaderValue::try_from);
        let mut token = token.transpose().map_err(|_| {
            let reason = "has characters that a header cannot carry, such as a line end";
            wrong("session_token", reason)
        })?;
        if let Some(token) = &mut token {
            token.set_sensitive(true);
        }
        Ok(Self {
            region,
            service,
            key_id,
            secret,
            token,
        })
    }

    /// Hash that identifies the account.
    pub(super) fn credential(&self) -> u128 {
        xxh3_128(format!("{}\n{}", self.key_id, self.secret).as_bytes())
    }

    /// Signs a request that is sent at the time `now` since 1970.
    ///
    /// # Errors
    /// A message about a time or a header that cannot be sent.
    pub(crate) fn sign(&self, request: &Unsigned<'_>, now: Duration) -> Result<Proof, String> {
        let time = i64::try_from(now.as_secs()).ok();
        let time = time.and_then(|time| Timestamp::from_second(time).ok());
        let time = time.ok_or("this machine's clock has no valid time")?;
        let time = time.strftime("%Y%m%dT%H%M%SZ").to_string();
        let hash = hex(digest::digest(&digest::SHA256, request.body).as_ref());
        let mut added = HeaderMap::new();
        added.insert(DATE, header(&time)?);
        if self.service == "s3" {
            added.insert(HASH, header(&hash)?);
        }
        added.extend(self.token.clone().map(|token| (TOKEN, token)));
        let mut url = request.url.clone();
        // The query is sent as it is signed: servers read `+` in different ways.
        let query = canonical_query(request.url);
        if request.url.query().is_some() {
            url.set_query(Some(&query));
        }
        let headers = signed_headers(request, &added);
        let names: Vec<&str> = headers.keys().map(String::as_str).collect();
        let names = names.join(";");
        let listed: String = headers.iter().map(|(n, v)| format!("{n}:{v}\n")).collect();
        let path = canonical_path(request.url.path(), &self.service);
        let method = request.method;
        let canonical = format!("{method}\n{path}\n{query}\n{listed}\n{names}\n{hash}");
        let canonical = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
        let day = time.get(..8).unwrap_or_default();
        let scope = format!("{day}/{}/{}/aws4_request", self.region, self.service);
        let to_sign = format!("{ALGORITHM}\n{time}\n{scope}\n{canonical}");
        let signature = hex(mac(&self.key(day), &to_sign).as_ref());
        let key_id = &self.key_id;
        let mut value = header(&format!(
            "{ALGORITHM} Credential={key_id}/{scope}, SignedHeaders={names}, Signature={signature}"
        ))?;
        value.set_sensitive(true);
        added.insert(AUTHORIZATION, value);
        Ok(Proof {
            signed: Some((url, added)),
            ..Proof::default()
        })
    }

    /// Key for a day.
    fn key(&self, day: &str) -> hmac::Tag {
        let secret = format!("AWS4{}", self.secret);
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let day = hmac::sign(&key, day.as_bytes());
        let region = mac(&day, &self.region);
        let service = mac(&region, &self.service);
        mac(&service, "aws4_request")
    }
}

fn mac(key: &hmac::Tag, text: &str) -> hmac::Tag {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_ref());
    hmac::sign(&key, text.as_bytes())
}

fn header(text: &str) -> Result<HeaderValue, String> {
    HeaderValue::try_from(text).map_err(|_| "its signature has characters of no header".to_owned())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The headers that must be signed, by name: `host`, `content-type` and all of AWS.
fn signed_headers(request: &Unsigned<'_>, added: &HeaderMap) -> BTreeMap<String, String> {
    let host = request.url.host_str().unwrap_or_default();
    let host = match request.url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    let mut all = BTreeMap::from([(HOST.to_string(), host)]);
    let own = [&DATE, &HASH, &TOKEN];
    let others = request.headers.iter().filter(|(name, _)| {
        let is_of_aws = name.as_str().starts_with("x-amz-") && !own.contains(name);
        is_of_aws || *name == CONTENT_TYPE
    });
    for (name, value) in others.chain(added) {
        let text = String::from_utf8_lossy(value.as_bytes());
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let words = words.join(" ");
        all.entry(name.to_string())
            .and_modify(|listed| *listed += &format!(",{words}"))
            .or_insert(words);
    }
    all
}

/// The path as it is signed. S3 takes it as it is, other services without repeated slashes and
/// encoded once more.
fn canonical_path(path: &str, service: &str) -> String {
    if service == "s3" {
        let bytes: Vec<u8> = percent_decode_str(path).collect();
        return percent_encode(&bytes, RESERVED_IN_PATH).to_string();
    }
    let mut short = String::with_capacity(path.len());
    for c in path.chars() {
        if !(c == '/' && short.ends_with('/')) {
            short.push(c);
        }
    }
    percent_encode(short.as_bytes(), RESERVED_IN_PATH).to_string()
}

/// The parameters of a URL, encoded and ordered.
fn canonical_query(url: &Url) -> String {
    let encode = |text: &str| percent_encode(text.as_bytes(), RESERVED).to_string();
    let pairs = url.query_pairs();
    let pairs = pairs.map(|(name, value)| (encode(&name), encode(&value)));
    let mut pairs: Vec<(String, String)> = pairs.collect();
    pairs.sort_unstable();
    let pairs = pairs.iter().map(|(name, value)| format!("{name}={value}"));
    pairs.collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests;
