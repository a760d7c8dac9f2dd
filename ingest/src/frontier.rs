//! The frontier of a crawl: its known URLs, and those that wait to be fetched.
//!
//! URLs are numbered in the order of discovery, from 0: first those of the configuration, then
//! those from pages and sitemaps. The number of the next URL is the position of the crawl
//! ([`feedline_schemas::commit::Position`]). A batch lands its discoveries as a Parquet file of its
//! own, named by the same log entry as its rows:
//!
//! | column | type | |
//! |---|---|---|
//! | `url` | text | normalized |
//! | `start` | boolean | true if the configuration names it, or a redirect of such a URL led to it |
//! | `sitemap` | boolean | true for a sitemap, false for a page |
//! | `depth` | u16 | links from a start page |
//! | `redirects` | u8 | consecutive redirects that led to it |
//!
//! So the frontier of a run that died is rebuilt from the log, exactly as it was after the last
//! batch. A snapshot of the log has many of these files merged into few. In memory a known URL is a hash of 16 bytes (collisions are expected at 2^64 of them).
//! Only waiting URLs are kept as text, compressed: a million of them take about 50 MB.

pub(crate) mod discovery;
mod waiting_urls;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use arrow::{
    array::{
        Array, ArrayRef, AsArray, BooleanArray, RecordBatch, StringArray, UInt8Array, UInt16Array,
    },
    datatypes::{UInt8Type, UInt16Type},
};
use feedline_schemas::{commit::DataFile, ids::Hash128};
use feedline_storage::Store;
use url::Url;

use self::{discovery::Discovery, waiting_urls::Waiting};
use crate::{error::Error, landed_file};

const COLUMNS: [&str; 5] = ["url", "start", "sitemap", "depth", "redirects"];

/// Known and waiting URLs.
#[derive(Debug, Default)]
pub(crate) struct Frontier {
    /// Hashes of all URLs ever found.
    known: HashSet<u128>,
    /// URLs that were not fetched yet, in order.
    waiting: Waiting,
    /// Number of the first waiting one.
    next: u64,
    /// Number of fetchable URLs by host.
    hosts: HashMap<Box<str>, u64>,
}

impl Frontier {
    /// Admits `host`.
    pub(crate) fn admit(&mut self, host: &str) {
        self.hosts.entry(host.into()).or_default();
    }

    /// URLs of an admitted host; `None` when it is not admitted.
    pub(crate) fn of_host(&self, host: &str) -> Option<u64> {
        self.hosts.get(host).copied()
    }

    /// Returns true if a URL has been found before.
    pub(crate) fn knows(&self, url: &str) -> bool {
        self.known.contains(&hash(url))
    }

    /// Adds a URL that is not known yet; its host is admitted from now on.
    pub(crate) fn push(&mut self, found: &Discovery) {
        self.known.insert(hash(&found.url));
        *self.hosts.entry(host_of(&found.url)).or_default() += 1;
        self.waiting.push(found);
    }

    /// Number of the next URL to fetch.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Number of URLs found so far, including fetched ones.
    pub(crate) fn len(&self) -> u64 {
        self.next + self.waiting.len()
    }

    /// The next URLs, at most `most`.
    pub(crate) fn peek(&mut self, most: usize) -> Vec<Discovery> {
        self.waiting.peek(most)
    }

    /// Takes the next URL off the waiting list.
    pub(crate) fn pop(&mut self) -> Option<Discovery> {
        let found = self.waiting.pop()?;
        self.next += 1;
        Some(found)
    }

    /// Adds the discoveries that `files` have, and removes the first `asked` URLs, which were fetched:
    /// all of them without this number. Returns those of them whose numbers are in `wanted`, which is
    /// in order.
    ///
    /// # Errors
    /// [`Error::Landed`] for a damaged or absent file, [`Error::Log`] if the log counts more URLs
    /// than it found, [`Error::Storage`].
    pub(crate) async fn restore(
        &mut self,
        landing: &Store,
        files: &[DataFile],
        asked: Option<u64>,
        wanted: &[u64],
    ) -> Result<BTreeMap<u64, Discovery>, Error> {
        let mut taken = BTreeMap::new();
        let end = asked.unwrap_or(u64::MAX);
        for file in files {
            for found in read(landing, file).await? {
                self.push(&found);
                // Fetched URLs need not be held until the complete log has been read.
                if self.next < end {
                    self.pop_fetched(wanted, &mut taken);
                }
            }
        }
        while self.next < end && self.pop_fetched(wanted, &mut taken) {}
        match asked {
            Some(asked) if self.next < asked => Err(Error::Log {
                url: landing.url_of("log"),
                reason: format!(
                    "it counts {asked} fetched URLs, but its frontier files hold {}",
                    self.next
                ),
            }),
            _ => Ok(taken),
        }
    }

