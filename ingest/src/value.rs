//! A record's value: JSON as the source sent it, with the order of keys and without silent repairs.

use std::{borrow::Cow, fmt::Write};

use feedline_schemas::record::split_path;

use crate::json;

/// A JSON value.
///
/// A JSON number without a 64-bit value (an integer beyond `i64`, a float that overflows or vanishes to zero) is kept as
/// [`Value::Text`] of its digits, so that nothing is rounded in silence.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// Null.
    Null,
    /// True or false.
    Bool(bool),
    /// A number written without fraction and exponent.
    Int(i64),
    /// Any other number. JSON has only finite ones; Parquet files may bring NaN and infinities.
    Float(f64),
    /// Text.
    Text(String),
    /// Text whose type the source does not tell (a CSV cell): it is read as the type of its column, and stays exactly
    /// as written in a text column.
    Cell(String),
    /// Bytes, such as a picture file.
    Bytes(Vec<u8>),
    /// A list.
    List(Vec<Self>),
    /// An object; keys are distinct and in the order of the source.
    Object(Vec<(String, Self)>),
}

impl Value {
    /// Parses one JSON document.
    ///
    /// # Errors
    /// What is wrong and at which byte: malformed JSON or UTF-8, a duplicate key, or more than 128 levels.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        json::parse(bytes)
    }

    /// The value at `path`, keys joined as in a column name; the empty path is the value itself.
    pub(crate) fn at(&self, path: &str) -> Option<&Self> {
        if path.is_empty() {
            return Some(self);
        }
        split_path(path).iter().try_fold(self, |at, key| match at {
            Self::Object(entries) => entries
                .iter()
                .find(|(k, _)| k == key)
                .map(|(_, value)| value),
            _ => None,
        })
    }

    /// What it is, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Text(_) | Self::Cell(_) => "text",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
        }
    }

    /// About how many bytes it takes.
    pub(crate) fn size(&self) -> u64 {
        const SCALAR: u64 = 8;
        match self {
            Self::Null | Self::Bool(_) | Self::Int(_) | Self::Float(_) => SCALAR,
            Self::Text(text) | Self::Cell(text) => SCALAR + text.len() as u64,
            Self::Bytes(bytes) => SCALAR + bytes.len() as u64,
            Self::List(items) => items.iter().map(Self::size).sum(),
            Self::Object(entries) => entries.iter().map(|(_, value)| value.size()).sum(),
        }
    }

    /// Compact JSON with object keys sorted by their bytes: equal values have equal text and, but for cells (written
    /// as text), bytes (written as text of hexadecimal digits) and non-finite floats (`NaN`, `inf`, `-inf`), the text
    /// parses back to an equal value.
    ///
    /// A float has the fewest digits that read back the same, and always a fraction or an exponent.
    pub(crate) fn canonical(&self) -> String {
        let mut out = String::new();
        self.write_canonical(&mut out);
        out
    }

    fn write_canonical(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Int(value) => write!(out, "{value}").expect("writing to a string does not fail"),
            Self::Float(value) => {
                write!(out, "{value:?}").expect("writing to a string does not fail")
            }
            Self::Text(text) | Self::Cell(text) => json::write_text(text, out),
            Self::Bytes(bytes) => {
                const DIGITS: &[u8; 16] = b"0123456789abcdef";
                let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
                out.push('"');
                out.extend(digits.map(|digit| char::from(DIGITS[usize::from(digit)])));
                out.push('"');
            }
            Self::List(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    item.write_canonical(out);
                }
                out.push(']');
            }
            Self::Object(entries) => {
                let mut sorted: Vec<&(String, Self)> = entries.iter().collect();
                sorted.sort_unstable_by(|a, b| a.0.as_bytes().cmp(b.0.as_bytes()));
                out.push('{');
                for (i, (key, value)) in sorted.into_iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    json::write_text(key, out);
                    out.push(':');
                    value.write_canonical(out);
                }
                out.push('}');
            }
        }
    }
}

/// `text` cut to about `chars` characters, for messages.
pub(crate) fn shorten(text: &str, chars: usize) -> Cow<'_, str> {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}...", &text[..end]).into(),
        None => text.into(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Any JSON value whose canonical form parses back to it.
    pub(crate) fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(Value::Int),
            any::<f64>()
                .prop_filter("finite", |v| v.is_finite())
                .prop_map(Value::Float),
            any::<String>().prop_map(Value::Text),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::List),
                object_of(inner)
            ]
        })
    }

    /// Any record: an object of [`any_json`] with keys that like to collide.
    pub(crate) fn any_record() -> impl Strategy<Value = Value> {
        object_of(any_json())
    }

    fn object_of(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
        let key = prop_oneof![r"[ab.\\]{0,3}", any::<String>()];
        proptest::collection::btree_map(key, inner, 0..5)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
    }

    fn parse(text: &str) -> Value {
        Value::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn paths_find_nested_values() {
        let value = parse(r#"{"a":{"b.c":[1]},"":2}"#);
        assert_eq!(value.at(r"a.b\.c"), Some(&Value::List(vec![Value::Int(1)])));
        assert_eq!(value.at(""), Some(&value));
        assert_eq!(value.at("a.x"), None);
        assert_eq!(value.at("a.b.c"), None);
    }

    #[test]
    fn canonical_form_does_not_depend_on_the_order_of_keys() {
        let text = parse(r#"{"b":{"d":1,"c":2.0},"a":[{"y":1,"x":2}]}"#).canonical();
        assert_eq!(text, r#"{"a":[{"x":2,"y":1}],"b":{"c":2.0,"d":1}}"#);
        assert_eq!(
            parse(r#"{"a":[{"x":2,"y":1}],"b":{"c":2.0,"d":1}}"#).canonical(),
            text
        );
    }

    #[test]
    fn an_integer_and_a_float_are_different_content() {
        assert_ne!(parse("1").canonical(), parse("1.0").canonical());
    }

    #[test]
    fn cells_are_content_as_written() {
        assert_eq!(Value::Cell("007".into()).canonical(), "\"007\"");
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(shorten("häh", 3), "häh");
        assert_eq!(shorten("hähä", 3), "häh...");
    }

    proptest! {
        #[test]
        fn canonical_form_parses_back_to_the_same_canonical_form(value in any_json()) {
            let text = value.canonical();
            prop_assert_eq!(parse(&text).canonical(), text);
        }
    }
}
