//! `[source.auth]` with `type = "oauth2"`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::{
    SecretRef, TextOrSecret,
    tagged::{KeyError, Tagged, Variant, plain},
};

/// A bearer token of a token endpoint (RFC 6749).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OauthConfig {
    /// The endpoint.
    pub endpoint: TokenEndpoint,
    /// The credentials that it exchanges for a token.
    pub grant: OauthGrant,
}

/// Token endpoint, and the request for a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenEndpoint {
    /// URL of the token endpoint, http or https. A token is requested before the first request, kept
    /// in memory until shortly before it expires, and requested once more when it is refused (status
    /// 401). Parallel requests share one request for a token. Required.
    pub token_url: String,
    /// Scopes to ask for, separated by spaces. Default: none are named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Place of id and secret of the client in the request: `header` (default, HTTP basic
    /// authentication) or `body`, for servers that take them only there. An id without a secret is
    /// sent in the body.
    #[serde(default)]
    pub credentials: CredentialsIn,
}

/// Credentials that a token endpoint exchanges for a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OauthGrant {
    /// Those of a client (RFC 6749, section 4.4).
    ClientCredentials(ClientCredentials),
    /// A refresh token (RFC 6749, section 6).
    RefreshToken(RefreshToken),
    /// User and password (RFC 6749, section 4.3).
    Password(PasswordGrant),
    /// A signed statement (RFC 7523, section 2.1).
    JwtBearer(JwtBearer),
}

impl Tagged for OauthGrant {
    const TAG: &'static str = "grant";
    const DOC: &'static str = "Credentials that the token endpoint exchanges for a token; the other keys depend on it. \
                               `client_credentials` (default): id and secret of a client; `refresh_token`: a refresh token that a \
                               user has obtained; `password`: user and password; `jwt_bearer`: a statement signed with a private \
                               key, for service accounts.";
    const DEFAULT: Option<&'static str> = Some("client_credentials");

    fn variants() -> Vec<Variant<Self>> {
        vec![
            plain("client_credentials", Self::ClientCredentials),
            plain("refresh_token", Self::RefreshToken),
            plain("password", Self::Password),
            plain("jwt_bearer", Self::JwtBearer),
        ]
    }
}

/// A bearer token from client credentials (RFC 6749, section 4.4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientCredentials {
    /// The client's id. Required.
    pub client_id: SecretRef,
    /// The client's secret. Required.
    pub client_secret: SecretRef,
}

/// A bearer token from a refresh token (RFC 6749, section 6). One of `refresh_token` and
/// `refresh_token_file` is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RefreshToken {
    /// The client's id. Required.
    pub client_id: SecretRef,
    /// The client's secret. Default: none, for a public client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<SecretRef>,
    /// The refresh token, as `{ env = "NAME" }` or `{ file = "PATH" }`. If the server replaces it, the
    /// new one is kept in memory until the process ends, with the warning `rotated_refresh_token`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<SecretRef>,
    /// Path of a file with the refresh token, for servers that replace it with each use. The file is
    /// rewritten with the new one, atomically and readable by its owner only (mode 0600), so write
    /// access to its folder is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refresh_token_file: Option<String>,
}

impl RefreshToken {
    fn check(&self) -> Result<(), KeyError> {
        match (&self.refresh_token, &self.refresh_token_file) {
            (Some(_), None) | (None, Some(_)) => Ok(()),
            _ => {
                let reason = "give either `refresh_token` or `refresh_token_file`, a file that may be rewritten";
                Err(KeyError::new("refresh_token", reason))
            }
        }
    }
}

/// A bearer token from user and password (RFC 6749, section 4.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PasswordGrant {
    /// The user's name, as plain text or by reference. Required.
    pub user: TextOrSecret,
    /// The password, as `{ env = "NAME" }` or `{ file = "PATH" }`. Required.
    pub password: SecretRef,
    /// The client's id. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<SecretRef>,
    /// The client's secret. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<SecretRef>,
}

/// A bearer token from a signed statement (RFC 7523, section 2.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JwtBearer {
    /// Private key in PEM, RSA (signed with RS256) or ECDSA on P-256 (ES256), as `{ file = "PATH" }` or
    /// `{ env = "NAME" }`. Required.
    pub private_key: SecretRef,
    /// Id of the key (`kid`). Default: none is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_id: Option<String>,
    /// Issuer of the statement (`iss`): the service account or client. Required.
    pub issuer: String,
    /// User that the token is for (`sub`). Default: the issuer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Receiver of the statement (`aud`). Default: `token_url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// Other statements by name, such as `{ box_sub_type = "enterprise" }`. Default: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub claims: BTreeMap<String, String>,
}

