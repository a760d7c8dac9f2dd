//! Kind of a value: for a CSV cell its notation, for any other value its type.

use feedline_readers::{
    image_signature::image_format,
    json::{self, WrittenFloat},
    value::Value,
};
use feedline_schemas::{
    csv_cell::{CellFormat, are_indian_groups, is_group_space},
    number::{self, MAX_EXACT},
};

use crate::contract::{Dates, is_long_number, iso_micros};

/// The kind of a value that is not null.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// True or false.
    Bool,
    /// An integer that is exact as a float.
    Integer,
    /// Another 64-bit integer.
    BigInteger,
    /// A number that only a decimal holds, but no 64-bit type.
    Digits,
    /// A float that is a decimal too.
    Float,
    /// Another float.
    WideFloat,
    /// A float with more digits than a 64-bit float holds.
    LongFloat,
    /// Such a number that is no decimal either.
    LongWideFloat,
    /// Digits, `e` and digits, such as `12E4`: an integer or a code.
    DigitsAndE,
    /// Digits after a leading zero, such as those of a code.
    ZeroDigits,
    /// A timestamp in a format of `contract.dates`.
    DeclaredDate,
    /// A timestamp that two formats of `contract.dates` read differently.
    AmbiguousDate,
    /// A timestamp with its offset.
    Instant,
    /// A date and a time of day without an offset.
    LocalTime,
    /// A date as ISO 8601 writes it.
    Day,
    /// Digits with a comma that can only be a decimal separator.
    DecimalComma,
    /// `1,234`, where the comma may be either separator.
    SomeComma,
    /// Digits with commas in groups of three.
    Thousands,
    /// Digits with spaces in groups of three, with or without a decimal point.
    Spaced,
    /// The same with a decimal comma.
    SpacedComma,
    /// A number with a percent sign.
    Percent,
    /// A number with a currency sign in front of or behind it.
    Amount,
    /// Digits in three groups, as dates are written in many ways.
    UnclearDate,
    /// A usual spelling of a missing value.
    Missing,
    /// A text, not of a cell, that is a number.
    NumberText,
    /// Any other text.
    Text,
    /// A cell of bytes that starts like an image file.
    Image,
    /// A list, an object or bytes.
    Whole,
}

/// Longest number without an exponent that surely fits a decimal.
const SHORT_TEXT: usize = 17;

/// Number of kinds.
pub(crate) const KINDS: usize = Kind::Whole as usize + 1;

impl Kind {
    /// All kinds, in their order.
    pub(super) const ALL: [Self; KINDS] = [
        Self::Bool,
        Self::Integer,
        Self::BigInteger,
        Self::Digits,
        Self::Float,
        Self::WideFloat,
        Self::LongFloat,
        Self::LongWideFloat,
        Self::DigitsAndE,
        Self::ZeroDigits,
        Self::DeclaredDate,
        Self::AmbiguousDate,
        Self::Instant,
        Self::LocalTime,
        Self::Day,
        Self::DecimalComma,
        Self::SomeComma,
        Self::Thousands,
        Self::Spaced,
        Self::SpacedComma,
        Self::Percent,
        Self::Amount,
        Self::UnclearDate,
        Self::Missing,
        Self::NumberText,
        Self::Text,
        Self::Image,
        Self::Whole,
    ];

    /// Returns true for a date or timestamp of a known format.
    pub(super) const fn is_date(self) -> bool {
        matches!(
            self,
            Self::DeclaredDate | Self::AmbiguousDate | Self::Instant | Self::LocalTime | Self::Day
        )
    }

    /// Classifies a value; `None` for null and for an ambiguous value.
    pub(crate) fn of(value: &Value, format: CellFormat, declared: Option<&Dates>) -> Option<Self> {
        Some(match value {
            Value::Null | Value::Fault(_) => return None,
            Value::Bool(_) => Self::Bool,
            Value::Int(value) => Self::of_integer(*value),
            Value::Float(float) if !is_short(*float) && is_wide(value) => Self::WideFloat,
            Value::Float(_) => Self::Float,
            Value::Written(number) => Self::of_written(number),
            Value::Digits(text) if number::decimal(text).is_some() => Self::Digits,
            Value::Digits(_) => Self::Text,
            Value::Text(text) => match declared.and_then(|dates| Self::of_declared(text, dates)) {
                Some(date) => date,
                None if Self::of_number_text(text).is_some() => Self::NumberText,
                None => Self::Text,
            },
            Value::Cell(text) => Self::of_cell(text, format, declared),
            Value::Time(text) => match iso_micros(text) {
                Some(_) => Self::of_iso(text),
                None => Self::Text,
            },
            Value::ByteCell(bytes) if image_format(bytes).is_some() => Self::Image,
            Value::ByteCell(_) => Self::Text,
            Value::Bytes(_) | Value::List(_) | Value::Object(_) => Self::Whole,
        })
    }

