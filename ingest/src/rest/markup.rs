//! Records and fields in a document of XML.

use std::borrow::Cow;

use feedline_readers::{
    value::{Value, shorten},
    xml::{ATTRIBUTE, TEXT, is_html},
};
use feedline_schemas::{
    config::ResponseFormat,
    record::{join_path, split_path},
};

/// Local names of elements that APIs report errors with, in lower case.
const ERRORS: [&str; 3] = ["error", "errors", "fault"];
/// Deepest level of such an element: `Envelope`, `Body` and `Fault` of SOAP are three.
const ERROR_LEVELS: usize = 3;
/// Most paths in a message.
const MOST_PATHS: usize = 5;
/// Most characters of names in a message.
const SHOWN: usize = 200;
/// Length of the start of a body in bytes. A message shows less of it: secrets are masked before it
/// is shortened.
const START: usize = 4_096;
/// Most names or paths of elements that are noted.
pub(super) const MOST_NAMES: usize = 64;

/// A hint about a body that is not JSON.
pub(super) fn kind_of(body: &[u8]) -> &'static str {
    let begin = body.trim_ascii_start();
    let begin = String::from_utf8_lossy(&begin[..begin.len().min(64)]).into_owned();
    if begin.starts_with("<?xml") {
        "; it looks like XML, which `response.format = \"xml\"` reads"
    } else if begin.starts_with('<') && !is_html(&begin) {
        "; it looks like HTML or XML; XML is read with `response.format = \"xml\"`"
    } else if begin.starts_with('<') {
        "; it looks like HTML, whose pages a source of `type = \"html\"` reads"
    } else {
        ""
    }
}

/// Refuses a body that is a page of HTML, or a document of XML or JSON, and no table of the format
/// called `wanted`.
pub(super) fn refuse(body: &[u8], format: ResponseFormat, wanted: &str) -> Result<(), String> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let begin = body.trim_ascii_start();
    let begin = String::from_utf8_lossy(&begin[..begin.len().min(64)]).into_owned();
    let found = if is_html(&begin) {
        "HTML"
    } else if begin.starts_with("<?xml") {
        "XML"
    } else if format == ResponseFormat::Csv && is_json(&begin) {
        "JSON"
    } else {
        return Ok(());
    };
    Err(format!("it is {found}, where {wanted} should be"))
}

/// Returns true if a body begins like a document of JSON. A header may begin with `[` too.
fn is_json(begin: &str) -> bool {
    let inner = begin.strip_prefix('[').map(str::trim_start);
    begin.starts_with('{') || inner.is_some_and(|inner| inner.starts_with(['{', '[', ']']))
}

/// The start of a body, for a message.
pub(super) fn start_of(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(START)]);
    // A character may be cut at the end.
    text.trim_end_matches('\u{fffd}').to_owned()
}

/// The field at `path`. An element with text is its text; elements with `rel` and `href` are the
/// `href` of `rel="next"`.
pub(super) fn at<'a>(document: &'a Value, path: &str) -> Option<Cow<'a, Value>> {
    let found = document.at(path).or_else(|| text_of_bare(document, path))?;
    Some(match found {
        Value::Cell(text) => Cow::Owned(Value::Text(text.trim().to_owned())),
        found if is_link(found) => Cow::Owned(next_link(found)),
        Value::Object(fields) => match fields.iter().find(|(key, _)| key == TEXT) {
            Some((_, Value::Cell(text))) => Cow::Owned(Value::Text(text.trim().to_owned())),
            None if is_attributes(found) => Cow::Owned(Value::Null),
            _ => Cow::Borrowed(found),
        },
        found => Cow::Borrowed(found),
    })
}

/// The field at the path of an error. An element with attributes alone is one, unless all of them
/// report nothing.
pub(super) fn error_at<'a>(document: &'a Value, path: &str) -> Option<Cow<'a, Value>> {
    match document.at(path) {
        Some(found) if is_attributes(found) && !is_nothing(found) => Some(Cow::Borrowed(found)),
        _ => at(document, path),
    }
}

/// Returns true if the element at `path` has attributes alone, and is no link.
pub(super) fn has_attributes_alone(document: &Value, path: &str) -> bool {
    let found = document.at(path);
    found.is_some_and(|found| is_attributes(found) && !is_link(found))
}

