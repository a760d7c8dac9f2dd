//! Suggests the pagination of an API from a first response. A person decides: nothing is paged by a
//! guess.
//!
//! It looks for these, the surest first: a `Link` header, a cursor in a header, a URL or a cursor
//! in the body, a total above the number of records, a flag such as `has_more`, records in ascending
//! order. It reports only names, never a value of the response: cursors and URLs may be secret.

mod body;
mod first_number;
mod further;
mod line;
mod names;
mod order;
mod page_info;

use reqwest::header::{HeaderMap, LINK};
use url::Url;

use self::{
    body::{Field, fields, list},
    line::{Line, quoted},
    names::{
        COUNTS, CURSORS, NEXT_URLS, OFFSETS, PAGE_COUNTS, PAGES, SIZES, SURE_CURSORS,
        TOTAL_HEADERS, TOTALS, UNSURE_CURSORS,
    },
    page_info::{PageFlag, is_no_cursor, is_url_of_next, page_flag, whole},
};
pub(crate) use self::{
    first_number::{have_different_records, have_equal_records},
    further::{FurtherPages, OnePage, further_pages},
};
use super::link;
use feedline_readers::value::Value;
use feedline_schemas::{count::counted, record::split_path};

/// Pagination suggested by a first response.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Found {
    /// A line of TOML for the source; `None` without a sign of further pages.
    pub(crate) pagination: Option<String>,
    /// A line of TOML with the path of the list of records, if it is not the configured one.
    pub(crate) records: Option<String>,
    /// Reason for the suggestion, in words.
    pub(crate) reason: String,
    /// Query parameter of the page number, if the response does not show the number of its page, or
    /// if it may be a page without showing it.
    pub(crate) unnumbered: Option<String>,
    /// Parameter and value that ask for the records behind the last one, if the suggestion is by the order
    /// of the records alone: pages are tried first. It is only sent, and never reported.
    pub(crate) after_last: Option<(String, String)>,
}

/// Suggests the pagination by the response with `headers` and `body` to a request for `url`. Its
/// records should be at `records`.
pub(crate) fn suggest(headers: &HeaderMap, body: &Value, url: &Url, records: &str) -> Found {
    let Some((path, list)) = list(body, records) else {
        return Found {
            pagination: None,
            records: None,
            reason: "the answer has no list of records: it may be an error document, or one record alone"
                .into(),
            unnumbered: None,
            after_last: None,
        };
    };
    let mut fields = fields(body);
    let flag = page_flag(&fields, &split_path(&path));
    let end = flag.as_ref().filter(|flag| !flag.says_more);
    let is_end = end.is_some();
    if is_end {
        fields.retain(|field| !field.is_of(&PAGE_COUNTS));
    }
    // A cursor without a flag that can be read would lead past the last page.
    if end.is_some_and(|flag| !flag.is_readable) {
        fields.retain(|field| !field.is_of(&CURSORS));
    }
    let answer = FirstAnswer {
        headers,
        url,
        count: list.len() as u64,
        list,
        fields,
        flag,
        is_total_sign: !is_end,
        is_warning: false,
    };
    let (line, reason) = answer.speaks_for();
    let after_last = line.as_ref().and_then(|line| line.after_last.clone());
    let unnumbered = match &line {
        Some(line) => line.unnumbered.clone(),
        None => answer.is_doubtful().then(|| "page".to_owned()),
    };
    Found {
        pagination: line.map(Line::into_text),
        records: (path != records).then(|| format!("records = {}", quoted(&path))),
        reason,
        unnumbered,
        after_last,
    }
}

/// Total number of records, and its path.
struct Total<'a> {
    key: &'static str,
    place: &'a str,
    number: u64,
    /// True if its name says that it is of all pages.
    is_sure: bool,
}

struct FirstAnswer<'a> {
    headers: &'a HeaderMap,
    url: &'a Url,
    /// Number of records.
    count: u64,
    /// The records, for their order.
    list: &'a [Value],
    fields: Vec<Field<'a>>,
    /// The flag of the page for further ones.
    flag: Option<PageFlag>,
    /// True if a total above the number of records is a sign of further pages.
    is_total_sign: bool,
    /// True if the signs are for a warning, so that only sure names count.
    is_warning: bool,
}

