//! Signed statements (RFC 7523): a JSON Web Token (RFC 7519) by RS256 or ES256 (RFC 7518).

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use feedline_schemas::config::JwtBearer;
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, RSA_PKCS1_SHA256, RsaKeyPair},
};
use rustls_pki_types::{PrivateKeyDer, pem::PemObject as _};
use serde_json::{Value, json};
use url::Url;
use xxhash_rust::xxh3::xxh3_128;

use crate::error::Error;

/// Value of `grant_type`.
pub(super) const GRANT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// Advice for a statement that is refused.
pub(super) const ADVICE: &str = "check `auth.issuer`, `auth.subject`, `auth.audience`, `auth.private_key` and `auth.key_id`, and this machine's clock";
/// Time that a statement is valid: servers accept at least this much.
const VALID_S: u64 = 180;
/// Claims that are set by other keys.
const OWN_CLAIMS: [&str; 7] = ["aud", "exp", "iat", "iss", "jti", "scope", "sub"];

/// Signer of statements.
pub(super) struct Jwt {
    key: SigningKey,
    header: Value,
    claims: BTreeMap<String, Value>,
    run_id: String,
    count: AtomicU64,
}

enum SigningKey {
    Rsa(Box<RsaKeyPair>),
    Ecdsa(Box<EcdsaKeyPair>),
}

impl Jwt {
    pub(super) fn new(
        config: &JwtBearer,
        pem: &str,
        url: &Url,
        scope: Option<&str>,
        run_id: &str,
    ) -> Result<Self, Error> {
        let key = key(pem).map_err(|reason| Error::config("auth.private_key", reason))?;
        let alg = match key {
            SigningKey::Rsa(_) => "RS256",
            SigningKey::Ecdsa(_) => "ES256",
        };
        let mut header = json!({"alg": alg, "typ": "JWT"});
        if let Some(id) = &config.key_id {
            header["kid"] = id.as_str().into();
        }
        let mut claims = BTreeMap::new();
        for (name, value) in &config.claims {
            if OWN_CLAIMS.contains(&name.as_str()) {
                let reason = "is set by feedline from the other keys of `auth`; remove it";
                return Err(Error::config(format!("auth.claims.{name}"), reason));
            }
            claims.insert(name.clone(), value.as_str().into());
        }
        let issuer = config.issuer.as_str();
        let subject = config.subject.as_deref().unwrap_or(issuer);
        let audience = config.audience.as_deref().unwrap_or(url.as_str());
        let own = [("iss", issuer), ("sub", subject), ("aud", audience)];
        // Some servers read it here, and others in the form.
        let own = own.into_iter().chain(scope.map(|scope| ("scope", scope)));
        claims.extend(own.map(|(name, value)| (name.to_owned(), value.into())));
        Ok(Self {
            key,
            header,
            claims,
            run_id: run_id.to_owned(),
            count: AtomicU64::new(0),
        })
    }

    /// Text that differs between accounts.
    pub(super) fn identity(&self) -> String {
        format!("{}{:?}", self.header, self.claims)
    }

    /// A statement at the time `now` since 1970.
    ///
    /// # Errors
    /// A message about the key.
    pub(super) fn sign(&self, now: Duration) -> Result<String, String> {
        let now = now.as_secs();
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let id = xxh3_128(format!("{}/{now}/{number}", self.run_id).as_bytes());
        let mut claims = self.claims.clone();
        claims.insert("iat".into(), now.into());
        claims.insert("exp".into(), now.saturating_add(VALID_S).into());
        claims.insert("jti".into(), format!("{id:032x}").into());
        let claims = json!(claims).to_string();
        let parts = [self.header.to_string(), claims].map(|part| URL_SAFE_NO_PAD.encode(part));
        let message = parts.join(".");
        let signature = self.key.sign(message.as_bytes());
        let signature = signature.ok_or("cannot sign; it may be damaged")?;
        Ok(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

impl SigningKey {
    fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        match self {
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                let signed = key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature);
                signed.ok().map(|()| signature)
            }
            Self::Ecdsa(key) => {
                let signature = key.sign(&random, message).ok()?;
                Some(signature.as_ref().to_vec())
            }
        }
    }
}

fn key(pem: &str) -> Result<SigningKey, String> {
    if pem.contains("ENCRYPTED") {
        return Err(
            "is encrypted with a passphrase, which feedline cannot ask for; decrypt it with `openssl pkey` and protect the file".into(),
        );
    }
    let der = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| {
        "has no private key in PEM, which begins with `-----BEGIN PRIVATE KEY-----` or `-----BEGIN RSA PRIVATE KEY-----`".to_owned()
    })?;
    let unusable = |e| {
        format!(
            "is neither an RSA key of at least 2048 bits nor an ECDSA key on P-256, for RS256 and ES256 ({e})"
        )
    };
    let rsa = |key: RsaKeyPair| SigningKey::Rsa(Box::new(key));
    match &der {
        PrivateKeyDer::Pkcs1(der) => {
            let key = RsaKeyPair::from_der(der.secret_pkcs1_der());
            key.map(rsa).map_err(unusable)
        }
        PrivateKeyDer::Pkcs8(der) => {
            let der = der.secret_pkcs8_der();
            let curve = &ECDSA_P256_SHA256_FIXED_SIGNING;
            match EcdsaKeyPair::from_pkcs8(curve, der, &SystemRandom::new()) {
                Ok(key) => Ok(SigningKey::Ecdsa(Box::new(key))),
                Err(_) => RsaKeyPair::from_pkcs8(der).map(rsa).map_err(unusable),
            }
        }
        _ => Err(
            "is in the format `EC PRIVATE KEY`, which is not supported; convert it with `openssl pkcs8 -topk8 -nodes`".into(),
        ),
    }
}
