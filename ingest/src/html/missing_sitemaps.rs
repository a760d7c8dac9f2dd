//! Sitemaps that the server does not have.

use feedline_http::redacted;
use feedline_schemas::report::Warning;
use url::Url;

use super::{fetcher::NOT_FOUND, visit::Visit};
use crate::warnings::WarningChange;

/// Code of their warning.
const MISSING_SITEMAP: &str = "missing_sitemap";
/// Key that changes it.
const KEY: &str = "crawl.sitemaps";

/// Sitemaps that were absent in this run. Their warning ends with a run that visits all sitemaps and finds
/// none absent.
#[derive(Debug, Default)]
pub(super) struct MissingSitemaps {
    /// Addresses for messages, in the order of the visits.
    names: Vec<String>,
    /// True if an earlier run has visited the first URLs of the crawl.
    is_resumed: bool,
    /// True if a visit failed, so that its sitemap may be absent.
    has_unknown: bool,
    /// Newest change of the warning, until it is taken.
    change: Option<WarningChange>,
}

impl MissingSitemaps {
    /// Records that an earlier run has visited the first URLs of the crawl.
    pub(super) const fn resume(&mut self) {
        self.is_resumed = true;
    }

    /// Records a visit to the sitemap at `url`, and logs that it is absent.
    pub(super) fn look(&mut self, url: &str, visit: &Visit) {
        match visit {
            Visit::Skipped(NOT_FOUND) => {}
            Visit::Failed {
                is_transient: true, ..
            } => {
                self.has_unknown = true;
                return;
            }
            Visit::Page(..)
            | Visit::Sitemap(..)
            | Visit::Redirect(_)
            | Visit::Skipped(_)
            | Visit::Failed { .. } => return,
        }
        let name = Url::parse(url).map_or_else(|_| url.to_owned(), |url| redacted(&url));
        tracing::warn!(
            code = MISSING_SITEMAP,
            key = KEY,
            "sitemap `{name}` does not exist (404 or 410)"
        );
        self.names.push(name);
        self.change = Some(WarningChange::Raise(self.warning()));
    }

    fn warning(&self) -> Warning {
        let names: Vec<String> = self.names.iter().map(|name| format!("`{name}`")).collect();
        let do_not = match names.len() {
            1 => "does not",
            _ => "do not",
        };
        let earlier = match self.is_resumed {
            true => "; an earlier run of this crawl may have named others",
            false => "",
        };
        let message = format!(
            "{} {do_not} exist (404 or 410), so pages that are named there only are not found; restore it, or correct this key, or the robots.txt or sitemap that names it, before rows land (afterwards with `feedline ingest reset`){earlier}",
            names.join(", ")
        );
        Warning::new(MISSING_SITEMAP, message).with_key(KEY)
    }

    /// Ends the warning of earlier runs, at the end of a crawl without an absent sitemap.
    pub(super) fn finish(&mut self) {
        if self.names.is_empty() && !self.is_resumed && !self.has_unknown {
            self.change = Some(WarningChange::Lift(MISSING_SITEMAP));
        }
    }

    /// Takes the change of the warning since the last call.
    pub(super) fn take_change(&mut self) -> Option<WarningChange> {
        self.change.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    /// Returns true if the warning of an earlier run holds after a crawl with these visits.
    fn holds(is_resumed: bool, visits: &[Visit]) -> bool {
        let mut missing = MissingSitemaps::default();
        if is_resumed {
            missing.resume();
        }
        for (i, visit) in visits.iter().enumerate() {
            missing.look(&format!("http://h/{i}.xml"), visit);
        }
        missing.finish();
        // Its text is of another build.
        let held = vec![Warning::new(MISSING_SITEMAP, "?")];
        !crate::warnings::apply(held, missing.take_change()).is_empty()
    }

    #[test]
    fn the_warning_ends_with_a_run_that_finds_all_sitemaps() {
        let found = || Visit::Skipped("unchanged");
        assert!(!holds(false, &[found(), found()]));
        assert!(holds(false, &[found(), Visit::Skipped(NOT_FOUND)]));
        // Sitemaps that the run did not see may be absent.
        let failed = Visit::Failed {
            reason: "http",
            error: Error::Cancelled,
            is_transient: true,
        };
        assert!(holds(false, &[found(), failed]));
        assert!(holds(true, &[found()]));
    }

    #[test]
    fn the_message_names_all_absent_sitemaps_of_the_run() {
        let mut missing = MissingSitemaps::default();
        let mut message = |url: &str| {
            missing.look(url, &Visit::Skipped(NOT_FOUND));
            match missing.take_change() {
                Some(WarningChange::Raise(warning)) => warning.message,
                change => panic!("{change:?}"),
            }
        };
        assert!(message("http://h/a").starts_with("`http://h/a` does not exist"));
        let both = message("http://h/b");
        assert!(both.starts_with("`http://h/a`, `http://h/b` do not exist"));
    }
}
