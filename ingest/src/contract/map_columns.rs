//! Objects whose keys are data: too many keys for columns.

use std::collections::{BTreeSet, HashMap, HashSet};

use feedline_readers::value::Value;
use feedline_schemas::record::split_path;

use crate::flatten::Leaf;

/// Number of columns that the keys of each nested object have made.
#[derive(Clone, Debug)]
pub(super) struct MapColumns {
    most: usize,
    /// Distinct keys directly below an object, by its path.
    keys: HashMap<String, usize>,
}

impl MapColumns {
    /// Counts the keys of the existing columns.
    pub(super) fn new<'a>(most: usize, columns: impl Iterator<Item = &'a str>) -> Self {
        let mut width = Self {
            most,
            keys: HashMap::new(),
        };
        let mut known = HashSet::new();
        for name in columns {
            width.walk(name, |path| known.insert(path.to_owned()));
        }
        width
    }

    /// Counts a new column.
    pub(super) fn push(&mut self, name: &str, is_column: impl Fn(&str) -> bool) {
        let mut child = name;
        // A column may be called as an object is that has columns already.
        if self.keys.contains_key(name) {
            return;
        }
        while let Some(object) = parent(child) {
            let is_known = self.keys.contains_key(object);
            *self.keys.entry(object.to_owned()).or_default() += 1;
            if is_known || is_column(object) {
                break;
            }
            child = object;
        }
    }

    fn walk(&mut self, name: &str, mut is_new: impl FnMut(&str) -> bool) {
        let mut child = name;
        while is_new(child)
            && let Some(object) = parent(child)
        {
            *self.keys.entry(object.to_owned()).or_default() += 1;
            child = object;
        }
    }

    /// Returns the outermost object that would get too many keys from the columns `new`. None of
    /// `new` exists yet.
    pub(super) fn too_wide<'a>(&self, new: impl Iterator<Item = &'a str>) -> Option<&'a str> {
        let mut added: HashMap<&str, usize> = HashMap::new();
        let mut seen = HashSet::new();
        for name in new {
            let mut child = name;
            while seen.insert(child)
                && !self.keys.contains_key(child)
                && let Some(object) = parent(child)
            {
                *added.entry(object).or_default() += 1;
                child = object;
            }
        }
        let count = |object: &str| self.keys.get(object).copied().unwrap_or_default();
        let wide = added
            .into_iter()
            .filter(|(object, more)| count(object) + more > self.most);
        wide.map(|(object, _)| object)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .min_by_key(|object| split_path(object).len())
    }
}

/// Path of the object that holds the value at `path`; `None` for a key of the record itself.
pub(super) fn parent(path: &str) -> Option<&str> {
    let bytes = path.as_bytes();
    let mut end = bytes.len();
    while let Some(dot) = bytes[..end].iter().rposition(|b| *b == b'.') {
        let escapes = bytes[..dot].iter().rev().take_while(|b| **b == b'\\');
        if escapes.count() % 2 == 0 {
            return Some(&path[..dot]);
        }
        end = dot;
    }
    None
}

/// Returns true if the column `name` holds a value inside the object at `path`.
pub(super) fn is_below(name: &str, path: &str) -> bool {
    name.strip_prefix(path)
        .is_some_and(|rest| rest.starts_with('.'))
}

/// Collapses the object at `path` into one leaf, at the position of its first leaf.
pub(super) fn collapse(leaves: Vec<Leaf>, path: &str) -> Vec<Leaf> {
    let depth = split_path(path).len();
    let mut kept = Vec::new();
    let mut at = None;
    let mut entries = Vec::new();
    for leaf in leaves {
        if is_below(&leaf.name, path) {
            at.get_or_insert(kept.len());
            put(&mut entries, &split_path(&leaf.name)[depth..], leaf.value);
        } else {
            kept.push(leaf);
        }
    }
    if let Some(at) = at {
        let leaf = Leaf {
            name: path.to_owned(),
            value: Value::Object(entries),
        };
        kept.insert(at, leaf);
    }
    kept
}

/// Puts `value` at the path `keys`, which has no value yet. Keys of one object are adjacent, so
/// only the last one is checked.
fn put(entries: &mut Vec<(String, Value)>, keys: &[String], value: Value) {
    let Some((key, rest)) = keys.split_first() else {
        return;
    };
    if rest.is_empty() {
        entries.push((key.clone(), value));
        return;
    }
    if entries.last().is_none_or(|(last, _)| last != key) {
        entries.push((key.clone(), Value::Object(Vec::new())));
    }
    if let Some((_, Value::Object(inner))) = entries.last_mut() {
        put(inner, rest, value);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use feedline_readers::testing::any_record;
    use feedline_schemas::record::join_path;
    use proptest::prelude::*;

    use super::*;
    use crate::flatten::flatten;

    fn joined(keys: &[&str]) -> String {
        join_path(keys.iter().copied())
    }

    #[test]
    fn the_parent_ends_before_the_last_dot_that_is_no_part_of_a_key() {
        assert_eq!(parent("a"), None);
        assert_eq!(parent("a.b.c"), Some("a.b"));
        assert_eq!(parent(&joined(&["a.b"])), None);
        assert_eq!(parent(&joined(&["a", "b.c"])), Some("a"));
        assert_eq!(parent(&joined(&["a\\", "b"])), Some(r"a\\"));
        assert_eq!(parent("."), Some(""));
    }

    #[test]
    fn keys_are_counted_once_each() {
        let columns = ["a.x", "a.y.p", "a.y.q", "b"];
        let width = MapColumns::new(2, columns.into_iter());
        assert_eq!((width.keys["a"], width.keys["a.y"]), (2, 2));
        let mut grown = MapColumns::new(2, std::iter::empty());
        for (i, name) in columns.iter().enumerate() {
            grown.push(name, |path| columns[..i].contains(&path));
        }
        assert_eq!(grown.keys, width.keys);
        assert_eq!(width.too_wide(["a.y.r"].into_iter()), Some("a.y"));
        assert_eq!(width.too_wide(["a.z.r", "a.y.r"].into_iter()), Some("a"));
        assert_eq!(width.too_wide(["c.1", "c.2", "d"].into_iter()), None);
        assert_eq!(
            width.too_wide(["c.1", "c.2", "c.3.x"].into_iter()),
            Some("c")
        );
    }

    proptest! {
        #[test]
        fn a_collapsed_object_is_the_one_the_record_had(record in any_record()) {
            let Value::Object(entries) = record else { unreachable!() };
            for (key, value) in entries.clone() {
                let path = joined(&[&key]);
                let leaves = collapse(flatten(entries.clone(), 8, &HashSet::new()), &path);
                let leaf = leaves.iter().find(|leaf| leaf.name == path).unwrap();
                prop_assert_eq!(leaf.value.canonical(), value.canonical());
            }
        }
    }
}
