//! `[source.auth]`.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::{
    OauthConfig, SecretRef, TextOrSecret,
    tagged::{self, KeyError, NoKeys, Tagged, Variant, nested, plain},
};

/// Description of the table in its schema.
const DESCRIPTION: &str = "`[source.auth]`: credentials for the host of a `rest` source's `url`. They are never sent to \
                           another host, shown in a message or written anywhere; only `refresh_token_file` is rewritten.";

/// `[source.auth]`: credentials for the host of a `rest` source's `url`. They are never sent to another host, shown in
/// a message or written anywhere; only `refresh_token_file` is rewritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthConfig {
    /// `Authorization: Bearer TOKEN` (RFC 6750).
    Bearer(BearerToken),
    /// A key in a header or in the query.
    ApiKey(ApiKey),
    /// `Authorization: Basic`, user and password (RFC 7617).
    Basic(BasicAuth),
    /// A bearer token of a token endpoint (RFC 6749).
    Oauth2(OauthConfig),
    /// Given cookies (RFC 6265).
    Cookies(GivenCookies),
    /// Cookies of a login.
    Session(LoginSession),
    /// Signed requests of AWS (SigV4).
    Aws(AwsSignature),
}

impl Tagged for AuthConfig {
    const TAG: &'static str = "type";
    const DOC: &'static str = "Kind of the credentials; the other keys depend on it. `bearer`: a token in `Authorization`; `api_key`: \
                               a key in a header or in the query; `basic`: user and password; `oauth2`: a token from a \
                               token endpoint; `cookies`: given cookies; `session`: cookies of a login; `aws`: signed requests.";
    const DEFAULT: Option<&'static str> = None;

    fn variants() -> Vec<Variant<Self>> {
        vec![
            plain("bearer", Self::Bearer),
            plain("api_key", Self::ApiKey),
            plain("basic", Self::Basic),
            nested("oauth2", |endpoint, grant| {
                Self::Oauth2(OauthConfig { endpoint, grant })
            }),
            plain("cookies", Self::Cookies),
            plain("session", Self::Session),
            plain("aws", Self::Aws),
        ]
    }
}

/// `Authorization: Bearer TOKEN` (RFC 6750).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BearerToken {
    /// The token, as `{ env = "NAME" }` or `{ file = "PATH" }`. Required.
    pub secret: SecretRef,
}

/// A key in a header or in the query. One of `header` and `param` is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApiKey {
    /// The key, as `{ env = "NAME" }` or `{ file = "PATH" }`. Required.
    pub secret: SecretRef,
    /// Header the key is sent in, such as `X-Api-Key`; one of `header` and `param` is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// Query parameter the key is sent in. It is not part of any URL that is stored or shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub param: Option<String>,
}

/// `Authorization: Basic`, user and password (RFC 7617).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BasicAuth {
    /// The user's name, as plain text (`"alice"`) or, where it is secret, as `{ env = "NAME" }` or
    /// `{ file = "PATH" }`. A key that an API takes as the user's name is a secret. Required.
    pub user: TextOrSecret,
    /// The password, as `{ env = "NAME" }` or `{ file = "PATH" }`. Required.
    pub password: SecretRef,
}

/// Given cookies (RFC 6265).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GivenCookies {
    /// The cookies to send, each by its name, such as `{ session = { env = "SESSION" } }`, or the three of a
    /// signed CDN (`CloudFront-Policy`, `CloudFront-Signature`, `CloudFront-Key-Pair-Id`). Required.
    pub cookies: BTreeMap<String, SecretRef>,
}

/// Cookies of a login.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoginSession {
    /// URL that `fields` are sent to (POST) before the first request, of the same scheme, host and port as `url`.
    /// The cookies of its response are kept in memory and sent with each request, as their `Path`, `Secure`, `Domain`,
    /// `Max-Age` and `Expires` let them. When they end, or a request is refused (status 401 or 403), the login is repeated
    /// once. A redirect as the response is not followed. Required.
    pub login_url: String,
    /// Names and values of the fields, such as `{ user = { env = "USER" }, password = { env = "PASSWORD" } }`;
    /// those that are not secret may be plain text. Required.
    pub fields: BTreeMap<String, TextOrSecret>,
    /// Encoding of the fields: `form` (default) or `json`, an object of strings.
    #[serde(default, skip_serializing_if = "LoginBody::is_form")]
    pub login_body: LoginBody,
}

