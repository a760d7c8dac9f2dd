//! Landed cells converted to values: a number, a category, or nothing; and the rows that cannot be
//! used.
//!
//! Nothing fails here: a bad value is missing, a bad row is described and rejected.

use std::{
    hash::{Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use arrow::{
    array::{Array, ArrayRef, AsArray, Float64Array, StringArray, StringBuilder},
    datatypes::{DataType, Float64Type, Int64Type},
};
use datafusion::error::{DataFusionError, Result};
use feedline_schemas::{number::MAX_EXACT, transform::NumberSigns};
use serde::{Deserialize, Serialize};

use crate::{
    engine::scalar_function::RowFunction,
    operators::{dedup::content_hash::as_integer, number_format},
};

/// Spellings of "no value".
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Missing {
    texts: Vec<String>,
    /// Bits of the numbers, zero positive.
    numbers: Vec<u64>,
    /// Set where a NaN is read as a number.
    #[serde(skip)]
    nan: NanSeen,
}

/// Note that a NaN was read as a missing number. All clones share it. It is no part of a plan: two plans that differ in it alone are
/// equal, and another machine has one of its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct NanSeen(Arc<AtomicBool>);

impl NanSeen {
    /// Returns whether any was read.
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl PartialEq for NanSeen {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for NanSeen {}

impl Hash for NanSeen {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Missing {
    pub(crate) fn new(texts: &[String], numbers: &[f64]) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "as columns of 32 bits hold it"
        )]
        let short = |number: f64| f64::from(number as f32);
        let shorts = numbers.iter().map(|n| short(*n)).filter(|n| n.is_finite());
        let all = numbers.iter().copied().chain(shorts);
        Self {
            texts: texts.iter().map(|t| t.trim().to_owned()).collect(),
            numbers: all.map(bits).collect(),
            nan: NanSeen::default(),
        }
    }

    /// The same, which notes a NaN in `nan`.
    pub(crate) fn noting(self, nan: &NanSeen) -> Self {
        Self {
            nan: nan.clone(),
            ..self
        }
    }

    pub(crate) fn text(&self, value: &str) -> bool {
        let value = value.trim();
        value.is_empty() || self.texts.iter().any(|t| t == value)
    }

    /// Returns true if some numbers are no value.
    pub(crate) fn has_numbers(&self) -> bool {
        !self.numbers.is_empty()
    }

    pub(crate) fn number(&self, value: f64) -> bool {
        value.is_nan() || self.numbers.contains(&bits(value))
    }
}

fn bits(value: f64) -> u64 {
    // -0.0 + 0.0 is 0.0.
    (value + 0.0).to_bits()
}

/// A cell as a number. Text is parsed after trimming spaces, by the signs where some are declared; what is not a number is
/// missing, as is NaN. Booleans are 0 and 1, infinities stay.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Numeric(pub(crate) Missing, pub(crate) Option<NumberSigns>);

impl RowFunction for Numeric {
    const NAME: &'static str = "feedline_numeric";
    const RETURNS: DataType = DataType::Float64;

    fn call(&self, columns: &[ArrayRef], _: usize) -> Result<ArrayRef> {
        Ok(Arc::new(self.read(&columns[0])?))
    }
}

impl Numeric {
    pub(crate) fn read(&self, column: &ArrayRef) -> Result<Float64Array> {
        let values: Float64Array = match column.data_type() {
            DataType::Boolean => column
                .as_boolean()
                .iter()
                .map(|v| v.map(|v| f64::from(u8::from(v))))
                .collect(),
            DataType::Int64 => column
                .as_primitive::<Int64Type>()
                .iter()
                .map(|v| v.map(to_float))
                .collect(),
            DataType::Float64 => {
                let values = column.as_primitive::<Float64Type>();
                // Without a branch for each, so that several are looked at at once.
                let nan = values
                    .values()
                    .iter()
                    .fold(false, |any, v| any | v.is_nan());
                if nan {
                    self.0.nan.set();
                }
                if self.0.numbers.is_empty() && !nan {
                    return Ok(values.clone());
                }
                values.clone()
            }
            DataType::Utf8 => column
                .as_string::<i32>()
                .iter()
                .map(|v| v.and_then(|v| self.parse(v)))
                .collect(),
            other => return Err(not_landed(other)),
        };
        Ok(values
            .iter()
            .map(|v| v.filter(|v| !self.0.number(*v)))
            .collect())
    }

    fn parse(&self, text: &str) -> Option<f64> {
        if self.0.text(text) {
            None
        } else {
            let number = number_format::number(text, self.1);
            if number.is_some_and(f64::is_nan) {
                self.0.nan.set();
            }
            number
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "rows with integers past 2^53 in a numeric column are rejected"
)]
pub(crate) fn to_float(value: i64) -> f64 {
    value as f64
}

/// Returns true if a text is an integer too large for exact floats, and no null value.
pub(crate) fn is_large_integer(text: &str, missing: &Missing) -> bool {
    let digits = text.trim();
    let digits = digits.strip_prefix(['+', '-']).unwrap_or(digits);
    // 2^53 has 16 digits.
    if digits.len() < 16 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    let is_declared = || {
        let number: Option<f64> = text.trim().parse().ok();
        missing.text(text) || number.is_some_and(|number| missing.number(number))
    };
    let is_exact = digits
        .parse::<u128>()
        .is_ok_and(|value| value <= MAX_EXACT.into());
    !is_exact && !is_declared()
}

/// Most classes are called by one of them.
const DIGITS: &str = "0123456789";

/// A cell as a category. A whole float reads as the integer, so a column widened from integer keeps its categories.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Category(pub(crate) Missing);

impl RowFunction for Category {
    const NAME: &'static str = "feedline_category";
    const RETURNS: DataType = DataType::Utf8;

    fn call(&self, columns: &[ArrayRef], _: usize) -> Result<ArrayRef> {
        Ok(Arc::new(self.read(&columns[0])?))
    }
}

impl Category {
    pub(crate) fn read(&self, column: &ArrayRef) -> Result<StringArray> {
        let missing = &self.0;
        Ok(match column.data_type() {
            DataType::Boolean => column
                .as_boolean()
                .iter()
                .map(|v| v.map(|v| v.to_string()))
                .collect(),
            DataType::Int64 => {
                let values = column.as_primitive::<Int64Type>();
                let mut texts = StringBuilder::with_capacity(values.len(), 2 * values.len());
                for value in values {
                    match value.filter(|v| !missing.number(to_float(*v))) {
                        None => texts.append_null(),
                        Some(value) => match usize::try_from(value) {
                            Ok(digit @ 0..=9) => texts.append_value(&DIGITS[digit..=digit]),
                            _ => texts.append_value(value.to_string()),
                        },
                    }
                }
                texts.finish()
            }
            DataType::Float64 => column
                .as_primitive::<Float64Type>()
                .iter()
                .map(|v| v.filter(|v| !missing.number(*v)).map(float_text))
                .collect(),
            DataType::Utf8 => column
                .as_string::<i32>()
                .iter()
                .map(|v| v.filter(|v| !missing.text(v)))
                .collect(),
            other => return Err(not_landed(other)),
        })
    }
}

pub(crate) fn float_text(value: f64) -> String {
    as_integer(value).map_or_else(|| value.to_string(), |whole| whole.to_string())
}

fn not_landed(found: &DataType) -> DataFusionError {
    DataFusionError::Internal(format!("no landed column is of type {found}"))
}

#[cfg(test)]
mod tests {
    use arrow::array::{BooleanArray, Int64Array};

    use super::*;

    fn missing() -> Missing {
        Missing::new(&["N/A".into()], &[-200.0])
    }

    fn texts(values: &[Option<&str>]) -> ArrayRef {
        Arc::new(StringArray::from(values.to_vec()))
    }

    #[test]
    fn text_that_is_no_number_is_missing_and_a_number_keeps_its_value() {
        let column = texts(&[
            Some(" 3.5 "),
            Some("N/A"),
            Some("-200"),
            Some(""),
            Some("1,234"),
            Some("inf"),
            Some("NaN"),
            None,
        ]);
        let numbers = Numeric(missing(), None).read(&column).unwrap();
        let expected = [
            Some(3.5),
            None,
            None,
            None,
            None,
            Some(f64::INFINITY),
            None,
            None,
        ];
        assert_eq!(numbers.iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn booleans_are_zero_and_one() {
        let column: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), Some(false), None]));
        let numbers = Numeric(missing(), None).read(&column).unwrap();
        assert_eq!(
            numbers.iter().collect::<Vec<_>>(),
            [Some(1.0), Some(0.0), None]
        );
    }

    #[test]
    fn a_category_does_not_change_when_its_column_widens_to_float() {
        let ints: ArrayRef = Arc::new(Int64Array::from(vec![5, -200]));
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![5.0, 5.5]));
        let read = |c: &ArrayRef| {
            Category(missing())
                .read(c)
                .unwrap()
                .iter()
                .map(|v| v.map(str::to_owned))
                .collect::<Vec<_>>()
        };
        assert_eq!(read(&ints), [Some("5".to_owned()), None]);
        assert_eq!(
            read(&floats),
            [Some("5".to_owned()), Some("5.5".to_owned())]
        );
    }
}
