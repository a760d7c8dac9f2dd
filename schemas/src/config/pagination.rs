//! `[source.pagination]`.

mod recorded;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use url::Url;

use super::{
    Bounded, BoundedCount,
    tagged::{self, KeyError, Tagged, Variant, plain},
};

/// Description of the table in its schema.
const DESCRIPTION: &str = "`[source.pagination]`: way of a `rest` source from page to page. With each `type` a source \
                           that leads in circles ends the run with an error that names the cursor, URL or page that \
                           came back.";

/// `[source.pagination]`: way of a `rest` source from page to page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PaginationConfig {
    /// Way from page to page, with the keys of its `type`.
    pub way: Pagination,
    /// Keys of all types.
    pub common: PageKeys,
}

/// Keys of `[source.pagination]` with every `type`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PageKeys {
    /// Maximum number of records in a page, as it is requested (`size_param`) or as the API documents it. `page`,
    /// `offset`: a page with fewer is the last one only if the total has come, `has_more_path` says so, or the page behind it
    /// is empty, repeats it or does not exist (status 400, 404, 410, 416 or 422); this costs one more request at the end, and a
    /// server that returns fewer records a page is read to its end, with the warning `small_pages`. Required with `keyset`.
    /// Default 0: not known; the run ends at the first empty page.
    pub page_size: u64,
    /// Query parameter that asks for `page_size` records; not sent by default. With `link` and `next_url` it is part of
    /// the first request only: later ones are made by the server.
    pub size_param: Option<String>,
    /// Path in the body of the number of all records; compared with what has come when the run of pages ends. Where that is a
    /// multiple of 1,000 and the total is higher, the API has stopped at a cap, and the run is incomplete (a slice is split into
    /// halves); any other difference is a warning, unless `strict_total` is set. Remove it where the total is an estimate and
    /// the list ends at such a number. Default: none.
    pub total_path: Option<String>,
    /// The same from a response header, such as `X-Total-Count`. Default: none.
    pub total_header: Option<String>,
    /// Whether another total than what has come ends the run with an error instead of a warning. Default false: records
    /// may come and go while pages are read.
    pub strict_total: bool,
    /// Number of records at which the API is known to stop, such as 10,000, at least 1. A run of pages that reaches it
    /// without having the total is an error: later records cannot be read this way. With `slices` it is none: the
    /// slice is split into halves, at once where the total says so. Default: none; a run of pages that ends at 1,000, 5,000,
    /// 10,000, 50,000 and so on without a total warns then. If the API has no such number, 1000000000 turns that warning off.
    pub max_records: Option<BoundedCount<1>>,
    /// Most pages of a run, at least 1. Default 1,000,000: a guard against an API that never ends.
    pub max_pages: BoundedCount<1>,
}

/// Way from page to page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pagination {
    /// One request.
    None(NoPages),
    /// A page number in the query.
    Page(PageNumbers),
    /// A number of records to skip in the query.
    Offset(PageOffsets),
    /// A cursor in the body.
    Cursor(BodyCursor),
    /// A cursor in a response header.
    HeaderCursor(HeaderCursor),
    /// The `next` link of the `Link` response header (RFC 8288).
    Link(LinkPages),
    /// The URL of the next page in the body.
    NextUrl(NextUrlPages),
    /// The time and key of the last record.
    Keyset(KeysetPages),
}

impl Tagged for Pagination {
    const TAG: &'static str = "type";
    const DOC: &'static str = "Way from page to page; the other keys depend on it. `none` (default): one request, written out \
                               where one page is all that is wanted, so that a next page that the response names is no \
                               warning (`next_page_not_requested`); `page` and \
                               `offset`: a number in the query; `cursor`: a cursor in the body; `header_cursor`: a cursor in a \
                               response header; `link`: the `next` link of the `Link` response header (RFC 8288); `next_url`: \
                               the URL of the next page in the body; `keyset`: the time and key of the last record.";
    const DEFAULT: Option<&'static str> = Some("none");

