//! The `html` source: pages of a site, by links and sitemaps.
//!
//! A crawl follows the frontier ([`crate::frontier`]) breadth first. A page's links are appended to
//! it in document order, each URL once. Requests to several hosts run concurrently, also to URLs
//! behind those that are processed next ([`visits_ahead`]), but responses are processed in frontier order,
//! so what lands depends only on the pages. A redirect is appended
//! as a URL of its own. So every request is one URL, and robots.txt, hosts, patterns and caps apply
//! to all of them alike.
//!
//! Other media types, pages disallowed by robots.txt and absent pages are counted as skipped.
//! Failures become rejects, also that of the robots.txt of a page. A run after the crawl requests those
//! pages again that may be available by then ([`failed_pages`]). An unreachable start page, or a host
//! that fails five times in a row, stops the run. A later run resumes it from the last commit.

mod address;
mod article;
mod canonical;
pub(crate) mod failed_pages;
mod fetcher;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod headless_tables;
mod invalid_bytes;
mod link_policy;
mod nesting;
mod node_text;
mod pattern;
mod reader;
mod repeated_text;
mod robots;
mod robots_failure;
mod rows;
mod selector_drift;
mod sitemap;
mod sitemap_warnings;
pub(crate) mod source_type;
mod tables;
#[cfg(test)]
mod tests;
mod text_marks;
mod visit;
mod visits_ahead;

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use feedline_http::{SecretMasks, redacted};
use feedline_readers::record::Record;
use feedline_schemas::{
    commit::{FailedPages, PageRun, Position},
    config::{PageExtract, SourceConfig},
    count::counted,
};
use feedline_storage::Store;
use url::Url;

pub(crate) use self::selector_drift::SELECTOR_WITHOUT_MATCH;
use self::{
    address::{Patterns, normalized},
    canonical::Canonicals,
    failed_pages::FailedVisits,
    fetcher::PageFetcher,
    headless_tables::HeadlessTables,
    invalid_bytes::InvalidBytes,
    link_policy::{LinkPolicy, skip},
    reader::{Contents, Readers, Rules},
    robots_failure::{ROBOTS_UNREACHABLE, RobotsWarnings},
    rows::EMPTY_ROW,
    selector_drift::Drift,
    sitemap::Sitemap,
    sitemap_warnings::SitemapWarnings,
    visit::{Visit, Visitor},
    visits_ahead::VisitsAhead,
};
use crate::{
    context::Context,
    error::Error,
    frontier::discovery::Discovery,
    log_entries::Resumed,
    raw::{Kept, Tape},
    source::{Crawled, Page, Requests, Source},
    validators::{self, Validator, Validators},
    warnings::WarningChange,
};

/// Most URLs of a page of this source.
const CHUNK: u64 = 32;
/// Pages parsed concurrently: each may take many times its size of memory.
const READERS: usize = 4;
/// Consecutive failures after which a host counts as down.
const DOWN_AFTER: u32 = 5;
/// Reason for a page without a record that failed before and has failed again: it is a reject already.
const FAILED_AGAIN: &str = "failed_again";

/// Opens the site that `config` describes.
///
/// # Errors
/// [`Error::Config`] when something cannot work, before any request.
pub(crate) fn open(config: &SourceConfig, context: &Context) -> Result<Box<dyn Source>, Error> {
    check(config)?;
    let crawl = &config.crawl;
    let start = |key: &str, text: &str| seed(key, text, &crawl.drop_params);
    let first = start("url", &config.url)?;
    let mut pages = vec![first.clone()];
    for (i, text) in crawl.start.iter().enumerate() {
        pages.push(start(&format!("crawl.start.{i}"), text)?);
    }
    let mut sitemaps = Vec::new();
    for (i, text) in crawl.sitemaps.iter().enumerate() {
        sitemaps.push(start(&format!("crawl.sitemaps.{i}"), text)?);
    }
    let rules = Rules {
        page: config.page.clone(),
        links: crawl.links && crawl.depth.get() > 0,
        nofollow: crawl.nofollow,
        drop_params: crawl.drop_params.clone(),
    };
    Ok(Box::new(Crawl {
        visitor: Arc::new(Visitor {
            site: PageFetcher::new(&first, config, context)?,
            land: Patterns::new(&config.page.land),
            readers: Readers::new(READERS),
            rules: Arc::new(rules),
        }),
        ahead: VisitsAhead::default(),
        config: config.clone(),
        walk: LinkPolicy::new(crawl, &pages, &sitemaps),
        drift: Drift::default(),
        canonicals: Canonicals::default(),
        invalid_bytes: InvalidBytes::default(),
        headless_tables: HeadlessTables::default(),
        sitemap_warnings: SitemapWarnings::default(),
        robots_warnings: RobotsWarnings::default(),
        failures: HashMap::new(),
        failed: FailedVisits::default(),
        landed: 0,
        empty_rows: 0,
        failure: None,
        is_anew: false,
        kept: Kept::default(),
    }))
}

