//! Certificates of `[source.tls]`.

use feedline_schemas::config::{SecretRef, SourceConfig, TextOrSecret};

use super::Http;
use crate::{context::RequestContext, error::Error, tls::Tls};

/// Resolves and checks the certificates of `config`.
///
/// # Errors
/// [`Error::Config`] with the faulty key.
pub fn certificates(config: &SourceConfig, context: &RequestContext) -> Result<Tls, Error> {
    let Some(tls) = &config.tls else {
        return Ok(Tls::default());
    };
    let secret = |key: &str, reference: &SecretRef| {
        let wrong = |reason: String| Error::config(format!("tls.{key}"), reason);
        if !reference.prefix.is_empty() {
            return Err(wrong("has a `prefix`, which PEM has not; remove it".into()));
        }
        context.secrets.resolve(reference).map_err(wrong)
    };
    let text = |key: &str, value: &Option<TextOrSecret>| match value {
        None => Ok(None),
        Some(TextOrSecret::Text(text)) => Ok(Some(text.clone())),
        Some(TextOrSecret::Secret(reference)) => secret(key, reference).map(Some),
    };
    let ca = text("ca", &tls.ca)?;
    let cert = text("client_cert", &tls.client_cert)?;
    let key = tls.client_key.as_ref();
    let key = key.map(|key| secret("client_key", key)).transpose()?;
    let client = match (&cert, &key) {
        (None, None) => None,
        (Some(cert), Some(key)) => Some((cert.as_str(), key.as_str())),
        (Some(_), None) => {
            let reason = "is missing: `tls.client_cert` needs its private key; add it";
            return Err(Error::config("tls.client_key", reason));
        }
        (None, Some(_)) => {
            let reason = "is missing: `tls.client_key` is the key of a certificate; add it";
            return Err(Error::config("tls.client_cert", reason));
        }
    };
    Tls::new(ca.as_deref(), client)
        .map_err(|(key, reason)| Error::config(format!("tls.{key}"), reason))
}

impl Http {
    /// Uses the certificates of `config`.
    ///
    /// # Errors
    /// [`Error::Config`] for certificates that cannot be found or used.
    pub fn with_tls(
        mut self,
        config: &SourceConfig,
        context: &RequestContext,
    ) -> Result<Self, Error> {
        self.transport.tls = certificates(config, context)?;
        Ok(self)
    }
}
