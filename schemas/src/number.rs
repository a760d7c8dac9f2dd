//! Numbers in texts, as JSON has them; nothing is rounded in silence.

use crate::record::{DECIMAL_PRECISION, DECIMAL_SCALE};

/// Integers up to this are exact as floats.
pub const MAX_EXACT: u64 = 1 << 53;

/// All decimal numbers of this many digits are different floats, unless they are extremely small.
const FLOAT_DIGITS: usize = 15;
/// No 64-bit float has more digits.
const MAX_FLOAT_DIGITS: usize = 767;

/// A number of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// Written without fraction and exponent.
    Int(i64),
    /// Any other.
    Float(f64),
}

/// Reads `text` as a JSON number with a 64-bit value; `None` when it is no number or has no such value: an integer
/// beyond `i64`, a float that overflows, or one that is not zero and vanishes to zero.
#[must_use]
pub fn number(text: &str) -> Option<Number> {
    if !is_number(text) {
        return None;
    }
    let is_integer = !text.contains(['.', 'e', 'E']);
    // The integer -0 would lose its sign.
    if is_integer && text != "-0" {
        return text.parse().ok().map(Number::Int);
    }
    let value: f64 = text.parse().ok()?;
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let is_zero = mantissa.bytes().all(|b| !(b'1'..=b'9').contains(&b));
    (value.is_finite() && (is_zero || value != 0.0)).then_some(Number::Float(value))
}

/// Returns true if `text` is a JSON number, with or without a 64-bit value.
#[must_use]
pub fn is_number(text: &str) -> bool {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let is_mantissa = match mantissa.split_once('.') {
        Some((whole, fraction)) => is_whole(whole) && is_digits(fraction),
        None => is_whole(mantissa),
    };
    is_mantissa && is_digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))
}

fn is_whole(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    is_digits(digits) && (digits == "0" || !digits.starts_with('0'))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// The integer as a float, where it is at most [`MAX_EXACT`].
#[expect(clippy::cast_precision_loss, reason = "integers up to 2^53 are exact")]
#[must_use]
pub fn exact(value: i64) -> Option<f64> {
    (value.unsigned_abs() <= MAX_EXACT).then_some(value as f64)
}

/// The float as an integer, where it is one without a fraction, at most [`MAX_EXACT`], and not -0.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the value is a whole number of at most 2^53"
)]
#[expect(
    clippy::float_cmp,
    reason = "whole numbers are equal to their own truncation, exactly"
)]
#[must_use]
pub fn whole(value: f64) -> Option<i64> {
    let is_whole = value.trunc() == value && value.abs() <= 9_007_199_254_740_992.0;
    // An integer has no -0.
    (is_whole && (value != 0.0 || value.is_sign_positive())).then_some(value as i64)
}

/// Returns true if `value`, which was read from the number `text`, is the same number: `text` has
/// no more digits than a float holds.
#[must_use]
pub fn says_the_same(text: &str, value: f64) -> bool {
    parts(text) == parts(&format!("{value:e}"))
}

/// Returns true for digits, `e` and digits, such as `12E4`: a number or a code.
#[must_use]
pub fn is_digits_and_e(text: &str) -> bool {
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts = text.split_once(['e', 'E']);
    parts.is_some_and(|(digits, power)| is_digits(digits) && is_digits(power))
}

/// Returns true if `text` is one way to write `value`, the float that was read from it: with the fewest digits that read
/// back as `value`, or as `value` rounded to the digits of `text`. Floats that are equal have equal numbers then. A number
/// of at most 15 digits is checked without a copy.
#[must_use]
pub fn is_text_of(text: &str, value: f64) -> bool {
    let digits = count_digits(text);
    let is_rounded = || {
        let places = digits.saturating_sub(1);
        digits <= MAX_FLOAT_DIGITS && parts(text) == parts(&format!("{value:.places$e}"))
    };
    (digits <= FLOAT_DIGITS && value.abs() >= f64::MIN_POSITIVE)
        || says_the_same(text, value)
        || is_rounded()
}

/// Number of digits of a JSON number, from the first one that is not zero, without those of its exponent.
#[must_use]
pub fn count_digits(text: &str) -> usize {
    let mantissa = text.bytes().take_while(|b| !matches!(b, b'e' | b'E'));
    let digits = mantissa.filter(u8::is_ascii_digit);
    digits.skip_while(|digit| *digit == b'0').count()
}

/// A JSON number in units of the last digit of a decimal column ([`DECIMAL_SCALE`]), if that is exact.
#[must_use]
pub fn decimal(number: &str) -> Option<i128> {
    let (is_negative, digits, point) = parts(number)?;
    if digits.is_empty() {
        // Zero has no sign here.
        return (!is_negative).then_some(0);
    }
    let places = i64::try_from(digits.len()).ok()?;
    let zeros = point
        .checked_sub(places)?
        .checked_add(DECIMAL_SCALE.into())?;
    let zeros = u32::try_from(zeros).ok()?;
    if places + i64::from(zeros) > i64::from(DECIMAL_PRECISION) {
        return None;
    }
    let size = digits.parse::<i128>().ok()? * 10_i128.pow(zeros);
    Some(if is_negative { -size } else { size })
}

