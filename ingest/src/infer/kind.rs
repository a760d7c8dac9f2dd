//! The kind of a value: of a CSV cell what it looks like, of any other value its type.

use feedline_schemas::{
    csv_cell::CellFormat,
    number::{self, MAX_EXACT},
};

use crate::{
    contract::{Dates, iso_micros},
    json,
    value::Value,
};

/// The kind of a value that is not null.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// True or false.
    Bool,
    /// An integer that is exact as a float.
    Integer,
    /// Another 64-bit integer.
    BigInteger,
    /// A number that no 64-bit type holds and a decimal does.
    Digits,
    /// A float that is a decimal too.
    Float,
    /// Another float.
    WideFloat,
    /// Digits behind a zero, such as those of a code.
    ZeroDigits,
    /// A timestamp in a format of `contract.dates`.
    DeclaredDate,
    /// A timestamp with its offset.
    Instant,
    /// A date and a time of day without an offset.
    LocalTime,
    /// A date as ISO 8601 writes it.
    Day,
    /// Digits around a comma that can only be a decimal sign.
    DecimalComma,
    /// `1,234`, which may be either.
    SomeComma,
    /// Digits with commas in groups of three.
    Thousands,
    /// A number with a percent sign.
    Percent,
    /// Digits in three groups, as dates are written in many ways.
    UnclearDate,
    /// A usual spelling of a missing value.
    Missing,
    /// A text, not of a cell, that is a number.
    NumberText,
    /// Any other text.
    Text,
    /// A list, an object or bytes.
    Whole,
}

/// Number of kinds.
pub(crate) const KINDS: usize = Kind::Whole as usize + 1;

impl Kind {
    /// The kind of a value; none of null and of what has no clear value.
    pub(crate) fn of(value: &Value, format: CellFormat, declared: Option<&Dates>) -> Option<Self> {
        Some(match value {
            Value::Null | Value::Fault(_) => return None,
            Value::Bool(_) => Self::Bool,
            Value::Int(value) => Self::of_integer(*value),
            Value::Float(_) if is_wide(value) => Self::WideFloat,
            Value::Float(_) => Self::Float,
            Value::Digits(text) if number::decimal(text).is_some() => Self::Digits,
            Value::Digits(_) => Self::Text,
            Value::Text(text) if declared.is_some_and(|dates| dates.micros(text).is_some()) => {
                Self::DeclaredDate
            }
            Value::Text(text) if number::is_number(text) => Self::NumberText,
            Value::Text(_) => Self::Text,
            Value::Cell(text) => Self::of_cell(text, format, declared),
            Value::Bytes(_) | Value::List(_) | Value::Object(_) => Self::Whole,
        })
    }

    fn of_integer(value: i64) -> Self {
        match value.unsigned_abs() <= MAX_EXACT {
            true => Self::Integer,
            false => Self::BigInteger,
        }
    }

    fn of_cell(text: &str, format: CellFormat, declared: Option<&Dates>) -> Self {
        let text = text.trim();
        if declared.is_some_and(|dates| dates.micros(text).is_some()) {
            return Self::DeclaredDate;
        }
        if let Some(number) = format.number(text) {
            return match json::number(&number) {
                Some(Value::Int(value)) => Self::of_integer(value),
                Some(value @ Value::Float(_)) if is_wide_text(&number, &value) => Self::WideFloat,
                Some(Value::Float(_)) => Self::Float,
                _ if number::decimal(&number).is_some() => Self::Digits,
                _ => Self::Text,
            };
        }
        if matches!(text, "true" | "True" | "TRUE" | "false" | "False" | "FALSE") {
            return Self::Bool;
        }
        if format.is_missing(text) {
            return Self::Missing;
        }
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        if !unsigned.starts_with(|c: char| c.is_ascii_digit()) {
            return Self::Text;
        }
        if unsigned.len() > 1 && is_digits(unsigned) {
            return Self::ZeroDigits;
        }
        of_signs(text, unsigned)
    }

    /// Returns true for a number that a numeric column holds.
    pub(crate) const fn is_number(self) -> bool {
        matches!(
            self,
            Self::Integer | Self::BigInteger | Self::Digits | Self::Float | Self::WideFloat
        )
    }

    /// For a person, of many.
    pub(crate) const fn noun(self) -> &'static str {
        match self {
            Self::Bool => "booleans",
            Self::Integer | Self::BigInteger => "integers",
            Self::Digits => "numbers beyond 64 bits",
            Self::Float | Self::WideFloat => "floats",
            Self::ZeroDigits => "digits behind a zero",
            Self::DeclaredDate | Self::Instant | Self::LocalTime => "points in time",
            Self::Day => "dates",
            Self::DecimalComma | Self::SomeComma | Self::Thousands => "digits with commas",
            Self::Percent => "percentages",
            Self::UnclearDate => "dates of an unclear order",
            Self::Missing => "spellings of a missing value",
            Self::NumberText => "numbers as text",
            Self::Text => "texts",
            Self::Whole => "lists or objects",
        }
    }
}

