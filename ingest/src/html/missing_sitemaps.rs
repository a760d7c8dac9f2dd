//! Sitemaps that the server does not have.

use feedline_http::redacted;
use feedline_schemas::report::Warning;
use url::Url;

use super::{fetcher::NOT_FOUND, visit::Visit};
use crate::warnings::{WarningChange, WarningChanges};

/// Code of their warning.
const MISSING_SITEMAP: &str = "missing_sitemap";

/// Sitemaps that were absent at their latest visit. They are restored from the warning that names them,
/// so it ends when all of them exist, whenever that is found.
#[derive(Debug, Default)]
pub(super) struct MissingSitemaps {
    /// Addresses for messages, in the order of the visits.
    names: Vec<String>,
    changes: WarningChanges,
}

impl MissingSitemaps {
    /// Restores those that the `held` warnings name.
    pub(super) fn restore(&mut self, held: &[Warning]) {
        self.changes.restore(held);
        let warning = held.iter().find(|held| held.code == MISSING_SITEMAP);
        // An address has no space.
        let names = warning.and_then(|warning| warning.message.split_once(" do"));
        let names = names.into_iter().flat_map(|(names, _)| names.split(", "));
        self.names = names
            .map(|name| name.trim_matches('`').to_owned())
            .collect();
    }

    /// Records a visit to the sitemap at `url`.
    pub(super) fn look(&mut self, url: &str, visit: &Visit) {
        let exists = match visit {
            Visit::Skipped(NOT_FOUND) => false,
            Visit::Sitemap(..)
            | Visit::Redirect(_)
            | Visit::Skipped("unchanged")
            | Visit::Failed {
                reason: "bad_sitemap",
                ..
            } => true,
            Visit::Page(..) | Visit::Skipped(_) | Visit::Failed { .. } => return,
        };
        let name = Url::parse(url).map_or_else(|_| url.to_owned(), |url| redacted(&url));
        let place = self.names.iter().position(|known| *known == name);
        match (place, exists) {
            (Some(place), true) => drop(self.names.remove(place)),
            (None, false) => self.names.push(name),
            _ => return,
        }
        self.change_warning();
    }

    fn change_warning(&mut self) {
        if self.names.is_empty() {
            self.changes.lift(MISSING_SITEMAP);
            return;
        }
        let names: Vec<String> = self.names.iter().map(|name| format!("`{name}`")).collect();
        let do_not = match names.len() {
            1 => "does not",
            _ => "do not",
        };
        let message = format!(
            "{} {do_not} exist (404 or 410), so pages that are named there only are not found; restore it, or correct this key, or the robots.txt or sitemap that names it, before rows land (afterwards with `feedline ingest reset`)",
            names.join(", ")
        );
        self.changes
            .raise(MISSING_SITEMAP, "crawl.sitemaps", message);
    }

    /// Takes the changes of the warning since the last call.
    pub(super) fn take_changes(&mut self) -> Vec<WarningChange> {
        self.changes.take()
    }
}
