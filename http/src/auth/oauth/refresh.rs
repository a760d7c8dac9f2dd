//! Refresh tokens, which a server may replace with each use (RFC 6749, section 6).
//!
//! A replaced token is lost with its process unless a file keeps it: the landing zone and its log
//! hold no secrets. In memory it belongs to the process, not to a run, since the next run would
//! otherwise begin with the old one. Sources with the same token share it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use feedline_schemas::config::{RefreshToken, SecretRef};
use url::Url;
use xxhash_rust::xxh3::xxh3_128;

use super::token_requests::{Granted, Token, TokenRequests};
use crate::{
    context::{RequestContext, Secrets},
    error::Error,
    http_cause::HttpCause,
    retry::failed_try::{Again, Failure},
    rotated_tokens::{CurrentToken, SharedToken},
    transport::Transport,
};

const CODE: &str = "rotated_refresh_token";

/// A configured refresh token.
pub(super) struct Refresh {
    place: TokenPlace,
    key: u128,
    current: SharedToken,
}

enum TokenPlace {
    /// By reference.
    Given(String),
    /// In a file that is rewritten.
    File(PathBuf, Arc<dyn Secrets>),
}

impl Refresh {
    pub(super) fn new(
        config: &RefreshToken,
        url: &Url,
        context: &RequestContext,
        found: &mut impl FnMut(&str, &SecretRef) -> Result<String, Error>,
    ) -> Result<Self, Error> {
        let (place, name) = match (&config.refresh_token, &config.refresh_token_file) {
            (Some(reference), _) => {
                let token = found("refresh_token", reference)?;
                (TokenPlace::Given(token.clone()), token)
            }
            (None, Some(path)) => {
                found("refresh_token_file", &reference(path))?;
                let place = PathBuf::from(path);
                check(&place).map_err(|e| {
                    let reason = format!(
                        "cannot be rewritten ({e}); give write access to the file `{path}` and its folder, or use `auth.refresh_token` if the server does not replace the token"
                    );
                    Error::config("auth.refresh_token_file", reason)
                })?;
                let secrets = Arc::clone(&context.secrets);
                (TokenPlace::File(place, secrets), path.clone())
            }
            (None, None) => {
                let reason = "is missing; add it, or `auth.refresh_token_file`";
                return Err(Error::config("auth.refresh_token", reason));
            }
        };
        let key = xxh3_128(format!("{url}\n{name}").as_bytes());
        Ok(Self {
            place,
            key,
            current: context.hosts.rotated().of(key),
        })
    }

    /// Hash that identifies the configured token.
    pub(super) fn key(&self) -> u128 {
        self.key
    }

    /// Advice for a token that is refused.
    pub(super) fn advice(&self) -> &'static str {
        match self.place {
            TokenPlace::Given(_) => {
                "the refresh token has expired, was revoked or was replaced; obtain a new one and set `auth.refresh_token`"
            }
            TokenPlace::File(..) => {
                "the refresh token has expired, was revoked or was replaced; obtain a new one and write it to the file of `auth.refresh_token_file`"
            }
        }
    }

    /// Requests a token, and keeps the refresh token that comes with it.
    pub(super) async fn renew(
        &self,
        requests: &TokenRequests,
        transport: &Transport,
    ) -> Result<Token, Failure> {
        let mut current = self.current.lock().await;
        let mut configured = self.configured()?;
        let mut token = match &*current {
            Some(current) if current.replaced == configured => current.token.clone(),
            _ => configured.clone(),
        };
        let mut granted = requests
            .ask(transport, Some(("refresh_token", &token)))
            .await;
        if granted.as_ref().is_err_and(is_invalid) {
            // Another process may have replaced it in the file.
            let newest = self.configured()?;
            if newest != configured {
                transport.secretive.add_late(&newest);
                (configured, token) = (newest.clone(), newest);
                granted = requests
                    .ask(transport, Some(("refresh_token", &token)))
                    .await;
            }
        }
        let Granted {
            token: access,
            refresh_token,
        } = granted?;
        if let Some(new) = refresh_token.filter(|new| *new != token) {
            transport.secretive.add_late(&new);
            self.keep(transport, &new);
            *current = Some(CurrentToken {
                token: new,
                replaced: configured,
            });
        }
        Ok(access)
    }

    /// The token as it is configured now.
    fn configured(&self) -> Result<String, Failure> {
        match &self.place {
            TokenPlace::Given(token) => Ok(token.clone()),
            TokenPlace::File(path, secrets) => {
                let path = path.to_string_lossy();
                secrets.resolve(&reference(&path)).map_err(|reason| {
                    let key = Error::config("auth.refresh_token_file", reason);
                    Failure {
                        error: Box::new(key),
                        again: Again::Never,
                    }
                })
            }
        }
    }

    /// Writes a new token to the file, or warns that it is only in memory.
    fn keep(&self, transport: &Transport, new: &str) {
        let (key, message) = match &self.place {
            TokenPlace::Given(_) => (
                "auth.refresh_token",
                "the server has replaced the refresh token; the new one is only in memory, and the next process begins with the old one, which may be refused; name a file that feedline rewrites in `auth.refresh_token_file`".to_owned(),
            ),
            TokenPlace::File(path, _) => match rewrite(path, new) {
                Ok(()) => return,
                Err(e) => (
                    "auth.refresh_token_file",
                    format!(
                        "the server has replaced the refresh token, and the file `{}` cannot be rewritten ({e}); the new one is only in memory, so obtain another one before the next process, and give write access to the folder",
                        path.display()
                    ),
                ),
            },
        };
        tracing::warn!(key, "{message}");
        transport.notice(CODE, key, message);
    }
}

fn reference(path: &str) -> SecretRef {
    SecretRef {
        env: None,
        file: Some(path.to_owned()),
        prefix: String::new(),
    }
}

fn is_invalid(failure: &Failure) -> bool {
    matches!(
        &*failure.error,
        Error::Http {
            cause: HttpCause::InvalidGrant(_),
            ..
        }
    )
}

/// Replaces a file by one with `text`, readable by its owner only. After a crash it has the old
/// text or the new one.
fn rewrite(path: &Path, text: &str) -> io::Result<()> {
    let (path, temporary) = places(path)?;
    let written = create(&temporary).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&temporary, &path)
    });
    if written.is_err() {
        drop(fs::remove_file(&temporary));
    }
    written?;
    let folder = path.parent().unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// Returns an error if [`rewrite`] cannot work.
fn check(path: &Path) -> io::Result<()> {
    let (_, temporary) = places(path)?;
    create(&temporary)?;
    fs::remove_file(temporary)
}

fn create(temporary: &Path) -> io::Result<File> {
    match fs::remove_file(temporary) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    // A new file is never opened through a link.
    OpenOptions::new()
        .mode(0o600)
        .write(true)
        .create_new(true)
        .open(temporary)
}

/// The file behind `path`, which may be a link, and a temporary one beside it.
fn places(path: &Path) -> io::Result<(PathBuf, PathBuf)> {
    let path = path.canonicalize()?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".tmp-{name}-{}", std::process::id()));
    Ok((path, temporary))
}