    fn variants() -> Vec<Variant<Self>> {
        vec![
            plain("none", |_: NoPages| Self::None(NoPages { is_chosen: true })),
            plain("page", Self::Page),
            plain("offset", Self::Offset),
            plain("cursor", Self::Cursor),
            plain("header_cursor", Self::HeaderCursor),
            plain("link", Self::Link),
            plain("next_url", Self::NextUrl),
            plain("keyset", Self::Keyset),
        ]
    }
}

/// Statuses of a refusal.
pub type EndStatus = Bounded<u16, 400, 599>;

/// Defines the keys of a `type` of several pages; those of them that say where a run of pages ends are the same for each.
macro_rules! pages {
    ($(
        $(#[$attribute:meta])*
        pub struct $name:ident { $($(#[$field_attribute:meta])* pub $field:ident: $type:ty,)* }
    )*) => {$(
        $(#[$attribute])*
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$field_attribute])* pub $field: $type,)*
            /// Path in the body of a boolean (or 0 and 1) that says whether there are further pages, such as `has_more`.
            /// False ends the run, whatever else the page names; true with an empty page, or without the next cursor, is
            /// an incomplete run; absent or null says nothing. May be changed at any time. Default: none is read.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub has_more_path: Option<String>,
            /// HTTP statuses, 400 to 599, that mean there is no page behind the last one, such as `[404]`. They end
            /// a run of pages at any page but its first. May be changed at any time. Default `[]`: with `page` and
            /// `offset`, 400, 404, 410, 416 and 422 end it behind a page shorter than `page_size`, and every other
            /// refusal is an error.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            pub end_status: Vec<EndStatus>,
        }
    )*};
}

/// One request.
#[derive(Clone, Debug, Default, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoPages {
    /// True if the configuration has the table `pagination`: one page is all that is wanted.
    #[serde(skip)]
    pub is_chosen: bool,
}