fn seed(key: &str, text: &str, drop_params: &[String]) -> Result<Url, Error> {
    let url = Url::parse(text).map_err(|e| {
        Error::config(
            key,
            format!("is not a URL ({e}); write `https://host/path`"),
        )
    })?;
    let scheme = url.scheme().to_owned();
    normalized(url, drop_params).ok_or_else(|| {
        let reason = format!("cannot be crawled: it must be an http or https URL of at most 2,048 bytes (it begins with `{scheme}`)");
        Error::config(key, reason)
    })
}

fn check(config: &SourceConfig) -> Result<(), Error> {
    let crawl = &config.crawl;
    // The hash of the settings has 0 here, so the type cannot hold the bounds.
    if !(1..=64).contains(&crawl.concurrency) {
        let reason = format!("must be 1 to 64, got {}", crawl.concurrency);
        return Err(Error::config("crawl.concurrency", reason));
    }
    rows::check(&config.page)
}

/// A site that is being read.
struct Crawl {
    config: SourceConfig,
    visitor: Arc<Visitor>,
    ahead: VisitsAhead,
    walk: LinkPolicy,
    drift: Drift,
    canonicals: Canonicals,
    invalid_bytes: InvalidBytes,
    headless_tables: HeadlessTables,
    sitemap_warnings: SitemapWarnings,
    robots_warnings: RobotsWarnings,
    /// Failures in a row, by host.
    failures: HashMap<String, u32>,
    /// Pages that later runs request again.
    failed: FailedVisits,
    /// Records so far, including those of earlier runs.
    landed: u64,
    /// Rows in which no column has a value.
    empty_rows: u64,
    /// The latest one.
    failure: Option<String>,
    /// True if a complete crawl is repeated.
    is_anew: bool,
    /// Responses that were not processed yet.
    kept: Kept,
}

#[async_trait]
impl Source for Crawl {
    async fn next_page(&mut self, at: &Position) -> Result<Page, Error> {
        let next = match at {
            Position::Start => 0,
            Position::Page {
                page, cursor: None, ..
            } => *page,
            // Once more, from the first URL on.
            Position::Done { .. } if std::mem::take(&mut self.is_anew) => 0,
            Position::Done { .. } if self.begin_pass() => self.walk.frontier.next(),
            Position::Done { .. } => {
                return Ok(Page {
                    records: Vec::new(),
                    next: at.clone(),
                    crawled: None,
                    parts: Vec::new(),
                });
            }
            Position::Page { .. } | Position::File { .. } => return Err(other_type()),
        };
        assert_eq!(
            next,
            self.walk.frontier.next(),
            "a crawl is asked for the pages in their order"
        );
        let (records, mut crawled) = self.chunk().await?;
        if self.is_over() {
            if self.landed == 0 && !self.failed.may_land_records() {
                return Err(self.nothing(&crawled));
            }
            let unmatched = self.drift.warn_of_unmatched(&self.config.page, self.landed);
            crawled.warnings.extend(unmatched);
            self.sitemap_warnings.finish();
            self.robots_warnings.finish(self.failed.has_recovered());
        }
        Ok(self.page(records, crawled))
    }

