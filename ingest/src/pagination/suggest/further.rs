//! Signs of further pages in the one page of a source without pagination.

use feedline_readers::value::Value;
use feedline_schemas::record::split_path;
use reqwest::header::HeaderMap;
use url::Url;

use super::{
    FirstAnswer,
    body::fields,
    line::Line,
    names::PAGE_COUNTS,
    page_info::{describes_page, is_last_page, page_flag},
};

/// Sign in a response that there are further pages.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FurtherPages {
    /// A line of TOML for the source; `None` if the response does not show how to request them.
    pub(crate) pagination: Option<String>,
    /// The sign, in words.
    pub(crate) reason: String,
}

/// Page of a source without pagination.
#[derive(Clone, Copy)]
pub(crate) struct OnePage<'a> {
    /// The body without the items of its lists.
    pub(crate) beside: &'a Value,
    /// Path of its records.
    pub(crate) records: &'a str,
    /// Number of its records.
    pub(crate) count: u64,
    /// True if the request is for new records: a total may count all of them.
    pub(crate) is_incremental: bool,
}

/// Looks for a sign of further pages in `page`, a response with `headers` to a request for `url`.
pub(crate) fn further_pages(
    headers: &HeaderMap,
    page: &OnePage<'_>,
    url: &Url,
) -> Option<FurtherPages> {
    let records = split_path(page.records);
    let mut fields = fields(page.beside);
    fields.retain(|field| describes_page(field, &records));
    let flag = page_flag(&fields, &records);
    let is_end = flag.as_ref().is_some_and(|flag| !flag.says_more);
    let is_last = is_last_page(&fields);
    if is_end {
        fields.clear();
    }
    if is_last {
        fields.retain(|field| !field.is_of(&PAGE_COUNTS));
    }
    let response = FirstAnswer {
        headers,
        url,
        count: page.count,
        list: &[],
        fields,
        flag,
        is_total_sign: !page.is_incremental && !is_end && !is_last,
        is_warning: true,
    };
    let (line, reason) = match response.by_sign() {
        Some((line, reason)) => (Some(line), reason),
        None => response.by_flag()?,
    };
    Some(FurtherPages {
        pagination: line.map(Line::into_text),
        reason,
    })
}
