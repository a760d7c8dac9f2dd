//! Pagination: the request of the next page, and the detection of the last one.

mod ends;
mod fields;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod keyset;
mod known_pages;
mod link;
mod overlap;
mod resumed;
pub(crate) mod suggest;
mod total;
mod unread;
mod urls;

use std::collections::{HashMap, HashSet};

use feedline_http::redacted;
use feedline_readers::{record::Record, value::shorten};
use feedline_schemas::{
    commit::{PageRun, Position, ShortPage},
    config::{BodyCursor, HeaderCursor, Pagination, PaginationConfig, PaginationKind},
    ids::Hash128,
};
use url::Url;

pub(crate) use self::{ends::Partial, fields::Fields, urls::with_query};
use self::{keyset::Keyset, urls::NextUrls};
use crate::{error::Error, param::Param, warnings::WarningChanges};

/// Warning that the server's pages are smaller than `pagination.page_size`.
const SMALL_PAGES: &str = "small_pages";

/// Cursors remembered for the loop guard, about 50 MB at most. When full it is cleared: a shorter
/// loop is still found.
const REMEMBERED: usize = 1 << 20;

/// Pages in succession with the records of earlier pages, under ever new cursors, that are an error.
const REPEATED_PAGES: u64 = 3;

/// Cursors with which APIs mark their last page, besides those that end the pages.
const END_MARKS: [&str; 4] = ["0", "-1", "null", "none"];

/// Walks the pages of one source.
#[derive(Debug)]
pub(crate) struct Paginator {
    config: PaginationConfig,
    keyset: Option<Keyset>,
    urls: NextUrls,
    fields: Fields,
    /// Hash of each cursor or page of this run of pages -> number of the page.
    seen: HashMap<Hash128, u64>,
    /// Records of this page run; `None` if this process did not read all of its pages.
    came: Option<u64>,
    /// Most records of a page so far.
    longest: u64,
    /// Empty pages in succession that this process has read.
    empty: u64,
    /// Cursors: the first of the pages in succession that have the records of earlier pages.
    repeats_from: Option<u64>,
    /// Last total record count that a page of this run of pages reported.
    total: Option<u64>,
    /// Columns of the `key` of the source.
    key: Vec<String>,
    /// True if records of equal content land once.
    land_once: bool,
    /// Contents of the records of this page run that this process has read, where they are compared
    /// with a total.
    distinct: HashSet<Hash128>,
    /// Records of this page run with the content of earlier ones, of those that this process has read.
    repeats: u64,
    /// True if a source without a next link or cursor may be one that never names any.
    may_lack_next: bool,
    /// Number of records at which an earlier page run ended, if the API may stop there.
    possible_cap: Option<u64>,
    warnings: WarningChanges,
}

/// The page to request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct At {
    /// Number in its run of pages, from 0.
    pub(crate) page: u64,
    pub(crate) cursor: Option<String>,
    pub(crate) run: PageRun,
}

/// Place of a page.
#[derive(Debug)]
pub(crate) enum Target<'a> {
    /// The source's own URL with these parameters.
    Params(Vec<Param<'a>>),
    /// A URL that the page before named.
    Url(Url),
}

/// Contents of a page.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Contents {
    pub(crate) records: Vec<Record>,
    /// Cursor or URL of the next page.
    pub(crate) token: Option<String>,
    /// True if the page has a field or header for the next page, even an empty one.
    pub(crate) names_next: bool,
    /// Flag in the page for further pages, if it has one.
    pub(crate) has_more: Option<bool>,
    /// Kind of a partial response (status 206); none for a complete response.
    pub(crate) partial: Option<Partial>,
    /// Total record count, if the page reports it.
    pub(crate) total: Option<u64>,
    /// Hash of the records, if pages are compared by them.
    pub(crate) hash: Option<Hash128>,
    /// URL of the page after redirects.
    pub(crate) url: Url,
}

/// Signs in a page that it may be the last one.
struct EndSigns {
    is_last: bool,
    /// True if the page run has returned all of its records before, or it has none.
    is_all_seen: bool,
    /// True if it has fewer records than were requested.
    is_short: bool,
    /// True if as many records have come as the API announced.
    has_all: bool,
    /// Flag in the page for further pages, if it has one.
    has_more: Option<bool>,
}