/// Returns true for an element with attributes alone.
fn is_attributes(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.iter().all(|(key, _)| key.starts_with(ATTRIBUTE)),
        _ => false,
    }
}

/// The text at a path that ends with `#text`, of an element that has nothing else.
fn text_of_bare<'a>(document: &'a Value, path: &str) -> Option<&'a Value> {
    let keys = split_path(path);
    let (last, above) = keys.split_last()?;
    let element = document.at(&join_path(above.iter().map(String::as_str)))?;
    (last == TEXT && matches!(element, Value::Cell(_) | Value::Null)).then_some(element)
}

/// Returns true for an element with `rel` and `href`, or a list with one.
fn is_link(value: &Value) -> bool {
    match value {
        Value::Object(_) => {
            attribute(value, "@rel").is_some() && attribute(value, "@href").is_some()
        }
        Value::List(items) => items.iter().any(is_link),
        _ => false,
    }
}

/// The `href` of the next page; null without one.
fn next_link(value: &Value) -> Value {
    let items = match value {
        Value::List(items) => items.as_slice(),
        one => std::slice::from_ref(one),
    };
    let is_next = |item: &&Value| {
        let rel = attribute(item, "@rel").unwrap_or_default();
        rel.split_ascii_whitespace()
            .any(|rel| rel.eq_ignore_ascii_case("next"))
    };
    let next = items.iter().find(is_next);
    let href = next.and_then(|item| attribute(item, "@href"));
    href.map_or(Value::Null, |href| Value::Text(href.trim().to_owned()))
}

fn attribute<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    let Value::Object(fields) = value else {
        return None;
    };
    fields.iter().find_map(|(name, value)| match value {
        Value::Cell(text) if name == key => Some(text.as_str()),
        _ => None,
    })
}

/// The boolean that a text is; any other value unchanged.
pub(super) fn as_boolean(value: Cow<'_, Value>) -> Cow<'_, Value> {
    match &*value {
        Value::Text(text) if matches!(text.as_str(), "true" | "True" | "TRUE" | "1") => {
            Cow::Owned(Value::Bool(true))
        }
        Value::Text(text) if matches!(text.as_str(), "false" | "False" | "FALSE" | "0") => {
            Cow::Owned(Value::Bool(false))
        }
        _ => value,
    }
}

/// Returns true for a value in the place of an error that reports none.
pub(super) fn is_no_error(value: &Value) -> bool {
    let Value::Text(text) = value else {
        return false;
    };
    text == "0" || text.eq_ignore_ascii_case("false")
}

/// An element that APIs report errors with, and its path.
pub(super) fn error(document: &Value) -> Option<(String, &Value)> {
    let mut path = Vec::new();
    let found = find_error(document, &mut path, ERROR_LEVELS)?;
    Some((join_path(path.iter().copied()), found))
}

fn find_error<'a>(value: &'a Value, path: &mut Vec<&'a str>, levels: usize) -> Option<&'a Value> {
    let Value::Object(fields) = value else {
        return None;
    };
    for (key, value) in fields {
        let local = key.rsplit(':').next().unwrap_or(key);
        let is_error = ERRORS.iter().any(|name| local.eq_ignore_ascii_case(name));
        path.push(key);
        if is_error && !is_nothing(value) {
            return Some(value);
        }
        if levels > 1
            && let Some(found) = find_error(value, path, levels - 1)
        {
            return Some(found);
        }
        path.pop();
    }
    None
}

/// Returns true for an element that reports no error: empty, `0` or `false`, or with attributes
/// alone that are.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => {
            is_attributes(value) && fields.iter().all(|(_, value)| is_nothing(value))
        }
        Value::Cell(text) => {
            let text = text.trim();
            text == "0" || text.eq_ignore_ascii_case("false")
        }
        _ => false,
    }
}

/// The elements of a document that are its records.
#[derive(Debug)]
pub(super) struct FoundElements {
    pub(super) records: Vec<Value>,
    /// Names beside the records, or in their place if there are none.
    pub(super) beside: Vec<String>,
}

