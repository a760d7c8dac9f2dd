//! `[source.tls]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{SecretRef, TextOrSecret};

/// `[source.tls]`: certificates for https, in PEM, beside those of the system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TlsConfig {
    /// Certificates of an own certificate authority, as `{ file = "PATH" }`, `{ env = "NAME" }` or
    /// the text itself. All servers that the source requests may use them. Default: only the
    /// authorities of the system are trusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<TextOrSecret>,
    /// Certificate that identifies this client, followed by the intermediate ones of its authority;
    /// given like `ca`. It is sent to servers that ask for it and that the configuration names, not
    /// to those that data lead to. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_cert: Option<TextOrSecret>,
    /// Private key of `client_cert` without a passphrase, as `{ file = "PATH" }` or
    /// `{ env = "NAME" }`. Required with `client_cert`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_key: Option<SecretRef>,
}
