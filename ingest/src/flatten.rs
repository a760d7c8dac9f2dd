//! Flattens nested objects to columns named by their path. The names can be split back into the
//! keys.
//!
//! `{"a":{"b":1},"c.d":[2]}` has the leaves `a.b` = 1 and `c\.d` = `[2]`. Lists, empty objects and
//! objects below the depth limit are leaves, stored as JSON text.

use std::collections::HashSet;

use feedline_schemas::record::join_path;

use feedline_readers::value::Value;

/// A value that becomes a cell of a column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Leaf {
    /// Path name of the column; distinct among the leaves of a record.
    pub name: String,
    /// Anything; an object only when it is empty or too deep.
    pub value: Value,
}

/// Returns the leaves of a record in the order of its keys. All values at level `max_depth` (1 is
/// the record's own) are leaves, and so are objects at the paths in `whole`.
pub(crate) fn flatten(
    record: Vec<(String, Value)>,
    max_depth: u32,
    whole: &HashSet<String>,
) -> Vec<Leaf> {
    let mut leaves = Vec::with_capacity(record.len());
    descend(record, "", max_depth, whole, &mut leaves);
    leaves
}

fn descend(
    entries: Vec<(String, Value)>,
    prefix: &str,
    levels: u32,
    whole: &HashSet<String>,
    leaves: &mut Vec<Leaf>,
) {
    for (key, value) in entries {
        let name = format!("{prefix}{}", join_path([key.as_str()]));
        match value {
            Value::Object(inner) if levels > 1 && !inner.is_empty() && !whole.contains(&name) => {
                descend(inner, &format!("{name}."), levels - 1, whole, leaves);
            }
            value => leaves.push(Leaf { name, value }),
        }
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::record::split_path;
    use proptest::prelude::*;

    use super::*;
    use feedline_readers::testing::any_record;

    /// The plain inverse.
    fn unflatten(leaves: Vec<Leaf>) -> Value {
        let mut root = Vec::new();
        for leaf in leaves {
            let keys = split_path(&leaf.name);
            let (last, front) = keys.split_last().unwrap();
            let mut at = &mut root;
            for key in front {
                if !at.iter().any(|(k, _)| k == key) {
                    at.push((key.clone(), Value::Object(vec![])));
                }
                let (_, Value::Object(inner)) = at.iter_mut().find(|(k, _)| k == key).unwrap()
                else {
                    panic!("`{key}` is both a leaf and a branch");
                };
                at = inner;
            }
            at.push((last.clone(), leaf.value));
        }
        Value::Object(root)
    }

    fn entries(value: Value) -> Vec<(String, Value)> {
        let Value::Object(entries) = value else {
            panic!("not an object")
        };
        entries
    }

    fn check(record: &str, max_depth: u32, names: &[&str]) {
        let leaves = flatten(
            entries(Value::parse(record.as_bytes()).unwrap()),
            max_depth,
            &HashSet::new(),
        );
        assert_eq!(
            leaves
                .iter()
                .map(|leaf| leaf.name.as_str())
                .collect::<Vec<_>>(),
            names
        );
    }

    #[test]
    fn nested_keys_become_path_names() {
        check(
            r#"{"b":1,"a":{"x":{"y":2},"z":[{"q":3}]}}"#,
            8,
            &["b", "a.x.y", "a.z"],
        );
        check(r#"{"a.b":1,"a":{"b":2}}"#, 8, &[r"a\.b", "a.b"]);
        check(r#"{"":{"":1},"e":{}}"#, 8, &[".", "e"]);
    }

    #[test]
    fn values_below_the_depth_limit_stay_whole() {
        check(r#"{"a":{"x":{"y":2}}}"#, 2, &["a.x"]);
        check(r#"{"a":{"x":{"y":2}}}"#, 1, &["a"]);
    }

    proptest! {
        #[test]
        fn flattening_is_reversible_at_every_depth(record in any_record(), max_depth in 1_u32..6) {
            let leaves = flatten(entries(record.clone()), max_depth, &HashSet::new());
            let mut names: Vec<&str> = leaves.iter().map(|leaf| leaf.name.as_str()).collect();
            names.sort_unstable();
            names.dedup();
            prop_assert_eq!(names.len(), leaves.len());
            prop_assert_eq!(unflatten(leaves).canonical(), record.canonical());
        }
    }
}
