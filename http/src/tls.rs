//! Certificates of the configuration.

use std::{error::Error as StdError, fmt};

use reqwest::{Certificate, Client, ClientBuilder, Identity};

/// Certificates for https beside those of the system.
///
/// ```
/// use feedline_http::Tls;
///
/// let (key, reason) = Tls::new(Some("no certificate"), None).unwrap_err();
/// assert_eq!(key, "ca");
/// assert!(reason.contains("-----BEGIN CERTIFICATE-----"));
/// ```
#[derive(Clone, Default)]
pub struct Tls {
    roots: Vec<Certificate>,
    identity: Option<Identity>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Tls");
        shown.field("roots", &self.roots.len());
        shown.field("identity", &self.identity.is_some());
        shown.finish()
    }
}

impl Tls {
    /// Checks the certificates of authorities `ca`, and the certificate of this client with its
    /// private key. All are PEM.
    ///
    /// # Errors
    /// The faulty key of the configuration (`ca`, `client_cert` or `client_key`) and the reason.
    pub fn new(
        ca: Option<&str>,
        client: Option<(&str, &str)>,
    ) -> Result<Self, (&'static str, String)> {
        let mut tls = Self::default();
        if let Some(ca) = ca {
            tls.roots = certificates(ca).map_err(|reason| ("ca", reason))?;
            let unusable = |cause| ("ca", format!("has an unusable certificate: {cause}"));
            tls.check().map_err(unusable)?;
        }
        let Some((cert, key)) = client else {
            return Ok(tls);
        };
        certificates(cert).map_err(|reason| ("client_cert", reason))?;
        check_key(key).map_err(|reason| ("client_key", reason.to_owned()))?;
        let identity = Identity::from_pem(format!("{cert}\n{key}\n").as_bytes());
        let damaged = |_| ("client_key", "is damaged: it is not valid PEM".to_owned());
        tls.identity = Some(identity.map_err(damaged)?);
        let unusable = |cause: String| {
            let reason = match is_key_mismatch(&cause) {
                true => "does not belong to the first certificate of `tls.client_cert`".to_owned(),
                false => format!("cannot be used: {cause}; RSA, ECDSA and Ed25519 are supported"),
            };
            ("client_key", reason)
        };
        tls.check().map_err(unusable)?;
        Ok(tls)
    }

    /// Makes a client that is not used.
    fn check(&self) -> Result<(), String> {
        let client = self.add_to(Client::builder().tls_built_in_root_certs(false), true);
        client.build().map(drop).map_err(|e| root_cause(&e))
    }

    /// Adds them to `client`; the certificate of this client only if `is_configured`, for hosts that
    /// the configuration names.
    pub fn add_to(&self, client: ClientBuilder, is_configured: bool) -> ClientBuilder {
        let roots = self.roots.iter().cloned();
        let client = roots.fold(client, ClientBuilder::add_root_certificate);
        match &self.identity {
            Some(identity) if is_configured => client.identity(identity.clone()),
            _ => client,
        }
    }
}

/// Returns true if a private key does not belong to its certificate, by the cause of a failure. It is a text of rustls,
/// whose types belong to the version that reqwest chooses.
fn is_key_mismatch(cause: &str) -> bool {
    cause.contains("KeyMismatch")
}

fn certificates(pem: &str) -> Result<Vec<Certificate>, String> {
    let found = Certificate::from_pem_bundle(pem.as_bytes());
    let found = found.map_err(|_| "is damaged: it is not valid PEM".to_owned())?;
    if found.is_empty() {
        let reason = "has no certificate in PEM, which begins with `-----BEGIN CERTIFICATE-----`; a file is given as `{ file = \"PATH\" }`, and one in DER is converted with `openssl x509 -inform der`";
        return Err(reason.into());
    }
    Ok(found)
}

fn check_key(pem: &str) -> Result<(), &'static str> {
    if pem.contains("ENCRYPTED") {
        return Err(
            "is encrypted with a passphrase, which feedline cannot ask for; decrypt it with `openssl pkey` and protect the file",
        );
    }
    if !pem.contains("PRIVATE KEY-----") {
        return Err(
            "has no private key in PEM, which begins with `-----BEGIN PRIVATE KEY-----`, `-----BEGIN RSA PRIVATE KEY-----` or `-----BEGIN EC PRIVATE KEY-----`; a file is given as `{ file = \"PATH\" }`",
        );
    }
    Ok(())
}

fn root_cause(error: &dyn StdError) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.last().map_or_else(String::new, ToString::to_string)
}

#[cfg(test)]
mod tests {
    use std::{path::Path, process::Command};

    use super::*;

    /// Makes a key and a certificate of it with `openssl`; `None` without it.
    fn pair(folder: &Path, algorithm: &str) -> Option<(String, String)> {
        let (key, cert) = (folder.join("key.pem"), folder.join("cert.pem"));
        let mut command = Command::new("openssl");
        command.args(["req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=own"]);
        command.args(algorithm.split(' ')).arg("-keyout").arg(&key);
        let made = command.arg("-out").arg(&cert).output();
        if !made.is_ok_and(|made| made.status.success()) {
            eprintln!("skipped: there is no `openssl` that makes a certificate");
            return None;
        }
        let read = |path| std::fs::read_to_string(path).unwrap();
        Some((read(cert), read(key)))
    }

    fn check(ca: Option<&str>, client: Option<(&str, &str)>, key: &str, part: &str) {
        let (found, reason) = Tls::new(ca, client).unwrap_err();
        assert_eq!(found, key, "{reason}");
        assert!(reason.contains(part), "{reason}");
    }

    #[test]
    fn certificates_and_keys_are_accepted_and_faults_name_their_key() {
        let folder = tempfile::tempdir().unwrap();
        let Some((cert, key)) = pair(folder.path(), "-newkey rsa:2048") else {
            return;
        };
        let ec = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1";
        let (other_cert, other_key) = pair(folder.path(), ec).unwrap();
        Tls::new(Some(&format!("{cert}{other_cert}")), Some((&cert, &key))).unwrap();
        Tls::new(None, Some((&other_cert, &other_key))).unwrap();
        let mismatch = "does not belong to the first certificate";
        check(None, Some((&cert, &other_key)), "client_key", mismatch);
        check(Some(&key), None, "ca", "has no certificate in PEM");
        check(Some(""), None, "ca", "has no certificate in PEM");
        check(
            None,
            Some((&key, &key)),
            "client_cert",
            "has no certificate in PEM",
        );
        check(
            None,
            Some((&cert, &cert)),
            "client_key",
            "has no private key in PEM",
        );
        let encrypted = key.replace("PRIVATE", "ENCRYPTED PRIVATE");
        check(
            None,
            Some((&cert, &encrypted)),
            "client_key",
            "encrypted with a passphrase",
        );
        let damaged = cert.replace("MII", "!!!");
        check(Some(&damaged), None, "ca", "is damaged");
        let no_certificate = key.replace("PRIVATE KEY", "CERTIFICATE");
        check(Some(&no_certificate), None, "ca", "unusable certificate");
        let no_key = cert.replace("CERTIFICATE", "PRIVATE KEY");
        check(None, Some((&cert, &no_key)), "client_key", "cannot be used");
        let shown = format!("{:?}", Tls::new(None, Some((&cert, &key))).unwrap());
        assert_eq!(shown, "Tls { roots: 0, identity: true }");
    }
}
