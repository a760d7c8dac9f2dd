//! Text columns as numbers, by their declared number format.
//!
//! A number is digits with an optional decimal separator among, before or after them, a sign in
//! front and a power of ten (`e-3`) behind. Digits before the decimal separator may be in groups:
//! the first of one to three that do not begin with 0, all others of three. Commas also separate
//! Indian groups (`4,05,638`). Groups and a power of ten without decimals (`7.800E+02`) are no number.
//! `0.123` is no group of thousands, so most values of a source with the wrong format become missing;
//! `1.234` there is a thousand times too large, which no rule can detect.

use feedline_schemas::{
    config::DatasetConfig,
    csv_cell::{join_groups, separates_groups},
    record::{ColumnType, RecordSchema},
    transform::NumberSigns,
};

use crate::Error;

/// The signs of `config`; none where it declares none.
pub(crate) fn of(config: &DatasetConfig) -> Option<NumberSigns> {
    let is_declared = config.decimal_separator.is_some() || config.thousands_separator.is_some();
    is_declared.then(|| NumberSigns {
        decimal: config.decimal_separator.unwrap_or('.'),
        thousands: config.thousands_separator,
    })
}

/// Those of a column: what landed as text. Other types that are read as text have signs of their own.
pub(crate) fn of_column(
    signs: Option<NumberSigns>,
    schema: &RecordSchema,
    name: &str,
) -> Option<NumberSigns> {
    let mut columns = schema.columns.iter();
    let column = columns.find(|column| column.name == name)?;
    signs.filter(|_| column.r#type == ColumnType::Utf8)
}

/// No sign can be taken for another part of a number.
pub(crate) fn check(config: &DatasetConfig) -> Result<(), Error> {
    let Some(signs) = of(config) else {
        return Ok(());
    };
    let is_part = |sign: char| sign.is_alphanumeric() || sign.is_control() || "+-".contains(sign);
    if is_part(signs.decimal) || signs.decimal.is_whitespace() {
        return Err(Error::config(
            "dataset.decimal_separator",
            format!(
                "`{}` cannot be a decimal separator, write `\".\"` or `\",\"`",
                signs.decimal.escape_debug()
            ),
        ));
    }
    match signs.thousands {
        Some(sign) if is_part(sign) => Err(Error::config(
            "dataset.thousands_separator",
            format!(
                "`{}` cannot be a thousands separator, write `\".\"`, `\",\"`, `\"'\"` or a space",
                sign.escape_debug()
            ),
        )),
        Some(sign) if sign == signs.decimal => Err(Error::config(
            "dataset.thousands_separator",
            format!(
                "`{sign}` is the decimal separator already; declare both, `dataset.decimal_separator` too"
            ),
        )),
        _ => Ok(()),
    }
}

/// The number that a text is, spaces around it left aside; as the language writes numbers where no signs are given.
pub(crate) fn number(text: &str, signs: Option<NumberSigns>) -> Option<f64> {
    let text = text.trim();
    match signs {
        None => text.parse().ok(),
        Some(signs) => plain(text, signs)?.parse().ok(),
    }
}

/// The text with a point and without groups; `None` for separators in other positions.
fn plain(text: &str, signs: NumberSigns) -> Option<String> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !unsigned.contains(|c: char| c.is_ascii_digit()) {
        // Such as `inf`.
        return Some(text.to_owned());
    }
    let power = unsigned.find(['e', 'E']).unwrap_or(unsigned.len());
    let (digits, power) = unsigned.split_at(power);
    let split = digits.split_once(signs.decimal);
    let (whole, part) = split.unwrap_or((digits, ""));
    let whole = match signs.thousands {
        Some(sign) if whole.contains(|c: char| separates_groups(c, sign)) => {
            // The separator of `7.800E+02` is a decimal one.
            let is_scientific = split.is_none() && !power.is_empty();
            join_groups(whole, sign).filter(|_| !is_scientific)?
        }
        _ => whole.to_owned(),
    };
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let sign = &text[..text.len() - unsigned.len()];
    (is_digits(&whole) && is_digits(part)).then(|| format!("{sign}{whole}.{part}{power}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::pipeline;

    const CONTINENTAL: NumberSigns = NumberSigns {
        decimal: ',',
        thousands: Some('.'),
    };

    fn check_number(signs: NumberSigns, text: &str, expected: Option<f64>) {
        let found = number(text, Some(signs)).map(f64::to_bits);
        assert_eq!(found, expected.map(f64::to_bits), "{text:?}");
    }

    #[test]
    fn trap_39_numbers_are_read_by_the_signs_they_are_written_with() {
        for (text, expected) in [
            ("1.234,56", 1234.56),
            ("1234,56", 1234.56),
            (" -1.234.567,5 ", -1_234_567.5),
            ("+7", 7.0),
            ("12.345", 12_345.0),
            ("999", 999.0),
            ("0,125", 0.125),
            (",5", 0.5),
            ("5,", 5.0),
            ("1,5e3", 1500.0),
            ("1.500,25E-2", 15.0025),
            ("-0", -0.0),
            ("inf", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
        ] {
            check_number(CONTINENTAL, text, Some(expected));
        }
        let ungrouped = NumberSigns {
            decimal: ',',
            thousands: None,
        };
        check_number(ungrouped, "1234,5", Some(1234.5));
        check_number(ungrouped, "1.234", None);
        let english = NumberSigns {
            decimal: '.',
            thousands: Some(','),
        };
        check_number(english, "1,234.5", Some(1234.5));
        check_number(english, "1.5", Some(1.5));
        check_number(english, "4,05,638.5", Some(405_638.5));
        let spaced = NumberSigns {
            decimal: ',',
            thousands: Some('\u{202f}'),
        };
        check_number(spaced, "1\u{202f}234,5", Some(1234.5));
        check_number(spaced, "1 234,5", Some(1234.5));
        check_number(spaced, "1\u{a0}234\u{2009}567", Some(1_234_567.0));
        check_number(spaced, "1.234,5", None);
    }

    #[test]
    fn trap_39_what_is_no_number_by_its_signs_is_none() {
        for text in [
            "",
            "-",
            ",",
            ".",
            "1,2,3",
            "1,234.5",
            "1.5",
            "12.34",
            "1234.567",
            "0.123",
            "1..234",
            ".234",
            "1.234.",
            "1.2345",
            "7.800E+02",
            "4.05.638",
            "1,5 e3",
            "1e",
            "1e1,5",
            "1e1.000",
            "--1",
            "1-",
            "1,5%",
            "12 EUR",
            "0x10",
            "1_000",
            "e5",
            "\u{661}\u{662}",
            "\u{2212}5",
        ] {
            check_number(CONTINENTAL, text, None);
        }
    }

    #[test]
    fn trap_39_signs_that_would_be_taken_for_something_else_are_refused() {
        for (keys, message) in [
            (
                "decimal_separator = \"e\"",
                "`dataset.decimal_separator`: `e` cannot",
            ),
            (
                "decimal_separator = \"-\"",
                "`dataset.decimal_separator`: `-` cannot",
            ),
            (
                "decimal_separator = \" \"",
                "`dataset.decimal_separator`: ` ` cannot",
            ),
            (
                "thousands_separator = \"0\"",
                "`dataset.thousands_separator`: `0` cannot",
            ),
            (
                "thousands_separator = \".\"",
                "`dataset.thousands_separator`: `.` is the decimal separator",
            ),
            (
                "decimal_separator = \",\"\nthousands_separator = \",\"",
                "`dataset.thousands_separator`: `,` is the decimal separator",
            ),
        ] {
            let config = pipeline(&format!("sources = [\"a\"]\n{keys}\n"));
            let error = check(config.dataset.as_ref().unwrap()).unwrap_err();
            assert!(error.to_string().starts_with(message), "{error}");
        }
        let config =
            pipeline("sources = [\"a\"]\ndecimal_separator = \",\"\nthousands_separator = \" \"\n");
        assert!(check(config.dataset.as_ref().unwrap()).is_ok());
    }

    proptest! {
        /// Every number reads back as it was written, with groups and without.
        #[test]
        fn trap_39_what_is_written_with_signs_reads_back_the_same(value in -1e15_f64..1e15) {
            let text = format!("{value}");
            let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
            let (sign, digits) = whole.split_at(usize::from(whole.starts_with('-')));
            let first = digits.len() % 3;
            let (head, tail) = digits.split_at(first);
            let tail: Vec<&str> = (0..tail.len() / 3).map(|i| &tail[3 * i..3 * i + 3]).collect();
            let head = (!head.is_empty()).then_some(head);
            let groups: Vec<&str> = head.into_iter().chain(tail).collect();
            for whole in [groups.join("."), digits.to_owned()] {
                let found = number(&format!("{sign}{whole},{part}"), Some(CONTINENTAL));
                prop_assert_eq!(found.map(f64::to_bits), Some(value.to_bits()));
            }
        }
    }
}
