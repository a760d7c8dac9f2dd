//! Secret that the programs of a cluster share, and the check of it in front of each service.
//!
//! The clients of the engine can be given one header only, the user agent. It carries a token that is
//! computed from the secret, so the secret itself is never sent. Traffic is not encrypted: whoever can
//! read the network of a cluster can copy the token.

use std::{fmt, sync::Arc};

use ballista_core::extension::EndpointOverrideFn;
use ring::hmac::{self, HMAC_SHA256, Key};
use tonic::{Request, Status, service::Interceptor, transport::Endpoint};

use crate::Error;

/// Environment variable of the secret.
pub const CLUSTER_SECRET: &str = "FEEDLINE_CLUSTER_SECRET";

/// Shortest secret, in bytes.
const LEAST_BYTES: usize = 16;

/// Prefix of the user agent of a program of the cluster; the token follows.
const AGENT: &str = "feedline-cluster/";

/// Message that the token authenticates.
const MESSAGE: &[u8] = b"feedline cluster 1";

/// Secret of a cluster; it is never shown.
#[derive(Clone)]
pub struct ClusterSecret(Arc<Key>);

impl ClusterSecret {
    /// Makes the key of a secret of 16 bytes or more.
    ///
    /// # Errors
    /// [`Error::Config`] for a shorter one.
    pub fn new(secret: &str) -> Result<Self, Error> {
        if secret.len() < LEAST_BYTES {
            let reason = format!(
                "a cluster runs queries for every program that knows its secret, so set a random one of {LEAST_BYTES} bytes \
                 or more, the same for the scheduler, the workers and the builds, such as the output of `openssl rand -hex 32`"
            );
            return Err(Error::config(CLUSTER_SECRET, reason));
        }
        Ok(Self(Arc::new(Key::new(HMAC_SHA256, secret.as_bytes()))))
    }

    /// Returns the change to the engine's connections that has them send the token.
    pub(super) fn sign_connections(&self) -> EndpointOverrideFn {
        let agent = self.agent();
        Arc::new(move |endpoint: Endpoint| Ok(endpoint.user_agent(agent.as_str())?))
    }

    fn agent(&self) -> String {
        let tag = hmac::sign(&self.0, MESSAGE);
        let digits = tag.as_ref().iter().map(|byte| format!("{byte:02x}"));
        format!("{AGENT}{}", digits.collect::<String>())
    }

    fn is_member(&self, agent: &str) -> bool {
        let own = agent.split(' ').next().unwrap_or_default();
        let tag = own.strip_prefix(AGENT).and_then(read_hex);
        tag.is_some_and(|tag| hmac::verify(&self.0, MESSAGE, &tag).is_ok())
    }
}

/// Reads bytes from hexadecimal digits.
fn read_hex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok().filter(|p| p.len() == 2)?;
        u8::from_str_radix(pair, 16).ok()
    });
    pairs.collect()
}

impl fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterSecret")
    }
}

/// Refuses requests of programs that do not know the secret, before their bodies are read.
#[derive(Clone, Debug)]
pub(super) struct SecretCheck(pub(super) ClusterSecret);

impl Interceptor for SecretCheck {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let agent = request.metadata().get("user-agent");
        let agent = agent.and_then(|agent| agent.to_str().ok());
        if agent.is_some_and(|agent| self.0.is_member(agent)) {
            return Ok(request);
        }
        Err(Status::unauthenticated(format!(
            "this cluster has another secret; give all its programs the same `{CLUSTER_SECRET}`"
        )))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn secret() -> ClusterSecret {
        ClusterSecret::new("a secret of a cluster").unwrap()
    }

    #[test]
    fn a_token_holds_for_its_secret_alone() {
        let (own, other) = (secret(), ClusterSecret::new("another's secret").unwrap());
        let agent = format!("{} tonic/0.14", own.agent());
        assert!(own.is_member(&agent));
        assert!(!other.is_member(&agent));
        let cut = &own.agent()[..own.agent().len() - 1];
        for wrong in ["", "tonic/0.14", AGENT, "feedline-cluster/zz", cut] {
            assert!(!own.is_member(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_secret_is_neither_short_nor_shown() {
        let short = ClusterSecret::new("fifteen bytes..").unwrap_err();
        let message = short.to_string();
        assert!(
            message.contains(CLUSTER_SECRET) && message.contains("16 bytes"),
            "{message}"
        );
        let secret = ClusterSecret::new("sixteen bytes...").unwrap();
        assert_eq!(format!("{secret:?}"), "ClusterSecret");
        assert!(!secret.agent().contains("sixteen"));
    }
}
