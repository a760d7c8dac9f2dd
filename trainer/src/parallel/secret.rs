//! A secret that ranks share: a connecting rank proves that it knows it, and does not send it.

use std::fmt;

use ring::{
    hmac::{self, HMAC_SHA256, Key},
    rand::{SecureRandom as _, SystemRandom},
};

/// Bytes of a challenge, and of the proof in response.
pub(super) const NONCE_BYTES: usize = 32;

/// Secret of a job; it is never shown.
#[derive(Clone)]
pub(super) struct JobSecret(Key);

impl JobSecret {
    pub(super) fn new(secret: &str) -> Self {
        Self(Key::new(HMAC_SHA256, secret.as_bytes()))
    }

    /// Makes random bytes that no peer has seen before.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub(super) fn nonce(&self) -> Result<[u8; NONCE_BYTES], String> {
        let mut nonce = [0; NONCE_BYTES];
        let filled = SystemRandom::new().fill(&mut nonce);
        filled.map_err(|_| "the system gives no random bytes".to_owned())?;
        Ok(nonce)
    }

    /// Computes the proof that the sender of `hello` knows the secret, for the challenge `nonce`.
    pub(super) fn prove(&self, nonce: &[u8], hello: &[u8]) -> Vec<u8> {
        hmac::sign(&self.0, &message(nonce, hello))
            .as_ref()
            .to_vec()
    }

    /// Returns whether [`prove`](Self::prove) with the same secret gives `proof`.
    pub(super) fn is_proof(&self, nonce: &[u8], hello: &[u8], proof: &[u8]) -> bool {
        hmac::verify(&self.0, &message(nonce, hello), proof).is_ok()
    }
}

fn message(nonce: &[u8], hello: &[u8]) -> Vec<u8> {
    [b"feedline rank", nonce, hello].concat()
}

impl fmt::Debug for JobSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobSecret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_its_secret_its_challenge_and_its_hello_alone() {
        let [own, other] = ["a secret", "another"].map(JobSecret::new);
        let (nonce, hello) = (own.nonce().unwrap(), [7_u8; 32]);
        let proof = own.prove(&nonce, &hello);
        assert_eq!(proof.len(), NONCE_BYTES);
        assert!(own.is_proof(&nonce, &hello, &proof));
        assert!(!other.is_proof(&nonce, &hello, &proof));
        assert!(!own.is_proof(&own.nonce().unwrap(), &hello, &proof));
        assert!(!own.is_proof(&nonce, &[8; 32], &proof));
        assert!(!own.is_proof(&nonce, &hello, &[0; NONCE_BYTES]));
    }

    #[test]
    fn a_secret_is_not_shown() {
        assert_eq!(format!("{:?}", JobSecret::new("canary")), "JobSecret");
    }
}
