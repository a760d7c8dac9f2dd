//! Rows of numbers in the `json` members of samples.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use xxhash_rust::xxh3::xxh3_64;

use crate::input::warnings::Warnings;

/// Keys of a `json` member that are read as a row.
#[derive(Clone, Debug)]
pub(super) struct JsonRow {
    /// Numbers, or lists of one fixed length.
    pub(super) x: Vec<String>,
    /// Key of the row.
    pub(super) key: Option<String>,
}

/// Rows of a block.
#[derive(Debug, Default)]
pub(super) struct TakenRows {
    /// `[rows, elements]`, row-major.
    pub(super) x: Vec<f32>,
    /// Integers of each column that float32 cannot hold.
    rounded: BTreeMap<String, u64>,
}

impl JsonRow {
    /// Numbers of the row in `text`.
    ///
    /// # Errors
    /// The key that is absent or no number.
    pub(super) fn width(&self, text: &[u8]) -> Result<usize, String> {
        let mut taken = TakenRows::default();
        taken.append(self, &object(text)?)?;
        Ok(taken.x.len())
    }

    /// Appends the row in `text`, which has `width` numbers, and returns its key, if one is wanted.
    ///
    /// # Errors
    /// As [`width`](Self::width); another number of numbers.
    pub(super) fn take(
        &self,
        text: &[u8],
        width: usize,
        taken: &mut TakenRows,
    ) -> Result<Option<u64>, String> {
        let object = object(text)?;
        let before = taken.x.len();
        taken.append(self, &object)?;
        let found = taken.x.len() - before;
        if found != width {
            return Err(format!(
                "its row has `{found}` numbers, and others have `{width}`"
            ));
        }
        self.key
            .as_deref()
            .map(|name| key(&object, name))
            .transpose()
    }
}

impl TakenRows {
    /// Appends the numbers of a row.
    fn append(&mut self, row: &JsonRow, object: &Map<String, Value>) -> Result<(), String> {
        for name in &row.x {
            let value = get(object, name)?;
            let items = match value {
                Value::Array(items) => items,
                one => std::slice::from_ref(one),
            };
            for item in items {
                let (number, is_rounded) = number(item).ok_or_else(|| {
                    format!("`{name}` in its json is not a number or a list of them")
                })?;
                self.x.push(number);
                if is_rounded {
                    *self.rounded.entry(name.clone()).or_default() += 1;
                }
            }
        }
        Ok(())
    }

    /// Warns of integers that were rounded.
    pub(super) fn warn(&self, warnings: &Warnings) {
        for (name, count) in &self.rounded {
            warnings.add_rounded(name, *count);
        }
    }
}

/// The key of a sample in the `json` member `text`.
pub(super) fn key_in(text: &[u8], name: &str) -> Result<u64, String> {
    key(&object(text)?, name)
}

fn object(text: &[u8]) -> Result<Map<String, Value>, String> {
    serde_json::from_slice(text).map_err(|e| format!("its json cannot be read: {e}"))
}

fn get<'a>(object: &'a Map<String, Value>, name: &str) -> Result<&'a Value, String> {
    object.get(name).ok_or_else(|| {
        let names: Vec<&str> = object.keys().map(String::as_str).collect();
        format!("its json has no `{name}`, it has `{}`", names.join("`, `"))
    })
}

/// A number as float32, and true if it is an integer that float32 rounds.
#[expect(
    clippy::cast_possible_truncation,
    reason = "features are kept as f32, whose rounding of integers is counted"
)]
fn number(value: &Value) -> Option<(f32, bool)> {
    match value {
        Value::Bool(is) => Some((f32::from(u8::from(*is)), false)),
        Value::Number(number) => {
            let float = number.as_f64()? as f32;
            let integer = number.as_i64().map(i128::from);
            let integer = integer.or_else(|| number.as_u64().map(i128::from));
            Some((
                float,
                integer.is_some_and(|integer| integer != float as i128),
            ))
        }
        _ => None,
    }
}

/// The key of a row: an integer, or text that is hashed.
fn key(object: &Map<String, Value>, name: &str) -> Result<u64, String> {
    let value = get(object, name)?;
    let integer = value.as_u64();
    let integer = integer.or_else(|| value.as_i64().map(i64::cast_unsigned));
    let key = integer.or_else(|| value.as_str().map(|text| xxh3_64(text.as_bytes())));
    key.ok_or_else(|| format!("`{name}` in its json is not an integer or text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(text: &str, x: &[&str], key: Option<&str>) -> Result<(Vec<f32>, Option<u64>), String> {
        let row = JsonRow {
            x: x.iter().map(|name| (*name).to_owned()).collect(),
            key: key.map(str::to_owned),
        };
        let width = row.width(text.as_bytes())?;
        let mut taken = TakenRows::default();
        let key = row.take(text.as_bytes(), width, &mut taken)?;
        Ok((taken.x, key))
    }

    #[test]
    fn numbers_come_in_the_order_of_their_names() {
        let text = r#"{"a": 0.10000000149011612, "b": [1, 2.5], "c": true, "id": 18446744073709551615, "n": "x"}"#;
        let (x, key) = take(text, &["c", "b", "a"], Some("id")).unwrap();
        assert_eq!((x, key), (vec![1.0, 1.0, 2.5, 0.1], Some(u64::MAX)));
        assert_eq!(
            take(text, &["a"], Some("n")).unwrap().1,
            Some(xxh3_64(b"x"))
        );
        for (names, message) in [
            (["n"], "`n` in its json is not a number"),
            (["z"], "its json has no `z`, it has `a`, `b`"),
        ] {
            let error = take(text, &names, None).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
        assert!(
            take("{", &["a"], None)
                .unwrap_err()
                .contains("cannot be read")
        );
        assert!(
            take(text, &["a"], Some("b"))
                .unwrap_err()
                .contains("not an integer")
        );
    }

    #[test]
    fn a_row_of_another_length_is_refused_and_rounded_integers_are_counted() {
        let row = JsonRow {
            x: vec!["a".into()],
            key: None,
        };
        let mut taken = TakenRows::default();
        row.take(b"{\"a\": 16777217}", 1, &mut taken).unwrap();
        row.take(b"{\"a\": 16777218}", 1, &mut taken).unwrap();
        assert_eq!(taken.rounded.get("a"), Some(&1));
        let error = row.take(b"{\"a\": [1, 2]}", 1, &mut taken).unwrap_err();
        assert_eq!(error, "its row has `2` numbers, and others have `1`");
    }
}