impl FirstAnswer<'_> {
    /// Suggests the pagination by a sign that there are further pages, but for a flag.
    fn by_sign(&self) -> Option<(Line, String)> {
        let total = self.total();
        let more = total.as_ref();
        let more = more.filter(|total| self.is_total_sign && total.number > self.count);
        if let Some((line, reason)) = self
            .by_link()
            .or_else(|| self.by_header())
            .or_else(|| self.by_url())
            .or_else(|| self.by_cursor())
        {
            return Some((line.with_total(more), reason));
        }
        if let Some(total) = more {
            let (line, reason) = self.numbered();
            let reason = format!(
                "`{}` says that there are more records than the {} that came; {reason}",
                total.place, self.count
            );
            return Some((line.with_total(more), reason));
        }
        let field = self.page_count()?;
        let (line, reason) = self.numbered();
        let reason = format!("`{}` says that there are more pages; {reason}", field.path);
        Some((line, reason))
    }

    /// Suggests numbered pages by a flag that there are more, if something shows their number.
    fn by_flag(&self) -> Option<(Option<Line>, String)> {
        let flag = self.true_flag()?;
        let (line, reason) = self.numbered();
        let begin = format!("`{}` says that there are more pages", flag.path);
        let is_guess = line.unnumbered.is_some() && self.asked(&PAGES).is_none();
        Some(match is_guess {
            true => {
                let doubt = "and nothing in it shows how they are requested: look into the API's documentation";
                (None, format!("{begin}, {doubt}"))
            }
            false => (Some(line), format!("{begin}; {reason}")),
        })
    }

    /// The flag that says that there is no further page.
    fn end_flag(&self) -> Option<&PageFlag> {
        self.flag.as_ref().filter(|flag| !flag.says_more)
    }

    /// The flag that says that there are further pages.
    fn true_flag(&self) -> Option<&PageFlag> {
        self.flag.as_ref().filter(|flag| flag.says_more)
    }

    fn speaks_for(&self) -> (Option<Line>, String) {
        if let Some((line, reason)) = self.by_sign() {
            return (Some(line), reason);
        }
        if let Some(found) = self.by_flag() {
            return found;
        }
        let (count, total) = (self.count, self.total());
        if let Some(total) = self.total_of_all() {
            let came = match count {
                1 => "record that came is".to_owned(),
                many => format!("{many} records that came are"),
            };
            let reason = format!("`{}` says that the {came} all", total.place);
            return (None, reason);
        }
        if let Some(name) = self.sure_cursor() {
            return self.ended(name);
        }
        if let Some(flag) = self.end_flag() {
            let reason = format!("`{}` says that there are no more pages", flag.path);
            return (None, reason);
        }
        if self.headers.contains_key(LINK) {
            return (None, "its `Link` header names no next page".into());
        }
        let came = counted(count, "record");
        if !self.looks_cut() {
            return (
                None,
                format!("nothing in it names a next page; {came} came"),
            );
        }
        if self
            .asked(&PAGES)
            .or_else(|| self.asked(&OFFSETS))
            .is_some()
        {
            let (line, reason) = self.numbered();
            let reason = format!("{came} came, which is as many as a page may hold; {reason}");
            return (Some(line), reason);
        }
        if let Some(total) = &total {
            let reason = format!(
                "`{}` may count the records of this page alone; {came} came, which is as many as a page may hold: look into \
                 the API's documentation",
                total.place
            );
            return (None, reason);
        }
        if let Some((line, reason)) = order::keyset(self.list) {
            return (Some(line), reason);
        }
        let doubt = "which is as many as a page may hold: look into the API's documentation";
        let reason = format!("nothing in it names a next page; {came} came, {doubt}");
        (None, reason)
    }

    /// The total, if it shows that all records came. A count of as many records as a page may hold
    /// does not.
    fn total_of_all(&self) -> Option<Total<'_>> {
        let total = self.total()?;
        let is_sure = total.is_sure || !self.looks_cut();
        (is_sure && total.number == self.count).then_some(total)
    }

    /// Returns true if the response may be a page, and does not show it.
    fn is_doubtful(&self) -> bool {
        let has_ended = self.sure_cursor().is_some()
            || self.end_flag().is_some()
            || self.headers.contains_key(LINK);
        if self.true_flag().is_some() {
            return true;
        }
        self.looks_cut() && !has_ended && self.total_of_all().is_none()
    }

    fn by_link(&self) -> Option<(Line, String)> {
        let values = self.headers.get_all(LINK).into_iter();
        let links = link::read(values.map(reqwest::header::HeaderValue::as_bytes)).ok()?;
        links.next?;
        Some((
            Line::new("link"),
            "its `Link` header names the next page".into(),
        ))
    }

    fn by_header(&self) -> Option<(Line, String)> {
        let (name, value) = self.headers.iter().find(|(name, value)| {
            let name = name.as_str();
            let is_next = name.contains("next")
                && ["page", "token", "cursor", "key"]
                    .iter()
                    .any(|what| name.contains(what));
            (is_next || name.ends_with("cursor")) && !value.is_empty()
        })?;
        let name = name.as_str();
        let number = value.to_str().ok();
        let number = number.and_then(|text| text.trim().parse::<u64>().ok());
        if let Some(next) = number
            && name.ends_with("page")
        {
            let reason = format!("its header `{name}` has the number of the next page");
            let line = Line::new("page").with("page_param", "page");
            return Some((self.sized(line.before_page(next)), reason));
        }
        let param = if name.ends_with("token") {
            "page_token"
        } else {
            "cursor"
        };
        let line = Line::new("header_cursor")
            .with("cursor_param", param)
            .with("cursor_header", name);
        let reason = format!(
            "its header `{name}` has a cursor; {}",
            guessed("cursor_param", param)
        );
        Some((line, reason))
    }

    fn by_url(&self) -> Option<(Line, String)> {
        let field = self.fields.iter().find(|field| {
            let Value::Text(text) = field.value else {
                return false;
            };
            let is_url = ["http://", "https://", "/", "?"]
                .iter()
                .any(|begin| text.starts_with(begin));
            is_url && (field.is_of(&NEXT_URLS) || is_url_of_next(field))
        })?;
        let reason = format!("`{}` is the URL of the next page", field.path);
        let line = Line::new("next_url").with("next_path", &field.path);
        Some((with_flag(line, self.end_flag()), reason))
    }

    fn by_cursor(&self) -> Option<(Line, String)> {
        let is_cursor = |field: &&Field<'_>| match field.value {
            Value::Text(text) => !is_no_cursor(text) && self.may_be_cursor(field),
            // A number that is no next one may be the page's own.
            Value::Int(number) => {
                *number > 0 && field.is_of(&CURSORS) && field.name.starts_with("next")
            }
            _ => false,
        };
        // The list of names is in the order of trust.
        let rank = |field: &&Field<'_>| CURSORS.iter().position(|name| *name == field.name);
        let field = self.fields.iter().filter(is_cursor).min_by_key(rank)?;
        if let (Value::Int(next), "nextpage") = (field.value, field.name.as_str()) {
            let reason = format!("`{}` is the number of the next page", field.path);
            let line = Line::new("page").with("page_param", "page");
            let line = line.before_page(u64::try_from(*next).unwrap_or_default());
            return Some((self.sized(line), reason));
        }
        let (line, param) = cursor(field);
        let reason = format!(
            "`{}` has a cursor; {}",
            field.path,
            guessed("cursor_param", &param)
        );
        Some((with_flag(line, self.flag.as_ref()), reason))
    }

    /// Returns true if the name of a field with text is that of a cursor.
    fn may_be_cursor(&self, field: &Field<'_>) -> bool {
        let is_sure = || !field.is_of(&UNSURE_CURSORS) || self.true_flag().is_some();
        field.is_of(&CURSORS) && (!self.is_warning || is_sure())
    }

    /// Returns a cursor that exists and is empty.
    fn sure_cursor(&self) -> Option<&Field<'_>> {
        self.fields.iter().find(|field| field.is_of(&SURE_CURSORS))
    }

    fn ended(&self, field: &Field<'_>) -> (Option<Line>, String) {
        let (line, param) = cursor(field);
        let reason = format!(
            "`{}` is where a cursor would be, and it is empty: this answer is the last page; {}",
            field.path,
            guessed("cursor_param", &param)
        );
        (Some(line), reason)
    }

    fn total(&self) -> Option<Total<'_>> {
        let header = TOTAL_HEADERS.iter().find_map(|name| {
            let number = self
                .headers
                .get(*name)?
                .to_str()
                .ok()?
                .trim()
                .parse()
                .ok()?;
            Some(Total {
                key: "total_header",
                place: name,
                number,
                is_sure: true,
            })
        });
        let in_body = || {
            let named = |field: &&Field<'_>| {
                field.is_of(&TOTALS) || (field.name == "value" && field.parent == "total")
            };
            let number = |field: &Field<'_>| whole(field.value);
            let rank = |field: &&Field<'_>| TOTALS.iter().position(|name| *name == field.name);
            let field = self
                .fields
                .iter()
                .filter(named)
                .filter(|field| number(field).is_some());
            let field = field.min_by_key(rank)?;
            Some(Total {
                key: "total_path",
                place: &field.path,
                number: number(field)?,
                is_sure: !field.is_of(&COUNTS),
            })
        };
        header.or_else(in_body)
    }

    /// A count of pages above one.
    fn page_count(&self) -> Option<&Field<'_>> {
        let is_more = |field: &&Field<'_>| whole(field.value).is_some_and(|number| number > 1);
        let mut fields = self.fields.iter().filter(|field| field.is_of(&PAGE_COUNTS));
        fields.find(is_more)
    }

    /// Suggests pages by number or by offset, by the parameter names.
    fn numbered(&self) -> (Line, String) {
        let first = |names: &[&str]| {
            self.fields.iter().find_map(|field| match field.value {
                Value::Int(number @ 0..=1) if field.is_of(names) => {
                    Some((field, u64::from(*number == 1)))
                }
                _ => None,
            })
        };
        if let Some((field, number)) = first(&OFFSETS) {
            let param = self.asked(&OFFSETS).unwrap_or_else(|| field.key.to_owned());
            let line = Line::new("offset").with("offset_param", &param);
            let line = if number == 1 {
                line.with_number("first_offset", 1)
            } else {
                line
            };
            let reason = format!(
                "`{}` is an offset; {}",
                field.path,
                guessed("offset_param", &param)
            );
            return (self.sized(line), reason);
        }
        if let Some(param) = self.asked(&OFFSETS) {
            let line = Line::new("offset").with("offset_param", &param);
            return (
                self.sized(line),
                format!("`{param}` in its URL is an offset"),
            );
        }
        let page = first(&PAGES);
        let param = self.asked(&PAGES);
        let why = match (&page, &param) {
            (Some((field, _)), _) => format!("`{}` is the number of this page", field.path),
            (None, Some(param)) => format!("`{param}` in its URL is the number of a page"),
            (None, None) => "that it counts pages is a guess".to_owned(),
        };
        let shown = param.as_deref().unwrap_or("page");
        let line = Line::new("page").with("page_param", shown);
        let line = match page {
            Some((_, 0)) => line.with_number("first_page", 0),
            Some(_) => line,
            None => Line {
                unnumbered: Some(shown.to_owned()),
                ..line
            },
        };
        let guess = if param.is_none() {
            guessed("page_param", shown)
        } else {
            String::new()
        };
        let why = if guess.is_empty() {
            why
        } else {
            format!("{why}; {guess}")
        };
        (self.sized(line), why)
    }

    /// The first parameter of the URL that has one of these names.
    fn asked(&self, names: &[&str]) -> Option<String> {
        let pairs = self.url.query_pairs();
        let mut keys = pairs.map(|(key, _)| key.into_owned());
        keys.find(|key| body::is_plain(key) && names.contains(&body::bare(key).as_str()))
    }

    /// Adds the page size if the response or its URL states it.
    fn sized(&self, line: Line) -> Line {
        let count = self.count;
        let is_said = |field: &Field<'_>| {
            field.is_of(&SIZES)
                && matches!(field.value, Value::Int(n) if u64::try_from(*n) == Ok(count))
        };
        if count > 0 && (self.fields.iter().any(is_said) || self.is_asked_for()) {
            return line.with_number("page_size", count);
        }
        line
    }

    /// Returns true if the URL asks for as many records as came.
    fn is_asked_for(&self) -> bool {
        let count = self.count.to_string();
        self.url.query_pairs().any(|(_, value)| value == count)
    }

    /// Returns true if the number of records looks like a page limit.
    fn looks_cut(&self) -> bool {
        let count = self.count;
        count >= 10 && (count.is_multiple_of(10) || self.is_asked_for())
    }
}