    /// Classifies the number in a string, other than a cell; `None` if a numeric column cannot hold
    /// it.
    pub(crate) fn of_number_text(text: &str) -> Option<Self> {
        match json::number(text)? {
            Value::Int(value) => Some(Self::of_integer(value)),
            value @ Value::Float(float) if number::says_the_same(text, float) => {
                let is_wide = is_wide_text(text, &value);
                Some(if is_wide {
                    Self::WideFloat
                } else {
                    Self::Float
                })
            }
            _ => number::decimal(text).map(|_| Self::Digits),
        }
    }

    /// Classifies a number of JSON that is written in another way than its float.
    fn of_written(number: &WrittenFloat) -> Self {
        let (text, value) = (number.text(), number.value());
        let is_no_decimal = text.len() > SHORT_TEXT && number::decimal(text).is_none();
        let is_wide = is_no_decimal || (!is_short(value) && is_wide(&Value::Float(value)));
        Self::of_float(is_wide, is_long_number(text, value))
    }

    fn of_float(is_wide: bool, is_long: bool) -> Self {
        match (is_wide, is_long) {
            (false, false) => Self::Float,
            (true, false) => Self::WideFloat,
            (false, true) => Self::LongFloat,
            (true, true) => Self::LongWideFloat,
        }
    }

    fn of_declared(text: &str, dates: &Dates) -> Option<Self> {
        dates
            .micros(text)
            .map(|micros| match dates.is_ambiguous(text, micros) {
                true => Self::AmbiguousDate,
                false => Self::DeclaredDate,
            })
    }

    /// Classifies a date or time of ISO 8601.
    fn of_iso(text: &str) -> Self {
        match text.len() {
            10 => Self::Day,
            _ if has_offset(text) => Self::Instant,
            _ => Self::LocalTime,
        }
    }

    fn of_integer(value: i64) -> Self {
        match value.unsigned_abs() <= MAX_EXACT {
            true => Self::Integer,
            false => Self::BigInteger,
        }
    }

