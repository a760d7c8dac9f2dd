//! `[source.pagination]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[source.pagination]`: how a `rest` source gets from page to page.
///
/// Whatever the kind, a source that leads in circles ends the run with an error that names the cursor, URL or page that
/// came back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PaginationConfig {
    /// `none` (default), `page`, `offset`, `cursor`, `header_cursor`, `link`, `next_url` or `keyset`.
    pub r#type: PaginationKind,
    /// `page`: query parameter of the page number. Default `page`.
    pub page_param: String,
    /// `page`: number of the first page. Default 1.
    pub first_page: u64,
    /// Records that a page has at most, as it is asked for (`size_param`) or as the documentation of the API says. `page`,
    /// `offset`: a page with fewer is the last one only if the total has come, `has_more_path` says so, or the page behind it
    /// is empty, repeats it or does not exist (status 400, 404, 410, 416 or 422); this costs one more request at the end, and a
    /// server that gives fewer records a page than it is asked for is read to its end, with the warning `small_pages`.
    /// Default 0: not known; the run ends at the first empty page.
    pub page_size: u64,
    /// Query parameter that asks for `page_size` records; not sent by default. With `link` and `next_url` it is part of
    /// the first request only: later ones are made by the server.
    pub size_param: Option<String>,
    /// `offset`: query parameter of the number of records to skip. It grows by what each page brought, so a server that
    /// gives fewer than it was asked for leaves no gap. Default `offset`.
    #[serde(skip_serializing_if = "is_offset")]
    pub offset_param: String,
    /// `offset`: offset of the first record, for APIs that count from 1. Default 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub first_offset: u64,
    /// `offset`: records of the page before that each page asks for again, 0 to 1,000, less than `page_size`. Those that
    /// come again are left out; where none does, records were removed meanwhile and others moved up past the offset, so
    /// that reading goes back until one does. Change it for lists from which records are removed while they are read; it
    /// costs as many records a page. Default 0: none, and such a gap is not seen.
    #[serde(skip_serializing_if = "is_zero")]
    pub overlap: u64,
    /// `cursor`, `header_cursor`: query parameter the cursor is sent in. Default `cursor`.
    pub cursor_param: String,
    /// `cursor`: path of the next cursor in the body. Null, absent or empty ends the run. Default `next_cursor`.
    pub cursor_path: String,
    /// `header_cursor`: response header with the next cursor, such as `X-Next-Cursor`. Absent or empty ends the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor_header: Option<String>,
    /// `next_url`: path of the next page's URL in the body; a relative one is resolved against the page's own. Null,
    /// absent or empty ends the run. Default `next`.
    #[serde(skip_serializing_if = "is_next")]
    pub next_path: String,
    /// `link`, `next_url`: origins besides that of `url` which a next URL may lead to, such as `https://eu.example.com`.
    /// `headers` and `auth` are never sent there. Default `[]`: a next URL on another host ends the run with an error.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub next_origins: Vec<String>,
    /// `keyset`: path in a record of the value that pages are ordered by, ascending: an integer, an RFC 3339 time or a
    /// date. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_path: Option<String>,
    /// `keyset`: query parameter that the last record's time is sent in. The API must give records with this time or a
    /// later one. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_param: Option<String>,
    /// `keyset`: path in a record of its key, text or an integer; records with the last page's time whose key has come
    /// already are left out. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_path: Option<String>,
    /// `keyset`: query parameter that the last record's key is sent in. Without it, more records of one time than fit in
    /// a page cannot be read, which ends the run with an error. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_param: Option<String>,
    /// `keyset` without `key_param`: states that the API gives only later times and that no two records share one. By
    /// default each page must begin with a record that has been seen, which proves that none was left out. Default false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub exclusive: bool,
    /// Path in the body of the number of all records; compared with what has come when the run of pages ends. Where that is a
    /// multiple of 1,000 and the total is higher, the API has stopped at a cap, and the run is incomplete (a slice is cut into
    /// halves); any other difference is a warning, unless `strict_total` is set. Remove it where the total is an estimate and
    /// the list ends at such a number. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_path: Option<String>,
    /// The same from a response header, such as `X-Total-Count`. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_header: Option<String>,
    /// Whether another total than what has come ends the run with an error instead of a warning. Default false: records
    /// may come and go while pages are read.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub strict_total: bool,
    /// Number of records at which the API is known to stop, such as 10,000, at least 1. A run of pages that reaches it
    /// without having the total is an error: what comes after it cannot be had this way. With `slices` it is none: the
    /// slice is cut into halves, at once where the total says so. Default: none; a run of pages that ends at 1,000, 5,000,
    /// 10,000, 50,000 and so on without a total warns then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_records: Option<u64>,
    /// `page`, `offset`, `cursor`, `header_cursor`, `link`, `next_url`: path in the body of a boolean (or 0 and 1) that says
    /// whether there are further pages, such as `has_more`. False ends the run, whatever else the page names; true with an
    /// empty page, or without the next cursor, is an incomplete run; absent or null says nothing. May be changed at any time.
    /// Default: none is looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub has_more_path: Option<String>,
    /// HTTP statuses, 400 to 599, that mean there is no page behind the last one, such as `[404]`. They end
    /// a run of pages at any page but its first. May be changed at any time. Default `[]`: with `page` and `offset`, 400, 404,
    /// 410, 416 and 422 end it behind a page shorter than `page_size`, and every other refusal is an error.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub end_status: Vec<u16>,
    /// Most pages of a run, at least 1. Default 1,000,000: a guard against an API that never ends.
    pub max_pages: u64,
}

impl Default for PaginationConfig {
    fn default() -> Self {
        Self {
            r#type: PaginationKind::None,
            page_param: "page".into(),
            first_page: 1,
            page_size: 0,
            size_param: None,
            offset_param: "offset".into(),
            first_offset: 0,
            overlap: 0,
            cursor_param: "cursor".into(),
            cursor_path: "next_cursor".into(),
            cursor_header: None,
            next_path: "next".into(),
            next_origins: Vec::new(),
            time_path: None,
            time_param: None,
            key_path: None,
            key_param: None,
            exclusive: false,
            total_path: None,
            total_header: None,
            strict_total: false,
            max_records: None,
            has_more_path: None,
            end_status: Vec::new(),
            max_pages: 1_000_000,
        }
    }
}

fn is_offset(text: &str) -> bool {
    text == "offset"
}

fn is_next(text: &str) -> bool {
    text == "next"
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// Kind of pagination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
