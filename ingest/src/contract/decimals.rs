//! Decimal numbers without rounding.

use feedline_schemas::record::{DECIMAL_PRECISION, DECIMAL_SCALE};

/// 10^18, one in units of the last digit.
const ONE: i128 = 10_i128.pow(DECIMAL_SCALE.unsigned_abs() as u32);

/// An integer in units of the last digit; every 64-bit integer has one.
pub(super) fn of_int(value: i64) -> i128 {
    i128::from(value) * ONE
}

/// A float in units of the last digit, if its shortest decimal text has an exact one.
pub(super) fn of_float(value: f64) -> Option<i128> {
    value
        .is_finite()
        .then(|| of_text(&format!("{value:e}")))
        .flatten()
}

/// Whether every float like `value` is exact, as its size alone tells: 17 digits of it end before the last one of a
/// decimal.
pub(super) fn is_surely_exact(value: f64) -> bool {
    let size = value.abs();
    (0.01..1e20).contains(&size) || value.to_bits() == 0
}

/// A JSON number in units of the last digit, if that is exact.
pub(super) fn of_text(number: &str) -> Option<i128> {
    let (negative, digits, point) = parts(number)?;
    if digits.is_empty() {
        // Zero has no sign here.
        return (!negative).then_some(0);
    }
    let places = i64::try_from(digits.len()).ok()?;
    let zeros = u32::try_from(point - places + i64::from(DECIMAL_SCALE)).ok()?;
    if places + i64::from(zeros) > i64::from(DECIMAL_PRECISION) {
        return None;
    }
    let size = digits.parse::<i128>().ok()? * 10_i128.pow(zeros);
    Some(if negative { -size } else { size })
}

/// A decimal number as sign, digits without zeros at either end, and the power of ten of the first digit's place.
pub(super) fn parts(text: &str) -> Option<(bool, String, i64)> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (negative, mantissa) = mantissa
        .strip_prefix('-')
        .map_or((false, mantissa), |rest| (true, rest));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0');
    let leading = digits.len() - significant.len();
    let significant = significant.trim_end_matches('0');
    if significant.is_empty() {
        return Some((negative, String::new(), 0));
    }
    let point = i64::try_from(whole.len()).ok()? - i64::try_from(leading).ok()?;
    Some((
        negative,
        significant.to_owned(),
        exponent.parse::<i64>().ok()?.checked_add(point)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, units: Option<&str>) {
        assert_eq!(
            of_text(text).map(|u| u.to_string()).as_deref(),
            units,
            "{text}"
        );
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
        check(
            "12345678901234567890.123456789012345678",
            Some("12345678901234567890123456789012345678"),
        );
    }

    #[test]
    fn floats_are_decimals_when_their_shortest_text_is() {
        assert_eq!(of_float(0.1), of_text("0.1"));
        assert_eq!(of_float(-1e19), of_text("-10000000000000000000"));
        for value in [-0.0, f64::NAN, f64::INFINITY, 1e-300, 1.5e-18, 1e20] {
            assert_eq!(of_float(value), None, "{value}");
            assert!(!is_surely_exact(value), "{value}");
        }
        for value in [
            0.0,
            0.010_000_000_000_000_002,
            -99_999_999_999_999_983_616.0,
            0.1 + 0.2,
        ] {
            assert!(
                is_surely_exact(value) && of_float(value).is_some(),
                "{value}"
            );
        }
    }
}
