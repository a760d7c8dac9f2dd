//! Decimal numbers without rounding.

use feedline_schemas::{number::decimal, record::DECIMAL_SCALE};

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
        .then(|| decimal(&format!("{value:e}")))
        .flatten()
}

/// Returns true if the magnitude of `value` guarantees that the float is exact: its 17 digits end
/// before the last digit of a decimal.
pub(super) fn is_surely_exact(value: f64) -> bool {
    let size = value.abs();
    (0.01..1e20).contains(&size) || value.to_bits() == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_decimals_when_their_shortest_text_is() {
        assert_eq!(of_float(0.1), decimal("0.1"));
        assert_eq!(of_float(-1e19), decimal("-10000000000000000000"));
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
