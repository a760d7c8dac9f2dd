//! JSON numbers.

use std::fmt::{self, Write};

use feedline_schemas::number::{self, Number};

use crate::value::Value;

/// A JSON number with the float that is nearest to it, and its text, which is not the canonical form
/// of the float: `1.10`, `1e5`, or more digits than the float holds.
#[derive(Clone, Debug, PartialEq)]
pub struct WrittenFloat {
    value: f64,
    text: Box<str>,
}

impl WrittenFloat {
    /// The nearest float.
    pub fn value(&self) -> f64 {
        self.value
    }

    /// The number as it is written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns true if the text is one way to write the float, so nothing is rounded.
    pub fn is_exact(&self) -> bool {
        number::is_text_of(&self.text, self.value)
    }

    /// Appends its canonical form.
    pub(crate) fn write_canonical(&self, out: &mut String) {
        write_canonical(&self.text, self.value, out);
    }
}

/// Reads `text` as a JSON number with a 64-bit value, as [`number::number`] does.
pub fn number(text: &str) -> Option<Value> {
    number::number(text).map(|number| match number {
        Number::Int(value) => Value::Int(value),
        Number::Float(value) => Value::Float(value),
    })
}

/// Reads `text` as [`number()`] does, but keeps it if it is not the canonical form of its float.
pub fn written_number(text: &str) -> Option<Value> {
    number(text).map(|number| match number {
        Value::Float(value) if !is_canonical(text, value) => Value::Written(WrittenFloat {
            value,
            text: text.into(),
        }),
        number => number,
    })
}

/// Appends the canonical form of a number that is written in another way: the fewest digits that
/// read back as its float, or its text if that has digits that the float does not hold. Each notation
/// of such a number has a canonical form of its own.
pub(super) fn write_canonical(text: &str, value: f64, out: &mut String) {
    match number::is_text_of(text, value) {
        true => out.push_str(&format!("{value:?}")),
        false => out.push_str(text),
    }
}

/// Returns true if `text` is the canonical form of `value`, which was read from it.
pub(super) fn is_canonical(text: &str, value: f64) -> bool {
    is_shortest(text) || (!is_padded(text) && is_printed(text, value))
}

/// Returns true if a float in this notation has the fewest digits. Decimals of up to 15 digits are
/// all different floats, so none has a shorter form. Very small and large floats have an exponent.
fn is_shortest(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let Some((whole, fraction)) = digits.split_once('.') else {
        return false;
    };
    let is_plain = fraction.bytes().all(|byte| byte.is_ascii_digit());
    let has_end = fraction == "0" || !fraction.ends_with('0');
    let is_small = whole == "0" && fraction.starts_with("000");
    is_plain && has_end && !is_small && whole.len() + fraction.len() <= 15
}

/// Returns true for a number with a needless zero at its end, such as `1.10`.
fn is_padded(text: &str) -> bool {
    let fraction = text.split_once('.').map_or("", |(_, fraction)| fraction);
    fraction.len() > 1
        && fraction.ends_with('0')
        && fraction.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns true if `value` is printed as `text`.
fn is_printed(text: &str, value: f64) -> bool {
    let mut rest = Unmatched(text);
    write!(rest, "{value:?}").is_ok() && rest.0.is_empty()
}

/// A text that is compared with what is written.
struct Unmatched<'a>(&'a str);

impl Write for Unmatched<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = self.0.strip_prefix(text).ok_or(fmt::Error)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_texts_that_a_float_would_get_are_taken_over() {
        for text in ["0.0", "-0.0", "1.5", "-12.25", "0.001", "12345678901234.5"] {
            assert!(is_shortest(text), "{text}");
        }
        for text in [
            "1",
            "1.50",
            "1.00",
            "1e5",
            "1.5e3",
            "0.0001",
            "0.00001",
            "123456789012345.5",
        ] {
            assert!(!is_shortest(text), "{text}");
        }
    }

    #[test]
    fn a_number_keeps_its_text_unless_its_float_is_written_so() {
        for text in ["12", "1.5", "0.0", "1e16", "1e-7", "0.30000000000000004"] {
            let number = written_number(text);
            assert!(number.is_some(), "{text}");
            assert_eq!(number, super::number(text), "{text}");
        }
        for (text, canonical, is_exact) in [
            ("1.10", "1.1", true),
            ("1.00", "1.0", true),
            ("1E5", "100000.0", true),
            ("-0", "-0.0", true),
            ("0.10000000000000001", "0.1", true),
            (
                "1234567.123456789012345678",
                "1234567.123456789012345678",
                false,
            ),
        ] {
            let Some(Value::Written(number)) = written_number(text) else {
                panic!("{text}");
            };
            assert_eq!((number.text(), number.is_exact()), (text, is_exact));
            assert_eq!(Value::Written(number).canonical(), canonical);
        }
        assert_eq!(written_number("1e400"), None);
    }

    proptest! {
        #[test]
        fn a_text_that_is_taken_over_is_the_canonical_one(text in "-?(0|[1-9][0-9]{0,13})\\.[0-9]{1,14}") {
            let value: f64 = text.parse().unwrap();
            prop_assert!(!is_shortest(&text) || format!("{value:?}") == text, "{text} {value:?}");
        }

        #[test]
        fn a_canonical_text_is_the_one_that_is_printed(text in "-?(0|[1-9][0-9]{0,17})(\\.[0-9]{1,18})?([eE]-?[0-9]{1,2})?") {
            let value: f64 = text.parse().unwrap();
            let is_printed = format!("{value:?}") == text;
            prop_assert_eq!(is_canonical(&text, value), is_printed, "{} {:?}", text, value);
        }
    }
}
