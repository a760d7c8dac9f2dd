//! Hosts whose robots.txt cannot be read: the error of their pages, and the warning.

use std::{collections::BTreeMap, mem};

use feedline_http::{HttpCause, redacted};
use feedline_schemas::{
    count::{counted, first_counted},
    report::Warning,
};
use reqwest::StatusCode;
use url::Url;

use crate::{error::Error, warnings::WarningChange};

/// Key of the rules of robots.txt.
pub(super) const ROBOTS_KEY: &str = "crawl.robots";
/// Reason for a URL whose robots.txt cannot be read, and code of the warning.
pub(super) const ROBOTS_UNREACHABLE: &str = "robots_unreachable";
/// Most hosts that the warning names.
const NAMED_HOSTS: usize = 5;

/// A robots.txt that cannot be read.
#[derive(Debug)]
pub(super) struct RobotsFailure {
    /// Its URL, without secrets.
    pub(super) url: String,
    cause: HttpCause,
    pub(super) what: String,
    advice: String,
    /// True if the host may be down.
    pub(super) is_transient: bool,
}

impl RobotsFailure {
    pub(super) fn new(url: &Url, error: Error, is_transient: bool) -> Self {
        match error {
            Error::Http {
                url,
                cause,
                what,
                advice,
            } => Self {
                url,
                cause,
                what,
                advice,
                is_transient,
            },
            other => Self {
                url: redacted(url),
                cause: HttpCause::Other,
                what: other.to_string(),
                advice: "check that the server is up and reachable".to_owned(),
                is_transient,
            },
        }
    }

    /// A server error that is no reason for a retry.
    pub(super) fn of_status(url: &Url, status: StatusCode) -> Self {
        Self {
            url: redacted(url),
            cause: HttpCause::Status(status.as_u16()),
            what: format!("the server answered {}", status.as_u16()),
            advice: "ask the server's owner".to_owned(),
            is_transient: false,
        }
    }

    /// Error of a page of the host, which is not requested.
    pub(super) fn to_error(&self, page: &Url) -> Error {
        let origin = page.origin().ascii_serialization();
        Error::Http {
            url: self.url.clone(),
            cause: self.cause,
            what: self.what.clone(),
            advice: format!(
                "{}; without robots.txt no page of the host is requested; if it stays so, leave the host out with `crawl.deny = [\"{origin}/\"]`, or set `{ROBOTS_KEY} = false`",
                self.advice
            ),
        }
    }
}

/// URLs of hosts whose robots.txt cannot be read, in this run. The warning of them ends with a run that
/// visits all URLs, or all that failed before, and finds none of such a host.
#[derive(Debug, Default)]
pub(super) struct RobotsWarnings {
    /// Number of failed URLs by host.
    urls: BTreeMap<String, u64>,
    /// True if an earlier run has visited the first URLs of the crawl, or of a pass over failed ones.
    is_resumed: bool,
    /// True if URLs were counted since the change of the warning was taken.
    has_new: bool,
    /// True if the warning ends.
    is_lifted: bool,
}

impl RobotsWarnings {
    /// Records that an earlier run has visited the first URLs of the crawl, or of a pass over failed ones.
    pub(super) const fn resume(&mut self) {
        self.is_resumed = true;
    }

    /// Begins a pass over all URLs that failed before.
    pub(super) fn begin_pass(&mut self) {
        *self = Self::default();
    }

    /// Counts a URL of `host` that failed.
    pub(super) fn count(&mut self, host: &str) {
        *self.urls.entry(host.to_owned()).or_default() += 1;
        self.has_new = true;
    }

    fn warning(&self) -> Warning {
        let named = self.urls.iter();
        let named = named.map(|(host, count)| format!("`{host}` ({})", counted(*count, "URL")));
        let named: Vec<String> = named.collect();
        let earlier = match self.is_resumed {
            true => "; an earlier run of this crawl may have named others",
            false => "",
        };
        let message = format!(
            "the robots.txt of {} cannot be read, so these URLs are rejected and no page of these hosts is requested; the next run requests them again; leave a host out with `crawl.deny`, or set this key to false to ignore its rules{earlier}",
            first_counted(&named, NAMED_HOSTS, "host")
        );
        Warning::new(ROBOTS_UNREACHABLE, message).with_key(ROBOTS_KEY)
    }

    /// Ends the warning of an earlier run, at the end of a crawl or of a pass without such a host.
    /// `has_recovered` is true after a pass, resumed or not, that leaves no failed URL.
    pub(super) fn finish(&mut self, has_recovered: bool) {
        self.is_lifted = self.urls.is_empty() && (!self.is_resumed || has_recovered);
    }

    /// Takes the change of the warning since the last call.
    pub(super) fn take_change(&mut self) -> Option<WarningChange> {
        let is_lifted = mem::take(&mut self.is_lifted);
        if mem::take(&mut self.has_new) {
            return Some(WarningChange::Raise(self.warning()));
        }
        is_lifted.then_some(WarningChange::Lift(ROBOTS_UNREACHABLE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_counts_urls_by_host_and_ends_with_a_complete_crawl_without_one() {
        let held = || vec![Warning::new(ROBOTS_UNREACHABLE, "of an earlier run")];
        let after = |warnings: &mut RobotsWarnings| {
            warnings.finish(false);
            crate::warnings::apply(held(), warnings.take_change())
        };
        assert_eq!(after(&mut RobotsWarnings::default()), []);
        let mut resumed = RobotsWarnings::default();
        resumed.resume();
        assert_eq!(after(&mut resumed), held());
        let mut recovered = RobotsWarnings::default();
        recovered.resume();
        recovered.finish(true);
        let change = recovered.take_change();
        assert_eq!(change, Some(WarningChange::Lift(ROBOTS_UNREACHABLE)));
        let mut warnings = RobotsWarnings::default();
        for host in ["b.example", "a.example", "b.example"] {
            warnings.count(host);
        }
        let after = after(&mut warnings);
        let [warning] = after.as_slice() else {
            panic!("{after:?}")
        };
        let begin = "the robots.txt of `a.example` (1 URL), `b.example` (2 URLs) cannot be read";
        assert!(warning.message.starts_with(begin), "{warning:?}");
        assert_eq!(warning.key.as_deref(), Some(ROBOTS_KEY));
    }
}
