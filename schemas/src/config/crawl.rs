//! `[source.crawl]` and `[source.page]`: how a `html` source gets from page to page, and what becomes of a page.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Bounded, Count, Milliseconds, Seconds};
use crate::units::ByteSize;

/// `[source.crawl]`: which pages are fetched, and how politely.
///
/// Pages are fetched breadth first, links in the order of the document, each URL once. A URL is compared without its
/// fragment, user and password, with its host in lower case, without the default port and dot segments.
///
/// A pattern of `allow` and `deny` is written as in robots.txt: the beginning of a path with its query (`/blog/`), or of a
/// whole URL where it does not begin with `/`; `*` is any text, and `$` at the end is the end of the URL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CrawlConfig {
    /// URLs of further pages to begin with, after `url`. Default none.
    pub start: Vec<String>,
    /// URLs of sitemaps, or indexes of sitemaps (XML or text, plain or gzip), whose pages are fetched as if `start`
    /// named them. A URL with the path `/robots.txt` stands for the sitemaps that its `Sitemap:` lines name on hosts that are
    /// fetched from. Default none.
    pub sitemaps: Vec<String>,
    /// Whether links are followed. Default true.
    pub links: bool,
    /// Whether `nofollow` of links and pages is respected. Default true.
    pub nofollow: bool,
    /// Patterns of URLs that are fetched. Default: all. What `url`, `start` and `sitemaps` name needs not match.
    pub allow: Vec<String>,
    /// Patterns of URLs that are not fetched, even where `allow` names them. Default none.
    pub deny: Vec<String>,
    /// Hosts that are fetched from besides those of `url`, `start` and `sitemaps`. Default: those these redirect to.
    pub hosts: Vec<String>,
    /// Query parameters that are taken out of URLs, such as `utm_*`; `*` is any text. Default none.
    pub drop_params: Vec<String>,
    /// Most links from a page the crawl begins with, 0 to 1,000. Default 3.
    pub depth: Bounded<u16, 0, 1_000>,
    /// Most URLs that are asked for, redirects and sitemaps among them, 1 to 100,000,000. Default 10,000: a guard
    /// against pages without end. A URL takes 20 to 40 bytes of memory once it is known, and about 15 more while it waits.
    pub max_pages: Count<1, 100_000_000>,
    /// Most URLs of one host. Default: `max_pages`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_host_pages: Option<Count<1>>,
    /// Whether robots.txt is respected (RFC 9309, and Crawl-delay). Default true.
    pub robots: bool,
    /// Time from one request to the next one to the same host, in milliseconds. Default 1,000. A longer Crawl-delay
    /// counts instead.
    pub delay_ms: Milliseconds<0, 86_400_000>,
    /// Longest Crawl-delay that is respected, in seconds; a host that asks for more is left out. Default 300.
    pub max_crawl_delay_s: Seconds<0, 86_400>,
    /// Hosts that are asked at the same time, 1 to 64; a single host gets one request at a time. Default 8.
    pub concurrency: usize,
    /// What a run does after a crawl that is complete: `never` (default) asks for nothing, `changed` asks for every page of it
    /// again, with the `ETag` and `Last-Modified` it came with: one that has not changed is counted as `unchanged` and lands
    /// no record, one that has lands another one, and its new links are followed. It may be changed at any time, but pages
    /// that were read under `never` are read once more: only equal records among the `batch.dedup_window` latest ones are
    /// left out then. Takes about 100 bytes of memory a page.
    #[serde(skip_serializing_if = "Refresh::is_never")]
    pub refresh: Refresh,
    /// How to reach whoever runs the crawl (an address or a URL), sent with every request. Default: feedline's own.
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
    /// Whether nothing was said about it.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What a run does after a crawl that is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Refresh {
    /// Nothing.
    #[default]
    Never,
    /// Asks for what has changed.
    IfChanged,
}

impl Refresh {
    /// Whether a complete crawl is left alone.
    #[must_use]
    pub fn is_never(&self) -> bool {
        *self == Self::Never
    }
}

/// `[source.page]`: what becomes of a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PageConfig {
    /// `article` (default), `rows` or `tables`.
    pub extract: PageExtract,
    /// Patterns, as those of `crawl.allow`, of pages that become records; of the others only the links are read.
    /// Default: all.
    pub land: Vec<String>,
    /// `rows`: CSS selector of a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<String>,
    /// `rows`: columns and where in a row they are: a CSS selector for the text of the first match, `selector@name` for
    /// its attribute, and `@name` for an attribute of the row itself; `href` and `src` become whole URLs.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub columns: BTreeMap<String, String>,
    /// Largest page, decompressed; a larger one becomes a reject. Default 4 MiB: a page takes up to 40 times its size of
    /// memory while it is read, and four are read at a time.
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
    /// Whether nothing was said about it.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What a page becomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PageExtract {
    /// One record with its readable text: `url` (the canonical one, where the page names it), `fetched_url` (the one
    /// it was fetched at), `title`, `author`, `date` (RFC 3339), `description`, `site`, `language` and `text`. A value that the page does not have is null.
    #[default]
    Article,
    /// A record for each match of `rows`, with its `columns` and `url`.
    Rows,
    /// A record for each row of each table with a header, its cells under the names of the header, with `url` and
    /// `table`, the number of the table on the page from 0.
    Tables,
}
