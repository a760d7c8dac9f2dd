//! A record's value: JSON as the source sent it, with the order of keys and without silent repairs.

use std::{borrow::Cow, fmt::Write};

use feedline_schemas::{
    config::JsonConfig,
    record::{join_path, split_path},
};

use crate::json::{self, WrittenFloat};

/// A JSON value.
///
/// A JSON number without a 64-bit value (an integer beyond `i64`, a float that overflows or
/// vanishes to zero) is stored as [`Value::Digits`], and one with more digits than its float as
/// [`Value::Written`], so nothing is rounded silently.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Null.
    Null,
    /// True or false.
    Bool(bool),
    /// A number written without fraction and exponent.
    Int(i64),
    /// Any other number. JSON has only finite ones; Parquet files may contain NaN and infinities.
    Float(f64),
    /// A JSON number with a 64-bit float, as it is written, if [`Self::Float`] has another text.
    Written(WrittenFloat),
    /// A JSON number without a 64-bit value, as it is written.
    Digits(String),
    /// Text.
    Text(String),
    /// Text without a type of its own (a CSV cell). It is read as the type of its column, and stays
    /// exactly as written in a text column.
    Cell(String),
    /// A date or time of ISO 8601 (of a Parquet or Arrow file). It lands as a timestamp, and stays as
    /// written in a text column.
    Time(String),
    /// Bytes, such as an image file.
    Bytes(Vec<u8>),
    /// Bytes whose column decides their type (a binary cell of a Parquet file): bytes, or text of
    /// hexadecimal digits.
    ByteCell(Vec<u8>),
    /// A list.
    List(Vec<Self>),
    /// An object; keys are distinct and in the order of the source.
    Object(Vec<(String, Self)>),
    /// A flawed value. It never lands: the contract decides about its record.
    Fault(Box<Fault>),
}

/// JSON that is well-formed, or nearly so, but has no value that can land.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// A fixed word, counted in the log, such as `duplicate_key`.
    pub reason: &'static str,
    /// Place and details.
    pub detail: String,
    /// Closest valid value: the last value of a duplicate key, or the readable part of a string.
    pub kept: Value,
    /// Earlier values of a duplicate key.
    pub lost: Vec<Value>,
}

