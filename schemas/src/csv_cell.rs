//! Text of a CSV cell as a number, a timestamp or a missing value.
//!
//! Numbers are those of JSON, and besides: `.5`, `5.`, a plus sign in front, and what `csv.decimal_separator`, `csv.thousands_separator`,
//! `csv.percent` and `csv.currency` say. Digits that begin with 0 (`007`) are no number: the zeros mean something. A plus sign in front of seven
//! and more digits without a point or a power of ten is that of a telephone number.

use std::borrow::Cow;

use crate::{
    config::{CsvConfig, NullSpellings},
    number,
};

/// The usual spellings of a missing value: those of pandas, R, SQL, spreadsheets and statistical offices.
const MISSING: [&str; 34] = [
    "NA", "N/A", "n/a", "na", "N.A.", "n.a.", "NaN", "nan", "NAN", "-NaN", "-nan", "NULL", "Null",
    "null", "(null)", "None", "none", "NIL", "nil", "<NA>", "#N/A", "#NA", "#N/A N/A", "#NULL!",
    "#VALUE!", "#DIV/0!", "1.#QNAN", "\\N", "-", "--", "?", ".", "..", ":",
];

/// Delimiters that are detected where none is configured.
pub const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// Spaces between groups of thousands: space, no-break space, thin space, narrow no-break space.
const GROUP_SPACES: [char; 4] = [' ', '\u{a0}', '\u{2009}', '\u{202f}'];

/// Most digits behind a plus sign of an integer.
const PLUS_DIGITS: usize = 6;

/// Format of the cells of a source.
///
/// ```
/// use feedline_schemas::{config::CsvConfig, csv_cell::CellFormat};
///
/// let csv = CsvConfig {
///     decimal_separator: Some(','),
///     thousands_separator: Some('.'),
///     ..CsvConfig::default()
/// };
/// let cells = CellFormat::new(&csv);
/// assert_eq!(cells.number("1.234,56").as_deref(), Some("1234.56"));
/// assert_eq!(cells.number("007"), None);
/// assert!(cells.is_missing("N/A"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellFormat {
    decimal: char,
    thousands: Option<char>,
    percent: bool,
    currency: Option<char>,
    nulls: NullSpellings,
}

impl Default for CellFormat {
    fn default() -> Self {
        Self::new(&CsvConfig::default())
    }
}

impl CellFormat {
    /// As `csv` says.
    #[must_use]
    pub fn new(csv: &CsvConfig) -> Self {
        Self {
            decimal: csv.decimal_separator.unwrap_or('.'),
            thousands: csv.thousands_separator,
            percent: csv.percent,
            currency: csv.currency,
            nulls: csv.null_spellings,
        }
    }

    /// Returns true if `5%` is a number.
    #[must_use]
    pub const fn reads_percents(&self) -> bool {
        self.percent
    }

    /// True for a cell that is, without the spaces around it, a usual spelling of a missing value.
    #[must_use]
    pub fn is_missing(self, trimmed: &str) -> bool {
        self.nulls.is_usual() && trimmed.len() <= 8 && MISSING.contains(&trimmed)
    }

