//! From page to page: what to ask the next page with, and when it was the last.

use std::collections::HashMap;

use feedline_schemas::{
    commit::Position,
    config::{PaginationConfig, PaginationKind},
    ids::Hash128,
};

use crate::{error::Error, value::shorten};

/// Cursors remembered for the loop guard, about 50 MB at most. When full it starts anew: a shorter loop is still found.
const REMEMBERED: usize = 1 << 20;

/// Walks the pages of one source.
#[derive(Debug)]
pub(crate) struct Paginator {
    config: PaginationConfig,
    /// Hash of each cursor of this run -> number of the page it asks for.
    seen: HashMap<Hash128, u64>,
}

impl Paginator {
    /// A paginator at no particular page.
    ///
    /// # Errors
    /// [`Error::Config`] when settings are out of range or contradict each other.
    pub(crate) fn new(config: &PaginationConfig) -> Result<Self, Error> {
        let wrong =
            |key: &str, reason: &str| Err(Error::config(format!("pagination.{key}"), reason));
        let needs = |kind, text: &String| config.r#type == kind && text.is_empty();
        if config.max_pages == 0 {
            return wrong("max_pages", "0 allows no page at all, use 1 or more");
        }
        if config.size_param.is_some() && config.page_size == 0 {
            return wrong(
                "size_param",
                "is sent with `page_size`, which is not set; set it or remove this key",
            );
        }
        if needs(PaginationKind::Page, &config.page_param) {
            return wrong(
                "page_param",
                "is empty; give the query parameter of the page number",
            );
        }
        if needs(PaginationKind::Cursor, &config.cursor_param) {
            return wrong(
                "cursor_param",
                "is empty; give the query parameter of the cursor",
            );
        }
        if needs(PaginationKind::Cursor, &config.cursor_path) {
            return wrong(
                "cursor_path",
                "is empty; give the path of the next cursor in the body",
            );
        }
        Ok(Self {
            config: config.clone(),
            seen: HashMap::new(),
        })
    }

    /// Path of the next cursor in a body, where there is one.
    pub(crate) fn cursor_path(&self) -> Option<&str> {
        (self.config.r#type == PaginationKind::Cursor).then_some(&self.config.cursor_path)
    }

    /// Query parameters that ask for page number `page` (from 0).
    ///
    /// # Errors
    /// A message when the page is beyond `max_pages`.
    pub(crate) fn query(
        &self,
        page: u64,
        cursor: Option<&str>,
    ) -> Result<Vec<(&str, String)>, String> {
        let config = &self.config;
        if page >= config.max_pages {
            return Err(format!(
                "{page} pages were read and there is another one{}; raise `pagination.max_pages` = {} if the source is that long, otherwise its pagination never ends",
                cursor
                    .map(|cursor| format!(", cursor `{}`", shown(cursor)))
                    .unwrap_or_default(),
                config.max_pages
            ));
        }
        let mut query = Vec::new();
        if let Some(param) = &config.size_param {
            query.push((param.as_str(), config.page_size.to_string()));
        }
        match config.r#type {
            PaginationKind::None => {}
            PaginationKind::Page => {
                let number = config.first_page.saturating_add(page);
                query.push((config.page_param.as_str(), number.to_string()));
            }
            PaginationKind::Cursor => {
                query
                    .extend(cursor.map(|cursor| (config.cursor_param.as_str(), cursor.to_owned())));
            }
        }
        Ok(query)
    }

    /// The position after page number `page`, which had `records` records and named `next_cursor`.
    ///
    /// # Errors
    /// A message when the cursor has asked for an earlier page of this run: the source would be read in circles.
    pub(crate) fn next(
        &mut self,
        page: u64,
        cursor: Option<&str>,
        records: usize,
        next_cursor: Option<String>,
    ) -> Result<Position, String> {
        let next = page + 1;
        let done = Position::Done {
            pages: next,
            files: Vec::new(),
        };
        Ok(match self.config.r#type {
            PaginationKind::None => done,
            PaginationKind::Page if (records as u64) < self.config.page_size.max(1) => done,
            PaginationKind::Page => Position::Page {
                page: next,
                cursor: None,
            },
            PaginationKind::Cursor => match next_cursor {
                None => done,
                Some(next_cursor) => {
                    if let Some(cursor) = cursor {
                        self.remember(cursor, page);
                    }
                    if let Some(earlier) = self.remember(&next_cursor, next) {
                        return Err(format!(
                            "the cursor after page {page} is `{}`, which already asked for page {earlier}: its pagination goes in circles; check `pagination.cursor_path` and `pagination.cursor_param`",
                            shown(&next_cursor)
                        ));
                    }
                    Position::Page {
                        page: next,
                        cursor: Some(next_cursor),
                    }
                }
            },
        })
    }

    /// Notes that `cursor` asks for `page`; gives the other page that it asked for before, if any.
    fn remember(&mut self, cursor: &str, page: u64) -> Option<u64> {
        if self.seen.len() >= REMEMBERED {
            self.seen.clear();
        }
        let first = *self
            .seen
            .entry(Hash128::of(cursor.as_bytes()))
            .or_insert(page);
        (first != page).then_some(first)
    }
}

