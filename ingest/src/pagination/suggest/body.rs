//! Fields of a body beside its records.

use feedline_schemas::record::join_path;

use feedline_readers::value::Value;

/// Examined levels of nested objects.
const MAX_DEPTH: usize = 4;
/// Maximum number of examined values; a body with more beside its records is no page.
const MAX_FIELDS: usize = 1_000;
/// Length of the longest reported key.
const MAX_KEY_BYTES: usize = 64;

/// A value beside the records.
pub(super) struct Field<'a> {
    pub(super) path: String,
    pub(super) key: &'a str,
    /// The key without case and punctuation.
    pub(super) name: String,
    /// Path of the object that contains it; empty for the body itself.
    pub(super) parent: String,
    pub(super) value: &'a Value,
}

impl Field<'_> {
    pub(super) fn is_of(&self, names: &[&str]) -> bool {
        names.contains(&self.name.as_str())
    }
}

/// Removes case and punctuation of a key.
pub(super) fn bare(key: &str) -> String {
    let chars = key.chars().filter(char::is_ascii_alphanumeric);
    chars.map(|c| c.to_ascii_lowercase()).collect()
}

/// Returns true if a key can be reported verbatim.
pub(super) fn is_plain(key: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-@$:.".contains(c);
    !key.is_empty() && key.len() <= MAX_KEY_BYTES && key.chars().all(is_plain)
}

/// The single values of the objects of `body`, in its order, none of its lists.
pub(super) fn fields(body: &Value) -> Vec<Field<'_>> {
    let mut found = Vec::new();
    add_fields(body, &mut Vec::new(), &mut found);
    found
}

fn add_fields<'a>(at: &'a Value, path: &mut Vec<&'a str>, found: &mut Vec<Field<'a>>) {
    let Value::Object(entries) = at else { return };
    for (key, value) in entries.iter().filter(|(key, _)| is_plain(key)) {
        if found.len() >= MAX_FIELDS {
            return;
        }
        let parent = path.last().map(|key| bare(key)).unwrap_or_default();
        path.push(key);
        match value {
            Value::Object(_) if path.len() < MAX_DEPTH => add_fields(value, path, found),
            Value::Object(_) | Value::List(_) => {}
            value => found.push(Field {
                path: join_path(path.iter().copied()),
                key,
                name: bare(key),
                parent,
                value,
            }),
        }
        path.pop();
    }
}

/// Returns the list of records and its path: the one at `records`, otherwise the one with the most
/// objects, the first of several.
pub(super) fn list<'a>(body: &'a Value, records: &str) -> Option<(String, &'a [Value])> {
    if let Some(Value::List(items)) = body.at(records) {
        return Some((records.to_owned(), items));
    }
    let mut best = None;
    find_list(body, &mut Vec::new(), &mut best);
    best.map(|(_, path, items)| (path, items))
}

type Best<'a> = Option<(usize, String, &'a [Value])>;

fn find_list<'a>(at: &'a Value, path: &mut Vec<&'a str>, best: &mut Best<'a>) {
    match at {
        Value::List(items) => {
            let is_object = |item: &&Value| matches!(item, Value::Object(_));
            let objects = items.iter().filter(is_object).count();
            // An empty list may be one of no records.
            if best.as_ref().is_none_or(|(most, ..)| objects > *most)
                && (objects > 0 || items.is_empty())
            {
                *best = Some((objects, join_path(path.iter().copied()), items));
            }
        }
        Value::Object(entries) if path.len() < MAX_DEPTH => {
            for (key, value) in entries.iter().filter(|(key, _)| is_plain(key)) {
                path.push(key);
                find_list(value, path, best);
                path.pop();
            }
        }
        _ => {}
    }
}
