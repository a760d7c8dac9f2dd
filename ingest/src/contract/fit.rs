//! Type inference for values, whether a value fits its column, and its form in the column.

use feedline_readers::{json, value::Value};
use feedline_schemas::{
    config::ListContract,
    number::{self, exact, whole},
    record::ColumnType,
};

use super::{Dates, cut_digits::has_cut_digits, decimals, iso_micros};

/// Effect of a value on its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    Fits,
    Becomes(ColumnType),
    Conflict,
}

/// Rules of the contract for reading values.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(super) lists: ListContract,
    /// True if strings in a timestamp format make a timestamp column.
    pub(super) infer_dates: bool,
    pub(super) dates: Dates,
}

impl Reading {
    /// The type a column gets from its first value.
    pub(super) fn infer(&self, value: &Value) -> ColumnType {
        match value {
            Value::List(items) if self.lists == ListContract::List => list_type(items),
            Value::Text(text) | Value::Cell(text)
                if self.infer_dates && self.dates.micros(text).is_some() =>
            {
                ColumnType::Timestamp
            }
            value => infer(value),
        }
    }

    /// Returns the effect of `value` on `column`.
    pub(super) fn fit(&self, column: ColumnType, value: &Value) -> Fit {
        if *value == Value::Null {
            return Fit::Fits;
        }
        let fits = |fits: bool| if fits { Fit::Fits } else { Fit::Conflict };
        match column {
            ColumnType::Null => Fit::Becomes(self.infer(value)),
            ColumnType::Bool => fits(boolean(value).is_some()),
            ColumnType::Int64 if integer(value).is_some() => Fit::Fits,
            ColumnType::Int64 if !is_code(value) && infer(value) == ColumnType::Float64 => {
                Fit::Becomes(ColumnType::Float64)
            }
            ColumnType::Int64 => Fit::Conflict,
            ColumnType::Float64 => fits(float(value).is_some()),
            ColumnType::Decimal => fits(decimal(value).is_some()),
            ColumnType::Timestamp => fits(self.timestamp(value).is_some()),
            ColumnType::Utf8 => fits(!is_whole(value)),
            ColumnType::Json => fits(matches!(value, Value::List(_) | Value::Object(_))),
            ColumnType::Binary => fits(matches!(value, Value::Bytes(_))),
            list => match value {
                Value::List(items) => fit_list(list, items),
                Value::Object(_) => Fit::Becomes(ColumnType::Json),
                _ => Fit::Conflict,
            },
        }
    }

    /// Converts the value to the form of a timestamp column.
    pub(crate) fn timestamp(&self, value: &Value) -> Option<i64> {
        match value {
            Value::Text(text) => self.dates.micros(text),
            Value::Cell(text) => self.dates.cell_micros(text.trim()),
            Value::Time(text) => iso_micros(text),
            _ => None,
        }
    }

    /// Returns true for the value of a timestamp column that loses digits: those beyond microseconds.
    pub(super) fn cuts(&self, column: ColumnType, value: &Value) -> bool {
        match (column, value) {
            (ColumnType::Timestamp, Value::Text(text) | Value::Cell(text) | Value::Time(text)) => {
                has_cut_digits(text)
            }
            _ => false,
        }
    }
}

/// Most digits that programs write for a float, but for those that write all its digits.
const FLOAT_DIGITS: usize = 17;

/// Returns true for a number with more digits than a 64-bit float holds. Programs write floats with
/// up to 17 digits, or with more that are those of the float.
pub(crate) fn is_long_number(text: &str, value: f64) -> bool {
    number::count_digits(text) > FLOAT_DIGITS && !number::is_text_of(text, value)
}

/// Returns true if the cell `text` is such a number.
fn is_long_cell(text: &str) -> bool {
    // Most cells are short, and are not read here.
    let number = (text.len() > FLOAT_DIGITS).then(|| json::number(text.trim()));
    matches!(number.flatten(), Some(Value::Float(value)) if is_long_number(text.trim(), value))
}

/// Returns true for a cell of digits around an `e`, which is a code beside integers, as digits after
/// a leading zero are.
pub(super) fn is_code(value: &Value) -> bool {
    matches!(value, Value::Cell(text) if number::is_digits_and_e(text.trim()))
}

/// Returns true for a value with digits that a column of floats, or of lists of floats, rounds.
pub(super) fn is_rounded(column: ColumnType, value: &Value) -> bool {
    let is_long = |value: &Value| match value {
        Value::Written(number) => is_long_number(number.text(), number.value()),
        Value::Cell(text) => is_long_cell(text),
        _ => false,
    };
    match (column, value) {
        (ColumnType::Float64, number) => is_long(number),
        (ColumnType::ListFloat64, Value::List(items)) => items.iter().any(is_long),
        _ => false,
    }
}

/// Returns the type of a list column that holds all items; [`ColumnType::Json`] if none does.
fn list_type(items: &[Value]) -> ColumnType {
    let mut list = ColumnType::List;
    for item in items {
        let this = match item {
            Value::Null => continue,
            Value::Bool(_) => ColumnType::ListBool,
            Value::Int(_) => ColumnType::ListInt64,
            Value::Float(_) | Value::Written(_) => ColumnType::ListFloat64,
            Value::Text(_) | Value::Cell(_) | Value::Time(_) => ColumnType::ListUtf8,
            _ => return ColumnType::Json,
        };
        list = list.widest(this);
    }
    let is_exact = |item: &Value| float(item).is_some() || *item == Value::Null;
    if list == ColumnType::ListFloat64 && !items.iter().all(is_exact) {
        return ColumnType::Json;
    }
    list
}