/// Signed requests of AWS (SigV4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AwsSignature {
    /// Region of the service, such as `"eu-central-1"`, as plain text or by reference. Required.
    pub region: TextOrSecret,
    /// Name that the service is signed with, such as `"execute-api"`, `"es"` or `"s3"`. Required.
    pub service: String,
    /// Id of the access key, as plain text or by reference. Required.
    pub access_key_id: TextOrSecret,
    /// Secret of the access key, as `{ env = "NAME" }` or `{ file = "PATH" }`. Required.
    pub secret_access_key: SecretRef,
    /// Session token of temporary credentials. Default: none, for a permanent key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_token: Option<SecretRef>,
}

impl AuthConfig {
    fn check(&self) -> Result<(), KeyError> {
        let wrong = |key: &str, reason: &str| Err(KeyError::new(key, reason));
        match self {
            Self::ApiKey(ApiKey { header, param, .. }) => match (header, param) {
                (Some(_), Some(_)) | (None, None) => wrong(
                    "header",
                    "give either `header` or `param`, the place the key is sent in",
                ),
                (None, Some(param)) if param.is_empty() => wrong("param", "must not be empty"),
                _ => Ok(()),
            },
            Self::Oauth2(keys) => keys.check(),
            Self::Cookies(keys) if keys.cookies.is_empty() => wrong("cookies", "must not be empty"),
            Self::Session(keys) if keys.fields.is_empty() => wrong("fields", "must not be empty"),
            _ => Ok(()),
        }
    }
}

impl<'de> Deserialize<'de> for AuthConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (NoKeys {}, config): (_, Self) = tagged::read(deserializer)?;
        config.check().map_err(D::Error::custom)?;
        Ok(config)
    }
}

impl Serialize for AuthConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Typed<'a, K> {
            r#type: &'static str,
            #[serde(flatten)]
            keys: &'a K,
        }
        match self {
            Self::Bearer(keys) => {
                let r#type = "bearer";
                Typed { r#type, keys }.serialize(serializer)
            }
            Self::ApiKey(keys) => {
                let r#type = "api_key";
                Typed { r#type, keys }.serialize(serializer)
            }
            Self::Basic(keys) => {
                let r#type = "basic";
                Typed { r#type, keys }.serialize(serializer)
            }
            Self::Oauth2(keys) => {
                let r#type = "oauth2";
                Typed { r#type, keys }.serialize(serializer)
            }
            Self::Cookies(keys) => {
                let r#type = "cookies";
                Typed { r#type, keys }.serialize(serializer)
            }
            Self::Session(keys) => {
                let r#type = "session";
                Typed { r#type, keys }.serialize(serializer)
            }
            Self::Aws(keys) => {
                let r#type = "aws";
                Typed { r#type, keys }.serialize(serializer)
            }
        }
    }
}

impl JsonSchema for AuthConfig {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "AuthConfig".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        tagged::schema::<NoKeys, Self>(generator, DESCRIPTION)
    }
}

/// Encoding of the fields of a login.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoginBody {
    /// As a form (`application/x-www-form-urlencoded`).
    #[default]
    Form,
    /// As a JSON object of strings.
    Json,
}

impl LoginBody {
    /// Whether it is a form.
    #[must_use]
    pub fn is_form(&self) -> bool {
        *self == Self::Form
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_another_type_missing_keys_and_contradictions_are_refused() {
        let check = |text: &str, expected: &str| {
            let error = toml::from_str::<AuthConfig>(text).unwrap_err();
            let error = error.message();
            assert!(error.starts_with(expected), "{text}: {error}");
        };
        let secret = "secret = { env = \"E\" }";
        check("", "missing field `type`");
        check(
            "type = \"bearer\"",
            "at `secret`: `type = \"bearer\"` needs this key, add it",
        );
        check(
            &format!("type = \"bearer\"\n{secret}\nuser = \"u\""),
            "at `user`: this key belongs to `type = \"basic\"` and `type = \"oauth2\"`; `type = \"bearer\"` has the keys `type`, `secret`",
        );
        check(
            "type = \"bearer\"\nsecret = { env = 1 }",
            "at `secret.env`: invalid type: integer `1`",
        );
        check(
            &format!("type = \"api_key\"\n{secret}"),
            "at `header`: give either `header` or `param`",
        );
        check(
            &format!("type = \"api_key\"\n{secret}\nheader = \"h\"\nparam = \"p\""),
            "at `header`: give either `header` or `param`",
        );
        check(
            "type = \"cookies\"\ncookies = {}",
            "at `cookies`: must not be empty",
        );
        check(
            "type = \"session\"\nfields = { a = \"b\" }",
            "at `login_url`: `type = \"session\"` needs this key, add it",
        );
        let text = format!("type = \"api_key\"\n{secret}\nparam = \"p\"");
        let auth = toml::from_str::<AuthConfig>(&text).unwrap();
        let json = serde_json::to_string(&auth).unwrap();
        assert_eq!(serde_json::from_str::<AuthConfig>(&json).unwrap(), auth);
    }
}
