//! Elements of XML that have two forms in the records of a source.

use std::collections::BTreeSet;

use feedline_readers::{value::Value, xml::TEXT};
use feedline_schemas::record::join_path;

use super::markup::{MOST_NAMES, shown_names};

/// Paths of elements below a record.
#[derive(Debug, Default, PartialEq)]
pub(super) struct XmlPaths {
    /// Those of lists.
    pub(super) lists: BTreeSet<String>,
    /// Those of elements with their text at `#text`.
    pub(super) texts: BTreeSet<String>,
}

impl XmlPaths {
    /// Adds the lists and the elements with `#text` in a value below `above`.
    pub(super) fn find(&mut self, value: &Value, above: &str) {
        let Value::Object(entries) = value else {
            return;
        };
        for (key, value) in entries {
            if !matches!(value, Value::List(_) | Value::Object(_)) {
                continue;
            }
            let dot = if above.is_empty() { "" } else { "." };
            let path = format!("{above}{dot}{}", join_path([key.as_str()]));
            match value {
                Value::List(_) => insert(&mut self.lists, &path),
                Value::Object(fields) if fields.iter().any(|(name, _)| name == TEXT) => {
                    insert(&mut self.texts, &path);
                }
                _ => {}
            }
            self.find(value, &path);
        }
    }

    pub(super) fn add(&mut self, others: &Self) {
        others
            .lists
            .iter()
            .for_each(|path| insert(&mut self.lists, path));
        others
            .texts
            .iter()
            .for_each(|path| insert(&mut self.texts, path));
    }

    /// Those that have another form in one of `records`.
    pub(super) fn mixed_in<'v>(&self, records: impl Iterator<Item = &'v Value> + Clone) -> Self {
        let is_single = |path: &&String| records.clone().any(|record| is_single(record, path));
        let is_text = |path: &&String| records.clone().any(|record| is_text(record, path));
        Self {
            lists: self.lists.iter().filter(is_single).cloned().collect(),
            texts: self.texts.iter().filter(is_text).cloned().collect(),
        }
    }
}

/// Adds a name or path, up to a bound.
pub(super) fn insert(names: &mut BTreeSet<String>, name: &str) {
    if names.len() < MOST_NAMES {
        names.insert(name.to_owned());
    }
}

/// Paths for messages.
pub(super) fn shown_paths(paths: &BTreeSet<String>) -> String {
    let paths: Vec<String> = paths.iter().cloned().collect();
    shown_names(&paths)
}

/// Returns true if the value at `path` of a record exists and is no list.
fn is_single(record: &Value, path: &str) -> bool {
    let found = record.at(path);
    found.is_some_and(|value| !matches!(value, Value::List(_)))
}

/// Returns true if the value at `path` of a record is a text.
fn is_text(record: &Value, path: &str) -> bool {
    matches!(record.at(path), Some(Value::Cell(_)))
}