/// All are equal: logs of sources do not record whether the table is absent.
impl PartialEq for NoPages {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

pages! {
    /// A page number in the query.
    pub struct PageNumbers {
        /// Query parameter of the page number. Default `page`.
        #[serde(default = "page")]
        pub page_param: String,
        /// Number of the first page. Default 1: an API that counts its pages from 0 needs 0, otherwise its first page is
        /// never requested. `init` and `plan --ask` compare pages 0 and 1, and the warning `total_differs` names this key
        /// where the records of one page are missing.
        #[serde(default = "one")]
        pub first_page: u64,
        /// Number of empty pages in succession that end a run of pages, 1 to 1,000, unless the total has come or
        /// `has_more_path` says so. Raise it for an API that leaves records out of its pages, such as those a reader may
        /// not see, so that a page in the middle may be empty; each above 1 costs a request at the end. May be changed at
        /// any time. Default 1: without a total, records behind an empty page are not read.
        #[serde(default = "one_empty_page")]
        pub empty_pages: BoundedCount<1, 1_000>,
    }

    /// A number of records to skip in the query.
    pub struct PageOffsets {
        /// Query parameter of the number of records to skip. It grows by what each page brought, so a server that
        /// returns fewer than it was asked for leaves no gap; an empty page ends the run. Default `offset`.
        #[serde(default = "offset")]
        pub offset_param: String,
        /// Offset of the first record, for APIs that count from 1. Default 0.
        #[serde(default)]
        pub first_offset: u64,
        /// Records of the page before that each page asks for again, 0 to 1,000, less than `page_size`. Those that
        /// come again are left out; where none does, records were removed meanwhile and others moved up past the offset, so
        /// that reading goes back until one does. Change it for lists from which records are removed while they are read; it
        /// costs as many records a page. Default 0: none, and such a gap is not seen.
        #[serde(default = "no_overlap")]
        pub overlap: BoundedCount<0, 1_000>,
    }

    /// A cursor in the body.
    pub struct BodyCursor {
        /// Query parameter the cursor is sent in. Default `cursor`.
        #[serde(default = "cursor")]
        pub cursor_param: String,
        /// Path of the next cursor in the body. Null, false, absent or empty ends the run. Default `next_cursor`.
        #[serde(default = "next_cursor")]
        pub cursor_path: String,
    }

    /// A cursor in a response header.
    pub struct HeaderCursor {
        /// Query parameter the cursor is sent in. Default `cursor`.
        #[serde(default = "cursor")]
        pub cursor_param: String,
        /// Response header with the next cursor, such as `X-Next-Cursor`. Absent or empty ends the run. Required.
        pub cursor_header: String,
    }

    /// The `next` link of the `Link` response header (RFC 8288).
    pub struct LinkPages {
        /// Origins besides that of `url` that a next URL may lead to, such as `https://eu.example.com`.
        /// `headers` and `auth` are never sent there. Default `[]`: a next URL on another host ends the run with an error.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub next_origins: Vec<String>,
    }

    /// The URL of the next page in the body.
    pub struct NextUrlPages {
        /// Path of the next page's URL in the body; a relative one is resolved against the page's own. Null,
        /// false, absent or empty ends the run. Default `next`.
        #[serde(default = "next")]
        pub next_path: String,
        /// Origins besides that of `url` that a next URL may lead to, such as `https://eu.example.com`.
        /// `headers` and `auth` are never sent there. Default `[]`: a next URL on another host ends the run with an error.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub next_origins: Vec<String>,
    }
}

/// The time and key of the last record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeysetPages {
    /// Path in a record of the value that pages are ordered by, ascending: an integer, an RFC 3339 time or a
    /// date. Required.
    pub time_path: String,
    /// Query parameter that the last record's time is sent in. The API must return records with this time or a
    /// later one. Required.
    pub time_param: String,
    /// Path in a record of its key, a string or an integer; records with the last page's time whose key has come
    /// already are left out. Required.
    pub key_path: String,
    /// Query parameter that the last record's key is sent in. Without it, more records of one time than fit in
    /// a page cannot be read, which ends the run with an error. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_param: Option<String>,
    /// Without `key_param`: states that the API returns only later times and that no two records share one. By
    /// default each page must begin with a record that has been seen, which proves that none was left out. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exclusive: bool,
    /// HTTP statuses, 400 to 599, that mean there is no page behind the last one, such as `[404]`. They end
    /// a run of pages at any page but its first. May be changed at any time. Default `[]`: every refusal is an error.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub end_status: Vec<EndStatus>,
}

impl Default for PageKeys {
    fn default() -> Self {
        Self {
            page_size: 0,
            size_param: None,
            total_path: None,
            total_header: None,
            strict_total: false,
            max_records: None,
            max_pages: Bounded::literal::<1_000_000>(),
        }
    }
}

impl JsonSchema for PaginationConfig {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "PaginationConfig".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        tagged::schema::<PageKeys, Pagination>(generator, DESCRIPTION)
    }
}

fn page() -> String {
    "page".into()
}

fn no_overlap() -> BoundedCount<0, 1_000> {
    Bounded::literal::<0>()
}

const fn one() -> u64 {
    1
}

fn one_empty_page() -> BoundedCount<1, 1_000> {
    Bounded::literal::<1>()
}

fn offset() -> String {
    "offset".into()
}

fn cursor() -> String {
    "cursor".into()
}

fn next_cursor() -> String {
    "next_cursor".into()
}

fn next() -> String {
    "next".into()
}

impl Default for Pagination {
    fn default() -> Self {
        Self::None(NoPages::default())
    }
}

impl Pagination {
    /// The kind.
    #[must_use]
    pub const fn kind(&self) -> PaginationKind {
        match self {
            Self::None(_) => PaginationKind::None,
            Self::Page(_) => PaginationKind::Page,
            Self::Offset(_) => PaginationKind::Offset,
            Self::Cursor(_) => PaginationKind::Cursor,
            Self::HeaderCursor(_) => PaginationKind::HeaderCursor,
            Self::Link(_) => PaginationKind::Link,
            Self::NextUrl(_) => PaginationKind::NextUrl,
            Self::Keyset(_) => PaginationKind::Keyset,
        }
    }

