//! Traversal of a crawl: selects the found URLs to follow.

use std::collections::BTreeMap;

use feedline_schemas::config::CrawlConfig;
use url::Url;

use super::{
    address::{Scope, normalized, normalized_host},
    fetcher::UNREACHABLE,
    reader::HOST_TOO_SLOW,
    robots_failure::ROBOTS_UNREACHABLE,
    sitemap::Sitemap,
    visit::Visit,
};
use crate::{
    frontier::{Frontier, discovery::Discovery},
    source::Crawled,
};

/// Redirects in a row that are followed.
const MAX_REDIRECTS: u8 = 5;
/// Sitemaps below a sitemap.
const MAX_SITEMAP_DEPTH: u16 = 3;

/// The frontier and its admission rules.
#[derive(Debug)]
pub(super) struct LinkPolicy {
    pub(super) frontier: Frontier,
    scope: Scope,
    config: CrawlConfig,
}

/// Condition for a URL to be followed.
#[derive(Clone, Copy, Debug)]
enum Admission {
    Any,
    Host,
    Scope,
}

impl LinkPolicy {
    /// A walk from `pages` and `sitemaps` on.
    pub(super) fn new(config: &CrawlConfig, pages: &[Url], sitemaps: &[Url]) -> Self {
        let mut frontier = Frontier::default();
        for host in config.hosts.iter().filter_map(|host| normalized_host(host)) {
            frontier.admit(&host);
        }
        let pages = pages.iter().map(|url| (url, false));
        for (url, is_sitemap) in pages.chain(sitemaps.iter().map(|url| (url, true))) {
            if !frontier.knows(url.as_str()) {
                let is_start = true;
                frontier.push(&Discovery {
                    is_start,
                    is_sitemap,
                    ..page(url, 0)
                });
            }
        }
        Self {
            frontier,
            scope: Scope::new(config),
            config: config.clone(),
        }
    }

    /// Adds the links of a page.
    pub(super) fn links(&mut self, at: &Discovery, links: &[Url], crawled: &mut Crawled) {
        for url in links {
            let link = page(url, at.depth.saturating_add(1));
            self.offer(url, link, Admission::Scope, crawled);
        }
    }

    /// Number of URLs of a sitemap by host, for hosts that are not of the crawl. URLs that
    /// `crawl.deny` matches do not count.
    pub(super) fn other_hosts(&self, sitemap: &Sitemap) -> BTreeMap<String, u64> {
        let mut others: BTreeMap<String, u64> = BTreeMap::new();
        for url in sitemap.urls.iter().filter_map(|url| Url::parse(url).ok()) {
            let Some(host) = url.host_str() else {
                continue;
            };
            if self.frontier.of_host(host).is_none() && !self.scope.denies(&url) {
                *others.entry(host.to_owned()).or_default() += 1;
            }
        }
        others
    }

    /// Turns the failure of a host that is down or too slow into a skipped URL, if `crawl.deny` matches the URL by
    /// now. So a crawl can continue without that host. For a URL that failed before (`is_retry`), any failure counts.
    pub(super) fn skip_denied_failure(
        &self,
        at: &Discovery,
        visit: Visit,
        is_retry: bool,
    ) -> Visit {
        let is_down = match visit {
            Visit::Failed { reason, .. } => {
                is_retry || matches!(reason, UNREACHABLE | ROBOTS_UNREACHABLE | HOST_TOO_SLOW)
            }
            _ => false,
        };
        let is_denied = || Url::parse(&at.url).is_ok_and(|url| self.scope.denies(&url));
        match is_down && !at.is_start && is_denied() {
            true => Visit::Skipped("denied"),
            false => visit,
        }
    }

    /// Adds the URLs of a sitemap.
    pub(super) fn sitemap(&mut self, at: &Discovery, sitemap: &Sitemap, crawled: &mut Crawled) {
        let depth = if sitemap.is_index { at.depth + 1 } else { 0 };
        if depth > MAX_SITEMAP_DEPTH {
            skip(crawled, "beyond_depth");
            return;
        }
        let urls = sitemap.urls.iter().filter_map(|text| Url::parse(text).ok());
        let urls: Vec<Url> = urls
            .filter_map(|url| normalized(url, &self.config.drop_params))
            .collect();
        for url in urls {
            let is_sitemap = sitemap.is_index;
            let link = Discovery {
                is_sitemap,
                ..page(&url, depth)
            };
            let admission = if sitemap.is_index {
                Admission::Host
            } else {
                Admission::Scope
            };
            self.offer(&url, link, admission, crawled);
        }
    }

    /// Appends the target of a redirect to the frontier, at the same depth.
    pub(super) fn redirect(&mut self, at: &Discovery, url: Url, crawled: &mut Crawled) {
        let Some(url) = normalized(url, &self.config.drop_params) else {
            return skip(crawled, "redirected_away");
        };
        let redirects = at.redirects + 1;
        if redirects > MAX_REDIRECTS {
            return skip(crawled, "too_many_redirects");
        }
        let admission = match (at.is_start, self.config.hosts.is_empty()) {
            (true, true) => Admission::Any,
            (true, false) => Admission::Host,
            (false, _) => Admission::Scope,
        };
        let target = Discovery {
            url: url.as_str().into(),
            redirects,
            ..at.clone()
        };
        let is_known = self.offer(&url, target, admission, crawled);
        skip(
            crawled,
            if is_known {
                "redirected"
            } else {
                "redirected_away"
            },
        );
    }

    /// Puts a URL on the waiting list unless it is known or must not be followed. Returns true if
    /// it is known now.
    fn offer(
        &mut self,
        url: &Url,
        link: Discovery,
        admission: Admission,
        crawled: &mut Crawled,
    ) -> bool {
        if self.frontier.knows(&link.url) {
            return true;
        }
        let of_host = self.frontier.of_host(url.host_str().unwrap_or_default());
        let crawl = &self.config;
        let is_admitted = match admission {
            Admission::Any => true,
            Admission::Host => of_host.is_some(),
            Admission::Scope => of_host.is_some() && self.scope.admits(url),
        };
        if !is_admitted || (!link.is_sitemap && link.depth > crawl.depth.get()) {
            return false;
        }
        if self.frontier.len() >= crawl.max_pages.get() {
            skip(crawled, "beyond_max_pages");
            return false;
        }
        if crawl
            .max_host_pages
            .is_some_and(|most| of_host.unwrap_or(0) >= most.get())
        {
            skip(crawled, "beyond_max_host_pages");
            return false;
        }
        self.frontier.push(&link);
        crawled.found.push(link);
        true
    }
}

fn page(url: &Url, depth: u16) -> Discovery {
    Discovery {
        url: url.as_str().into(),
        is_start: false,
        is_sitemap: false,
        depth,
        redirects: 0,
    }
}

/// Counts a URL without a record.
pub(super) fn skip(crawled: &mut Crawled, reason: &'static str) {
    *crawled.skipped.entry(reason).or_default() += 1;
}
