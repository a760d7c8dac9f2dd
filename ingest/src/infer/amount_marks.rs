//! Marks of amounts that no key of `csv` reads: codes of currencies, parentheses around negative amounts, minus signs
//! behind them, indicators of debit and credit, and a dash in place of decimals.

use feedline_schemas::{config::CsvConfig, csv_cell::CellFormat};

use super::{kind::is_currency_sign, marked_numbers::APOSTROPHES};

/// Most bytes of an amount with its marks.
const MAX_AMOUNT: usize = 40;
/// Codes of currencies in front of amounts or behind them.
const CURRENCY_CODES: [&str; 22] = [
    "AUD", "BRL", "CAD", "CHF", "CNY", "CZK", "DKK", "EUR", "GBP", "HUF", "INR", "JPY", "KRW",
    "MXN", "NOK", "NZD", "PLN", "RUB", "SEK", "TRY", "USD", "ZAR",
];
/// Indicators of credit and debit behind amounts.
const DEBIT_CREDIT: [&str; 4] = ["CR", "DR", "Cr", "Dr"];
/// German ones, which are also those of units. They are behind amounts with a decimal comma.
const GERMAN_DEBIT_CREDIT: [&str; 2] = ["H", "S"];
/// Dashes in place of decimals, as in `852,-`.
const DASHES: [&str; 6] = [",--", ",-", ",\u{2013}", ".--", ".-", ".\u{2013}"];

/// Start of an SQL expression that puts `-` before negative amounts with such marks. Debit is negative, as in statements
/// of banks. A currency may be behind the other mark.
pub(super) const SIGN_SQL: &str = "concat(case when regexp_like(\"COLUMN\", \
     '[(]|-.*[0-9]|[0-9][^0-9,.]*-|(D[Rr]|S) *([^A-Za-z]|[A-Z]{3})? *$') then '-' else '' end, ";

/// Decimal separator of an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AmountDecimal {
    Point,
    Comma,
    /// It has none, or a separator that may be one of thousands.
    Open,
}

impl AmountDecimal {
    /// Decimal separator of a text that is a number with such marks; `None` for other text.
    pub(super) fn of(text: &str) -> Option<Self> {
        if text.len() > MAX_AMOUNT || !text.bytes().any(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let mut rest = text;
        let mut has_mark = false;
        let mut needs_comma = false;
        while let Some((inside, mark)) = strip_mark(rest) {
            rest = inside.trim();
            has_mark |= mark != AmountMark::Sign;
            needs_comma |= mark == AmountMark::GermanSide;
        }
        let dash = DASHES.iter().find_map(|dash| {
            let number = rest.strip_suffix(*dash)?;
            Some((number, dash.starts_with(',')))
        });
        if !has_mark && dash.is_none() {
            return None;
        }
        let (number, shown) = dash.map_or((rest, None), |(number, comma)| (number, Some(comma)));
        let has = |is_comma: bool| shown != Some(!is_comma) && is_read(number, is_comma);
        let decimal = match (has(false), has(true)) {
            (true, true) => Self::Open,
            (true, false) => Self::Point,
            (false, true) => Self::Comma,
            (false, false) => return None,
        };
        (!needs_comma || decimal == Self::Comma).then_some(decimal)
    }
}

/// Returns true for digits in parentheses or with a minus sign behind them.
pub(super) fn are_marked_digits(text: &str) -> bool {
    let digits = inside_parentheses(text).or_else(|| text.strip_suffix('-'));
    let is_digit = |byte: u8| byte.is_ascii_digit();
    digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(is_digit))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AmountMark {
    /// A sign of currency or percent, which keys of `csv` read alone.
    Sign,
    /// A mark that no key reads.
    Other,
    /// One of [`GERMAN_DEBIT_CREDIT`].
    GermanSide,
}

/// Text without its outermost mark; `None` for a text without marks.
fn strip_mark(text: &str) -> Option<(&str, AmountMark)> {
    let has_dash = DASHES.iter().any(|dash| text.ends_with(*dash));
    let minus = text.strip_suffix('-').filter(|_| !has_dash);
    if let Some(inside) = inside_parentheses(text).or(minus) {
        return Some((inside, AmountMark::Other));
    }
    let strip_side = |side: &&str| text.strip_suffix(*side);
    let mut codes = CURRENCY_CODES.iter();
    let coded = codes.find_map(|code| {
        let number = text.strip_prefix(*code);
        number.or_else(|| text.strip_suffix(*code))
    });
    if let Some(inside) = coded.or_else(|| DEBIT_CREDIT.iter().find_map(strip_side)) {
        return Some((inside, AmountMark::Other));
    }
    if let Some(inside) = GERMAN_DEBIT_CREDIT.iter().find_map(strip_side) {
        return Some((inside, AmountMark::GermanSide));
    }
    let signed = text.strip_prefix(is_currency_sign);
    let signed = signed.or_else(|| text.strip_suffix(|c: char| c == '%' || is_currency_sign(c)));
    signed.map(|inside| (inside, AmountMark::Sign))
}

fn inside_parentheses(text: &str) -> Option<&str> {
    text.strip_prefix('(')?.strip_suffix(')')
}

/// Returns true for a number with this decimal separator, with or without a separator of thousands.
fn is_read(text: &str, is_comma: bool) -> bool {
    let (decimal, group) = if is_comma { (',', '.') } else { ('.', ',') };
    let mut signs = [group, ' '].into_iter().chain(APOSTROPHES);
    signs.any(|sign| {
        let csv = CsvConfig {
            decimal_separator: Some(decimal),
            thousands_separator: Some(sign),
            ..CsvConfig::default()
        };
        CellFormat::new(&csv).number(text).is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::{AmountDecimal, are_marked_digits};

    #[test]
    fn amounts_of_spreadsheets_accounting_and_statements_have_their_decimal_separator() {
        use AmountDecimal::{Comma, Open, Point};
        for (decimal, texts) in [
            (
                Point,
                &[
                    "($1,158.42)",
                    "($ 9.00)",
                    "$(3.50)",
                    "9,552.70 CR",
                    "9,552.70DR",
                    "1,234.56-",
                    "(19.1%)",
                    "EUR 5.50",
                    "CHF 7'810.35",
                    "CHF 852.-",
                    "852.37- €",
                ][..],
            ),
            (
                Comma,
                &[
                    "1.234,56-",
                    "852,-",
                    "11.250,-",
                    "852,-- €",
                    "852,37 H",
                    "11.250,22 S",
                    "(9.220,01)",
                    "1 234,50-",
                    "1.523,54 EUR",
                ],
            ),
            (Open, &["500 CR", "EUR 7", "(1,158)", "1.158-", "(19%)"]),
        ] {
            for text in texts {
                assert_eq!(AmountDecimal::of(text), Some(decimal), "{text}");
            }
        }
    }

    #[test]
    fn other_texts_are_no_amounts() {
        for text in [
            "", "-", "()", "CR", "EUR", "852,37", "$5", "5%", "852,4 kg", "38 S", "1.25 H", "(a)",
            "(1) (2)", "007-", "1,2,3-", "SKU 12",
        ] {
            assert_eq!(AmountDecimal::of(text), None, "{text}");
        }
        for (text, expected) in [("(5)", true), ("5-", true), ("5", false), ("-", false)] {
            assert_eq!(are_marked_digits(text), expected, "{text}");
        }
    }
}