/// A number as sign, digits without zeros at either end, and the power of ten of the first digit's place.
fn parts(text: &str) -> Option<(bool, String, i64)> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let unsigned = mantissa.strip_prefix('-').unwrap_or(mantissa);
    let is_negative = unsigned.len() < mantissa.len();
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0');
    let leading = digits.len() - significant.len();
    let significant = significant.trim_end_matches('0');
    if significant.is_empty() {
        return Some((is_negative, String::new(), 0));
    }
    let point = i64::try_from(whole.len()).ok()? - i64::try_from(leading).ok()?;
    let point = exponent.parse::<i64>().ok()?.checked_add(point)?;
    Some((is_negative, significant.to_owned(), point))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_the_number_that_json_reads_and_no_other() {
        use Number::{Float, Int};
        for (text, expected) in [
            ("12", Some(Int(12))),
            ("-9223372036854775808", Some(Int(i64::MIN))),
            ("9223372036854775808", None),
            ("1.50", Some(Float(1.5))),
            ("1e3", Some(Float(1000.0))),
            ("0.0", Some(Float(0.0))),
            ("1e-400", None),
            ("1e400", None),
            ("012", None),
            ("+1", None),
            (".5", None),
            ("5.", None),
            ("1e", None),
            ("12,5", None),
            ("12 EUR", None),
            ("", None),
            ("inf", None),
            ("NaN", None),
        ] {
            assert_eq!(number(text), expected, "{text:?}");
        }
        let zero = number("-0");
        assert!(matches!(zero, Some(Float(value)) if value.to_bits() == (-0.0_f64).to_bits()));
    }

    #[test]
    fn floats_and_integers_are_each_other_up_to_2_to_the_53() {
        let most = 1_i64 << 53;
        assert_eq!(exact(-most), Some(-9_007_199_254_740_992.0));
        assert_eq!((exact(most + 1), exact(i64::MIN)), (None, None));
        assert_eq!(whole(9_007_199_254_740_992.0), Some(most));
        assert_eq!(whole(0.0), Some(0));
        for value in [-0.0, 0.5, 9_007_199_254_740_994.0, f64::NAN, f64::INFINITY] {
            assert_eq!(whole(value), None, "{value}");
        }
    }

    fn check(text: &str, units: Option<&str>) {
        let found = decimal(text).map(|units| units.to_string());
        assert_eq!(found.as_deref(), units, "{text}");
    }

    #[test]
    fn numbers_are_decimals_only_when_exact() {
        check("0", Some("0"));
        check("-0", None);
        check("1", Some("1000000000000000000"));
        check("-2.50", Some("-2500000000000000000"));
        check(
            "18446744073709551615",
            Some("18446744073709551615000000000000000000"),
        );
        check(
            "99999999999999999999",
            Some("99999999999999999999000000000000000000"),
        );
        check("100000000000000000000", None);
        check("1e-18", Some("1"));
        check("1e-19", None);
        check("1e400", None);
        check("1e9223372036854775807", None);
        check("1.23e-9223372036854775808", None);
        check(
            "12345678901234567890.123456789012345678",
            Some("12345678901234567890123456789012345678"),
        );
    }

    #[test]
    fn a_text_of_more_digits_than_a_float_has_does_not_say_the_same() {
        assert!(says_the_same("0.1", 0.1));
        assert!(says_the_same("1.50e2", 150.0));
        assert!(!says_the_same("0.10000000000000000001", 0.1));
    }

    #[test]
    fn a_text_that_a_program_prints_for_a_float_is_one_of_it() {
        let is_text = |text: &str| is_text_of(text, text.parse().unwrap());
        for text in [
            "1.10",
            "-0",
            "0.000",
            "1e5",
            "0.30000000000000004",
            // As `%.17g` and `%.6f` of C print 0.1 and 1234567890123.4.
            "0.10000000000000001",
            "1234567890123.399902",
            "0.1000000000000000055511151231257827",
            "1.50000000000000000000000",
            "5e-324",
            "4.94e-324",
        ] {
            assert!(is_text(text), "{text}");
        }
        let ones = format!("0.{}", "1".repeat(800));
        for text in [
            "0.12345678901234567891",
            "1234567.123456789012345678",
            "0.10000000000000000001",
            "9007199254740993.0",
            "4.95e-324",
            &ones,
        ] {
            assert!(!is_text(text), "{text}");
        }
    }

    #[test]
    fn digits_count_from_the_first_one_that_is_not_zero() {
        for (text, count) in [
            ("0", 0),
            ("-0.00e12", 0),
            ("0.010", 2),
            ("-120.5E-17", 4),
            ("1234567.123456789012345678", 25),
        ] {
            assert_eq!(count_digits(text), count, "{text}");
        }
    }
}