/// A line for a cursor, and its query parameter.
fn cursor(field: &Field<'_>) -> (Line, String) {
    let param = cursor_param(field.key);
    let line = Line::new("cursor")
        .with("cursor_param", &param)
        .with("cursor_path", &field.path);
    (line, param)
}

/// Adds the path of the flag for further pages, which ends them where a cursor does not.
fn with_flag(line: Line, flag: Option<&PageFlag>) -> Line {
    match flag.filter(|flag| flag.is_readable) {
        Some(flag) => line.with("has_more_path", &flag.path),
        None => line,
    }
}

/// The query parameter that the cursor called `key` is most often sent in.
fn cursor_param(key: &str) -> String {
    let bare = body::bare(key);
    match bare.as_str() {
        "endcursor" => return "after".into(),
        "next" => return "cursor".into(),
        // This one is sent as it is called.
        "nexttoken" => return key.to_owned(),
        _ => {}
    }
    let rest = ["next_", "next-", "next", "Next"]
        .iter()
        .find_map(|begin| key.strip_prefix(begin));
    let rest = rest.filter(|rest| !rest.is_empty()).unwrap_or(key);
    let mut chars = rest.chars();
    let first = chars.next().map(|c| c.to_ascii_lowercase());
    first.into_iter().chain(chars).collect()
}

/// Message about a parameter that no response reveals.
fn guessed(key: &str, name: &str) -> String {
    format!("that `{key}` is `{name}` is a guess, the API's documentation says it")
}

#[cfg(test)]
mod recorded_response_tests;
#[cfg(test)]
mod tests;