impl Value {
    /// Parses one JSON document within the usual bounds.
    ///
    /// # Errors
    /// As [`parse_within`](Self::parse_within).
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        json::parse(bytes, &JsonConfig::default(), 0)
    }

    /// Parses one JSON document within bounds; `line` is its number in a file of lines.
    ///
    /// # Errors
    /// The problem and its byte offset. A flaw in one value only, such as a duplicate key, becomes
    /// a [`Value::Fault`] in its place.
    pub fn parse_within(bytes: &[u8], bounds: &JsonConfig, line: u64) -> Result<Self, String> {
        json::parse(bytes, bounds, line)
    }

    /// The value at `path`, keys joined as in a column name; the empty path is the value itself.
    pub fn at(&self, path: &str) -> Option<&Self> {
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

    /// Name of its kind, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "an integer",
            Self::Float(_) | Self::Written(_) => "a float",
            Self::Digits(_) => "a number beyond 64 bits",
            Self::Text(_) | Self::Cell(_) => "text",
            Self::Time(_) => "a time",
            Self::Bytes(_) | Self::ByteCell(_) => "bytes",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
            Self::Fault(_) => "no clear value",
        }
    }

    /// Returns the first fault in it, with its path.
    pub fn fault(&self) -> Option<(String, &Fault)> {
        fn below<'v>(key: &str, value: &'v Value) -> Option<(String, &'v Fault)> {
            let (path, fault) = value.fault()?;
            let key = join_path([key]);
            let dot = if path.is_empty() { "" } else { "." };
            Some((format!("{key}{dot}{path}"), fault))
        }
        match self {
            Self::Fault(fault) => Some((String::new(), fault)),
            Self::List(items) => items
                .iter()
                .enumerate()
                .find_map(|(i, item)| below(&format!("[{i}]"), item)),
            Self::Object(entries) => entries.iter().find_map(|(key, value)| below(key, value)),
            _ => None,
        }
    }

    /// Replaces each duplicate key by its last value, and passes path and fault of each to `of`.
    ///
    /// # Errors
    /// Path and fault of another kind; values before it may be replaced already.
    pub fn settle(
        self,
        path: &str,
        of: &mut impl FnMut(&str, &Fault),
    ) -> Result<Self, (String, Box<Fault>)> {
        let below = |key: &str| {
            let dot = if path.is_empty() { "" } else { "." };
            format!("{path}{dot}{}", join_path([key]))
        };
        Ok(match self {
            Self::Fault(fault) if fault.lost.is_empty() => return Err((path.to_owned(), fault)),
            Self::Fault(fault) => {
                of(path, &fault);
                fault.kept.settle(path, of)?
            }
            Self::List(items) => {
                let items = items.into_iter().enumerate();
                let settled = items.map(|(i, item)| item.settle(&below(&format!("[{i}]")), of));
                Self::List(settled.collect::<Result<_, _>>()?)
            }
            Self::Object(entries) => {
                let entries = entries.into_iter();
                let settled = entries.map(|(key, value)| {
                    let value = value.settle(&below(&key), of)?;
                    Ok((key, value))
                });
                Self::Object(settled.collect::<Result<_, _>>()?)
            }
            plain => plain,
        })
    }

    /// Approximate size in bytes.
    pub fn size(&self) -> u64 {
        const SCALAR: u64 = 8;
        match self {
            Self::Null | Self::Bool(_) | Self::Int(_) | Self::Float(_) | Self::Written(_) => SCALAR,
            Self::Text(text) | Self::Cell(text) | Self::Time(text) | Self::Digits(text) => {
                SCALAR + text.len() as u64
            }
            Self::Bytes(bytes) | Self::ByteCell(bytes) => SCALAR + bytes.len() as u64,
            Self::List(items) => items.iter().map(Self::size).sum(),
            Self::Object(entries) => entries.iter().map(|(_, value)| value.size()).sum(),
            Self::Fault(fault) => {
                let lost: u64 = fault.lost.iter().map(Self::size).sum();
                lost + fault.kept.size() + fault.detail.len() as u64
            }
        }
    }

    /// Compact JSON with object keys sorted by their bytes. Equal values have equal text. The text
    /// parses back to an equal value, except for cells, times, digits and bytes (written as text) and
    /// non-finite floats (`NaN`, `inf`, `-inf`).
    ///
    /// A float has the fewest digits that read back the same, and always a fraction or an exponent.
    /// A number with digits that its float does not hold is as in the document, so two notations of it
    /// have different texts.
    pub fn canonical(&self) -> String {
        self.canonical_form().text
    }

    /// Returns the canonical form, and true if the value has faults. Duplicate keys stay in it.
    pub fn canonical_and_faults(&self) -> (String, bool) {
        let form = self.canonical_form();
        (form.text, form.has_faults)
    }

    /// Returns the canonical form with what it does not show. Duplicate keys stay in it.
    pub fn canonical_form(&self) -> CanonicalForm {
        let mut form = CanonicalForm::default();
        self.write(NumberText::Canonical, &mut form);
        form
    }

    /// The canonical form, but with all numbers as the document has them: `1.10`, `1e400`.
    pub fn written(&self) -> String {
        let mut form = CanonicalForm::default();
        self.write(NumberText::Written, &mut form);
        form.text
    }

    fn write(&self, numbers: NumberText, form: &mut CanonicalForm) {
        let out = &mut form.text;
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Int(value) => write!(out, "{value}").expect("writing to a string does not fail"),
            Self::Float(value) => {
                write!(out, "{value:?}").expect("writing to a string does not fail")
            }
            Self::Written(number) => match numbers {
                NumberText::Canonical => {
                    form.is_rewritten = true;
                    number.write_canonical(out);
                }
                NumberText::Written => out.push_str(number.text()),
            },
            Self::Digits(text) => match numbers {
                NumberText::Canonical => {
                    form.is_rewritten = true;
                    json::write_text(text, out);
                }
                NumberText::Written => out.push_str(text),
            },
            Self::Text(text) | Self::Cell(text) | Self::Time(text) => {
                json::write_text(text, out);
            }
            Self::Fault(fault) => {
                form.has_faults = true;
                fault.kept.write(numbers, form);
            }
            Self::Bytes(bytes) | Self::ByteCell(bytes) => {
                out.push('"');
                out.extend(hex_digits(bytes));
                out.push('"');
            }
            Self::List(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        form.text.push(',');
                    }
                    item.write(numbers, form);
                }
                form.text.push(']');
            }
            Self::Object(entries) => write_object(entries, numbers, form),
        }
    }
}