impl FoundElements {
    /// Returns true if other elements are in the place of the records.
    pub(super) fn is_replaced(&self) -> bool {
        let is_element = |name: &String| !name.starts_with(ATTRIBUTE);
        self.records.is_empty() && self.beside.iter().any(is_element)
    }
}

/// The elements at `path`, one or many; none if only the element above exists.
///
/// # Errors
/// The unchanged document, if something else is at the path.
pub(super) fn elements(document: Value, path: &str) -> Result<FoundElements, Value> {
    let keys = split_path(path);
    let Some((last, above)) = keys.split_last() else {
        return Err(document);
    };
    let above = join_path(above.iter().map(String::as_str));
    let beside = names_beside(document.at(&above), last);
    match document.at(path) {
        Some(
            Value::List(_) | Value::Object(_) | Value::Cell(_) | Value::Null | Value::Fault(_),
        ) => Ok(FoundElements {
            records: records(taken(document, &keys)),
            beside,
        }),
        None if !above.is_empty() && is_element(document.at(&above)) => Ok(FoundElements {
            records: Vec::new(),
            beside,
        }),
        _ => Err(document),
    }
}

/// Returns true for an element that has no text alone.
fn is_element(found: Option<&Value>) -> bool {
    matches!(found, Some(Value::Object(_) | Value::Null))
}

/// The first names in an element, but for that of the records.
fn names_beside(element: Option<&Value>, record: &str) -> Vec<String> {
    let Some(Value::Object(fields)) = element else {
        return Vec::new();
    };
    let names = fields.iter().map(|(name, _)| name);
    let others = names.filter(|name| name.as_str() != record);
    others.take(MOST_NAMES).cloned().collect()
}

/// The value at `keys`, which exists, without a copy.
fn taken(document: Value, keys: &[String]) -> Value {
    let found = keys.iter().try_fold(document, |at, key| match at {
        Value::Object(fields) => fields
            .into_iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value),
        _ => None,
    });
    found.unwrap_or(Value::Null)
}

/// The records that elements are.
fn records(found: Value) -> Vec<Value> {
    let items = match found {
        Value::List(items) => items,
        one => vec![one],
    };
    let record = |item| match item {
        Value::Cell(_) => Value::Object(vec![(TEXT.to_owned(), item)]),
        Value::Null => Value::Object(Vec::new()),
        other => other,
    };
    items.into_iter().map(record).collect()
}

/// Names in an element, for messages.
pub(super) fn names(element: &Value) -> String {
    let Value::Object(fields) = element else {
        return "nothing".into();
    };
    let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
    shorten(&names.join("`, `"), SHOWN).into_owned()
}

/// The same of a list of names.
pub(super) fn shown_names(names: &[String]) -> String {
    match names {
        [] => "nothing".into(),
        names => format!("`{}`", shorten(&names.join("`, `"), SHOWN)),
    }
}

/// Paths of the first repeated elements, for messages.
pub(super) fn repeated(document: &Value) -> Vec<String> {
    let (mut path, mut found) = (Vec::new(), Vec::new());
    find_repeated(document, &mut path, &mut found);
    found
}

