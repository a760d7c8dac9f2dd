//! Archived responses, in place of those of a server.

use std::sync::{Mutex, MutexGuard, PoisonError};

use feedline_http::Request;
use feedline_schemas::commit::CommitEntry;
use feedline_storage::Store;
use reqwest::header::HeaderName;
use url::Origin;

use super::{Exchange, file::read, name, shown};
use crate::error::Error;

const ADVICE: &str = "a replay must send the same requests: restore `url`, `params`, `body`, `pagination`, `incremental`, `refresh` and `crawl`, or ingest again";

/// Responses of one batch of an archive. Each is returned once; a request for any other fails.
#[derive(Debug, Default)]
pub(crate) struct Tape(Mutex<Reel>);

#[derive(Debug, Default)]
struct Reel {
    /// URL of the archive file.
    url: String,
    /// Remaining exchanges, in order.
    exchanges: Vec<Exchange>,
}

impl Tape {
    /// Loads the responses that `entry` of the log at `landing` names, in place of those before.
    ///
    /// # Errors
    /// [`Error::Landed`], [`Error::Storage`].
    pub(crate) async fn load(&self, landing: &Store, entry: &CommitEntry) -> Result<(), Error> {
        let mut exchanges = Vec::new();
        for file in &entry.raw {
            exchanges.extend(read(landing, file).await?);
        }
        let url = entry.raw.last().map(|file| landing.url_of(&file.path));
        *self.reel() = Reel {
            url: url.unwrap_or_default(),
            exchanges,
        };
        Ok(())
    }

    fn reel(&self) -> MutexGuard<'_, Reel> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of responses that were not requested yet.
    pub(crate) fn left(&self) -> usize {
        self.reel().exchanges.len()
    }

    /// Takes the response to `request` of a source with the origin `home`. It must have the headers
    /// `wanted`.
    ///
    /// # Errors
    /// [`Error::Archive`] if it is missing.
    pub(crate) fn take(
        &self,
        request: &Request,
        home: &Origin,
        wanted: &[HeaderName],
    ) -> Result<Exchange, Error> {
        let name = feedline_schemas::ids::Hash128::of(name(request, home).as_bytes());
        let mut reel = self.reel();
        let found = reel.exchanges.iter().position(|e| e.request == name);
        let archive = reel.url.clone();
        let missing = |reason: String| Error::Archive {
            url: archive,
            reason,
        };
        let Some(at) = found else {
            let next = match reel.exchanges.first() {
                Some(next) => format!("`{}` was requested then", next.url),
                None => "no further request was sent then".into(),
            };
            let url = shown(&request.url, home);
            return Err(missing(format!(
                "it has no response to `{url}`, which the settings request now; {next}; {ADVICE}"
            )));
        };
        let exchange = reel.exchanges.remove(at);
        let answered = exchange.status.is_some();
        let absent = wanted
            .iter()
            .find(|name| answered && !exchange.headers.contains_key(name.as_str()));
        match absent {
            Some(name) => Err(missing(format!(
                "it lacks the header `{name}` of `{}`, which `pagination` names now; {ADVICE}",
                exchange.url
            ))),
            None => Ok(exchange),
        }
    }

    /// Refuses a batch that has unrequested responses left.
    ///
    /// # Errors
    /// [`Error::Archive`].
    pub(crate) fn check_used_up(&self) -> Result<(), Error> {
        let reel = self.reel();
        let Some(next) = reel.exchanges.first() else {
            return Ok(());
        };
        Err(Error::Archive {
            url: reel.url.clone(),
            reason: format!(
                "the settings need no more pages, but `{}` was requested then; {ADVICE}",
                next.url
            ),
        })
    }
}