fn write_object(entries: &[(String, Value)], numbers: NumberText, form: &mut CanonicalForm) {
    let mut sorted: Vec<&(String, Value)> = entries.iter().collect();
    sorted.sort_unstable_by(|a, b| a.0.as_bytes().cmp(b.0.as_bytes()));
    form.text.push('{');
    for (i, (key, value)) in sorted.into_iter().enumerate() {
        if i > 0 {
            form.text.push(',');
        }
        if let Value::Fault(fault) = value {
            for lost in &fault.lost {
                json::write_text(key, &mut form.text);
                form.text.push(':');
                lost.write(numbers, form);
                form.text.push(',');
            }
        }
        json::write_text(key, &mut form.text);
        form.text.push(':');
        value.write(numbers, form);
    }
    form.text.push('}');
}

/// Notation of numbers in the text of a value.
#[derive(Clone, Copy, Debug)]
enum NumberText {
    /// Floats have one text, whatever their notation. Numbers with digits that their float does not
    /// hold are as in the document, and so are those without a 64-bit value, as text.
    Canonical,
    /// As in the document.
    Written,
}

/// Canonical form of a value.
#[derive(Clone, Debug, Default)]
pub struct CanonicalForm {
    /// Its text.
    pub text: String,
    /// True if the value has faults.
    pub has_faults: bool,
    /// True if a number may have another text in the document: [`Value::written`] has that.
    pub is_rewritten: bool,
}

/// The hexadecimal digits of `bytes`.
pub fn hex(bytes: &[u8]) -> String {
    hex_digits(bytes).collect()
}

fn hex_digits(bytes: &[u8]) -> impl Iterator<Item = char> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)]))
}

/// `text` as one line for messages: its line ends and other control characters are escaped, such as
/// `\n` and `\u{7}`.
pub fn one_line(text: &str) -> Cow<'_, str> {
    let breaks = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    if !text.contains(breaks) {
        return text.into();
    }
    let mut line = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match breaks(c) {
            true => line.extend(c.escape_default()),
            false => line.push(c),
        }
    }
    line.into()
}

/// `text` cut to about `chars` characters, for messages.
pub fn shorten(text: &str, chars: usize) -> Cow<'_, str> {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}...", &text[..end]).into(),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::any_json;

    fn parse(text: &str) -> Value {
        Value::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn line_ends_and_control_characters_of_a_message_are_escaped() {
        assert_eq!(one_line("Köln \\n `x`"), "Köln \\n `x`");
        let text = "a\r\nb\tc\u{7}\u{1b}[31m\u{85}\u{2028}";
        let line = r"a\r\nb\tc\u{7}\u{1b}[31m\u{85}\u{2028}";
        assert_eq!(one_line(text), line);
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

    #[test]
    fn numbers_keep_their_text_beside_their_canonical_form() {
        let text =
            r#"{"a":[1.10,1E5,0.12345678901234567891],"b":18446744073709551616,"c":1e400,"d":2.5}"#;
        let canonical = r#"{"a":[1.1,100000.0,0.12345678901234567891],"b":"18446744073709551616","c":"1e400","d":2.5}"#;
        let value = parse(text);
        assert_eq!(
            (value.written(), value.canonical()),
            (text.into(), canonical.into())
        );
        assert!(value.canonical_form().is_rewritten);
        assert_eq!(parse(canonical).canonical(), canonical);
        let plain = parse(r#"[1,1.5,"1.10",1e16]"#);
        assert!(!plain.canonical_form().is_rewritten);
        assert_eq!(plain.written(), plain.canonical());
    }

    #[test]
    fn numbers_that_round_to_one_float_are_different_content() {
        let canonical = |text: &str| parse(text).canonical();
        assert_ne!(
            canonical("0.12345678901234567891"),
            canonical("0.12345678901234567892")
        );
        assert_ne!(
            canonical("9007199254740993.0"),
            canonical("9007199254740992.0")
        );
        assert_eq!(canonical("0.10000000000000001"), canonical("0.1"));
        assert_eq!(canonical("1.10"), canonical("1.1"));
    }

    proptest! {
        #[test]
        fn canonical_form_parses_back_to_the_same_canonical_form(value in any_json()) {
            let text = value.canonical();
            prop_assert_eq!(parse(&text).canonical(), text);
        }
    }
}
