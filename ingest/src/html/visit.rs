//! Requests a URL of the frontier and parses the response.

use std::{sync::Arc, time::Duration};

use feedline_http::{redacted, unzipped};
use feedline_readers::record::Record;
use tokio::sync::OwnedSemaphorePermit;
use url::Url;

use super::{
    address::Patterns,
    fetcher::{Fetched, PageFetcher},
    reader::{Contents, Readers, Rules, Unread},
    sitemap::{self, Sitemap},
};
use crate::{
    blocking::computing, error::Error, frontier::discovery::Discovery, raw::Exchange,
    validators::Validator,
};

/// Time after which a run with only busy threads stops.
const STUCK: Duration = Duration::from_secs(600);

/// Outcome of a visit to a URL.
pub(super) enum Visit {
    Page(Contents, Option<Validator>),
    Sitemap(Sitemap, Option<Validator>),
    Redirect(Url),
    Skipped(&'static str),
    Failed {
        reason: &'static str,
        error: Error,
        is_transient: bool,
    },
}

impl Visit {
    /// Approximate size in bytes.
    pub(super) fn size(&self) -> u64 {
        match self {
            Self::Page(contents, _) => {
                let records: u64 = contents.records.iter().map(Record::size).sum();
                let links = contents.links.iter().map(|url| url.as_str().len() as u64);
                records + links.sum::<u64>()
            }
            Self::Sitemap(sitemap, _) => sitemap.urls.iter().map(|url| url.len() as u64).sum(),
            Self::Redirect(_) | Self::Skipped(_) | Self::Failed { .. } => 0,
        }
    }
}

/// State shared by concurrent visits.
pub(super) struct Visitor {
    pub(super) site: PageFetcher,
    pub(super) readers: Readers,
    pub(super) rules: Arc<Rules>,
    pub(super) land: Patterns,
}

impl Visitor {
    /// Fetches a URL with the index `number` in the frontier, and parses the response. `is_retry` is
    /// true if it failed in an earlier run. With an archive, the response is archived.
    ///
    /// # Errors
    /// Like [`PageFetcher::fetch`].
    pub(super) async fn visit(
        &self,
        number: u64,
        at: Discovery,
        is_retry: bool,
    ) -> Result<(Visit, Option<Exchange>), Error> {
        let (fetched, kept) = self.site.fetch(&at, number, is_retry).await?;
        Ok((self.read(at, fetched).await?, kept))
    }

    async fn read(&self, at: Discovery, fetched: Fetched) -> Result<Visit, Error> {
        let (bytes, content_type, robots, validator) = match fetched {
            Fetched::Body {
                bytes,
                content_type,
                robots,
                validator,
            } => (bytes, content_type, robots, validator),
            Fetched::Redirect(url) => return Ok(Visit::Redirect(url)),
            Fetched::Skipped(reason) => return Ok(Visit::Skipped(reason)),
            Fetched::Failed {
                reason,
                error,
                is_transient,
            } => {
                return Ok(Visit::Failed {
                    reason,
                    error,
                    is_transient,
                });
            }
        };
        let Ok(url) = Url::parse(&at.url) else {
            return Ok(Visit::Skipped("not_a_url"));
        };
        let failed = |reason, detail| Visit::Failed {
            reason,
            error: Error::Body {
                url: redacted(&url),
                reason: detail,
            },
            is_transient: false,
        };
        if !at.is_sitemap
            && let Some((reason, detail)) = self.readers.refusal(&url)
        {
            return Ok(failed(reason, detail));
        }
        let slot = self.slot(&url).await?;
        if at.is_sitemap {
            let limit = self.site.max_body_bytes();
            let is_robots = sitemap::is_robots_txt(&url);
            let parse = move || {
                Ok(unzipped(bytes, limit).and_then(|bytes| match is_robots {
                    true => Ok(sitemap::of_robots(&bytes)),
                    false => sitemap::parse(&bytes),
                }))
            };
            return Ok(match computing(parse).await? {
                Ok(sitemap) => Visit::Sitemap(sitemap, validator),
                Err(detail) => failed("bad_sitemap", detail),
            });
        }
        let page = Unread {
            lands: self.land.is_empty() || self.land.matches(&url),
            url: url.clone(),
            bytes,
            content_type,
            robots,
            rules: Arc::clone(&self.rules),
        };
        Ok(match self.readers.read(page, slot).await {
            Ok(contents) => Visit::Page(contents, validator),
            Err((reason, detail)) => failed(reason, detail),
        })
    }

    /// Waits until one of the threads that read pages is free.
    async fn slot(&self, url: &Url) -> Result<OwnedSemaphorePermit, Error> {
        match tokio::time::timeout(STUCK, self.readers.slot()).await {
            Ok(slot) => Ok(slot),
            Err(_) => Err(Error::Body {
                url: redacted(url),
                reason: format!(
                    "pages before it have been parsed for {} s and more without end; exclude them with `crawl.deny` (the log names those that took too long) and rerun",
                    STUCK.as_secs()
                ),
            }),
        }
    }
}
