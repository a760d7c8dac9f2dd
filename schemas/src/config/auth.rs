//! `[source.auth]`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{SecretRef, TextOrSecret};

/// `[source.auth]`: proves to the host of a `rest` source's `url` who is asking. Nothing of it is sent to any other host,
/// shown in a message or written anywhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuthConfig {
    /// `bearer`, `api_key`, `basic`, `oauth2`, `cookies` or `session`.
    pub r#type: AuthKind,
    /// `bearer`: the token, `api_key`: the key, as `{ env = "NAME" }` or `{ file = "PATH" }`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretRef>,
    /// `api_key`: header the key is sent in, such as `X-Api-Key`; one of `header` and `param` is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// `api_key`: query parameter the key is sent in. It is not part of any URL that is kept or shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub param: Option<String>,
    /// `basic`: the user's name, as plain text (`"alice"`) or, where it is secret, as `{ env = "NAME" }` or
    /// `{ file = "PATH" }`. A key that an API takes as the user's name is a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<TextOrSecret>,
    /// `basic`: the password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<SecretRef>,
    /// `oauth2`: URL of the token endpoint, http or https. A token is asked for by client credentials (RFC 6749, section
    /// 4.4) before the first request, kept in memory until shortly before it expires, and asked for once more when it is
    /// refused (status 401).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_url: Option<String>,
    /// `oauth2`: the client's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<SecretRef>,
    /// `oauth2`: the client's secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<SecretRef>,
    /// `oauth2`: scopes to ask for, separated by spaces. Default: none are named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// `oauth2`: where id and secret are sent: `header` (default, HTTP basic authentication) or `body`, for servers that
    /// take them only there.
    #[serde(default)]
    pub credentials: CredentialsIn,
    /// `cookies`: the cookies that are sent, each by its name, such as `{ session = { env = "SESSION" } }`, or the three of a
    /// signed CDN (`CloudFront-Policy`, `CloudFront-Signature`, `CloudFront-Key-Pair-Id`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cookies: BTreeMap<String, SecretRef>,
    /// `session`: URL that `fields` are sent to (POST) before the first request, of the same scheme, host and port as `url`.
    /// The cookies of its answer are kept in memory and sent with each request, as their `Path`, `Secure`, `Domain`,
    /// `Max-Age` and `Expires` let them; when they end, or a request is refused (status 401 or 403), it is asked once more. A
    /// redirect as the answer is not followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub login_url: Option<String>,
    /// `session`: names and values of the fields, such as `{ user = { env = "USER" }, password = { env = "PASSWORD" } }`;
    /// what is not secret may be plain text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, TextOrSecret>,
    /// `session`: how the fields are sent: `form` (default) or `json`, an object of texts.
    #[serde(default, skip_serializing_if = "LoginBody::is_form")]
    pub login_body: LoginBody,
}

/// Kind of authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuthKind {
    /// `Authorization: Bearer TOKEN` (RFC 6750).
    Bearer,
    /// A key in a header or in the query.
    ApiKey,
    /// `Authorization: Basic`, user and password (RFC 7617).
    Basic,
    /// A bearer token that is had by client credentials (RFC 6749, section 4.4).
    Oauth2,
    /// Cookies that are given (RFC 6265).
    Cookies,
    /// Cookies that a login brings.
    Session,
}

/// How the fields of a login are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoginBody {
    /// As a form (`application/x-www-form-urlencoded`).
    #[default]
    Form,
    /// As a JSON object of texts.
    Json,
}

impl LoginBody {
    /// Whether it is a form.
    #[must_use]
    pub fn is_form(&self) -> bool {
        *self == Self::Form
    }
}

/// Where client credentials are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CredentialsIn {
    /// In the `Authorization` header.
    #[default]
    Header,
    /// In the form, as `client_id` and `client_secret`.
    Body,
}
