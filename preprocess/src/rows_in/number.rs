//! Numbers of new rows, as ingest reads them.

use arrow::array::Decimal128Array;
use feedline_schemas::number;

use crate::{plain, typing::EXACT};

/// The integer as a float, where that is exact.
#[expect(clippy::cast_precision_loss, reason = "integers up to 2^53 are exact")]
pub(super) fn exact(value: i64) -> Option<f64> {
    (value.unsigned_abs() <= EXACT).then_some(value as f64)
}

/// Whether a column of integers holds the float: one without a fraction, up to 2^53, and not -0.
#[expect(
    clippy::float_cmp,
    reason = "whole numbers are equal to their own truncation, exactly"
)]
pub(super) fn is_integer(value: f64) -> bool {
    let is_whole = value.trunc() == value && value.abs() <= 9_007_199_254_740_992.0;
    is_whole && (value != 0.0 || value.is_sign_positive())
}

/// The number as a column of decimals has it, as the text that the build reads there; none where it is not exact.
pub(super) fn decimal(text: &str) -> Option<String> {
    let units = number::is_number(text)
        .then(|| number::decimal(text))
        .flatten()?;
    let column = Decimal128Array::from(vec![units]);
    Some(plain::decimal(&column, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact_or_none() {
        for (text, expected) in [
            ("0.10", Some("0.1")),
            ("-2.50", Some("-2.5")),
            ("1e3", Some("1000")),
            ("18446744073709551615", Some("18446744073709551615")),
            ("99999999999999999999", Some("99999999999999999999")),
            ("100000000000000000000", None),
            ("1e-18", Some("0.000000000000000001")),
            ("1e-19", None),
            ("1e9223372036854775807", None),
            ("1.23e-9223372036854775808", None),
            ("-0", None),
            ("12,5", None),
        ] {
            assert_eq!(decimal(text).as_deref(), expected, "{text}");
        }
    }
}