    fn of_cell(text: &str, format: CellFormat, declared: Option<&Dates>) -> Self {
        let text = text.trim();
        if let Some(date) = declared.and_then(|dates| Self::of_declared(text, dates)) {
            return date;
        }
        if let Some(number) = format.number(text) {
            return match json::number(&number) {
                Some(Value::Int(value)) => Self::of_integer(value),
                Some(Value::Float(value)) => {
                    let is_wide = is_wide_text(&number, &Value::Float(value));
                    match !is_wide && number::is_digits_and_e(&number) {
                        true => Self::DigitsAndE,
                        false => Self::of_float(is_wide, is_long_number(&number, value)),
                    }
                }
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
        if Self::of_amount(text).is_some() {
            return Self::Amount;
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

    /// Currency sign of an amount, and the kind of its number; `None` for other text.
    pub(super) fn of_amount(text: &str) -> Option<(char, Self)> {
        let currency = text.chars().find(|c| is_currency_sign(*c))?;
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let before = unsigned.strip_prefix(currency);
        let number = before.or_else(|| unsigned.strip_suffix(currency))?.trim();
        let kind = Self::of_cell(number, CellFormat::default(), None);
        let is_number = kind.is_number()
            || matches!(
                kind,
                Self::DecimalComma
                    | Self::SomeComma
                    | Self::Thousands
                    | Self::Spaced
                    | Self::SpacedComma
            );
        is_number.then_some((currency, kind))
    }

    /// Returns true for a number that a numeric column holds.
    pub(crate) const fn is_number(self) -> bool {
        matches!(
            self,
            Self::Integer
                | Self::BigInteger
                | Self::Digits
                | Self::Float
                | Self::WideFloat
                | Self::LongFloat
                | Self::LongWideFloat
                | Self::DigitsAndE
        )
    }

    /// Plural noun for messages.
    pub(crate) const fn noun(self) -> &'static str {
        match self {
            Self::Bool => "booleans",
            Self::Integer | Self::BigInteger => "integers",
            Self::Digits => "decimals",
            Self::Float | Self::WideFloat | Self::LongFloat | Self::LongWideFloat => "floats",
            Self::DigitsAndE => "digits around an `e`",
            Self::ZeroDigits => "digits after a leading zero",
            Self::DeclaredDate | Self::AmbiguousDate | Self::Instant | Self::LocalTime => {
                "timestamps"
            }
            Self::Day => "dates",
            Self::DecimalComma | Self::SomeComma | Self::Thousands => "digits with commas",
            Self::Spaced | Self::SpacedComma => "digits with spaces",
            Self::Percent => "percentages",
            Self::Amount => "amounts with a currency sign",
            Self::UnclearDate => "dates of an unclear order",
            Self::Missing => "spellings of a missing value",
            Self::NumberText => "numbers as text",
            Self::Text => "texts",
            Self::Image => "images",
            Self::Whole => "lists or objects",
        }
    }
}

/// Classifies text that begins with a digit and is not a plain number.
fn of_signs(text: &str, unsigned: &str) -> Kind {
    if iso_micros(text).is_some() {
        return Kind::of_iso(text);
    }
    if let Some(number) = unsigned.strip_suffix('%') {
        let number = number.trim_end();
        let is_one = number
            .bytes()
            .all(|b| b.is_ascii_digit() || b == b'.' || b == b',');
        return if is_one { Kind::Percent } else { Kind::Text };
    }
    if let Some(spaced) = of_spaces(unsigned) {
        return spaced;
    }
    if let Some((whole, part)) = unsigned.rsplit_once(',') {
        return of_commas(whole, part);
    }
    let day = unsigned.split([' ', 'T']).next().unwrap_or_default();
    let groups: Vec<&str> = day.split(['/', '.', '-']).collect();
    match groups[..] {
        [year, a, b] | [a, b, year] if is_year(year) && are_day_and_month(a, b) => {
            Kind::UnclearDate
        }
        _ => Kind::Text,
    }
}

fn is_year(text: &str) -> bool {
    is_digits(text) && matches!(text.len(), 2 | 4)
}

/// Returns true for a day and a month, in any order.
fn are_day_and_month(a: &str, b: &str) -> bool {
    let number = |text: &str| {
        let is_short = is_digits(text) && text.len() <= 2;
        is_short.then(|| text.parse::<u8>().ok()).flatten()
    };
    let (Some(a), Some(b)) = (number(a), number(b)) else {
        return false;
    };
    (1..=31).contains(&a.max(b)) && (1..=12).contains(&a.min(b))
}

/// Classifies digits with spaces between groups of three; `None` for other text.
fn of_spaces(unsigned: &str) -> Option<Kind> {
    let (whole, part) = match unsigned.split_once([',', '.']) {
        Some((whole, part)) => (whole, Some(part)),
        None => (unsigned, None),
    };
    let mut groups = whole.split(is_group_space);
    let first = groups.next().unwrap_or_default();
    let is_first = is_digits(first) && first.len() <= 3 && !first.starts_with('0');
    let is_grouped = is_first
        && whole.contains(is_group_space)
        && groups.all(|group| is_digits(group) && group.len() == 3);
    (is_grouped && part.is_none_or(is_digits)).then(|| match unsigned.contains(',') {
        true => Kind::SpacedComma,
        false => Kind::Spaced,
    })
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
    let is_indian = || are_indian_groups(&format!("{whole},{thousand}"));
    if is_behind && thousand.len() == 3 && (is_groups(whole, ',') || is_indian()) {
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

/// Returns true for a currency sign of Unicode.
pub(super) const fn is_currency_sign(c: char) -> bool {
    matches!(c, '$' | '\u{a2}'..='\u{a5}' | '\u{e3f}' | '\u{20a0}'..='\u{20cf}')
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Returns true if a float does not fit a decimal.
fn is_wide(value: &Value) -> bool {
    crate::contract::decimal(value).is_none()
}

/// Returns true for a float of at most 9 decimals and 15 digits, which fits a decimal. Such a float
/// is the nearest one to `units / 1e9`, so its shortest text is that number; most floats are found
/// here, without their text.
fn is_short(float: f64) -> bool {
    const SCALE: f64 = 1e9;
    let units = (float * SCALE).round();
    let is_negative_zero = float == 0.0 && float.is_sign_negative();
    float.abs() < 1e6 && (units / SCALE).to_bits() == float.to_bits() && !is_negative_zero
}

/// Returns true if a float in this notation does not fit a decimal; short texts need no check.
fn is_wide_text(text: &str, value: &Value) -> bool {
    let is_short = text.len() <= SHORT_TEXT && !text.contains(['e', 'E']);
    !is_short && (number::decimal(text).is_none() || is_wide(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn a_short_float_fits_a_decimal(units in -1_000_000_000_000_000_i64..1_000_000_000_000_000, places in 0_i32..12, any in proptest::num::f64::ANY) {
            let float = format!("{units}e-{places}").parse::<f64>().unwrap();
            for float in [float, any, -0.0] {
                proptest::prop_assert!(!is_short(float) || !is_wide(&Value::Float(float)), "{float:e}");
            }
        }
    }

    #[test]
    fn cells_are_told_apart_by_their_looks() {
        for (kind, texts) in [
            (Kind::Bool, &["true", " FALSE "][..]),
            (Kind::Integer, &["0", "-17", "+5", "9007199254740992"]),
            (Kind::BigInteger, &["9007199254740993"]),
            (Kind::Digits, &["18446744073709551615"]),
            (
                Kind::Float,
                &[
                    "1.5",
                    ".5",
                    "5.",
                    "1.5e3",
                    "0.1234567890123",
                    "0.30000000000000004",
                    "1234567890123.399902",
                ],
            ),
            (Kind::DigitsAndE, &["1e3", "12E4"]),
            (Kind::ZeroDigits, &["007", "00"]),
            (
                Kind::DecimalComma,
                &["1000,14", "-0,5", "1.234,56", "1234,567"],
            ),
            (Kind::SomeComma, &["1,234", "-999,000"]),
            (
                Kind::Thousands,
                &["1,234,567", "1,234.50", "66,62,530", "4,05,638.55"],
            ),
            (Kind::Percent, &["17%", "-3.5 %", "3,5%"]),
            (
                Kind::Amount,
                &[
                    "$1,008.00",
                    "-$5",
                    "$ -5",
                    "12.50 €",
                    "1.234,56 €",
                    "1\u{202f}234,56\u{a0}€",
                    "£7",
                ],
            ),
            (Kind::Missing, &["NA", "?", " n/a ", "-"]),
            (
                Kind::Text,
                &[
                    "unknown",
                    "12 EUR",
                    "$",
                    "$5 off",
                    "US$5",
                    "$007",
                    "3 days",
                    "2023-02-30x",
                    "1,2,3",
                    "a,b",
                    "0x1F",
                    "1e400",
                    "100-10-1000",
                    "1.2.3",
                    "32/13/2020",
                ],
            ),
        ] {
            check_kind(kind, texts);
        }
    }

    #[test]
    fn times_and_dates_are_told_apart_by_their_looks() {
        for (kind, texts) in [
            (
                Kind::Instant,
                &[
                    "2024-02-29T13:05:09Z",
                    "2024-02-29 13:05:09+02:00",
                    "9999-12-31T23:59:59Z",
                ][..],
            ),
            (
                Kind::LocalTime,
                &[
                    "2024-02-29T13:05:09",
                    "2024-02-29 13:05",
                    "9999-12-31 23:59:59.999999",
                ],
            ),
            (Kind::Day, &["2024-02-29", "9999-12-31"]),
            (
                Kind::UnclearDate,
                &["01/02/2020", "31.12.20", "1-2-2020 13:05", "2020/01/02"],
            ),
        ] {
            check_kind(kind, texts);
        }
    }

    #[test]
    fn floats_of_many_digits_are_of_their_own_kinds() {
        check_kind(Kind::LongFloat, &["0.123456789012345678"]);
        check_kind(Kind::LongWideFloat, &["0.12345678901234567891"]);
        check_kind(
            Kind::WideFloat,
            &["1e300", "1e-30", "0.10000000000000000555"],
        );
    }

    #[test]
    fn digits_with_spaces_between_thousands_are_of_their_own_kinds() {
        check_kind(
            Kind::Spaced,
            &["12 345", "-1\u{a0}234\u{202f}567", "1\u{2009}234.5"],
        );
        check_kind(Kind::SpacedComma, &["12 345,67", "1\u{a0}234,5"]);
        check_kind(Kind::Text, &["12 34", "012 345", "1 234,5,6", "1234 567"]);
    }

    #[test]
    fn numbers_of_json_are_floats_with_and_without_digits_to_lose() {
        for (kind, texts) in [
            (Kind::Float, &["1.10", "1e5", "0.10000000000000001"][..]),
            (Kind::WideFloat, &["-0", "1.0e300", "1.50e-30"]),
            (Kind::LongFloat, &["1234567.123456789012345678"]),
            (Kind::LongWideFloat, &["0.12345678901234567891"]),
        ] {
            for text in texts {
                let value = Value::parse(text.as_bytes()).unwrap();
                assert!(matches!(value, Value::Written(_)), "{text:?}");
                let found = Kind::of(&value, CellFormat::default(), None);
                assert_eq!(found, Some(kind), "{text:?}");
            }
        }
    }

    #[test]
    fn a_number_of_a_wide_decimal_column_is_named_a_decimal() {
        for text in ["0", "-5", "18446744073709551615"] {
            let kind = Kind::of(&Value::Digits(text.into()), CellFormat::default(), None);
            assert_eq!(kind.map(Kind::noun), Some("decimals"), "{text}");
        }
    }

    fn check_kind(kind: Kind, texts: &[&str]) {
        for text in texts {
            let value = Value::Cell((*text).to_owned());
            let found = Kind::of(&value, CellFormat::default(), None);
            assert_eq!(found, Some(kind), "{text:?}");
        }
    }
}
