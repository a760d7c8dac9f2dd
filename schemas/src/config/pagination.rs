//! `[source.pagination]`.

use schemars::{JsonSchema, Schema, generate::SchemaSettings};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use url::Url;

use super::{
    Bounded, Count,
    tagged::{self, Table, tagged},
};

/// `[source.pagination]`: how a `rest` source gets from page to page.
///
/// With each `type` a source that leads in circles ends the run with an error that names the cursor, URL or page that
/// came back.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, remote = "Self")]
#[schemars(transform = add_types)]
pub struct PaginationConfig {
    /// Way from page to page, with the keys of its `type`.
    #[serde(skip)]
    pub way: Pagination,
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
    /// 10,000, 50,000 and so on without a total warns then.
    pub max_records: Option<Count<1>>,
    /// Most pages of a run, at least 1. Default 1,000,000: a guard against an API that never ends.
    pub max_pages: Count<1>,
}

tagged! {
    /// Way from page to page.
    pub enum Pagination: "none" {
        /// One request.
        "none" = None(NoPages),
        /// A page number in the query.
        "page" = Page(PageNumbers),
        /// A number of records to skip in the query.
        "offset" = Offset(PageOffsets),
        /// A cursor in the body.
        "cursor" = Cursor(BodyCursor),
        /// A cursor in a response header.
        "header_cursor" = HeaderCursor(HeaderCursor),
        /// The `next` link of the `Link` response header (RFC 8288).
        "link" = Link(LinkPages),
        /// The URL of the next page in the body.
        "next_url" = NextUrl(NextUrlPages),
        /// The time and key of the last record.
        "keyset" = Keyset(KeysetPages),
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

/// Keys of `type = "none"`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoPages {}

pages! {
    /// Keys of `type = "page"`.
    pub struct PageNumbers {
        /// Query parameter of the page number. Default `page`.
        #[serde(default = "page")]
        pub page_param: String,
        /// Number of the first page. Default 1.
        #[serde(default = "one")]
        pub first_page: u64,
    }

    /// Keys of `type = "offset"`.
    pub struct PageOffsets {
        /// Query parameter of the number of records to skip. It grows by what each page brought, so a server that
        /// returns fewer than it was asked for leaves no gap. Default `offset`.
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
        pub overlap: Count<0, 1_000>,
    }

    /// Keys of `type = "cursor"`.
    pub struct BodyCursor {
        /// Query parameter the cursor is sent in. Default `cursor`.
        #[serde(default = "cursor")]
        pub cursor_param: String,
        /// Path of the next cursor in the body. Null, absent or empty ends the run. Default `next_cursor`.
        #[serde(default = "next_cursor")]
        pub cursor_path: String,
    }

    /// Keys of `type = "header_cursor"`.
    pub struct HeaderCursor {
        /// Query parameter the cursor is sent in. Default `cursor`.
        #[serde(default = "cursor")]
        pub cursor_param: String,
        /// Response header with the next cursor, such as `X-Next-Cursor`. Absent or empty ends the run. Required.
        pub cursor_header: String,
    }

    /// Keys of `type = "link"`.
    pub struct LinkPages {
        /// Origins besides that of `url` that a next URL may lead to, such as `https://eu.example.com`.
        /// `headers` and `auth` are never sent there. Default `[]`: a next URL on another host ends the run with an error.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub next_origins: Vec<String>,
    }

    /// Keys of `type = "next_url"`.
    pub struct NextUrlPages {
        /// Path of the next page's URL in the body; a relative one is resolved against the page's own. Null,
        /// absent or empty ends the run. Default `next`.
        #[serde(default = "next")]
        pub next_path: String,
        /// Origins besides that of `url` that a next URL may lead to, such as `https://eu.example.com`.
        /// `headers` and `auth` are never sent there. Default `[]`: a next URL on another host ends the run with an error.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub next_origins: Vec<String>,
    }
}

/// Keys of `type = "keyset"`.
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

impl Default for PaginationConfig {
    fn default() -> Self {
        Self {
            way: Pagination::None(NoPages {}),
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

/// Adds the keys of each type, which hold numbers and strings alone.
fn add_types(table: &mut Schema) {
    let settings = SchemaSettings::default().with(|settings| settings.inline_subschemas = true);
    tagged::add_alternatives::<Pagination>(table, &mut settings.into_generator());
}

fn page() -> String {
    "page".into()
}

fn no_overlap() -> Count<0, 1_000> {
    Bounded::literal::<0>()
}

const fn one() -> u64 {
    1
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
        Self::None(NoPages {})
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
    fn check(&self) -> Result<(), String> {
        let wrong = |key: &str, reason: &str| Err(format!("in `{key}`: {reason}"));
        if let Some((key, _)) = self.way.texts().iter().find(|(_, text)| text.is_empty()) {
            return wrong(key, "must not be empty");
        }
        if let Pagination::Offset(keys) = &self.way
            && keys.overlap.get() > 0
            && self.page_size > 0
            && keys.overlap.get() >= self.page_size
        {
            return wrong("overlap", "must be less than `page_size`");
        }
        if self.page_size == 0 {
            if matches!(self.way, Pagination::Keyset(_)) {
                return wrong(
                    "page_size",
                    "is missing; `keyset` needs the most records that the API returns in a page, to recognise the last page",
                );
            }
            if self.size_param.is_some() {
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
        if self.strict_total && self.total_path.is_none() && self.total_header.is_none() {
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
        let read = |table: Table| {
            let common = tagged::keys_of(|keys| Self::deserialize(keys));
            let (way, common) = tagged::read_tagged(table, common, |table| {
                tagged::read(table, |common| Self::deserialize(common))
            })?;
            let config = Self { way, ..common };
            config.check().map(|()| config)
        };
        read(Table::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// All keys beside one another, as logs of sources have recorded them from the beginning: keys of other types have
/// their defaults.
#[derive(Serialize)]
struct Recorded<'a> {
    r#type: PaginationKind,
    page_param: &'a str,
    first_page: u64,
    page_size: u64,
    size_param: &'a Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset_param: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    overlap: Option<u64>,
    cursor_param: &'a str,
    cursor_path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor_header: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_path: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    next_origins: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    time_path: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_param: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_path: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_param: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    exclusive: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_path: &'a Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_header: &'a Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    strict_total: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_records: Option<Count<1>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    has_more_path: Option<&'a str>,
    #[serde(skip_serializing_if = "<[EndStatus]>::is_empty")]
    end_status: &'a [EndStatus],
    max_pages: Count<1>,
}

impl Serialize for PaginationConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut recorded = Recorded {
            r#type: self.way.kind(),
            page_param: "page",
            first_page: 1,
            page_size: self.page_size,
            size_param: &self.size_param,
            offset_param: None,
            first_offset: None,
            overlap: None,
            cursor_param: "cursor",
            cursor_path: "next_cursor",
            cursor_header: None,
            next_path: None,
            next_origins: self.way.next_origins(),
            time_path: None,
            time_param: None,
            key_path: None,
            key_param: None,
            exclusive: false,
            total_path: &self.total_path,
            total_header: &self.total_header,
            strict_total: self.strict_total,
            max_records: self.max_records,
            has_more_path: self.way.has_more_path(),
            end_status: self.way.end_status(),
            max_pages: self.max_pages,
        };
        let unless = |text: &'_ str, default: &str| text != default;
        match &self.way {
            Pagination::None(_) | Pagination::Link(_) => {}
            Pagination::Page(keys) => {
                (recorded.page_param, recorded.first_page) = (&keys.page_param, keys.first_page);
            }
            Pagination::Offset(keys) => {
                let param = keys.offset_param.as_str();
                recorded.offset_param = Some(param).filter(|text| unless(text, "offset"));
                recorded.first_offset = Some(keys.first_offset).filter(|first| *first > 0);
                recorded.overlap = Some(keys.overlap.get()).filter(|overlap| *overlap > 0);
            }
            Pagination::Cursor(keys) => {
                recorded.cursor_param = &keys.cursor_param;
                recorded.cursor_path = &keys.cursor_path;
            }
            Pagination::HeaderCursor(keys) => {
                recorded.cursor_param = &keys.cursor_param;
                recorded.cursor_header = Some(&keys.cursor_header);
            }
            Pagination::NextUrl(keys) => {
                let path = keys.next_path.as_str();
                recorded.next_path = Some(path).filter(|text| unless(text, "next"));
            }
            Pagination::Keyset(keys) => {
                recorded.time_path = Some(&keys.time_path);
                recorded.time_param = Some(&keys.time_param);
                recorded.key_path = Some(&keys.key_path);
                recorded.key_param = keys.key_param.as_deref();
                recorded.exclusive = keys.exclusive;
            }
        }
        recorded.serialize(serializer)
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
    use super::{super::tagged::Tagged as _, *};

    fn read(text: &str) -> Result<PaginationConfig, String> {
        toml::from_str(text).map_err(|e: toml::de::Error| e.message().to_owned())
    }

    #[test]
    fn keys_of_another_type_are_refused_with_their_own_type() {
        let check = |text: &str, expected: &str| {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        };
        check(
            "type = \"page\"\ncursor_path = \"next\"",
            "in `cursor_path`: `cursor_path` is a key of `type = \"cursor\"`; with `type = \"page\"` there are: page_param, first_page, ",
        );
        check(
            "overlap = 1",
            "in `overlap`: `overlap` is a key of `type = \"offset\"`; with `type = \"none\"`",
        );
        check(
            "type = \"none\"\nend_status = [404]",
            "in `end_status`: `end_status` is a key of",
        );
        check(
            "type = \"pages\"",
            "in `type`: unknown variant `pages`, expected one of `none`, `page`",
        );
        check(
            "type = 1",
            "in `type`: invalid type: integer `1`, expected a string",
        );
        check(
            "type = \"page\"\nsize = 1",
            "unknown field `size`, expected one of `type`, `page_param`",
        );
        check("type = \"header_cursor\"", "missing field `cursor_header`");
        check(
            "type = \"keyset\"\ntime_path = \"t\"",
            "missing field `time_param`",
        );
    }

    #[test]
    fn values_that_cannot_work_are_refused_at_their_key() {
        let check = |text: &str, expected: &str| {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        };
        check("max_pages = 0", "in `max_pages`: must be at least 1, got 0");
        check(
            "max_records = 0",
            "in `max_records`: must be at least 1, got 0",
        );
        check(
            "type = \"page\"\nend_status = [404, 200]",
            "in `end_status[1]`: must be 400 to 599, got 200",
        );
        check(
            "type = \"offset\"\noverlap = 1001",
            "in `overlap`: must be 0 to 1,000, got 1,001",
        );
        check(
            "type = \"offset\"\noverlap = 5\npage_size = 5",
            "in `overlap`: must be less than",
        );
        check(
            "size_param = \"n\"",
            "in `size_param`: is sent with `page_size`",
        );
        check(
            "strict_total = true",
            "in `strict_total`: needs `total_path`",
        );
        check(
            "type = \"page\"\npage_param = \"\"",
            "in `page_param`: must not be empty",
        );
        check(
            "type = \"link\"\nnext_origins = [\"x\"]",
            "in `next_origins`: `x` is no origin",
        );
        check(
            "type = \"link\"\nnext_origins = [\"https://h/a\"]",
            "in `next_origins`: ",
        );
        check(
            "type = \"page\"\nfirst_page = \"x\"",
            "in `first_page`: invalid type: string \"x\"",
        );
        let keyset = "type = \"keyset\"\ntime_path = \"t\"\ntime_param = \"p\"\nkey_path = \"k\"";
        check(keyset, "in `page_size`: is missing");
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
        assert_eq!(types.len(), Pagination::KINDS.len());
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
