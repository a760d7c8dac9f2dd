//! `[source.auth]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SecretRef;

/// `[source.auth]`: proves to the host of a `rest` source's `url` who is asking. Nothing of it is sent to any other host,
/// shown in a message or written anywhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuthConfig {
    /// `bearer`, `api_key`, `basic` or `oauth2`.
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
    /// `basic`: the user's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<SecretRef>,
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
