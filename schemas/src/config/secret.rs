//! Secrets are given by reference only.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where to find a secret: `{ env = "TOKEN" }` or `{ file = "/run/secrets/token" }`, with an optional `prefix`.
///
/// Exactly one of `env` and `file` is set. The secret itself is never part of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a reference to a secret, `{ env = \"NAME\" }` or `{ file = \"PATH\" }`"
)]
pub struct SecretRef {
    /// Environment variable that holds it.
    pub env: Option<String>,
    /// File that holds it; a final newline is cut off.
    pub file: Option<String>,
    /// Text put in front of it, such as `"Bearer "`.
    #[serde(default)]
    pub prefix: String,
}
