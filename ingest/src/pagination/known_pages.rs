//! Pages whose address is known, or likely, before the page ahead of them is read.

use feedline_schemas::{
    commit::Position,
    config::{Bounded, Pagination, PaginationKind},
};

use super::{At, Contents, Paginator};

impl Paginator {
    /// Returns the page behind `at` in its run, as far as its request is known. `contents` is the
    /// page at `at` if it has come but is not read yet. `is_current` is true for the run that is
    /// being read, and `is_likely` if a page of it may be expected for its number alone.
    ///
    /// A wrong guess costs a request and changes nothing else: [`Paginator::next`] decides.
    pub(crate) fn foresee(
        &self,
        at: &At,
        contents: Option<&Contents>,
        is_current: bool,
        is_likely: bool,
    ) -> Option<At> {
        if contents.is_some_and(|contents| contents.has_more == Some(false)) {
            return None;
        }
        let cursor = match &self.config.way {
            Pagination::Page(_) | Pagination::Offset(_) => {
                let step = contents.map_or(self.page_len(), |page| page.records.len() as u64);
                let total = contents.and_then(|contents| contents.total);
                let total = total.or(self.total.filter(|_| is_current));
                let is_there = match (self.most(total), contents) {
                    // Behind a full page, one more is requested to find the end.
                    (Some(most), _) => self.read_by(at, step)? <= most,
                    (None, Some(contents)) => {
                        contents.has_more == Some(true) || step >= self.page_len()
                    }
                    (None, None) => is_current && is_likely,
                };
                if !is_there || step == 0 {
                    return None;
                }
                match self.config.way.kind() {
                    PaginationKind::Offset => Some(self.offset(at.cursor.as_deref(), step).ok()?),
                    _ => None,
                }
            }
            Pagination::Cursor(_) | Pagination::HeaderCursor(_) => Some(contents?.token.clone()?),
            Pagination::Link(_) | Pagination::NextUrl(_) => {
                let contents = contents?;
                let target = contents.token.as_deref()?;
                Some(self.urls.followed(&contents.url, target).ok()?)
            }
            Pagination::Keyset(_) | Pagination::None(_) => return None,
        };
        Some(At {
            page: at.page + 1,
            cursor,
            run: at.run.clone(),
        })
    }

    /// Returns true unless the page before `next`, the position after it, may be the last one.
    pub(crate) fn expects_more(&self, next: &Position) -> bool {
        let run = next.run();
        run.is_some_and(|run| run.short.is_none()) || self.has_small_pages()
    }

    /// Records of a page that is not the last one.
    fn page_len(&self) -> u64 {
        if self.has_small_pages() {
            self.longest
        } else {
            self.config.common.page_size
        }
    }

    /// Number of records that the API returns of `total` ones; `None` without a total.
    fn most(&self, total: Option<u64>) -> Option<u64> {
        let cap = self.config.common.max_records.map(Bounded::get);
        total.map(|total| cap.map_or(total, |cap| cap.min(total)))
    }

    /// Number of records up to the end of the page at `at`, which has `step` ones.
    fn read_by(&self, at: &At, step: u64) -> Option<u64> {
        match self.config.way.kind() {
            PaginationKind::Offset => {
                let offset = self.offset_at(at.cursor.as_deref()).ok()?;
                let offset = offset.saturating_sub(self.config.way.first_offset());
                Some(offset.saturating_add(step))
            }
            _ => Some(at.page.saturating_add(1).saturating_mul(step)),
        }
    }
}
