//! Refresh tokens that servers have replaced, for all sources of a process.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

/// Refresh tokens that servers have replaced, by a hash of the configured ones.
#[derive(Default)]
pub(crate) struct Rotated(Mutex<HashMap<u128, SharedToken>>);

/// The current token; none while it is the configured one. Locked during a request for tokens.
pub(crate) type SharedToken = Arc<tokio::sync::Mutex<Option<CurrentToken>>>;

/// A refresh token that a server has given.
pub(crate) struct CurrentToken {
    pub(crate) token: String,
    /// Configured token, which it replaces.
    pub(crate) replaced: String,
}

impl fmt::Debug for Rotated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rotated")
    }
}

impl Rotated {
    /// The current token in place of the configured one with the hash `key`.
    pub(crate) fn of(&self, key: u128) -> SharedToken {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(key).or_default())
    }
}
