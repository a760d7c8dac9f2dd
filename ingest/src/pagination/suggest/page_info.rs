//! Fields that describe a page, and none of its contents.

use feedline_readers::value::Value;
use feedline_schemas::record::split_path;

use super::{
    body::{Field, bare},
    names::{DESCRIPTIONS, FLAGS, PAGE_COUNTS, PAGES},
};

/// Levels of objects, beside the path of the records, that may describe a page.
const MAX_LEVELS: usize = 2;

/// Flag of a page for further ones.
pub(super) struct PageFlag {
    pub(super) path: String,
    pub(super) says_more: bool,
    /// True if `has_more_path` can read it.
    pub(super) is_readable: bool,
}

/// Returns true if the object of the field is on the path to the `records`, or beside it with a
/// usual name.
pub(super) fn describes_page(field: &Field<'_>, records: &[String]) -> bool {
    let mut keys = split_path(&field.path);
    keys.pop();
    // `total.value` and `next.href`: the object has the name.
    let is_total = field.name == "value" && field.parent == "total";
    if is_total || is_url_of_next(field) {
        keys.pop();
    }
    let pairs = keys.iter().zip(records);
    let shared = pairs.take_while(|(key, other)| key == other).count();
    let mut others = keys.iter().skip(shared);
    keys.len() <= shared + MAX_LEVELS
        && others.all(|key| DESCRIPTIONS.contains(&bare(key).as_str()))
}

/// Returns true for the URL of an object `next`.
pub(super) fn is_url_of_next(field: &Field<'_>) -> bool {
    ["href", "url"].contains(&field.name.as_str()) && field.parent == "next"
}

/// The flag for further pages among `fields`. One that says that there are some comes first.
pub(super) fn page_flag(fields: &[Field<'_>], records: &[String]) -> Option<PageFlag> {
    let flag = |field: &Field<'_>| {
        let (says_more, is_readable) = match field.value {
            Value::Bool(says_more) => (*says_more, true),
            Value::Int(number @ 0..=1) => (*number == 1, true),
            Value::Text(text) if text.eq_ignore_ascii_case("false") => (false, false),
            Value::Text(text) if text.eq_ignore_ascii_case("true") => (true, false),
            _ => return None,
        };
        let is_flag = field.is_of(&FLAGS) && describes_page(field, records);
        is_flag.then(|| PageFlag {
            path: field.path.clone(),
            says_more,
            is_readable,
        })
    };
    let flags = fields.iter().filter_map(flag);
    flags.max_by_key(|flag| flag.says_more)
}

/// Returns true if the number of the page is the count of pages in the same object.
pub(super) fn is_last_page(fields: &[Field<'_>]) -> bool {
    let object = |field: &Field<'_>| {
        let mut keys = split_path(&field.path);
        keys.pop();
        keys
    };
    let is_number_of_last = |page: &Field<'_>| {
        let counts = fields.iter().filter(|field| field.is_of(&PAGE_COUNTS));
        let Some(number) = whole(page.value) else {
            return false;
        };
        let mut counts = counts.filter(|count| whole(count.value) == Some(number));
        counts.any(|count| object(count) == object(page))
    };
    let mut pages = fields.iter().filter(|field| field.is_of(&PAGES));
    pages.any(is_number_of_last)
}

/// The whole number that a value is.
pub(super) fn whole(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        Value::Text(text) => text.parse().ok(),
        _ => None,
    }
}

/// Returns true for text that has no cursor.
pub(super) fn is_no_cursor(text: &str) -> bool {
    ["", "null", "none"]
        .iter()
        .any(|none| text.eq_ignore_ascii_case(none))
}