impl EndSigns {
    /// Returns true if only the next page shows whether this one was the last.
    fn may_be_short(&self) -> bool {
        (self.is_short || self.has_all) && !self.is_all_seen && self.has_more.is_none()
    }
}

impl Contents {
    /// Contents of the page after the last one, which does not exist.
    pub(crate) fn nothing(url: Url) -> Self {
        Self {
            records: Vec::new(),
            token: None,
            names_next: true,
            has_more: Some(false),
            partial: None,
            total: None,
            hash: None,
            url,
        }
    }
}

impl Paginator {
    /// Creates a paginator for the source at `base`, which removes the parameter `hidden` from next
    /// URLs.
    ///
    /// # Errors
    /// [`Error::Config`] if settings are out of range or contradict each other.
    pub(crate) fn new(
        config: &PaginationConfig,
        base: &Url,
        hidden: Option<&str>,
    ) -> Result<Self, Error> {
        Ok(Self {
            keyset: match &config.way {
                Pagination::Keyset(keys) => Some(Keyset::new(keys, config.common.page_size)),
                _ => None,
            },
            urls: NextUrls {
                base: base.clone(),
                origins: config.way.next_origins().to_vec(),
                hidden: hidden.map(ToOwned::to_owned),
            },
            fields: Fields::new(config)?,
            config: config.clone(),
            seen: HashMap::new(),
            came: None,
            longest: 0,
            empty: 0,
            repeats_from: None,
            total: None,
            key: Vec::new(),
            land_once: false,
            distinct: HashSet::new(),
            repeats: 0,
            may_lack_next: true,
            possible_cap: None,
            warnings: WarningChanges::default(),
        })
    }

    /// Header fields that pages are read by.
    pub(crate) fn fields(&self) -> Fields {
        self.fields.clone()
    }

    /// Key and path of the next cursor or URL in a body, if configured.
    pub(crate) fn token_path(&self) -> Option<(&'static str, &str)> {
        match &self.config.way {
            Pagination::Cursor(keys) => Some(("cursor_path", &keys.cursor_path)),
            Pagination::NextUrl(keys) => Some(("next_path", &keys.next_path)),
            _ => None,
        }
    }

    /// Returns true if only the records distinguish pages.
    pub(crate) fn hashes_pages(&self) -> bool {
        matches!(
            self.config.way.kind(),
            PaginationKind::Page | PaginationKind::Offset
        )
    }

    /// Returns true if pages are compared by their records: if nothing else distinguishes them, or if
    /// cursors may lead to the same records again. `keeps_all` allows equal records.
    pub(crate) fn compares_records(&self, keeps_all: bool) -> bool {
        self.hashes_pages() || (self.has_cursors() && !keeps_all)
    }

    /// Number of a page for messages: the requested one if pages have numbers, otherwise its place in
    /// the run of pages from 1.
    pub(crate) fn page_number(&self, page: u64) -> u64 {
        match &self.config.way {
            Pagination::Page(keys) => keys.first_page.saturating_add(page),
            _ => page.saturating_add(1),
        }
    }

    /// Returns true if a cursor is something that a server may forget.
    pub(crate) fn has_cursors(&self) -> bool {
        use PaginationKind::{Cursor, HeaderCursor, Link, NextUrl};
        matches!(
            self.config.way.kind(),
            Cursor | HeaderCursor | Link | NextUrl
        )
    }

    /// Path of the boolean that is true if further pages exist.
    pub(crate) fn has_more_path(&self) -> Option<&str> {
        self.config.way.has_more_path()
    }