fn fit_list(column: ColumnType, items: &[Value]) -> Fit {
    let wanted = list_type(items);
    let is_float_of_ints = (column, wanted) == (ColumnType::ListFloat64, ColumnType::ListInt64);
    if is_float_of_ints
        && !items
            .iter()
            .all(|i| float(i).is_some() || *i == Value::Null)
    {
        return Fit::Becomes(ColumnType::Json);
    }
    match column.widest(wanted) {
        wide if wide == column => Fit::Fits,
        wide => Fit::Becomes(wide),
    }
}

/// Returns true if such values never become strings.
pub(super) fn is_whole(value: &Value) -> bool {
    matches!(value, Value::List(_) | Value::Object(_) | Value::Bytes(_))
}

/// Type that a column gets from its first value. Lists become JSON text and timestamps in strings
/// stay strings.
pub(super) fn infer(value: &Value) -> ColumnType {
    match value {
        Value::Null => ColumnType::Null,
        Value::Bool(_) => ColumnType::Bool,
        Value::Int(_) => ColumnType::Int64,
        Value::Float(_) | Value::Written(_) => ColumnType::Float64,
        Value::Digits(text) if number::decimal(text).is_some() => ColumnType::Decimal,
        Value::Text(_) | Value::Digits(_) | Value::ByteCell(_) | Value::Fault(_) => {
            ColumnType::Utf8
        }
        Value::List(_) | Value::Object(_) => ColumnType::Json,
        Value::Bytes(_) => ColumnType::Binary,
        Value::Cell(text) => infer(&read_cell(text)),
        Value::Time(text) if iso_micros(text).is_some() => ColumnType::Timestamp,
        Value::Time(_) => ColumnType::Utf8,
    }
}

/// Infers the value of a cell: boolean, integer, float or string. Spaces around it do not matter.
fn read_cell(text: &str) -> Value {
    match text.trim() {
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        trimmed => json::number(trimmed).unwrap_or_else(|| Value::Text(text.to_owned())),
    }
}

/// Converts the value for a boolean column.
pub(crate) fn boolean(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(value) => Some(*value),
        Value::Cell(text) => match read_cell(text) {
            Value::Bool(value) => Some(value),
            _ => None,
        },
        _ => None,
    }
}

/// Converts the value for an integer column.
pub(crate) fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Int(value) => Some(*value),
        Value::Float(value) => whole(*value),
        Value::Written(number) if number.is_exact() => whole(number.value()),
        Value::Text(text) | Value::Digits(text) => match json::number(text) {
            Some(Value::Int(value)) => Some(value),
            _ => None,
        },
        Value::Cell(text) => match read_cell(text) {
            Value::Int(value) => Some(value),
            // With an exponent it may be a code, or a number that a spreadsheet has rounded.
            Value::Float(value) if !text.contains(['e', 'E']) => whole(value),
            _ => None,
        },
        _ => None,
    }
}

/// Converts the value for a float column.
pub(crate) fn float(value: &Value) -> Option<f64> {
    match value {
        Value::Int(value) => exact(*value),
        Value::Float(value) => Some(*value),
        Value::Written(number) => Some(number.value()),
        Value::Text(text) | Value::Digits(text) => match json::number(text)? {
            Value::Int(value) => exact(value),
            Value::Float(value) => number::says_the_same(text, value).then_some(value),
            _ => None,
        },
        Value::Cell(text) => match read_cell(text) {
            Value::Int(value) => exact(value),
            Value::Float(value) => Some(value),
            _ => None,
        },
        _ => None,
    }
}

/// Converts the value for a decimal column, in units of its last digit.
pub(crate) fn decimal(value: &Value) -> Option<i128> {
    match value {
        Value::Int(value) => Some(decimals::of_int(*value)),
        Value::Float(value) => decimals::of_float(*value),
        Value::Written(number) => number::decimal(number.text()),
        Value::Digits(text) => number::decimal(text),
        Value::Text(text) if number::is_number(text) => number::decimal(text),
        Value::Cell(text) if number::is_number(text.trim()) => number::decimal(text.trim()),
        _ => None,
    }
}

/// Converts the value for a text column.
pub(crate) fn text(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) | Value::Cell(text) | Value::Time(text) | Value::Digits(text) => {
            Some(text.clone())
        }
        Value::Written(number) => Some(number.text().to_owned()),
        Value::Bool(_) | Value::Int(_) | Value::Float(_) => Some(value.canonical()),
        _ => None,
    }
}

/// Converts the value for a column of bytes.
pub(crate) fn bytes(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::Bytes(bytes) => Some(bytes.clone()),
        _ => None,
    }
}

/// Returns true if a landed value was converted to fit a column of type `column`. A cell has no
/// type to convert from, and a time is text or a timestamp.
pub(crate) fn is_coerced(column: ColumnType, value: &Value) -> bool {
    match (column, value) {
        (_, Value::Null | Value::Cell(_) | Value::Time(_)) => false,
        (ColumnType::Timestamp, Value::Text(_)) | (ColumnType::Utf8, Value::Text(_)) => false,
        (list, Value::List(_)) if list.is_list() => false,
        (column, value) => infer(value) != column,
    }
}
