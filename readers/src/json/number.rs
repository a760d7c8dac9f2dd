//! JSON numbers.

use feedline_schemas::number::{self, Number};

use crate::value::Value;

/// Reads `text` as a JSON number with a 64-bit value, as [`number::number`] does.
pub fn number(text: &str) -> Option<Value> {
    number::number(text).map(|number| match number {
        Number::Int(value) => Value::Int(value),
        Number::Float(value) => Value::Float(value),
    })
}