fn find_repeated<'a>(value: &'a Value, path: &mut Vec<&'a str>, found: &mut Vec<String>) {
    match value {
        Value::List(_) if found.len() < MOST_PATHS => found.push(join_path(path.iter().copied())),
        Value::Object(fields) => {
            for (key, value) in fields {
                path.push(key);
                find_repeated(value, path, found);
                path.pop();
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use feedline_readers::{
        notices::Notices,
        xml::{XmlRules, parse},
    };
    use feedline_schemas::config::JsonConfig;

    use super::*;

    fn document(text: &str) -> Value {
        let rules = XmlRules {
            bounds: &JsonConfig::default(),
            notices: &Notices::default(),
        };
        parse(text.as_bytes(), "", rules).unwrap()
    }

    #[test]
    fn fields_are_texts_attributes_and_the_next_link() {
        let check = |text: &str, path: &str, expected: Option<Value>| {
            let document = document(text);
            let found = at(&document, path).map(Cow::into_owned);
            assert_eq!(found, expected, "{text} {path}");
        };
        let text = |text: &str| Some(Value::Text(text.into()));
        let page = "<r n='3'><next> b </next><token size='9'>c</token><end size='9'/><void/></r>";
        check(page, "r.@n", text("3"));
        check(page, "r.next", text("b"));
        check(page, "r.next.#text", text("b"));
        check(page, "r.token", text("c"));
        check(page, "r.token.#text", text("c"));
        check(page, "r.end", Some(Value::Null));
        check(page, "r.void", Some(Value::Null));
        check(page, "r.other", None);
        let feed = "<feed><link rel='self' href='/1'/><link rel='next' href='/2'/></feed>";
        check(feed, "feed.link", text("/2"));
        check(
            "<feed><link rel='self' href='/1'/></feed>",
            "feed.link",
            Some(Value::Null),
        );
        check(
            "<feed><link rel='NEXT' href='/2'/></feed>",
            "feed.link",
            text("/2"),
        );
    }

    #[test]
    fn an_element_with_attributes_alone_is_an_error_and_no_next_page() {
        let check = |text: &str, is_error: bool, is_bare: bool| {
            let document = document(text);
            let is_found = error_at(&document, "r.x").is_some_and(|found| *found != Value::Null);
            assert_eq!(is_found, is_error, "{text}");
            assert_eq!(has_attributes_alone(&document, "r.x"), is_bare, "{text}");
        };
        check("<r><x code='17' message='quota'/></r>", true, true);
        check("<r><x code='0' message=''/></r>", false, true);
        check("<r><x code='17'>quota</x></r>", true, false);
        check("<r><x><y/></x></r>", true, false);
        check("<r><x/></r>", false, false);
        check("<r><x rel='self' href='/1'/></r>", true, false);
        check("<r/>", false, false);
    }

    #[test]
    fn one_element_many_and_none_are_lists_of_records() {
        let check = |text: &str, path: &str, expected: &[&str], beside: &[&str]| {
            let found = elements(document(text), path).unwrap();
            let records: Vec<String> = found.records.iter().map(Value::canonical).collect();
            assert_eq!(records, expected, "{text}");
            assert_eq!(found.beside, beside, "{text}");
        };
        check("<f><e><a>1</a></e></f>", "f.e", &[r#"{"a":"1"}"#], &[]);
        let page = "<f n='1'><e>1</e><t/><e/></f>";
        let records = [r##"{"#text":"1"}"##, "{}"];
        check(page, "f.e", &records, &["@n", "t"]);
        check("<f><t>1</t></f>", "f.e", &[], &["t"]);
        check("<f/>", "f.e", &[], &[]);
        check("<f><e i='1'/></f>", "f", &[r#"{"e":{"@i":"1"}}"#], &[]);
        for (text, path) in [
            ("<g><e/></g>", "f.e"),
            ("<f>1</f>", "f.e"),
            ("<f/>", "f.e.x"),
        ] {
            assert!(elements(document(text), path).is_err(), "{text}");
        }
    }

    #[test]
    fn other_elements_replace_records_and_attributes_do_not() {
        let check = |text: &str, expected: bool| {
            let found = elements(document(text), "f.e").unwrap();
            assert_eq!(found.is_replaced(), expected, "{text}");
        };
        check("<f><message>busy</message></f>", true);
        check("<f n='0'>busy</f>", true);
        check("<f n='0'/>", false);
        check("<f><e/><t/></f>", false);
    }

    #[test]
    fn errors_are_found_by_their_names_in_any_case_and_with_any_prefix() {
        let check = |text: &str, expected: Option<&str>| {
            let document = document(text);
            let found = error(&document).map(|(path, _)| path);
            assert_eq!(found.as_deref(), expected, "{text}");
        };
        check("<Error><Code>5</Code></Error>", Some("Error"));
        check("<r><errors><e>1</e></errors></r>", Some("r.errors"));
        let soap = "<s:Envelope><s:Body><s:Fault><c>1</c></s:Fault></s:Body></s:Envelope>";
        check(soap, Some("s:Envelope.s:Body.s:Fault"));
        check("<r><error>0</error></r>", None);
        check("<r><error>false</error><fault/></r>", None);
        check("<r><errors count='0'/></r>", None);
        check("<r><error code='17'/></r>", Some("r.error"));
        check("<r><a><b><error>1</error></b></a></r>", None);
    }
}
