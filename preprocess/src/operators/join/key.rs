//! Keys in the form in which they are compared.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, StringArray, new_null_array},
    datatypes::DataType,
};
use datafusion::error::Result;
use feedline_schemas::config::{KeyMatch, Normalization};
use serde::{Deserialize, Serialize};

use crate::{
    engine::scalar_function::RowFunction,
    operators::{
        coerce::{Category, Missing},
        text::near::normalized,
    },
};

/// A cell as a key: its text, as a category is read, or a part of that; null where there is none.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Key(pub(super) KeyMatch);

impl RowFunction for Key {
    const NAME: &'static str = "feedline_join_key";
    const RETURNS: DataType = DataType::Utf8;

    fn call(&self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        if *columns[0].data_type() == DataType::Binary {
            return Ok(new_null_array(&DataType::Utf8, rows));
        }
        let texts = Category(Missing::new(&[], &[])).call(columns, rows)?;
        let keys = texts.as_string::<i32>().iter().map(|text| {
            let text = normalized(text?, Normalization::Nfc);
            Some(self.part(&text).to_owned()).filter(|key| !key.is_empty())
        });
        Ok(Arc::new(keys.collect::<StringArray>()))
    }
}

impl Key {
    fn part<'a>(&self, text: &'a str) -> &'a str {
        let name = text.rsplit(['/', '\\']).next().unwrap_or(text);
        match self.0 {
            KeyMatch::Exact | KeyMatch::Asof => text,
            KeyMatch::Name => name,
            // A name that begins with its only dot has no ending.
            KeyMatch::Stem => match name.rsplit_once('.') {
                Some((stem, _)) if !stem.is_empty() => stem,
                _ => name,
            },
        }
    }
}

/// The key of a row that found no partner, empty where it has none; null where it found one. Called with the keys of both.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Missed;

impl RowFunction for Missed {
    const NAME: &'static str = "feedline_join_missed";
    const RETURNS: DataType = DataType::Utf8;

    fn call(&self, columns: &[ArrayRef], _: usize) -> Result<ArrayRef> {
        // The planner evaluates predicates with columns of the type null.
        let (own, absent) = (
            columns[0].as_string_opt::<i32>(),
            columns[1].logical_nulls(),
        );
        let key = |row| {
            own.filter(|own| own.is_valid(row))
                .map(|own| own.value(row))
        };
        let missed = (0..columns[0].len()).map(|row| {
            let is_absent = absent.as_ref().is_some_and(|absent| absent.is_null(row));
            is_absent.then(|| key(row).unwrap_or_default())
        });
        Ok(Arc::new(missed.collect::<StringArray>()))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{BinaryArray, BooleanArray, Float64Array, Int64Array};

    use super::*;

    fn check(matching: KeyMatch, cells: impl Array + 'static, expected: &[Option<&str>]) {
        let rows = cells.len();
        let keys = Key(matching).call(&[Arc::new(cells)], rows).unwrap();
        assert_eq!(keys.as_string::<i32>().iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn keys_of_any_type_are_their_texts() {
        use KeyMatch::Exact;
        check(
            Exact,
            Int64Array::from(vec![5, -1]),
            &[Some("5"), Some("-1")],
        );
        check(
            Exact,
            Float64Array::from(vec![5.0, 0.5, f64::NAN]),
            &[Some("5"), Some("0.5"), None],
        );
        check(Exact, BooleanArray::from(vec![true]), &[Some("true")]);
        check(Exact, BinaryArray::from(vec![&b"5"[..]]), &[None]);
        let texts = StringArray::from(vec![Some("5"), Some("5.0"), Some(" 5"), Some(""), None]);
        check(
            Exact,
            texts,
            &[Some("5"), Some("5.0"), Some(" 5"), None, None],
        );
    }

    #[test]
    fn names_written_in_two_ways_are_one() {
        let composed = StringArray::from(vec!["caf\u{e9}.jpg", "cafe\u{301}.jpg"]);
        check(KeyMatch::Exact, composed, &[Some("caf\u{e9}.jpg"); 2]);
    }

    #[test]
    fn parts_of_paths() {
        let paths = || StringArray::from(vec!["a/cat/1.jpg", "a\\2.tar.gz", "3", ".hidden", "a/"]);
        check(
            KeyMatch::Name,
            paths(),
            &[
                Some("1.jpg"),
                Some("2.tar.gz"),
                Some("3"),
                Some(".hidden"),
                None,
            ],
        );
        check(
            KeyMatch::Stem,
            paths(),
            &[Some("1"), Some("2.tar"), Some("3"), Some(".hidden"), None],
        );
    }
}
