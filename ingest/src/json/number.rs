//! JSON numbers.

use crate::value::Value;

/// Reads `text` as a JSON number with a 64-bit value; `None` when it is no number or has no such value: an integer
/// beyond `i64`, a float that overflows, or one that is not zero and vanishes to zero.
pub(crate) fn number(text: &str) -> Option<Value> {
    if !is_number(text) {
        return None;
    }
    let is_integer = !text.contains(['.', 'e', 'E']);
    // The integer -0 would lose its sign.
    if is_integer && text != "-0" {
        return text.parse().ok().map(Value::Int);
    }
    let value: f64 = text.parse().ok()?;
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let is_zero = mantissa.bytes().all(|b| !(b'1'..=b'9').contains(&b));
    (value.is_finite() && (is_zero || value != 0.0)).then_some(Value::Float(value))
}

/// Whether `text` is a JSON number, with or without a 64-bit value.
pub(crate) fn is_number(text: &str) -> bool {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let mantissa_ok = match mantissa.split_once('.') {
        Some((whole, fraction)) => is_whole(whole) && is_digits(fraction),
        None => is_whole(mantissa),
    };
    mantissa_ok && is_digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))
}

fn is_whole(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    is_digits(digits) && (digits == "0" || !digits.starts_with('0'))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}
