//! The way on from a page that is not read, since it has not changed.

use feedline_schemas::{commit::Position, config::PaginationKind};

use reqwest::header::HeaderName;

use super::{At, Paginator};

impl Paginator {
    /// Returns true if `next`, the position after a page, follows from the page number alone. The
    /// last page of several may only be recognized by its contents.
    pub(crate) fn is_known_unread(&self, next: &Position) -> bool {
        let is_last = matches!(next, Position::Done { .. });
        match self.config.way.kind() {
            PaginationKind::None => is_last,
            // A short page is the last one if the next one is empty, which requires this page.
            PaginationKind::Page => {
                let short = next.run().and_then(|run| run.short);
                let is_full = match short {
                    Some(short) => short.records > 0 && self.has_small_pages(),
                    None => true,
                };
                !is_last && !self.counts() && self.has_more_path().is_none() && is_full
            }
            _ => false,
        }
    }

    /// Returns the position after the unchanged page at `at`, if [`Paginator::is_known_unread`]
    /// held for it.
    pub(crate) fn next_unread(&mut self, at: At) -> Position {
        // The number of records of an unread page is unknown, and so is the last one.
        (self.came, self.empty) = (None, 0);
        let At { page, mut run, .. } = at;
        (run.short, run.boundary) = (None, Vec::new());
        match self.config.way.kind() {
            PaginationKind::Page => Position::Page {
                page: page + 1,
                cursor: None,
                run,
            },
            _ => Position::Done {
                pages: page + 1,
                files: Vec::new(),
                run,
            },
        }
    }

    /// Response headers to read.
    pub(crate) fn headers(&self) -> Vec<HeaderName> {
        self.fields.names()
    }
}