    /// Takes the next URL off the waiting list, and adds it to `taken` if its number is `wanted`.
    /// Returns false if no URL waits.
    fn pop_fetched(&mut self, wanted: &[u64], taken: &mut BTreeMap<u64, Discovery>) -> bool {
        let number = self.next;
        let Some(found) = self.pop() else {
            return false;
        };
        if wanted.binary_search(&number).is_ok() {
            taken.insert(number, found);
        }
        true
    }
}

fn hash(url: &str) -> u128 {
    Hash128::of(url.as_bytes()).get()
}

/// Host of a normalized URL.
fn host_of(url: &str) -> Box<str> {
    let host = Url::parse(url).ok();
    let host = host.as_ref().and_then(Url::host_str).unwrap_or_default();
    host.into()
}

/// The discoveries of `files` in their order, as columns of one file.
///
/// # Errors
/// [`Error::Landed`] for a damaged or absent file, [`Error::Storage`].
pub(crate) async fn merged(
    landing: &Store,
    files: &[DataFile],
) -> Result<Vec<(&'static str, ArrayRef)>, Error> {
    let mut all = Vec::new();
    for file in files {
        all.extend(read(landing, file).await?);
    }
    Ok(columns(&all))
}

/// The columns of a frontier file.
pub(crate) fn columns(found: &[Discovery]) -> Vec<(&'static str, ArrayRef)> {
    let [url, start, sitemap, depth, redirects] = COLUMNS;
    let urls = StringArray::from_iter_values(found.iter().map(|f| &f.url));
    let starts: BooleanArray = found.iter().map(|f| Some(f.is_start)).collect();
    let sitemaps: BooleanArray = found.iter().map(|f| Some(f.is_sitemap)).collect();
    let depths = UInt16Array::from_iter_values(found.iter().map(|f| f.depth));
    let hops = UInt8Array::from_iter_values(found.iter().map(|f| f.redirects));
    vec![
        (url, Arc::new(urls) as ArrayRef),
        (start, Arc::new(starts)),
        (sitemap, Arc::new(sitemaps)),
        (depth, Arc::new(depths)),
        (redirects, Arc::new(hops)),
    ]
}

async fn read(landing: &Store, file: &DataFile) -> Result<Vec<Discovery>, Error> {
    let batches = landed_file::read(landing, file, &COLUMNS, None).await?;
    let mut found = Vec::new();
    for batch in &batches {
        found.extend(rows(batch).ok_or_else(|| Error::Landed {
            url: landing.url_of(&file.path),
            reason: "its columns are not those of a frontier".into(),
        })?);
    }
    Ok(found)
}

fn rows(batch: &RecordBatch) -> Option<Vec<Discovery>> {
    let [url, start, sitemap, depth, redirects] = COLUMNS.map(|name| batch.column_by_name(name));
    let url = url?.as_string_opt::<i32>()?;
    let (start, sitemap) = (start?.as_boolean_opt()?, sitemap?.as_boolean_opt()?);
    let depth = depth?.as_primitive_opt::<UInt16Type>()?;
    let redirects = redirects?.as_primitive_opt::<UInt8Type>()?;
    let row = |i| Discovery {
        url: url.value(i).into(),
        is_start: start.value(i),
        is_sitemap: sitemap.value(i),
        depth: depth.value(i),
        redirects: redirects.value(i),
    };
    Some((0..url.len()).map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn found(number: u64) -> Discovery {
        Discovery {
            url: format!(
                "https://host-{}.example/a/page/of/usual/length?id={number}",
                number % 3
            )
            .into(),
            is_start: number.is_multiple_of(2),
            is_sitemap: number.is_multiple_of(7),
            depth: 2,
            redirects: 1,
        }
    }

    #[test]
    fn urls_are_taken_in_the_order_they_were_found_in() {
        let mut frontier = Frontier::default();
        (0..4).for_each(|n| frontier.push(&found(n)));
        assert_eq!(frontier.peek(2), [found(0), found(1)]);
        assert_eq!(frontier.pop(), Some(found(0)));
        assert_eq!((frontier.next(), frontier.len()), (1, 4));
        assert!(frontier.knows(&found(0).url) && !frontier.knows(&found(9).url));
        assert_eq!(frontier.of_host("host-0.example"), Some(2));
        assert_eq!(frontier.of_host("host-9.example"), None);
    }

    #[test]
    fn a_file_gives_back_what_was_written() {
        let all: Vec<_> = (0..20).map(found).collect();
        let batch = RecordBatch::try_from_iter(columns(&all)).unwrap();
        assert_eq!(rows(&batch), Some(all));
        assert_eq!(rows(&batch.project(&[0, 1, 2]).unwrap()), None);
    }
}