    /// Returns true if nothing is configured: neither a way to further pages, nor that one page is all.
    #[must_use]
    pub const fn is_absent(&self) -> bool {
        matches!(self, Self::None(NoPages { is_chosen: false }))
    }

    /// Path of the boolean that says whether there are further pages.
    #[must_use]
    pub fn has_more_path(&self) -> Option<&str> {
        match self {
            Self::None(_) | Self::Keyset(_) => None,
            Self::Page(PageNumbers { has_more_path, .. })
            | Self::Offset(PageOffsets { has_more_path, .. })
            | Self::Cursor(BodyCursor { has_more_path, .. })
            | Self::HeaderCursor(HeaderCursor { has_more_path, .. })
            | Self::Link(LinkPages { has_more_path, .. })
            | Self::NextUrl(NextUrlPages { has_more_path, .. }) => has_more_path.as_deref(),
        }
    }

    /// Statuses of a page behind the last one.
    #[must_use]
    pub fn end_status(&self) -> &[EndStatus] {
        match self {
            Self::None(_) => &[],
            Self::Page(PageNumbers { end_status, .. })
            | Self::Offset(PageOffsets { end_status, .. })
            | Self::Cursor(BodyCursor { end_status, .. })
            | Self::HeaderCursor(HeaderCursor { end_status, .. })
            | Self::Link(LinkPages { end_status, .. })
            | Self::NextUrl(NextUrlPages { end_status, .. })
            | Self::Keyset(KeysetPages { end_status, .. }) => end_status,
        }
    }

    /// Other origins that a next URL may lead to.
    #[must_use]
    pub fn next_origins(&self) -> &[String] {
        match self {
            Self::Link(LinkPages { next_origins, .. })
            | Self::NextUrl(NextUrlPages { next_origins, .. }) => next_origins,
            _ => &[],
        }
    }

    /// Query parameters that it sends, but for `size_param`.
    #[must_use]
    pub fn params(&self) -> Vec<&str> {
        match self {
            Self::None(_) | Self::Link(_) | Self::NextUrl(_) => Vec::new(),
            Self::Page(keys) => vec![&keys.page_param],
            Self::Offset(keys) => vec![&keys.offset_param],
            Self::Cursor(BodyCursor { cursor_param, .. })
            | Self::HeaderCursor(HeaderCursor { cursor_param, .. }) => vec![cursor_param],
            Self::Keyset(keys) => {
                let key = keys.key_param.as_deref();
                std::iter::once(keys.time_param.as_str())
                    .chain(key)
                    .collect()
            }
        }
    }

    /// Offset of the first record.
    #[must_use]
    pub const fn first_offset(&self) -> u64 {
        match self {
            Self::Offset(keys) => keys.first_offset,
            _ => 0,
        }
    }

    /// Number of empty pages in succession that end a run of pages.
    #[must_use]
    pub const fn empty_pages(&self) -> u64 {
        match self {
            Self::Page(keys) => keys.empty_pages.get(),
            _ => 1,
        }
    }

    /// Records of the page before that each page asks for again.
    #[must_use]
    pub const fn overlap(&self) -> u64 {
        match self {
            Self::Offset(keys) => keys.overlap.get(),
            _ => 0,
        }
    }

    /// Keys whose text must not be empty.
    fn texts(&self) -> Vec<(&'static str, &str)> {
        match self {
            Self::None(_) | Self::Link(_) => Vec::new(),
            Self::Page(keys) => vec![("page_param", &keys.page_param)],
            Self::Offset(keys) => vec![("offset_param", &keys.offset_param)],
            Self::Cursor(keys) => vec![
                ("cursor_param", &keys.cursor_param),
                ("cursor_path", &keys.cursor_path),
            ],
            Self::HeaderCursor(keys) => vec![
                ("cursor_param", &keys.cursor_param),
                ("cursor_header", &keys.cursor_header),
            ],
            Self::NextUrl(keys) => vec![("next_path", &keys.next_path)],
            Self::Keyset(keys) => vec![
                ("time_path", &keys.time_path),
                ("time_param", &keys.time_param),
                ("key_path", &keys.key_path),
            ],
        }
    }
}

