//! `[source.crawl]` and `[source.page]`: the crawl of an `html` source, and the extraction of
//! records from pages.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Bounded, BoundedCount, Milliseconds, Seconds};
use crate::units::ByteSize;

/// `[source.crawl]`: selection of pages, and rate limiting.
///
/// Pages are requested breadth first, links in the order of the document, each URL once. URLs are
/// compared without fragment, user, password, default port and dot segments, and with the host in
/// lower case.
///
/// A pattern of `allow` and `deny` is written as in robots.txt. It is the beginning of a path with
/// its query (`/blog/`), or of a complete URL if it does not begin with `/`. `*` is any text, and
/// `$` at the end is the end of the URL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CrawlConfig {
    /// URLs of further start pages, after `url`. Default: none.
    pub start: Vec<String>,
    /// URLs of sitemaps, or indexes of sitemaps (XML or text, plain or gzip). Their pages are
    /// requested as if `start` named them. A URL with the path `/robots.txt` means the sitemaps of
    /// its `Sitemap:` lines on hosts of the crawl. Default: none.
    pub sitemaps: Vec<String>,
    /// If true, links are followed. Default true.
    pub links: bool,
    /// If true, `nofollow` of links and pages is respected. Default true.
    pub nofollow: bool,
    /// Patterns of URLs to request. Default: all. URLs in `url`, `start` and `sitemaps` need not
    /// match.
    pub allow: Vec<String>,
    /// Patterns of URLs that are not requested, even if `allow` matches them. URLs that were found
    /// before a pattern was added are still requested, but are skipped if their host is down, so that
    /// it does not stop the run. URLs of other hosts in sitemaps get no warning if a pattern matches
    /// them. Default: none.
    pub deny: Vec<String>,
    /// Hosts of the crawl besides those of `url`, `start` and `sitemaps`: names or addresses alone,
    /// such as `www.example.org`, without scheme, port, path and `*`. A host is admitted with all of
    /// its ports, and without its subdomains. Default: the hosts that `url`, `start` and `sitemaps`
    /// redirect to.
    pub hosts: Vec<String>,
    /// Query parameters that are removed from URLs, such as `utm_*`; `*` is any text. Default:
    /// none.
    pub drop_params: Vec<String>,
    /// Largest number of links between a start page and a page, 0 to 1,000. Default 3.
    pub depth: Bounded<u16, 0, 1_000>,
    /// Most URLs that are requested, including redirects and sitemaps, 1 to 100,000,000. Default
    /// 10,000, a guard against endless sites. A known URL takes 20 to 40 bytes of memory, and about
    /// 15 more while it waits.
    pub max_pages: BoundedCount<1, 100_000_000>,
    /// Most URLs of one host. Default: `max_pages`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_host_pages: Option<BoundedCount<1>>,
    /// If true, robots.txt is respected (RFC 9309, and Crawl-delay). No page of a host is requested
    /// while its robots.txt cannot be read: each is a failed page. Default true.
    pub robots: bool,
    /// Time between the starts of two requests to the same host, in milliseconds, 0 to 86,400,000.
    /// Default 1,000. A longer Crawl-delay is used instead.
    pub delay_ms: Milliseconds<0, 86_400_000>,
    /// Longest Crawl-delay that is respected, in seconds, 0 to 86,400; a host with a longer one is
    /// skipped. Default 300.
    pub max_crawl_delay_s: Seconds<0, 86_400>,
    /// Number of hosts that are requested in parallel, 1 to 64; a host gets one request at a time.
    /// Default 8.
    pub concurrency: usize,
    /// Action of a run after a complete crawl: `never` (default) requests only pages that failed;
    /// `if_changed` requests every page of it again, with the `ETag` and `Last-Modified` of its last
    /// response. An unchanged page is counted as `unchanged` and lands no record. A changed page lands
    /// another record, and its new links are followed.
    ///
    /// It may be changed at any time, but pages that were read under `never` are read once more. Of
    /// their records, only those that equal one of the latest `batch.dedup_window` records are
    /// dropped as duplicates. `if_changed` takes about 100 bytes of memory per page.
    #[serde(skip_serializing_if = "Refresh::is_never")]
    pub refresh: Refresh,
    /// Contact of the operator of the crawl (an address or a URL), sent with every request.
    /// Default: feedline's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contact: Option<String>,
}

impl Default for CrawlConfig {
    fn default() -> Self {
        Self {
            start: Vec::new(),
            sitemaps: Vec::new(),
            links: true,
            nofollow: true,
            allow: Vec::new(),
            deny: Vec::new(),
            hosts: Vec::new(),
            drop_params: Vec::new(),
            depth: Bounded::literal::<3>(),
            max_pages: Bounded::literal::<10_000>(),
            max_host_pages: None,
            robots: true,
            delay_ms: Bounded::literal::<1_000>(),
            max_crawl_delay_s: Bounded::literal::<300>(),
            concurrency: 8,
            refresh: Refresh::Never,
            contact: None,
        }
    }
}

impl CrawlConfig {
    /// Returns true for the defaults.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Action of a run after a complete crawl.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Refresh {
    /// Requests only pages that failed.
    #[default]
    Never,
    /// Requests every page again, and lands those that have changed.
    IfChanged,
}

impl Refresh {
    /// Returns true if a complete crawl is not refreshed.
    #[must_use]
    pub fn is_never(&self) -> bool {
        *self == Self::Never
    }
}

/// `[source.page]`: extraction of records from pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PageConfig {
    /// Kind of extraction: `article` (default), `rows` or `tables`.
    pub extract: PageExtract,
    /// Patterns, as in `crawl.allow`, of pages that become records; of other pages only the links
    /// are read. Default: all.
    pub land: Vec<String>,
    /// `rows`: CSS selector of a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<String>,
    /// `rows`: columns and their places in a row: a CSS selector for the text of the first match,
    /// `:scope` alone for the text of the row itself, `selector@name` for an attribute of the match,
    /// or `@name` for an attribute of the row itself. `href` and `src` become absolute URLs.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub columns: BTreeMap<String, String>,
    /// Largest page, decompressed; a larger one becomes a reject. Default 4 MiB. While it is read,
    /// a page takes up to 40 times its size of memory, and four are read at a time.
    pub max_bytes: ByteSize,
}

impl Default for PageConfig {
    fn default() -> Self {
        Self {
            extract: PageExtract::default(),
            land: Vec::new(),
            rows: None,
            columns: BTreeMap::new(),
            max_bytes: ByteSize::mib(4),
        }
    }
}

impl PageConfig {
    /// Returns true for the defaults.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Kind of extraction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PageExtract {
    /// One record with the readable text of the page: `url` (the canonical one, if the page names
    /// it), `fetched_url` (the requested one), `title`, `author`, `date` (RFC 3339), `description`,
    /// `site`, `language` and `text`. A value that the page does not have is null.
    #[default]
    Article,
    /// One record for each match of `rows`, with its `columns` and `url`.
    Rows,
    /// One record for each row of each table with a header. Its cells have the names of the header;
    /// `url` and `table` (the number of the table on the page, from 0) are added.
    Tables,
}