/// Classifies text that begins with a digit and is not a plain number.
fn of_signs(text: &str, unsigned: &str) -> Kind {
    if iso_micros(text).is_some() {
        return match text.len() {
            10 => Kind::Day,
            _ if has_offset(text) => Kind::Instant,
            _ => Kind::LocalTime,
        };
    }
    if let Some(number) = unsigned.strip_suffix('%') {
        let number = number.trim_end();
        let is_one = number
            .bytes()
            .all(|b| b.is_ascii_digit() || b == b'.' || b == b',');
        return if is_one { Kind::Percent } else { Kind::Text };
    }
    if let Some((whole, part)) = unsigned.rsplit_once(',') {
        return of_commas(whole, part);
    }
    let day = unsigned.split([' ', 'T']).next().unwrap_or_default();
    let mut groups = 0;
    let is_date = day.split(['/', '.', '-']).all(|group| {
        groups += 1;
        is_digits(group) && group.len() <= 4
    });
    match is_date && groups == 3 {
        true => Kind::UnclearDate,
        false => Kind::Text,
    }
}

/// Classifies digits with commas, given the text before and after the last comma.
fn of_commas(whole: &str, part: &str) -> Kind {
    let is_groups = |text: &str, sign: char| {
        let mut groups = text.split(sign);
        let first = groups.next().unwrap_or_default();
        let is_first = is_digits(first) && first.len() <= 3 && !first.starts_with('0');
        is_first && groups.all(|group| is_digits(group) && group.len() == 3)
    };
    let (thousand, fraction) = part.split_once('.').unwrap_or((part, ""));
    let is_behind = is_digits(thousand) && (fraction.is_empty() || is_digits(fraction));
    if is_behind && thousand.len() == 3 && is_groups(whole, ',') {
        return match whole.contains(',') || part.contains('.') {
            true => Kind::Thousands,
            false => Kind::SomeComma,
        };
    }
    match is_digits(part) && (is_digits(whole) || is_groups(whole, '.')) {
        true => Kind::DecimalComma,
        false => Kind::Text,
    }
}

/// Returns true if an ISO date and time has an offset from UTC.
fn has_offset(text: &str) -> bool {
    let time = text.get(10..).unwrap_or_default();
    time.contains(['Z', 'z', '+', '-'])
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Returns true if a float does not fit a decimal.
fn is_wide(value: &Value) -> bool {
    crate::contract::decimal(value).is_none()
}

/// Returns true if a float in this notation does not fit a decimal; short texts need no check.
fn is_wide_text(text: &str, value: &Value) -> bool {
    let is_short = text.len() <= 17 && !text.contains(['e', 'E']);
    !is_short && (number::decimal(text).is_none() || is_wide(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_told_apart_by_their_looks() {
        for (kind, texts) in [
            (Kind::Bool, &["true", " FALSE "][..]),
            (Kind::Integer, &["0", "-17", "+5", "9007199254740992"]),
            (Kind::BigInteger, &["9007199254740993"]),
            (Kind::Digits, &["18446744073709551615"]),
            (Kind::Float, &["1.5", ".5", "5.", "1e3", "0.1234567890123"]),
            (Kind::WideFloat, &["1e300", "1e-30"]),
            (Kind::ZeroDigits, &["007", "00"]),
            (
                Kind::Instant,
                &["2024-02-29T13:05:09Z", "2024-02-29 13:05:09+02:00"],
            ),
            (
                Kind::LocalTime,
                &["2024-02-29T13:05:09", "2024-02-29 13:05"],
            ),
            (Kind::Day, &["2024-02-29"]),
            (
                Kind::DecimalComma,
                &["1000,14", "-0,5", "1.234,56", "1234,567"],
            ),
            (Kind::SomeComma, &["1,234", "-999,000"]),
            (Kind::Thousands, &["1,234,567", "1,234.50"]),
            (Kind::Percent, &["17%", "-3.5 %", "3,5%"]),
            (
                Kind::UnclearDate,
                &["01/02/2020", "31.12.20", "1-2-2020 13:05", "2020/01/02"],
            ),
            (Kind::Missing, &["NA", "?", " n/a ", "-"]),
            (
                Kind::Text,
                &[
                    "unknown",
                    "12 EUR",
                    "3 days",
                    "2023-02-30x",
                    "1,2,3",
                    "a,b",
                    "0x1F",
                    "1e400",
                ],
            ),
        ] {
            for text in texts {
                let value = Value::Cell((*text).to_owned());
                let found = Kind::of(&value, CellFormat::default(), None);
                assert_eq!(found, Some(kind), "{text:?}");
            }
        }
    }
}