impl PaginationConfig {
    /// Refuses values that contradict one another.
    fn check(&self) -> Result<(), KeyError> {
        let wrong = |key: &str, reason: &str| Err(KeyError::new(key, reason));
        if let Some((key, _)) = self.way.texts().iter().find(|(_, text)| text.is_empty()) {
            return wrong(key, "must not be empty");
        }
        if let Pagination::Offset(keys) = &self.way
            && keys.overlap.get() > 0
            && self.common.page_size > 0
            && keys.overlap.get() >= self.common.page_size
        {
            return wrong("overlap", "must be less than `page_size`");
        }
        if self.common.page_size == 0 {
            if matches!(self.way, Pagination::Keyset(_)) {
                return wrong(
                    "page_size",
                    "is missing; `keyset` needs the most records that the API returns in a page, to recognise the last page",
                );
            }
            if self.common.size_param.is_some() {
                return wrong(
                    "size_param",
                    "is sent with `page_size`, which is not set; set it or remove this key",
                );
            }
        }
        for origin in self.way.next_origins() {
            let is_origin = Url::parse(origin).is_ok_and(|url| {
                matches!(url.scheme(), "http" | "https")
                    && url.host().is_some()
                    && url.path() == "/"
                    && url.query().is_none()
            });
            if !is_origin {
                let origin = origin.escape_debug();
                let reason = format!("`{origin}` is no origin, write `https://host`");
                return wrong("next_origins", &reason);
            }
        }
        if self.common.strict_total
            && self.common.total_path.is_none()
            && self.common.total_header.is_none()
        {
            return wrong(
                "strict_total",
                "needs `total_path` or `total_header`; set one or remove this key",
            );
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for PaginationConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (common, way) = tagged::read(deserializer)?;
        let config = Self { way, common };
        config.check().map_err(D::Error::custom)?;
        Ok(config)
    }
}

/// Kind of pagination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PaginationKind {
    /// One request.
    #[default]
    None,
    /// A page number in the query.
    Page,
    /// A number of records to skip in the query.
    Offset,
    /// A cursor in the body.
    Cursor,
    /// A cursor in a response header.
    HeaderCursor,
    /// The `next` link of the `Link` response header (RFC 8288).
    Link,
    /// The URL of the next page in the body.
    NextUrl,
    /// The time and key of the last record.
    Keyset,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<PaginationConfig, String> {
        toml::from_str(text).map_err(|e: toml::de::Error| e.message().to_owned())
    }

    #[test]
    fn one_page_is_chosen_by_the_table_alone() {
        assert!(PaginationConfig::default().way.is_absent());
        let chosen = read("type = \"none\"").unwrap();
        assert!(!chosen.way.is_absent());
        assert_eq!(chosen, PaginationConfig::default());
        assert!(!read("type = \"link\"").unwrap().way.is_absent());
    }

    #[test]
    fn keys_of_another_type_are_refused_with_their_own_type() {
        let check = |text: &str, expected: &str| {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        };
        check(
            "type = \"page\"\ncursor_path = \"next\"",
            "at `cursor_path`: this key belongs to `type = \"cursor\"`; `type = \"page\"` has the keys `type`, `page_size`, ",
        );
        check(
            "overlap = 1",
            "at `overlap`: this key belongs to `type = \"offset\"`; `type = \"none\"` has the keys",
        );
        check(
            "type = \"none\"\nend_status = [404]",
            "at `end_status`: this key belongs to",
        );
        check(
            "type = \"pages\"",
            "at `type`: unknown variant `pages`, expected one of `none`, `page`",
        );
        check(
            "type = 1",
            "at `type`: invalid type: number, expected a text",
        );
        check(
            "type = \"page\"\nsize = 1",
            "unknown field `size`, expected one of `type`, `page_size`",
        );
        check(
            "type = \"header_cursor\"",
            "at `cursor_header`: `type = \"header_cursor\"` needs this key",
        );
        check(
            "type = \"keyset\"\ntime_path = \"t\"",
            "at `time_param`: `type = \"keyset\"` needs this key",
        );
    }

