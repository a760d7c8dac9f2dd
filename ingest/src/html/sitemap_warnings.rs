//! Warnings of sitemaps that give no URL (absent ones, disallowed ones, empty ones), and of those with
//! URLs of other hosts.

use std::{cmp::Reverse, collections::BTreeMap};

use feedline_http::redacted;
use feedline_schemas::{
    count::{counted, first_counted},
    report::Warning,
};
use url::Url;

use super::{
    fetcher::{CRAWL_DELAY, NOT_FOUND, ROBOTS},
    robots_failure::ROBOTS_UNREACHABLE,
    sitemap::is_robots_txt,
    visit::Visit,
};
use crate::warnings::WarningChange;

/// Code of the warning of sitemaps that the server does not have.
const MISSING_SITEMAP: &str = "missing_sitemap";
/// Code of the warning of sitemaps that exist, or may exist, and give no URL.
const EMPTY_SITEMAP: &str = "empty_sitemap";
/// Code of the warning of sitemaps with URLs of hosts that the crawl does not follow.
const SITEMAP_OF_OTHER_HOSTS: &str = "sitemap_of_other_hosts";
/// Key that changes the first two.
const KEY: &str = "crawl.sitemaps";
/// Key that changes the last one.
const HOSTS_KEY: &str = "crawl.hosts";
/// Most hosts of a sitemap that a message names.
const NAMED_HOSTS: usize = 5;
/// Most sitemaps that a message names.
const NAMED_SITEMAPS: usize = 5;
/// Remedy after rows have landed.
const LATER: &str = "before rows land (afterwards with `feedline ingest reset`)";

/// Sitemaps that gave no URL in this run, or some of other hosts. A warning of them ends with a run that
/// visits all sitemaps and finds no such one.
#[derive(Debug, Default)]
pub(super) struct SitemapWarnings {
    /// Addresses of absent sitemaps for messages.
    missing: NamedSitemaps,
    /// Addresses of others, each with the reason.
    empty: NamedSitemaps,
    /// Addresses of those with URLs of other hosts, each with the number of URLs by host.
    of_other_hosts: NamedSitemaps,
    /// True if an earlier run has visited the first URLs of the crawl.
    is_resumed: bool,
    /// True if a visit failed, so that its sitemap may be absent or empty.
    has_unknown: bool,
    /// Changes of the warnings since they were taken, at most one of each code.
    changes: Vec<WarningChange>,
}

/// The first sitemaps of a warning in the order of the visits, and the number of all.
#[derive(Debug, Default)]
struct NamedSitemaps {
    first: Vec<String>,
    count: usize,
}

impl NamedSitemaps {
    fn add(&mut self, text: String) {
        self.count += 1;
        if self.first.len() < NAMED_SITEMAPS {
            self.first.push(text);
        }
    }

    /// The names with a verb behind them: `of_one` or `of_many`.
    fn with_verb(&self, of_one: &str, of_many: &str) -> String {
        let names = self.first.join(", ");
        match (self.count, self.count - self.first.len()) {
            (1, _) => format!("{names} {of_one}"),
            (_, 0) => format!("{names} {of_many}"),
            (_, more) => format!("{names} and {more} more {of_many}"),
        }
    }
}

impl SitemapWarnings {
    /// Records that an earlier run has visited the first URLs of the crawl.
    pub(super) const fn resume(&mut self) {
        self.is_resumed = true;
    }

    /// Records a visit to the sitemap at `url`, and logs it if the sitemap gives no URL.
    pub(super) fn look(&mut self, url: &str, visit: &Visit) {
        let reason = match visit {
            Visit::Skipped(NOT_FOUND) => return self.add_missing(&shown(url)),
            Visit::Skipped(ROBOTS) => "robots.txt disallows it",
            Visit::Skipped(CRAWL_DELAY) => {
                "robots.txt asks for a longer delay than `crawl.max_crawl_delay_s`"
            }
            Visit::Sitemap(sitemap, _) if sitemap.hosts().next().is_some() => return,
            Visit::Sitemap(sitemap, _) if !sitemap.is_empty() => {
                "none of its URLs has a scheme and a host"
            }
            Visit::Sitemap(..) if Url::parse(url).is_ok_and(|url| is_robots_txt(&url)) => {
                "it has no `Sitemap:` line"
            }
            Visit::Sitemap(sitemap, _) if sitemap.is_index => "it has no `sitemap` with a `loc`",
            Visit::Sitemap(..) => "it has no `url` with a `loc`",
            Visit::Failed {
                is_transient: true, ..
            }
            | Visit::Failed {
                reason: ROBOTS_UNREACHABLE,
                ..
            } => {
                self.has_unknown = true;
                return;
            }
            Visit::Page(..) | Visit::Redirect(_) | Visit::Skipped(_) | Visit::Failed { .. } => {
                return;
            }
        };
        self.add_empty(&shown(url), reason);
    }