    async fn restore(&mut self, landing: &Store, resumed: &Resumed) -> Result<(), Error> {
        let Some(last) = &resumed.last else {
            return Ok(());
        };
        let position = &last.state.position;
        let mut failed = position.failed_pages().cloned().unwrap_or_default();
        let asked = match position {
            Position::Start => Some(0),
            Position::Page {
                page, cursor: None, ..
            } => Some(*page),
            Position::Done { .. } if !self.config.crawl.refresh.is_never() => {
                self.is_anew = true;
                // It requests all pages.
                failed = FailedPages::default();
                Some(0)
            }
            // No URL is left.
            Position::Done { .. } if failed.numbers.is_empty() => return Ok(()),
            Position::Done { .. } => None,
            Position::Page { .. } | Position::File { .. } => return Err(other_type()),
        };
        if asked != Some(0) {
            self.sitemap_warnings.resume();
            self.robots_warnings.resume();
        }
        let totals = &last.state.totals;
        self.landed = totals.rows + totals.duplicates;
        if !self.config.crawl.refresh.is_never() {
            let validators = Validators::restore(landing, &resumed.validators).await?;
            self.site_mut().remember(validators);
        }
        // A repeated crawl visits every URL that it ever found, and those that it finds now.
        let (frontier, files) = (&mut self.walk.frontier, &resumed.frontier);
        let restored = frontier.restore(landing, files, asked, &failed.numbers);
        self.failed = FailedVisits::restore(&failed, restored.await?);
        Ok(())
    }

    fn raw(&mut self) -> Option<&mut Kept> {
        self.visitor.site.keeps().then_some(&mut self.kept)
    }

    fn replay(&mut self, tape: Arc<Tape>) {
        self.site_mut().replay(tape);
    }

    fn take_warnings(&mut self) -> Vec<WarningChange> {
        let mut changes = self.sitemap_warnings.take_changes();
        changes.extend(self.robots_warnings.take_change());
        changes
    }

    fn requests(&self) -> Requests {
        Requests {
            requests: self.visitor.site.requests(),
            retries: self.visitor.site.retries(),
        }
    }

    fn secret_masks(&self) -> SecretMasks {
        self.visitor.site.secret_masks()
    }
}

fn other_type() -> Error {
    let reason = "is `html`, but what has landed comes from a source of another type; put that back or give this source another name";
    Error::config("type", reason)
}

impl Crawl {
    fn page(&self, records: Vec<Record>, crawled: Crawled) -> Page {
        let next = self.walk.frontier.next();
        let run = PageRun {
            failed_pages: Box::new(self.failed.state(self.is_over())),
            ..PageRun::default()
        };
        Page {
            records,
            next: if self.is_over() {
                Position::Done {
                    pages: next,
                    files: Vec::new(),
                    run,
                }
            } else {
                Position::Page {
                    page: next,
                    cursor: None,
                    run,
                }
            },
            crawled: Some(crawled),
            parts: Vec::new(),
        }
    }

    /// Returns true if no URL waits, neither of the frontier nor of a pass over failed pages.
    fn is_over(&self) -> bool {
        self.is_frontier_over() && self.failed.is_over()
    }

    fn is_frontier_over(&self) -> bool {
        self.walk.frontier.next() == self.walk.frontier.len()
    }

    /// Begins a pass over the failed pages of a complete crawl; a repeated crawl has none. Returns false
    /// if there are no such pages.
    fn begin_pass(&mut self) -> bool {
        let is_never = self.config.crawl.refresh.is_never();
        if !is_never || !self.failed.begin_pass(self.walk.frontier.len()) {
            return false;
        }
        self.sitemap_warnings.resume();
        self.robots_warnings.begin_pass();
        true
    }

    /// The client, before the first request.
    fn site_mut(&mut self) -> &mut PageFetcher {
        let visitor = Arc::get_mut(&mut self.visitor);
        &mut visitor.expect("no visit runs yet").site
    }