    /// The cell as a JSON number; nothing when it is none.
    #[must_use]
    pub fn number(self, text: &str) -> Option<Cow<'_, str>> {
        let text = text.trim();
        let is_plain = self.decimal == '.' && self.thousands.is_none();
        if is_plain && number::is_number(text) {
            return Some(Cow::Borrowed(text));
        }
        if let Some(currency) = self.currency.filter(|sign| text.contains(*sign)) {
            let number = without_currency(text, currency)?;
            let plain = Self {
                percent: false,
                currency: None,
                ..self
            };
            let number = plain.number(&number)?;
            return Some(Cow::Owned(number.into_owned()));
        }
        let text = match text.strip_suffix('%') {
            Some(before) if self.percent => before.trim_end(),
            Some(_) => return None,
            None => text,
        };
        let (sign, body) = match text.as_bytes().first()? {
            b'-' => ("-", &text[1..]),
            b'+' if !is_telephone(&text[1..]) => ("", &text[1..]),
            _ => ("", text),
        };
        let (mantissa, power) = body.split_at(body.find(['e', 'E']).unwrap_or(body.len()));
        let (whole, part) = match mantissa.split_once(self.decimal) {
            Some((whole, part)) => (whole, Some(part)),
            None => (mantissa, None),
        };
        let whole = match self.thousands {
            Some(sign) if whole.contains(|c: char| separates_groups(c, sign)) => {
                // The separator of `7.800E+02` is a decimal one.
                let is_scientific = part.is_none() && !power.is_empty();
                let joined = join_groups(whole, sign).filter(|_| !is_scientific);
                Cow::Owned(joined?)
            }
            _ => Cow::Borrowed(whole),
        };
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let is_empty = whole.is_empty() && part.is_none_or(str::is_empty);
        if is_empty || !is_digits(&whole) || !part.is_none_or(is_digits) {
            return None;
        }
        let filled = |digits: &str| match digits {
            "" => "0".to_owned(),
            digits => digits.to_owned(),
        };
        let whole = filled(&whole);
        let part = part.map(|part| format!(".{}", filled(part)));
        let json = format!("{sign}{whole}{}{power}", part.unwrap_or_default());
        number::is_number(&json).then_some(Cow::Owned(json))
    }
}

/// The number of an amount, with its sign: `-$5` and `$-5` are `-5`, and so is `-5 $`.
fn without_currency(amount: &str, currency: char) -> Option<String> {
    let unsigned = amount.strip_prefix(['-', '+']).unwrap_or(amount);
    let sign = &amount[..amount.len() - unsigned.len()];
    let before = unsigned.strip_prefix(currency).map(str::trim_start);
    let number = before.or_else(|| unsigned.strip_suffix(currency).map(str::trim_end))?;
    let has_two_signs = !sign.is_empty() && number.starts_with(['-', '+']);
    (!has_two_signs).then(|| format!("{sign}{number}"))
}

