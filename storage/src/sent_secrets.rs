//! Secrets of the requests to an object store. A store may repeat them in its responses: S3 shows the session token
//! in the errors about it.

use std::collections::BTreeMap;

use feedline_http::{SecretMasks, is_secret};
use object_store::client::HttpRequest;
use reqwest::header::AUTHORIZATION;
use url::form_urlencoded;

/// Masks of the secrets among the variables `vars` of a store.
pub(crate) fn masks_of_variables(vars: &BTreeMap<String, String>) -> SecretMasks {
    let secrets = vars
        .iter()
        .filter(|(name, value)| is_secret_variable(name, value));
    SecretMasks::of(secrets.map(|(_, value)| value.clone()).collect())
}

/// Returns true for the variables of credentials, except names of users and paths of files.
fn is_secret_variable(name: &str, value: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let is_name = ["_ID", "_FILE", "_URI"]
        .iter()
        .any(|end| name.ends_with(end));
    let is_key = name.ends_with("_KEY") || name.contains("CUSTOMER_KEY");
    !is_name && (is_key || is_secret(&name, value))
}

/// Credentials in the headers and the query of `request`. Some are not among the variables, such as those of the
/// machine that this program runs on.
pub(crate) fn sent_secrets(request: &HttpRequest) -> Vec<String> {
    let mut secrets = Vec::new();
    for (name, value) in request.headers() {
        let Ok(text) = value.to_str() else { continue };
        if name == AUTHORIZATION {
            // A token or the parts of a signature, behind the scheme if there is one.
            let parts = text.split_once(' ').map_or(text, |(_, parts)| parts);
            let parts = parts.split([' ', ',']).filter(|part| !part.is_empty());
            for part in parts {
                // Signatures of S3 have a name, and those of Azure are behind the account.
                let part = part.strip_prefix("Signature=").unwrap_or(part);
                let behind = part.rsplit_once(':').map(|(_, behind)| behind);
                secrets.extend([part].into_iter().chain(behind).map(str::to_owned));
            }
        } else if value.is_sensitive() || is_secret(name.as_str(), text) {
            secrets.push(text.to_owned());
        }
    }
    let query = request.uri().query().unwrap_or_default();
    let pairs = form_urlencoded::parse(query.as_bytes());
    let pairs = pairs.filter(|(name, value)| is_secret(name, value));
    secrets.extend(pairs.map(|(_, value)| value.into_owned()));
    secrets
}

#[cfg(test)]
mod tests {
    use object_store::client::HttpRequestBody;
    use reqwest::header::HeaderValue;

    use super::*;
    use crate::{Store, StoreOptions, web_tests::Server};

    fn vars(address: &str) -> StoreOptions {
        let vars = [
            ("AWS_ENDPOINT_URL", address),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE"),
            ("AWS_SECRET_ACCESS_KEY", "key/canary"),
            ("AWS_SESSION_TOKEN", "token/canary"),
        ];
        StoreOptions {
            vars: vars
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            ..StoreOptions::default()
        }
    }

    #[tokio::test]
    async fn credentials_that_an_object_store_repeats_are_masked_in_its_errors() {
        let body = "<Error><Code>ExpiredToken</Code><Token-0>token/canary</Token-0><Key>key%2Fcanary</Key>\
                    <AWSAccessKeyId>AKIAEXAMPLE</AWSAccessKeyId></Error>";
        for status in ["400 Bad Request", "403 Forbidden"] {
            let answer = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
            let server = Server::start("127.0.0.1", Some(answer)).await;
            let options = vars(&format!("http://127.0.0.1:{}", server.port));
            let store = Store::open("s3://bucket/data", &options).unwrap();
            let errors = [
                store.get("a.csv").await.unwrap_err(),
                store.list("").await.unwrap_err(),
            ];
            for error in errors {
                let error = format!("{error} {error:?}");
                assert!(!error.contains("canary"), "{error}");
                assert!(
                    error.contains("<Token-0>***</Token-0><Key>***</Key>"),
                    "{error}"
                );
                assert!(error.contains("AKIAEXAMPLE"), "{error}");
            }
        }
    }

    #[test]
    fn credentials_of_a_request_are_found_in_its_headers_and_its_query() {
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.uri_mut() = "http://h/a?sv=2026&sig=s%2F123456".parse().unwrap();
        let headers = request.headers_mut();
        for (name, value) in [
            ("authorization", "Bearer token-1"),
            ("x-amz-security-token", "token-2"),
            ("x-amz-date", "20261130T000000Z"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        assert_eq!(sent_secrets(&request), ["token-1", "token-2", "s/123456"]);
        let signed = "AWS4-HMAC-SHA256 Credential=A/b, SignedHeaders=host, Signature=0a1b";
        request
            .headers_mut()
            .insert(AUTHORIZATION, HeaderValue::from_static(signed));
        assert!(sent_secrets(&request).contains(&"0a1b".to_owned()));
        let token = HeaderValue::from_static("token-3");
        request.headers_mut().insert(AUTHORIZATION, token);
        assert!(sent_secrets(&request).contains(&"token-3".to_owned()));
        let shared = HeaderValue::from_static("SharedKey account:c2ln=");
        request.headers_mut().insert(AUTHORIZATION, shared);
        for secret in ["account:c2ln=", "c2ln="] {
            assert!(
                sent_secrets(&request).contains(&secret.to_owned()),
                "{secret}"
            );
        }
    }

    #[test]
    fn variables_of_credentials_are_known_and_those_of_names_and_paths_are_not() {
        for name in [
            "AWS_SESSION_TOKEN",
            "aws_secret_access_key",
            "AZURE_STORAGE_ACCOUNT_KEY",
            "AZURE_STORAGE_SAS_TOKEN",
            "AZURE_CLIENT_SECRET",
            "AWS_SSE_CUSTOMER_KEY_BASE64",
        ] {
            assert!(is_secret_variable(name, "a/b+c=d"), "{name}");
        }
        for name in [
            "AWS_ACCESS_KEY_ID",
            "AWS_WEB_IDENTITY_TOKEN_FILE",
            "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
            "AWS_REGION",
            "AWS_ENDPOINT_URL",
        ] {
            assert!(!is_secret_variable(name, "a/b+c=d"), "{name}");
        }
    }
}