    /// Fetches the next URLs, and processes their results in order.
    async fn chunk(&mut self) -> Result<(Vec<Record>, Crawled), Error> {
        let site = &self.visitor.site;
        let most = CHUNK.min(self.config.batch.pages.get());
        let most = site.left().map_or(most, |left| most.min(left).max(1));
        let is_ahead = site.left().is_none();
        // Links of a page that failed before are followed before the next such page.
        let is_retry = self.is_frontier_over();
        let most = if is_retry { 1 } else { most };
        let (frontier, ahead) = match is_retry {
            true => (&mut self.failed.waiting, &mut self.failed.ahead),
            false => (&mut self.walk.frontier, &mut self.ahead),
        };
        let count = most.min(frontier.len() - frontier.next());
        let visits = ahead.take(&self.visitor, frontier, count, is_ahead);
        let (visits, stopped) = visits.await;
        match stopped {
            // Results before a host that asks for a delay are kept: the next call gets the delay
            // again.
            Some(Error::Deferred { .. }) if !visits.is_empty() => {}
            Some(error) => return Err(error),
            None => {}
        }
        let (mut records, mut crawled) = (Vec::new(), Crawled::default());
        for (visit, kept) in visits {
            self.take(visit, is_retry, &mut records, &mut crawled)?;
            kept.into_iter().for_each(|kept| self.kept.push(kept));
        }
        Ok((records, crawled))
    }

    /// Processes the visit to the next URL: of the pass over failed pages if it is a retry, and
    /// otherwise of the frontier.
    fn take(
        &mut self,
        visit: Visit,
        is_retry: bool,
        records: &mut Vec<Record>,
        crawled: &mut Crawled,
    ) -> Result<(), Error> {
        let frontier = &mut self.walk.frontier;
        let number = frontier.next();
        let popped = match is_retry {
            true => self.failed.pop(),
            false => frontier.pop().map(|at| (number, at)),
        };
        let (number, at) = popped.expect("a URL that was visited was waiting");
        crawled.urls += 1;
        let host = Url::parse(&at.url)
            .ok()
            .and_then(|url| url.host_str().map(ToOwned::to_owned));
        let host = host.unwrap_or_default();
        let visit = self.walk.skip_denied_failure(&at, visit, is_retry);
        if !matches!(
            visit,
            Visit::Failed {
                is_transient: true,
                ..
            }
        ) {
            self.failures.remove(&host);
        }
        if !matches!(visit, Visit::Failed { .. }) {
            self.failed.remove(number);
        }
        if at.is_sitemap {
            self.sitemap_warnings.look(&at.url, &visit);
        }
        match visit {
            Visit::Page(contents, validator) => {
                self.take_page(&at, contents, validator, records, crawled);
            }
            Visit::Sitemap(sitemap, validator) => {
                self.take_sitemap(&at, &sitemap, validator, crawled);
            }
            Visit::Redirect(url) => self.walk.redirect(&at, url, crawled),
            Visit::Skipped(reason) => skip(crawled, reason),
            Visit::Failed {
                reason,
                error,
                is_transient,
            } => {
                // A page that fails in every run must not hold back the others.
                if is_transient && !is_retry {
                    let failures = self.failures.entry(host.clone()).or_default();
                    *failures += 1;
                    if at.is_start || *failures >= DOWN_AFTER {
                        return Err(error);
                    }
                }
                if reason == ROBOTS_UNREACHABLE {
                    self.robots_warnings.count(&host);
                }
                let detail = error.to_string();
                self.failure = Some(detail.clone());
                let raw = at.url.to_string();
                if self.failed.add(number, at, reason) {
                    tracing::debug!(source = %self.config.name, url = raw, detail, "the page failed again");
                    skip(crawled, FAILED_AGAIN);
                    return Ok(());
                }
                records.push(Record::Bad {
                    raw,
                    reason,
                    detail,
                });
            }
        }
        Ok(())
    }

    /// Adds the records and links of a page.
    fn take_page(
        &mut self,
        at: &Discovery,
        contents: Contents,
        validator: Option<Validator>,
        records: &mut Vec<Record>,
        crawled: &mut Crawled,
    ) {
        self.note(&at.url, validator, crawled);
        self.walk.links(at, &contents.links, crawled);
        if !matches!(contents.skipped, Some("links_only" | "noindex")) {
            self.alarm(&at.url, &contents.records);
        }
        self.warn_of_page(&at.url, &contents, crawled);
        let count = |is: fn(&Record) -> bool| {
            let records = contents.records.iter();
            records.filter(|record| is(record)).count() as u64
        };
        self.landed += count(|record| matches!(record, Record::Value(_)));
        self.empty_rows +=
            count(|record| matches!(record, Record::Bad { reason, .. } if *reason == EMPTY_ROW));
        records.extend(contents.records);
        if let Some(reason) = contents.skipped {
            skip(crawled, reason);
        }
    }