    #[test]
    fn values_that_cannot_work_are_refused_at_their_key() {
        let check = |text: &str, expected: &str| {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        };
        check("max_pages = 0", "at `max_pages`: must be at least 1, got 0");
        check(
            "max_records = 0",
            "at `max_records`: must be at least 1, got 0",
        );
        check(
            "type = \"page\"\nend_status = [404, 200]",
            "at `end_status.1`: must be 400 to 599, got 200",
        );
        check(
            "type = \"offset\"\noverlap = 1001",
            "at `overlap`: must be 0 to 1,000, got 1,001",
        );
        check(
            "type = \"offset\"\noverlap = 5\npage_size = 5",
            "at `overlap`: must be less than",
        );
        check(
            "type = \"page\"\nempty_pages = 0",
            "at `empty_pages`: must be 1 to 1,000, got 0",
        );
        check(
            "size_param = \"n\"",
            "at `size_param`: is sent with `page_size`",
        );
        check(
            "strict_total = true",
            "at `strict_total`: needs `total_path`",
        );
        check(
            "type = \"page\"\npage_param = \"\"",
            "at `page_param`: must not be empty",
        );
        check(
            "type = \"link\"\nnext_origins = [\"x\"]",
            "at `next_origins`: `x` is no origin",
        );
        check(
            "type = \"link\"\nnext_origins = [\"https://h/a\"]",
            "at `next_origins`: ",
        );
        check(
            "type = \"page\"\nfirst_page = \"x\"",
            "at `first_page`: invalid type: string \"x\"",
        );
        let keyset = "type = \"keyset\"\ntime_path = \"t\"\ntime_param = \"p\"\nkey_path = \"k\"";
        check(keyset, "at `page_size`: is missing");
        read(&format!("{keyset}\npage_size = 5")).unwrap();
    }

    #[test]
    fn a_log_records_all_keys_beside_one_another() {
        let check = |text: &str, expected: serde_json::Value| {
            let recorded = serde_json::to_value(read(text).unwrap()).unwrap();
            assert_eq!(recorded, expected, "{text}");
        };
        let with = |kind: &str, more: serde_json::Value| {
            let mut all = serde_json::json!({
                "type": kind, "page_param": "page", "first_page": 1, "page_size": 0, "size_param": null,
                "cursor_param": "cursor", "cursor_path": "next_cursor", "max_pages": 1_000_000,
            });
            for (key, value) in more.as_object().unwrap() {
                all[key] = value.clone();
            }
            all
        };
        check("", with("none", serde_json::json!({})));
        check(
            "type = \"page\"\npage_param = \"p\"\nend_status = [404]",
            with(
                "page",
                serde_json::json!({"page_param": "p", "end_status": [404]}),
            ),
        );
        check(
            "type = \"page\"\nempty_pages = 2",
            with("page", serde_json::json!({"empty_pages": 2})),
        );
        check(
            "type = \"offset\"\nfirst_offset = 1",
            with("offset", serde_json::json!({"first_offset": 1})),
        );
        check(
            "type = \"header_cursor\"\ncursor_header = \"X\"\nmax_records = 7",
            with(
                "header_cursor",
                serde_json::json!({"cursor_header": "X", "max_records": 7}),
            ),
        );
        check(
            "type = \"next_url\"\nnext_path = \"n\"",
            with("next_url", serde_json::json!({"next_path": "n"})),
        );
    }

    #[test]
    fn the_schema_has_the_keys_of_each_type() {
        let schema = serde_json::to_value(schemars::schema_for!(PaginationConfig)).unwrap();
        let types = schema["oneOf"].as_array().unwrap();
        assert_eq!(types.len(), Pagination::variants().len());
        let page = types
            .iter()
            .find(|one| one["properties"]["type"]["const"] == "page")
            .unwrap();
        assert!(page["properties"]["page_size"].is_object());
        assert!(page["properties"]["cursor_path"].is_null());
        assert_eq!(page["additionalProperties"], false);
        assert_eq!(page["required"], serde_json::json!(["type"]));
    }
}
