//! Secrets are given by reference only.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Reference to a secret: `{ env = "TOKEN" }` or `{ file = "/run/secrets/token" }`, with an
/// optional `prefix`.
///
/// Exactly one of `env` and `file` is set. The secret itself is never part of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a reference to a secret, `{ env = \"NAME\" }` or `{ file = \"PATH\" }`"
)]
pub struct SecretRef {
    /// Environment variable that holds the secret.
    pub env: Option<String>,
    /// File that holds the secret; a final newline is removed.
    pub file: Option<String>,
    /// Text that is put in front of the secret, such as `"Bearer "`.
    #[serde(default)]
    pub prefix: String,
}

/// Text of a request that may be secret, such as the value of a header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected text, or a reference to a secret, `{ env = \"NAME\" }` or `{ file = \"PATH\" }`"
)]
pub enum TextOrSecret {
    /// Plain text.
    Text(String),
    /// A secret.
    Secret(SecretRef),
}