    /// Adds the URLs of a sitemap.
    fn take_sitemap(
        &mut self,
        at: &Discovery,
        sitemap: &Sitemap,
        validator: Option<Validator>,
        crawled: &mut Crawled,
    ) {
        let others = self.walk.other_hosts(sitemap);
        let urls = sitemap.hosts().count() as u64;
        self.sitemap_warnings.look_at_hosts(&at.url, &others, urls);
        // One with a warning is requested in full again, so that the warning holds meanwhile.
        let validator = validator.filter(|_| urls > 0 && others.is_empty());
        self.note(&at.url, validator, crawled);
        skip(crawled, "sitemap");
        self.walk.sitemap(at, sitemap, crawled);
    }

    /// Records the validator of a page, if the page may be requested again.
    fn note(&self, url: &str, validator: Option<Validator>, crawled: &mut Crawled) {
        let validator = validator.filter(|_| !self.config.crawl.refresh.is_never());
        let noted = validator.map(|validator| (validators::page(url), validator));
        crawled.validators.extend(noted);
    }

    /// Warns if a selector no longer matches. Missing columns are normal for articles, not for rows
    /// of a page.
    fn alarm(&mut self, url: &str, records: &[Record]) {
        if self.config.page.extract == PageExtract::Article {
            return;
        }
        for alarm in self.drift.look(records) {
            tracing::warn!(source = %self.config.name, url, "{alarm}: the site may have changed its layout");
        }
    }

    /// Adds the warnings about a page that has been read.
    fn warn_of_page(&mut self, url: &str, contents: &Contents, crawled: &mut Crawled) {
        if self.config.page.extract == PageExtract::Article {
            let shared = self.canonicals.look(url, &contents.records);
            crawled.warnings.extend(shared);
        }
        let invalid = self.invalid_bytes.count(url, contents);
        crawled.warnings.extend(invalid);
        let headless = self.headless_tables.add(url, contents.headless_tables);
        crawled.warnings.extend(headless);
    }

    /// Error of a crawl without any record.
    fn nothing(&self, crawled: &Crawled) -> Error {
        let failure = self
            .failure
            .as_ref()
            .map_or_else(String::new, |e| format!("; the latest failure: {e}"));
        let skipped: Vec<String> = crawled
            .skipped
            .iter()
            .map(|(reason, count)| format!("{count} {reason}"))
            .collect();
        let skipped = if skipped.is_empty() {
            "none".into()
        } else {
            skipped.join(", ")
        };
        let extract = match (self.config.page.rows.as_deref(), self.empty_rows) {
            (Some(rows), 0) => format!("`page.rows` = `{rows}` matches nothing on them"),
            (Some(rows), empty) => format!(
                "`page.rows` = `{rows}` matches {} on them, and no selector of `page.columns` finds a value in any",
                counted(empty, "row")
            ),
            (None, _) if self.config.page.extract == PageExtract::Tables => {
                match self.headless_tables.count() {
                    0 => "they have no table with a header and rows, or may not be fetched".into(),
                    count => format!(
                        "{} on them without a header (a first row of `th` cells, or a `thead`), and none with one and rows below it; set `page.extract = \"rows\"` with `page.rows` and `page.columns`",
                        counted(count, "table")
                    ),
                }
            }
            (None, _) => "they have no text or rows, or may not be fetched".into(),
        };
        Error::Body {
            url: Url::parse(&self.config.url)
                .map_or_else(|_| self.config.url.clone(), |url| redacted(&url)),
            reason: format!(
                "the crawl is over after {} and found no record: {extract} (skipped lately: {skipped}{failure}); look at `crawl.allow`, `crawl.hosts`, `page` and robots.txt",
                counted(self.walk.frontier.next(), "URL")
            ),
        }
    }
}
