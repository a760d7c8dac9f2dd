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
//! Failures become rejects, also that of the robots.txt of a page. An unreachable start page, or a
//! host that fails five times in a row, stops the run. A later run resumes it from the last commit.

mod address;
mod article;
mod canonical;
mod fetcher;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
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
    commit::{PageRun, Position},
    config::{PageExtract, SourceConfig},
    count::counted,
    report::Warning,
};
use feedline_storage::Store;
use url::Url;

use self::{
    address::{Patterns, normalized},
    canonical::Canonicals,
    fetcher::PageFetcher,
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
/// Code of the warning about columns without a value in any row.
pub(crate) const SELECTOR_WITHOUT_MATCH: &str = "selector_without_match";
/// Consecutive failures after which a host counts as down.
const DOWN_AFTER: u32 = 5;

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
        sitemap_warnings: SitemapWarnings::default(),
        robots_warnings: RobotsWarnings::default(),
        failures: HashMap::new(),
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
    sitemap_warnings: SitemapWarnings,
    robots_warnings: RobotsWarnings,
    /// Failures in a row, by host.
    failures: HashMap<String, u32>,
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
        if self.walk.frontier.next() == self.walk.frontier.len() {
            if self.landed == 0 {
                return Err(self.nothing(&crawled));
            }
            crawled.warnings.extend(self.warn_of_unmatched());
            self.sitemap_warnings.finish();
            self.robots_warnings.finish();
        }
        Ok(self.page(records, crawled))
    }

    async fn restore(&mut self, landing: &Store, resumed: &Resumed) -> Result<(), Error> {
        let Some(last) = &resumed.last else {
            return Ok(());
        };
        let asked = match &last.state.position {
            Position::Start => 0,
            Position::Page {
                page, cursor: None, ..
            } => *page,
            Position::Done { .. } if !self.config.crawl.refresh.is_never() => {
                self.is_anew = true;
                0
            }
            // No URL is left.
            Position::Done { .. } => return Ok(()),
            Position::Page { .. } | Position::File { .. } => return Err(other_type()),
        };
        if asked > 0 {
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
        let files = &resumed.frontier;
        self.walk.frontier.restore(landing, files, asked).await
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
        Page {
            records,
            next: if next == self.walk.frontier.len() {
                Position::Done {
                    pages: next,
                    files: Vec::new(),
                    run: PageRun::default(),
                }
            } else {
                Position::Page {
                    page: next,
                    cursor: None,
                    run: PageRun::default(),
                }
            },
            crawled: Some(crawled),
            parts: Vec::new(),
        }
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
        let frontier = &mut self.walk.frontier;
        let count = most.min(frontier.len() - frontier.next());
        let is_ahead = site.left().is_none();
        let visits = self.ahead.take(&self.visitor, frontier, count, is_ahead);
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
            self.take(visit, &mut records, &mut crawled)?;
            kept.into_iter().for_each(|kept| self.kept.push(kept));
        }
        Ok((records, crawled))
    }

    fn take(
        &mut self,
        visit: Visit,
        records: &mut Vec<Record>,
        crawled: &mut Crawled,
    ) -> Result<(), Error> {
        let at = self
            .walk
            .frontier
            .pop()
            .expect("a URL that was visited was waiting");
        crawled.urls += 1;
        let host = Url::parse(&at.url)
            .ok()
            .and_then(|url| url.host_str().map(ToOwned::to_owned));
        let host = host.unwrap_or_default();
        let visit = self.walk.skip_denied_failure(&at, visit);
        if !matches!(
            visit,
            Visit::Failed {
                is_transient: true,
                ..
            }
        ) {
            self.failures.remove(&host);
        }
        if at.is_sitemap {
            self.sitemap_warnings.look(&at.url, &visit);
        }
        match visit {
            Visit::Page(contents, validator) => {
                self.note(&at.url, validator, crawled);
                self.walk.links(&at, &contents.links, crawled);
                if !matches!(contents.skipped, Some("links_only" | "noindex")) {
                    self.alarm(&at.url, &contents.records);
                }
                self.warn_of_page(&at.url, &contents, crawled);
                let count = |is: fn(&Record) -> bool| {
                    let records = contents.records.iter();
                    records.filter(|record| is(record)).count() as u64
                };
                self.landed += count(|record| matches!(record, Record::Value(_)));
                self.empty_rows += count(
                    |record| matches!(record, Record::Bad { reason, .. } if *reason == EMPTY_ROW),
                );
                records.extend(contents.records);
                if let Some(reason) = contents.skipped {
                    skip(crawled, reason);
                }
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
                if is_transient {
                    let failures = self.failures.entry(host.clone()).or_default();
                    *failures += 1;
                    if at.is_start || *failures >= DOWN_AFTER {
                        return Err(error);
                    }
                }
                if reason == ROBOTS_UNREACHABLE {
                    self.robots_warnings.count(&host);
                }
                self.failure = Some(error.to_string());
                records.push(Record::Bad {
                    raw: at.url.into(),
                    reason,
                    detail: error.to_string(),
                });
            }
        }
        Ok(())
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
    }

    /// Warns of columns without a value in any row.
    fn warn_of_unmatched(&self) -> Option<Warning> {
        let page = &self.config.page;
        if page.extract != PageExtract::Rows {
            return None;
        }
        let names = self.drift.never_matched(self.landed).into_iter();
        let columns = names.filter_map(|name| {
            let place = page.columns.get(name)?;
            Some(shown_column(name, place))
        });
        let columns: Vec<String> = columns.collect();
        let have = match columns.len() {
            0 => return None,
            1 => "has",
            _ => "have",
        };
        let message = format!(
            "{} {have} no value in any of {}, so only nulls land; correct the selector in `page.columns`",
            columns.join(", "),
            counted(self.landed, "row")
        );
        Some(Warning::new(SELECTOR_WITHOUT_MATCH, message).with_key("page.columns"))
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

/// A column and its place in a row, for a message.
pub(crate) fn shown_column(name: &str, place: &str) -> String {
    format!("`{name}` (`{place}`)")
}