    /// Returns the place of the page at `at`.
    ///
    /// # Errors
    /// [`Error::Body`] if the page is beyond `max_pages` or its URL is not allowed.
    pub(crate) fn target(&self, at: &At) -> Result<Target<'_>, Error> {
        let config = &self.config;
        let cursor = at.cursor.as_deref();
        if at.page >= config.common.max_pages.get() {
            return Err(self.wrong(format!(
                "{} pages were read and there is another one{}; raise `pagination.max_pages` = {} if the source is that long, otherwise its pagination never ends",
                at.page,
                cursor
                    .map(|cursor| format!(", cursor `{}`", self.shown(cursor)))
                    .unwrap_or_default(),
                config.common.max_pages
            )));
        }
        let mut query = Vec::new();
        if let Some(param) = &config.common.size_param {
            query.push(Param::number(param, config.common.page_size));
        }
        match (&config.way, cursor) {
            (Pagination::Page(keys), _) => {
                query.push(Param::number(&keys.page_param, self.page_number(at.page)));
            }
            (Pagination::Offset(keys), cursor) => {
                let first = || keys.first_offset.to_string();
                let offset = cursor.map_or_else(first, ToOwned::to_owned);
                query.push(Param::number(&keys.offset_param, offset));
            }
            (Pagination::Link(_) | Pagination::NextUrl(_), Some(cursor)) => {
                let url = self.urls.kept_url(cursor);
                return url.map(Target::Url).map_err(|reason| self.wrong(reason));
            }
            (
                Pagination::Cursor(BodyCursor { cursor_param, .. })
                | Pagination::HeaderCursor(HeaderCursor { cursor_param, .. }),
                Some(cursor),
            ) => query.push(Param::text(cursor_param, cursor)),
            (Pagination::Keyset(_), Some(cursor)) => {
                if let Some(keyset) = &self.keyset {
                    query.extend(keyset.query(cursor).map_err(|reason| self.wrong(reason))?);
                }
            }
            _ => {}
        }
        Ok(Target::Params(query))
    }

    /// Returns the position after the page at `at`, which holds `contents`. Removes the records
    /// that the page run has returned before.
    ///
    /// # Errors
    /// [`Error::Incomplete`] at the number of records where the API stops, by the configuration or
    /// by its own total; [`Error::Body`] for a loop, a next page on another host, truncated data,
    /// or another total than before.
    pub(crate) fn next(&mut self, at: At, contents: &mut Contents) -> Result<Position, Error> {
        let At {
            page,
            cursor,
            mut run,
        } = at;
        if page == 0 {
            self.begin(&run);
        }
        let count = contents.records.len() as u64;
        self.note_total(contents.total, count);
        self.longest = self.longest.max(count);
        let short = run.short.take().filter(|_| page > 0);
        run.page_records = 0;
        let keyset = self.keyset.as_ref();
        let keyset =
            keyset.map(|keyset| keyset.next(cursor.as_deref(), &mut run, &mut contents.records));
        let keyset = keyset.transpose().map_err(|reason| self.wrong(reason))?;
        if self.config.way.overlap() > 0
            && let Some(back) = self.overlap(cursor.as_deref(), &mut run, contents)?
        {
            return Ok(Position::Page {
                page: page + 1,
                cursor: Some(back),
                run,
            });
        }
        if self.hashes_pages() && self.config.way.overlap() == 0 {
            run.boundary = self.last_record(&contents.records);
        }
        if self.is_tail_again(count, contents) {
            contents.records.clear();
        }
        self.check_behind_short(page, short, count, contents);
        let end = self.check_end(page, count, &mut run, contents)?;
        let next = match self.config.way.kind() {
            // The records have named the cursor.
            PaginationKind::Keyset if end.has_more != Some(false) => keyset.flatten().map(Some),
            _ => self.next_cursor(cursor.as_deref(), count, &end, contents)?,
        };
        self.check_cap(&run, self.total)?;
        self.note_partial(page, next.is_none(), contents);
        let Some(next) = next else {
            return self.end_run(page, run);
        };
        if self.hashes_pages() && end.may_be_short() {
            let (records, hash) = (count, contents.hash);
            run.short = Some(ShortPage { records, hash });
        } else if self.hashes_pages() && self.empty > 0 {
            // A page behind it may be refused, as behind a short one.
            let (records, hash) = (0, None);
            run.short = Some(ShortPage { records, hash });
        } else if self.has_plain_offsets() && count != self.config.common.page_size {
            run.page_records = count;
        }
        self.check_circle(page, cursor.as_deref(), next.as_deref(), contents.hash)?;
        Ok(Position::Page {
            page: page + 1,
            cursor: next,
            run,
        })
    }

    /// Counts the new records of a page of `count` records, and looks for signs of the end.
    fn check_end(
        &mut self,
        page: u64,
        count: u64,
        run: &mut PageRun,
        contents: &Contents,
    ) -> Result<EndSigns, Error> {
        let is_all_seen = contents.records.is_empty();
        let new = contents.records.len() as u64;
        self.came = self.came.map(|came| came + new);
        if self.counts() {
            run.records += new;
            self.count_repeats(&contents.records);
        }
        self.note_missing_next(page, count, contents);
        let is_short = count < self.config.common.page_size;
        if !is_short {
            self.warnings.lift(SMALL_PAGES);
        }
        let has_all = self.has_all(run);
        // A total that is the count of the page would end a run of short pages after the first one.
        let is_checked = page > 0 || self.total != Some(count);
        let has_more = self.has_more(page, new, contents)?;
        self.empty = if count == 0 { self.empty + 1 } else { 0 };
        let is_gap = count == 0 && !has_all && self.empty < self.config.way.empty_pages();
        Ok(EndSigns {
            is_last: match has_more {
                Some(has_more) => !has_more,
                None => (is_all_seen && !is_gap) || (is_short && has_all && is_checked),
            },
            is_all_seen,
            is_short,
            has_all,
            has_more,
        })
    }

    /// Returns the cursor of the next page, `Some(None)` for a next page without a cursor, and
    /// `None` after the last page.
    fn next_cursor(
        &self,
        cursor: Option<&str>,
        count: u64,
        end: &EndSigns,
        contents: &mut Contents,
    ) -> Result<Option<Option<String>>, Error> {
        Ok(match self.config.way.kind() {
            PaginationKind::None | PaginationKind::Keyset => None,
            PaginationKind::Page | PaginationKind::Offset if end.is_last => None,
            _ if end.has_more == Some(false) => None,
            PaginationKind::Page => Some(None),
            PaginationKind::Offset => Some(Some(self.offset(cursor, count)?)),
            PaginationKind::Link | PaginationKind::NextUrl => match contents.token.take() {
                Some(target) => {
                    let next = self.urls.followed(&contents.url, &target);
                    Some(Some(next.map_err(|reason| self.wrong(reason))?))
                }
                None => None,
            },
            PaginationKind::Cursor | PaginationKind::HeaderCursor => {
                contents.token.take().map(Some)
            }
        })
    }

    /// Returns the position after the last page.
    fn end_run(&mut self, page: u64, mut run: PageRun) -> Result<Position, Error> {
        self.check_total(&run, self.total)?;
        // State that is needed only between pages is dropped at the end.
        (run.records, run.boundary) = (0, Vec::new());
        Ok(Position::Done {
            pages: page + 1,
            files: Vec::new(),
            run,
        })
    }

    /// Returns true once as many records have come as the API announced. More records show that the
    /// number is no total.
    fn has_all(&self, run: &PageRun) -> bool {
        self.counts() && self.total == Some(run.records)
    }

    /// Returns true if records are counted through the page run.
    fn counts(&self) -> bool {
        let config = &self.config;
        config.common.max_records.is_some()
            || config.common.total_path.is_some()
            || config.common.total_header.is_some()
    }

    /// The offset that `cursor` is.
    fn offset_at(&self, cursor: Option<&str>) -> Result<u64, Error> {
        let at = cursor.map_or(Ok(self.config.way.first_offset()), str::parse);
        at.map_err(|_| self.wrong("the landed cursor is no offset".into()))
    }

    /// The offset after a page of `count` records.
    fn offset(&self, cursor: Option<&str>, count: u64) -> Result<String, Error> {
        let next = self.offset_at(cursor)?.saturating_add(count);
        let next = next.saturating_sub(self.config.way.overlap());
        Ok(next.max(self.config.way.first_offset()).to_string())
    }

    /// Refuses a page that leads back to an earlier one.
    fn check_circle(
        &mut self,
        page: u64,
        cursor: Option<&str>,
        next: Option<&str>,
        hash: Option<Hash128>,
    ) -> Result<(), Error> {
        if self.hashes_pages()
            && let Some(hash) = hash
        {
            return match self.remember(hash, page) {
                Some(earlier) => Err(self.wrong(format!(
                    "page {} has the same records as page {}: its pagination goes in circles, or the API ignores the query parameter of the page{}{}; check `pagination`",
                    self.page_number(page),
                    self.page_number(earlier),
                    self.page_one_advice(page),
                    Self::last_page_advice(earlier, page)
                ))),
                None => Ok(()),
            };
        }
        self.check_repeats(page, hash)?;
        let Some(next) = next else {
            return Ok(());
        };
        if let Some(cursor) = cursor {
            self.remember(Hash128::of(cursor.as_bytes()), page);
        }
        match self.remember(Hash128::of(next.as_bytes()), page + 1) {
            Some(earlier) => Err(self.wrong(format!(
                "the cursor after page {} is `{}`, which already asked for page {}: its pagination goes in circles{}{}; check `pagination`",
                self.page_number(page),
                self.shown(next),
                self.page_number(earlier),
                self.ignored_param(),
                self.end_mark(next)
            ))),
            None => Ok(()),
        }
    }

    /// Refuses pages in succession that have the records of earlier pages, each under a new cursor.
    fn check_repeats(&mut self, page: u64, hash: Option<Hash128>) -> Result<(), Error> {
        let Some(earlier) = hash.and_then(|hash| self.remember(hash, page)) else {
            self.repeats_from = None;
            return Ok(());
        };
        let first = *self.repeats_from.get_or_insert(page);
        if page.saturating_sub(first) + 1 < REPEATED_PAGES {
            return Ok(());
        }
        Err(self.wrong(format!(
            "pages {} to {} have the records of earlier pages, the last one those of page {}, and each names a new page: its pagination goes in circles{}; check `pagination`, or set `batch.dedup_window = 0` if these are other records with equal contents",
            self.page_number(first),
            self.page_number(page),
            self.page_number(earlier),
            self.ignored_param()
        )))
    }

    /// Another cause of a cursor that comes back, where it is sent in a query parameter.
    fn ignored_param(&self) -> String {
        match &self.config.way {
            Pagination::Cursor(BodyCursor { cursor_param, .. })
            | Pagination::HeaderCursor(HeaderCursor { cursor_param, .. }) => {
                format!(", or the API ignores the query parameter `{cursor_param}`")
            }
            _ => String::new(),
        }
    }

    /// Another cause of a cursor that comes back, where it looks like a mark of the last page.
    fn end_mark(&self, next: &str) -> &'static str {
        let kind = self.config.way.kind();
        let is_cursor = matches!(kind, PaginationKind::Cursor | PaginationKind::HeaderCursor);
        let mut marks = END_MARKS.iter();
        match is_cursor && marks.any(|mark| next.eq_ignore_ascii_case(mark)) {
            true => {
                ", or the API marks its last page by this cursor (null, `false`, an empty text or none at all end the pages: name a flag of further pages in `pagination.has_more_path`)"
            }
            false => "",
        }
    }

    /// Records `hash` for `page`; returns another page with the same hash, if any.
    fn remember(&mut self, hash: Hash128, page: u64) -> Option<u64> {
        if self.seen.len() >= REMEMBERED {
            self.seen.clear();
        }
        let first = *self.seen.entry(hash).or_insert(page);
        (first != page).then_some(first)
    }

    /// Formats a cursor for messages; of a URL nothing that may be secret.
    fn shown(&self, cursor: &str) -> String {
        let url = matches!(
            self.config.way.kind(),
            PaginationKind::Link | PaginationKind::NextUrl
        )
        .then(|| self.urls.kept_url(cursor).ok())
        .flatten();
        match url {
            Some(url) => redacted(&url),
            None => shorten(&cursor.escape_debug().to_string(), 80).into_owned(),
        }
    }

    fn wrong(&self, reason: String) -> Error {
        Error::Body {
            url: self.urls.shown_base(),
            reason,
        }
    }
}

#[cfg(test)]
mod tests;