/// Returns true for the digits of a telephone number, given the text behind its plus sign.
fn is_telephone(text: &str) -> bool {
    text.len() > PLUS_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns true for a character between groups of thousands, given the declared separator `sign`. A
/// declared space means any space that programs write there, and an apostrophe that of keyboards and that
/// of typography.
#[must_use]
pub fn separates_groups(c: char, sign: char) -> bool {
    c == sign
        || is_group_space(c) && is_group_space(sign)
        || is_apostrophe(c) && is_apostrophe(sign)
}

const fn is_apostrophe(c: char) -> bool {
    matches!(c, '\'' | '\u{2019}')
}

/// Returns true for a space that programs write between groups of thousands.
#[must_use]
pub fn is_group_space(c: char) -> bool {
    GROUP_SPACES.contains(&c)
}

/// The digits of groups of three, or with commas of Indian groups, such as `4,05,638`; `None` for groups of
/// other lengths.
#[must_use]
pub fn join_groups(whole: &str, sign: char) -> Option<String> {
    let groups = whole.split(|c: char| separates_groups(c, sign));
    let lengths: Vec<usize> = groups.map(str::len).collect();
    let (first, others) = lengths.split_first()?;
    let is_first = (1..=3).contains(first) && !whole.starts_with('0');
    let is_grouped = is_first && others.iter().all(|length| *length == 3);
    (is_grouped || (sign == ',' && are_indian_groups(whole)))
        .then(|| whole.replace(|c: char| separates_groups(c, sign), ""))
}

/// Returns true for digits with commas before the last three and before each two in front of them, such as
/// `4,05,638`.
#[must_use]
pub fn are_indian_groups(whole: &str) -> bool {
    let is_digits = |group: &str| group.bytes().all(|byte| byte.is_ascii_digit());
    let Some((pairs, last)) = whole.rsplit_once(',') else {
        return false;
    };
    let Some((first, middle)) = pairs.split_once(',') else {
        return false;
    };
    let is_first = (1..=2).contains(&first.len()) && is_digits(first) && !first.starts_with('0');
    let is_pair = |group: &str| group.len() == 2 && is_digits(group);
    is_first && middle.split(',').all(is_pair) && last.len() == 3 && is_digits(last)
}

/// Refuses signs that could be taken for another part of a number.
///
/// # Errors
/// The key below the source, and the reason.
pub fn check(csv: &CsvConfig) -> Result<(), (&'static str, String)> {
    let is_part =
        |sign: char| sign.is_alphanumeric() || sign.is_control() || "+-%\"".contains(sign);
    let decimal = csv.decimal_separator.unwrap_or('.');
    if is_part(decimal) || decimal.is_whitespace() {
        let shown = decimal.escape_debug();
        let reason = format!("`{shown}` cannot be a decimal separator; write `\".\"` or `\",\"`");
        return Err(("csv.decimal_separator", reason));
    }
    if let Some(sign) = csv.currency {
        let is_separator = sign == decimal || Some(sign) == csv.thousands_separator;
        if is_part(sign) || sign.is_whitespace() || is_separator {
            let shown = sign.escape_debug();
            let reason = format!(
                "`{shown}` cannot be a currency sign; write one such as `\"$\"` or `\"€\"`"
            );
            return Err(("csv.currency", reason));
        }
    }
    match csv.thousands_separator {
        Some(sign) if is_part(sign) => {
            let shown = sign.escape_debug();
            let reason = format!(
                "`{shown}` cannot be a thousands separator; write `\".\"`, `\",\"`, `\"'\"` or a space"
            );
            Err(("csv.thousands_separator", reason))
        }
        Some(sign) if sign == decimal => {
            let reason = format!(
                "`{sign}` is the decimal sign already; declare both, `csv.decimal_separator` too"
            );
            Err(("csv.thousands_separator", reason))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(decimal: char, thousands: Option<char>, percent: bool) -> CellFormat {
        CellFormat::new(&CsvConfig {
            decimal_separator: Some(decimal),
            thousands_separator: thousands,
            percent,
            ..CsvConfig::default()
        })
    }

    fn check_number(format: CellFormat, text: &str, expected: Option<&str>) {
        assert_eq!(format.number(text).as_deref(), expected, "{text:?}");
    }

    #[test]
    fn cells_are_numbers_as_people_and_programs_write_them() {
        let usual = CellFormat::default();
        for (text, expected) in [
            (" 12 ", Some("12")),
            ("1.50", Some("1.50")),
            (".5", Some("0.5")),
            ("-.5", Some("-0.5")),
            ("5.", Some("5.0")),
            ("+3.5", Some("3.5")),
            ("1e-3", Some("1e-3")),
            ("+491701234567", None),
            ("007", None),
            ("1,234", None),
            ("17%", None),
            (".", None),
            ("-", None),
            ("e5", None),
            ("inf", None),
            ("1.2.3", None),
            ("12 EUR", None),
            ("", None),
        ] {
            check_number(usual, text, expected);
        }
    }

    #[test]
    fn signs_are_read_as_they_are_declared() {
        let continental = format(',', Some('.'), false);
        for (text, expected) in [
            ("1000,14", Some("1000.14")),
            ("1.234.567,5", Some("1234567.5")),
            ("-0,5", Some("-0.5")),
            ("12", Some("12")),
            ("1.5", None),
            ("0.123", None),
            ("17 %", None),
        ] {
            check_number(continental, text, expected);
        }
        let english = format('.', Some(','), false);
        for (text, expected) in [
            ("1,234.50", Some("1234.50")),
            ("4,05,638.55", Some("405638.55")),
            ("-66,62,530", Some("-6662530")),
            ("1,23,45,678", Some("12345678")),
            ("123,45,678", None),
            ("05,63,800", None),
            ("1,2,345", None),
            ("1,23,4567", None),
            ("1,23,45", None),
            ("1,234,56,789", None),
            ("1,234E2", None),
            ("1,234.5E2", Some("1234.5E2")),
            ("1234E2", Some("1234E2")),
        ] {
            check_number(english, text, expected);
        }
        check_number(continental, "7.800E+02", None);
        check_number(continental, "7,800E+02", Some("7.800E+02"));
        check_number(continental, "4.05.638", None);
        check_number(format(',', None, false), "1.5", None);
        for sign in ['\'', '\u{2019}'] {
            let swiss = format('.', Some(sign), false);
            for text in ["18'194.50", "18\u{2019}194.50"] {
                check_number(swiss, text, Some("18194.50"));
            }
            check_number(swiss, "1'81.5", None);
        }
        for sign in GROUP_SPACES {
            let spaced = format(',', Some(sign), false);
            for (text, expected) in [
                ("12 345,67", Some("12345.67")),
                ("-1\u{a0}234\u{a0}567", Some("-1234567")),
                ("12\u{202f}345", Some("12345")),
                ("12\u{2009}345", Some("12345")),
                ("12 34", None),
                ("12\t345", None),
                ("12  345", None),
            ] {
                check_number(spaced, text, expected);
            }
        }
        check_number(format('.', None, true), "17 %", Some("17"));
        check_number(format(',', None, true), "17,5%", Some("17.5"));
    }

    #[test]
    fn amounts_are_numbers_in_the_declared_currency_alone() {
        let dollars = CellFormat::new(&CsvConfig {
            thousands_separator: Some(','),
            currency: Some('$'),
            percent: true,
            ..CsvConfig::default()
        });
        for (text, expected) in [
            ("$1,008.00", Some("1008.00")),
            (" $ 5 ", Some("5")),
            ("-$5", Some("-5")),
            ("$-5", Some("-5")),
            ("5\u{a0}$", Some("5")),
            ("17", Some("17")),
            ("17%", Some("17")),
            ("-$-5", None),
            ("$5%", None),
            ("$$5", None),
            ("5$5", None),
            ("$", None),
            ("€5", None),
        ] {
            check_number(dollars, text, expected);
        }
        check_number(CellFormat::default(), "$5", None);
        let euros = CsvConfig {
            currency: Some('€'),
            ..CsvConfig::default()
        };
        check_number(CellFormat::new(&euros), "12.50 €", Some("12.50"));
        assert!(check(&euros).is_ok());
        for sign in ['E', '5', '.', ' ', '%'] {
            let csv = CsvConfig {
                currency: Some(sign),
                ..CsvConfig::default()
            };
            assert_eq!(check(&csv).unwrap_err().0, "csv.currency", "{sign:?}");
        }
    }

    #[test]
    fn the_usual_spellings_are_missing_unless_they_are_not_wanted() {
        let usual = CellFormat::default();
        for spelling in MISSING {
            assert!(usual.is_missing(spelling) && usual.number(spelling).is_none());
        }
        assert!(!usual.is_missing("unknown") && !usual.is_missing("0"));
        let none = CellFormat::new(&CsvConfig {
            null_spellings: NullSpellings::None,
            ..CsvConfig::default()
        });
        assert!(!none.is_missing("NA"));
    }

    #[test]
    fn signs_that_cannot_be_any_are_refused() {
        let refused = |decimal, thousands| {
            let csv = CsvConfig {
                decimal_separator: decimal,
                thousands_separator: thousands,
                ..CsvConfig::default()
            };
            check(&csv)
        };
        assert!(refused(Some(','), Some('.')).is_ok() && refused(None, Some(' ')).is_ok());
        let (key, _) = refused(Some('5'), None).unwrap_err();
        assert_eq!(key, "csv.decimal_separator");
        let (key, reason) = refused(None, Some('.')).unwrap_err();
        assert_eq!(key, "csv.thousands_separator");
        assert!(reason.contains("declare both"), "{reason}");
    }
}
