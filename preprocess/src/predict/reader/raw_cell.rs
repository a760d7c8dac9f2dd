//! A cell as a file has it.

use std::borrow::Cow;

use feedline_schemas::number;

/// Characters of a cell that a conflict shows, as many as ingest shows.
const CONFLICT_SHOWN: usize = 100;

/// A cell as a file has it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Raw<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// A number of JSON with the nearest float, and its text, which is not that of the float.
    Written(f64, &'a str),
    /// Text that the file says is text.
    Text(Cow<'a, str>),
    /// A number with more digits than 64 bits always hold. It converts as its text does.
    Digits(&'a str),
    /// Text of a format without types.
    Cell(&'a str),
    /// A date or time of ISO 8601, of a format that has such a type.
    Time(&'a str),
    /// Something that no such column holds.
    Nested(&'static str),
}

impl Raw<'_> {
    /// Returns true for an integer beyond 2^53.
    pub(super) fn is_long_integer(&self) -> bool {
        let integer = match self {
            Self::Int(value) => Some(i128::from(*value)),
            Self::Digits(text) | Self::Cell(text) | Self::Written(_, text) => {
                text.trim().parse().ok()
            }
            _ => None,
        };
        integer.is_some_and(|value: i128| value.unsigned_abs() > 1 << 53)
    }

    /// The cell as text, to be carried along; none where there is no value.
    pub(super) fn carried(&self) -> Option<String> {
        match self {
            Self::Null | Self::Nested(_) => None,
            Self::Bool(value) => Some(value.to_string()),
            Self::Int(value) => Some(value.to_string()),
            Self::Float(value) => Some(format!("{value:?}")),
            // Of a column of floats or of an unknown type: `Written` keeps the digits of others.
            Self::Written(value, text) => Some(match number::says_the_same(text, *value) {
                true => (*text).to_owned(),
                false => format!("{value:?}"),
            }),
            Self::Text(text) => Some(text.clone().into_owned()),
            Self::Cell(text) | Self::Time(text) | Self::Digits(text) => Some((*text).to_owned()),
        }
    }

    /// Name of its type, as ingest has it.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "an integer",
            Self::Float(_) | Self::Written(..) => "a float",
            Self::Text(_) | Self::Cell(_) => "text",
            Self::Digits(_) => "a number beyond 64 bits",
            Self::Time(_) => "a time",
            Self::Nested(what) => what,
        }
    }

    /// It in a message, as ingest writes it.
    pub(super) fn shown(&self) -> String {
        let whole = match self {
            Self::Text(text) => quoted(text),
            Self::Cell(text) | Self::Time(text) | Self::Digits(text) => quoted(text),
            Self::Written(value, text) => match number::is_text_of(text, *value) {
                true => format!("{value:?}"),
                false => (*text).to_owned(),
            },
            other => other.carried().unwrap_or_default(),
        };
        match whole.char_indices().nth(CONFLICT_SHOWN) {
            Some((end, _)) => format!("{}...", &whole[..end]),
            None => whole,
        }
    }
}

/// A text in quotes, as JSON has it.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