    /// Records the hosts of a sitemap of `urls` URLs that the crawl does not follow, with the number of
    /// URLs of each, and logs it. Does nothing without such hosts.
    pub(super) fn look_at_hosts(&mut self, url: &str, others: &BTreeMap<String, u64>, urls: u64) {
        if others.is_empty() {
            return;
        }
        let mut by_count: Vec<(&String, u64)> = others.iter().map(|(h, n)| (h, *n)).collect();
        by_count.sort_by_key(|(_, count)| Reverse(*count));
        let named = by_count.iter();
        let named = named.map(|(host, count)| format!("{count} of `{host}`"));
        let named: Vec<String> = named.collect();
        let hosts = first_counted(&named, NAMED_HOSTS, "host");
        let (name, urls) = (shown(url), counted(urls, "URL"));
        tracing::warn!(
            code = SITEMAP_OF_OTHER_HOSTS,
            key = HOSTS_KEY,
            "sitemap `{name}` has URLs of hosts that are not of this crawl: {hosts}; {urls} in all"
        );
        self.of_other_hosts
            .add(format!("`{name}` ({hosts}; {urls} in all)"));
        let message = format!(
            "{} URLs of hosts that are not of this crawl, so these are not requested; if they should be, name the hosts in this key, {LATER}; otherwise exclude them with `crawl.deny`, such as `https://www.example.org/`{}",
            self.of_other_hosts.with_verb("has", "have"),
            self.earlier()
        );
        self.raise(SITEMAP_OF_OTHER_HOSTS, HOSTS_KEY, message);
    }

    fn add_missing(&mut self, name: &str) {
        tracing::warn!(
            code = MISSING_SITEMAP,
            key = KEY,
            "sitemap `{name}` does not exist (404 or 410)"
        );
        self.missing.add(format!("`{name}`"));
        let message = format!(
            "{} exist (404 or 410), so pages that are named there only are not found; restore it, or correct this key, or the robots.txt or sitemap that names it, {LATER}{}",
            self.missing.with_verb("does not", "do not"),
            self.earlier()
        );
        self.raise(MISSING_SITEMAP, KEY, message);
    }

    fn add_empty(&mut self, name: &str, reason: &str) {
        tracing::warn!(
            code = EMPTY_SITEMAP,
            key = KEY,
            "sitemap `{name}` gives no URL: {reason}"
        );
        self.empty.add(format!("`{name}` ({reason})"));
        let message = format!(
            "{} no URL, so pages that only a sitemap names may not be found; if there should be some, correct the sitemap or robots.txt, or this key, {LATER}{}",
            self.empty.with_verb("gives", "give"),
            self.earlier()
        );
        self.raise(EMPTY_SITEMAP, KEY, message);
    }

    const fn earlier(&self) -> &'static str {
        match self.is_resumed {
            true => "; an earlier run of this crawl may have named others",
            false => "",
        }
    }

    /// Replaces the change of this warning that was not taken yet.
    fn raise(&mut self, code: &'static str, key: &str, message: String) {
        self.changes
            .retain(|change| !matches!(change, WarningChange::Raise(held) if held.code == code));
        let warning = Warning::new(code, message).with_key(key);
        self.changes.push(WarningChange::Raise(warning));
    }

    /// Ends the warnings of earlier runs, at the end of a crawl without such a sitemap.
    pub(super) fn finish(&mut self) {
        if self.is_resumed || self.has_unknown {
            return;
        }
        for (code, names) in [
            (MISSING_SITEMAP, &self.missing),
            (EMPTY_SITEMAP, &self.empty),
            (SITEMAP_OF_OTHER_HOSTS, &self.of_other_hosts),
        ] {
            if names.count == 0 {
                self.changes.push(WarningChange::Lift(code));
            }
        }
    }

    /// Takes the changes of the warnings since the last call.
    pub(super) fn take_changes(&mut self) -> Vec<WarningChange> {
        std::mem::take(&mut self.changes)
    }
}