fn shown(cursor: &str) -> String {
    shorten(&cursor.escape_debug().to_string(), 80).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paginator(r#type: PaginationKind) -> Paginator {
        Paginator::new(&PaginationConfig {
            r#type,
            ..PaginationConfig::default()
        })
        .unwrap()
    }

    /// Follows cursors, page i naming `cursors[i]`; gives the message that stopped it, if any.
    fn walk(cursors: &[&str]) -> Option<String> {
        let mut pages = paginator(PaginationKind::Cursor);
        let mut at: Option<String> = None;
        for (page, cursor) in (0..).zip(cursors) {
            match pages.next(page, at.as_deref(), 1, Some((*cursor).to_owned())) {
                Ok(Position::Page { cursor, .. }) => at = cursor,
                Ok(other) => panic!("{other:?}"),
                Err(message) => return Some(message),
            }
        }
        None
    }

    #[test]
    fn a_cursor_that_comes_back_is_an_error_that_names_it() {
        assert_eq!(walk(&["a", "b", "c"]), None);
        for circle in [
            &["a", "a"][..],
            &["a", "b", "a"],
            &["x", "a", "b", "c", "a"],
        ] {
            let message = walk(circle).unwrap();
            assert!(message.contains("`a`"), "{message}");
        }
    }

    #[test]
    fn a_circle_is_found_after_resuming_inside_it() {
        let mut pages = paginator(PaginationKind::Cursor);
        assert!(pages.next(50_000, Some("b"), 1, Some("a".into())).is_ok());
        assert!(pages.next(50_001, Some("a"), 1, Some("b".into())).is_err());
    }

    #[test]
    fn asking_for_the_same_page_again_is_no_circle() {
        let mut pages = paginator(PaginationKind::Cursor);
        for _ in 0..2 {
            assert!(pages.next(1, Some("a"), 1, Some("b".into())).is_ok());
            assert!(pages.next(2, Some("b"), 1, Some("c".into())).is_ok());
        }
    }

    #[test]
    fn cursor_pages_go_on_through_an_empty_page_and_end_without_a_cursor() {
        let mut pages = paginator(PaginationKind::Cursor);
        let next = pages.next(0, None, 0, Some("a".into()));
        assert_eq!(
            next,
            Ok(Position::Page {
                page: 1,
                cursor: Some("a".into())
            })
        );
        assert_eq!(
            pages.next(1, Some("a"), 9, None),
            Ok(Position::Done {
                pages: 2,
                files: vec![]
            })
        );
        assert_eq!(
            pages.query(1, Some("a/?&")),
            Ok(vec![("cursor", "a/?&".to_owned())])
        );
    }

    #[test]
    fn numbered_pages_end_at_a_short_or_empty_page() {
        let mut unsized_pages = paginator(PaginationKind::Page);
        assert_eq!(
            unsized_pages.query(0, None),
            Ok(vec![("page", "1".to_owned())])
        );
        let second = Ok(Position::Page {
            page: 1,
            cursor: None,
        });
        assert_eq!(unsized_pages.next(0, None, 1, None), second);
        assert!(matches!(
            unsized_pages.next(1, None, 0, None),
            Ok(Position::Done { pages: 2, .. })
        ));
        let config = PaginationConfig {
            r#type: PaginationKind::Page,
            page_size: 10,
            size_param: Some("limit".into()),
            first_page: 0,
            ..PaginationConfig::default()
        };
        let mut sized = Paginator::new(&config).unwrap();
        assert_eq!(
            sized.query(3, None),
            Ok(vec![("limit", "10".to_owned()), ("page", "3".to_owned())])
        );
        assert_eq!(sized.next(0, None, 10, None), second);
        assert!(matches!(
            sized.next(1, None, 9, None),
            Ok(Position::Done { .. })
        ));
    }

    #[test]
    fn more_pages_than_allowed_are_an_error_that_names_the_cursor() {
        let config = PaginationConfig {
            max_pages: 2,
            r#type: PaginationKind::Cursor,
            ..PaginationConfig::default()
        };
        let pages = Paginator::new(&config).unwrap();
        assert!(pages.query(1, Some("a")).is_ok());
        let message = pages.query(2, Some("b")).unwrap_err();
        assert!(
            message.contains("`b`") && message.contains("max_pages"),
            "{message}"
        );
    }

    #[test]
    fn settings_that_cannot_work_name_their_key() {
        let check = |config: PaginationConfig, key: &str| match Paginator::new(&config) {
            Err(Error::Config { key: found, .. }) => assert_eq!(found, key),
            other => panic!("{other:?}"),
        };
        let base = PaginationConfig::default;
        check(
            PaginationConfig {
                max_pages: 0,
                ..base()
            },
            "pagination.max_pages",
        );
        check(
            PaginationConfig {
                size_param: Some("n".into()),
                ..base()
            },
            "pagination.size_param",
        );
        let r#type = PaginationKind::Cursor;
        check(
            PaginationConfig {
                r#type,
                cursor_path: String::new(),
                ..base()
            },
            "pagination.cursor_path",
        );
    }
}
