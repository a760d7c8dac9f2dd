//! Headers of the configuration, checked and with their secrets in.

use std::collections::BTreeMap;

use feedline_schemas::config::TextOrSecret;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use xxhash_rust::xxh3::Xxh3;

use crate::{context::RequestContext, error::Error, redact::Secretive, secret_names::is_secret};

/// Headers that the client must set itself for the exchange to work.
const OWN_HEADERS: [&str; 6] = [
    "accept-encoding",
    "connection",
    "content-length",
    "host",
    "range",
    "transfer-encoding",
];

/// Headers with credentials: their values are secrets, which a configuration does not hold.
const SECRET_HEADERS: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

/// Resolves the headers to send. Possible secrets are added to `secretive`.
///
/// # Errors
/// [`Error::Config`] for a header that cannot be sent or a secret that cannot be found.
pub(crate) fn resolve(
    headers: &BTreeMap<String, TextOrSecret>,
    context: &RequestContext,
    secretive: &mut Secretive,
) -> Result<HeaderMap, Error> {
    let mut resolved = HeaderMap::new();
    for (name, value) in headers {
        let wrong = |reason: String| Error::config(format!("headers.{name}"), reason);
        let text = match value {
            TextOrSecret::Text(text) => {
                if is_secret(name, text) {
                    secretive.mask(text);
                }
                text.clone()
            }
            TextOrSecret::Secret(reference) => {
                let text = context.secrets.resolve(reference).map_err(wrong)?;
                let secret = text.strip_prefix(&reference.prefix).unwrap_or(&text);
                if secret.is_empty() {
                    return Err(wrong("is empty; set it to the secret".into()));
                }
                secretive.add(secret);
                secretive.mask(secret);
                text
            }
        };
        text.split_whitespace().for_each(|word| secretive.add(word));
        let header =
            HeaderName::try_from(name).map_err(|_| wrong("is not a header's name".into()))?;
        if OWN_HEADERS.contains(&header.as_str()) {
            return Err(wrong("is set by feedline itself; remove it".into()));
        }
        if SECRET_HEADERS.contains(&header.as_str()) && matches!(value, TextOrSecret::Text(_)) {
            let reason = "holds credentials, and secrets are not written into a configuration; use a reference, such as `{ env = \"API_TOKEN\", prefix = \"Bearer \" }` or `{ file = \"PATH\" }`";
            return Err(wrong(reason.into()));
        }
        let mut value = HeaderValue::try_from(text).map_err(|_| {
            wrong("its value has characters a header cannot carry, such as a line end".into())
        })?;
        value.set_sensitive(true);
        resolved.insert(header, value);
    }
    Ok(resolved)
}

/// Hash of the secrets, which identify a user of a server; 0 without secrets.
pub(crate) fn credential(headers: &BTreeMap<String, TextOrSecret>, resolved: &HeaderMap) -> u128 {
    let (mut hash, mut is_somebody) = (Xxh3::new(), false);
    for (name, value) in headers {
        let is_secret = matches!(value, TextOrSecret::Secret(_));
        if let Some(value) = resolved.get(name).filter(|_| is_secret) {
            hash.update(value.as_bytes());
            hash.update(b"\n");
            is_somebody = true;
        }
    }
    if is_somebody { hash.digest128() } else { 0 }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use feedline_schemas::config::SecretRef;

    use super::*;
    use crate::{context::Secrets, testing::context};

    /// Resolves each reference to its prefix and an empty secret.
    #[derive(Debug)]
    struct EmptySecrets;

    impl Secrets for EmptySecrets {
        fn resolve(&self, reference: &SecretRef) -> Result<String, String> {
            Ok(reference.prefix.clone())
        }
    }

    #[test]
    fn an_empty_secret_is_refused_with_and_without_a_prefix() {
        let context = RequestContext {
            secrets: Arc::new(EmptySecrets),
            ..context()
        };
        for prefix in ["", "Token "] {
            let reference = SecretRef {
                env: Some("TOKEN".into()),
                file: None,
                prefix: prefix.into(),
            };
            let headers = BTreeMap::from([("X-Token".to_owned(), TextOrSecret::Secret(reference))]);
            let error = resolve(&headers, &context, &mut Secretive::default()).unwrap_err();
            let expected = "`headers.X-Token`: is empty; set it to the secret";
            assert_eq!(error.to_string(), expected, "{prefix}");
        }
    }

    #[test]
    fn headers_that_cannot_be_sent_name_their_key() {
        let file = SecretRef {
            env: None,
            file: Some("x".into()),
            prefix: String::new(),
        };
        for (name, value) in [
            ("a b", TextOrSecret::Text("x".into())),
            ("X-Key", TextOrSecret::Text("line\nend".into())),
            ("Accept-Encoding", TextOrSecret::Text("br".into())),
            ("X-Key", TextOrSecret::Secret(file)),
        ] {
            let headers = BTreeMap::from([(name.to_owned(), value)]);
            let error = resolve(&headers, &context(), &mut Secretive::default()).unwrap_err();
            assert!(
                matches!(&error, Error::Config { key, .. } if *key == format!("headers.{name}")),
                "{error}"
            );
            assert!(!error.to_string().contains("line\nend"));
        }
    }

    #[test]
    fn what_says_who_asks_is_given_by_reference() {
        for name in ["Authorization", "COOKIE", "proxy-authorization"] {
            let check = |value: TextOrSecret| {
                let headers = BTreeMap::from([(name.to_owned(), value)]);
                resolve(&headers, &context(), &mut Secretive::default())
            };
            let error = check(TextOrSecret::Text("Bearer canary".into())).unwrap_err();
            let expected = format!(
                "`headers.{name}`: holds credentials, and secrets are not written into a configuration; use a reference, such as `{{ env = \"API_TOKEN\", prefix = \"Bearer \" }}` or `{{ file = \"PATH\" }}`"
            );
            assert_eq!(error.to_string(), expected);
            let reference = SecretRef {
                env: Some("TOKEN".into()),
                file: None,
                prefix: "Bearer ".into(),
            };
            let headers = check(TextOrSecret::Secret(reference)).unwrap();
            assert_eq!(headers[name], "Bearer secret-TOKEN");
        }
    }
}