/// Address of a sitemap for messages.
fn shown(url: &str) -> String {
    Url::parse(url).map_or_else(|_| url.to_owned(), |url| redacted(&url))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{error::Error, html::sitemap::Sitemap};

    /// Returns the codes of the warnings of an earlier run that hold after a crawl with these visits.
    fn held(is_resumed: bool, visits: &[Visit]) -> Vec<String> {
        let mut sitemaps = SitemapWarnings::default();
        if is_resumed {
            sitemaps.resume();
        }
        for (i, visit) in visits.iter().enumerate() {
            sitemaps.look(&format!("http://h/{i}.xml"), visit);
        }
        sitemaps.finish();
        // Their texts are of another build.
        let held = [MISSING_SITEMAP, EMPTY_SITEMAP].map(|code| Warning::new(code, "?"));
        let held = crate::warnings::apply(held.into(), sitemaps.take_changes());
        held.into_iter().map(|warning| warning.code).collect()
    }

    fn empty_sitemap(is_index: bool) -> Visit {
        let sitemap = Sitemap {
            urls: vec![String::new()],
            is_index,
        };
        Visit::Sitemap(sitemap, None)
    }

    #[test]
    fn the_first_sitemaps_are_named_and_the_others_counted() {
        let mut names = NamedSitemaps::default();
        let mut with = |name: &str| {
            names.add(format!("`{name}`"));
            names.with_verb("has", "have")
        };
        assert_eq!(with("a"), "`a` has");
        assert_eq!(with("b"), "`a`, `b` have");
        for name in ["c", "d", "e"] {
            with(name);
        }
        assert_eq!(with("f"), "`a`, `b`, `c`, `d`, `e` and 1 more have");
    }

    #[test]
    fn a_sitemap_without_a_known_robots_txt_leaves_the_warnings() {
        let unknown = Visit::Failed {
            reason: ROBOTS_UNREACHABLE,
            error: Error::Archived("501".into()),
            is_transient: false,
        };
        assert_eq!(held(false, &[unknown]), [MISSING_SITEMAP, EMPTY_SITEMAP]);
    }

    #[test]
    fn a_warning_ends_with_a_run_that_finds_no_such_sitemap() {
        let found = || Visit::Skipped("unchanged");
        let both = [MISSING_SITEMAP, EMPTY_SITEMAP];
        assert!(held(false, &[found(), found()]).is_empty());
        assert_eq!(
            held(false, &[found(), Visit::Skipped(NOT_FOUND)]),
            [MISSING_SITEMAP]
        );
        assert_eq!(
            held(false, &[found(), empty_sitemap(false)]),
            [EMPTY_SITEMAP]
        );
        // Sitemaps that the run did not see may be absent.
        let failed = Visit::Failed {
            reason: "http",
            error: Error::Cancelled,
            is_transient: true,
        };
        assert_eq!(held(false, &[found(), failed]), both);
        assert_eq!(held(true, &[found()]), both);
    }

    #[test]
    fn the_message_names_all_absent_sitemaps_of_the_run() {
        let mut sitemaps = SitemapWarnings::default();
        let mut message = |url: &str| {
            sitemaps.look(url, &Visit::Skipped(NOT_FOUND));
            match sitemaps.take_changes().as_slice() {
                [WarningChange::Raise(warning)] => warning.message.clone(),
                changes => panic!("{changes:?}"),
            }
        };
        assert!(message("http://h/a").starts_with("`http://h/a` does not exist"));
        let both = message("http://h/b");
        assert!(both.starts_with("`http://h/a`, `http://h/b` do not exist"));
    }

    #[test]
    fn a_sitemap_without_urls_is_named_with_the_reason() {
        let check = |url: &str, visit: &Visit, expected: &str| {
            let mut sitemaps = SitemapWarnings::default();
            sitemaps.look(url, visit);
            let changes = sitemaps.take_changes();
            let [WarningChange::Raise(warning)] = changes.as_slice() else {
                panic!("{changes:?}")
            };
            let expected = format!("`{url}` ({expected}) gives no URL");
            assert_eq!(warning.code, EMPTY_SITEMAP);
            assert_eq!(warning.key.as_deref(), Some(KEY));
            assert!(warning.message.starts_with(&expected), "{warning:?}");
        };
        let (list, index) = (empty_sitemap(false), empty_sitemap(true));
        check("http://h/a.xml", &list, "it has no `url` with a `loc`");
        check("http://h/a.xml", &index, "it has no `sitemap` with a `loc`");
        check("http://h/robots.txt", &index, "it has no `Sitemap:` line");
        let relative = Sitemap {
            urls: vec!["/a".to_owned()],
            is_index: false,
        };
        let relative = Visit::Sitemap(relative, None);
        let reason = "none of its URLs has a scheme and a host";
        check("http://h/a.xml", &relative, reason);
        let disallowed = Visit::Skipped(ROBOTS);
        check("http://h/a.xml", &disallowed, "robots.txt disallows it");
    }
}