/// Place of client credentials in a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CredentialsIn {
    /// In the `Authorization` header.
    #[default]
    Header,
    /// In the form, as `client_id` and `client_secret`.
    Body,
}

impl OauthConfig {
    pub(super) fn check(&self) -> Result<(), KeyError> {
        match &self.grant {
            OauthGrant::RefreshToken(keys) => keys.check(),
            OauthGrant::ClientCredentials(_)
            | OauthGrant::Password(_)
            | OauthGrant::JwtBearer(_) => Ok(()),
        }
    }
}

impl Serialize for OauthConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct GrantKeys<'a, K> {
            #[serde(flatten)]
            endpoint: &'a TokenEndpoint,
            #[serde(skip_serializing_if = "Option::is_none")]
            grant: Option<&'static str>,
            #[serde(flatten)]
            keys: &'a K,
        }
        let endpoint = &self.endpoint;
        match &self.grant {
            OauthGrant::ClientCredentials(keys) => {
                let grant = None;
                GrantKeys {
                    endpoint,
                    grant,
                    keys,
                }
                .serialize(serializer)
            }
            OauthGrant::RefreshToken(keys) => {
                let grant = Some("refresh_token");
                GrantKeys {
                    endpoint,
                    grant,
                    keys,
                }
                .serialize(serializer)
            }
            OauthGrant::Password(keys) => {
                let grant = Some("password");
                GrantKeys {
                    endpoint,
                    grant,
                    keys,
                }
                .serialize(serializer)
            }
            OauthGrant::JwtBearer(keys) => {
                let grant = Some("jwt_bearer");
                GrantKeys {
                    endpoint,
                    grant,
                    keys,
                }
                .serialize(serializer)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::AuthConfig;

    const ENDPOINT: &str = "type = \"oauth2\"\ntoken_url = \"https://h/t\"\n";
    const ID: &str = "client_id = { env = \"E\" }\n";
    const TOKEN: &str = "refresh_token = { env = \"E\" }\n";

    fn read(text: &str) -> Result<AuthConfig, String> {
        let read = toml::from_str(&format!("{ENDPOINT}{text}"));
        read.map_err(|e| e.message().to_owned())
    }

    #[test]
    fn a_grant_has_its_own_keys() {
        let check = |text: &str, expected: &str| {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        };
        check(
            ID,
            "at `client_secret`: `grant = \"client_credentials\"` needs this key, add it",
        );
        check(
            &format!("{ID}client_secret = {{ env = \"E\" }}\n{TOKEN}"),
            "at `refresh_token`: this key belongs to `grant = \"refresh_token\"`",
        );
        check(
            "grant = \"implicit\"",
            "at `grant`: unknown variant `implicit`, expected one of",
        );
        let refresh = format!("grant = \"refresh_token\"\n{ID}");
        let either = "at `refresh_token`: give either `refresh_token` or `refresh_token_file`";
        check(&refresh, either);
        check(
            &format!("{refresh}{TOKEN}refresh_token_file = \"x\""),
            either,
        );
        check(
            "grant = \"jwt_bearer\"\nissuer = \"a\"",
            "at `private_key`: `grant = \"jwt_bearer\"` needs this key",
        );
    }

    #[test]
    fn each_grant_is_written_as_it_is_read() {
        for text in [
            &format!("{ID}client_secret = {{ env = \"E\" }}\nscope = \"a b\""),
            &format!("grant = \"refresh_token\"\n{ID}{TOKEN}credentials = \"body\""),
            &format!("grant = \"refresh_token\"\n{ID}refresh_token_file = \"x\""),
            "grant = \"password\"\nuser = \"u\"\npassword = { env = \"E\" }",
            "grant = \"jwt_bearer\"\nissuer = \"a\"\nprivate_key = { file = \"x\" }\nclaims = { a = \"b\" }",
        ] {
            let auth = read(text).unwrap();
            let json = serde_json::to_string(&auth).unwrap();
            assert_eq!(
                serde_json::from_str::<AuthConfig>(&json).unwrap(),
                auth,
                "{json}"
            );
        }
    }
}
