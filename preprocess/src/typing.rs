//! Landed cells converted to values: a number, a category, or nothing; and the rows that cannot be
//! used.
//!
//! Nothing fails here: a bad value is missing, a bad row is described and rejected.

use std::{
    collections::BTreeMap,
    hash::{Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use arrow::{
    array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, StringArray, StringBuilder},
    datatypes::{DataType, Float64Type, Int64Type},
};
use datafusion::error::{DataFusionError, Result};
use feedline_schemas::{number::MAX_EXACT, transform::NumberSigns};
use serde::{Deserialize, Serialize};

use crate::{content::as_integer, join, payload, scalar::RowFunction, signs};

/// Characters of a value shown in a reject.
pub(crate) const SHOWN: usize = 120;

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
    fn read(&self, column: &ArrayRef) -> Result<Float64Array> {
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
            let number = signs::number(text, self.1);
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
    fn read(&self, column: &ArrayRef) -> Result<StringArray> {
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

/// Reason for rejecting a row, as stored in the `_reject` column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reason {
    /// Reason's name.
    pub(crate) reason: String,
    /// Column at fault; empty when it is the row.
    pub(crate) column: String,
    /// The value, or what was found.
    pub(crate) value: String,
}

impl Reason {
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a struct of texts is JSON")
    }

    pub(crate) fn from_json(json: &str) -> Self {
        serde_json::from_str(json).expect("reasons are written by `to_json`")
    }
}

/// Reasons of this stage.
pub(crate) mod reason {
    pub(crate) const TARGET_MISSING: &str = "target_missing";
    pub(crate) const TARGET_NOT_NUMERIC: &str = "target_not_numeric";
    pub(crate) const TARGET_NOT_FINITE: &str = "target_not_finite";
    /// `dataset.classes` does not list the label.
    pub(crate) const UNLISTED_CLASS: &str = "unlisted_class";
    pub(crate) const INTEGER_TOO_LARGE: &str = "integer_too_large";
}

/// Part of a column in the judgement of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Judged {
    /// Numeric feature.
    Number,
    /// Numeric feature that landed as decimals, which are rounded whatever their size.
    Decimal,
    /// Target of a regression.
    NumericTarget,
    /// Target of a classification.
    ClassTarget,
    /// Image file.
    Image,
    /// Image file that is decoded later.
    DecodedImage,
    /// Document.
    Document,
    /// Key of a row without a partner, which is a fault.
    Unmatched,
    /// Key of a row without a partner, which is dropped by choice.
    Dropped,
}

/// The first thing that makes a row unusable, as JSON of [`Reason`]; null for a good row.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Judge {
    /// Name and part of each argument.
    pub(crate) columns: Vec<(String, Judged)>,
    pub(crate) missing: Missing,
    /// Number format of the target, if it is text with a declared format.
    pub(crate) signs: Option<NumberSigns>,
    /// The only labels that a target may have, sorted; empty where it may have any.
    pub(crate) classes: Vec<String>,
}

impl RowFunction for Judge {
    const NAME: &'static str = "feedline_judge";
    const RETURNS: DataType = DataType::Utf8;

    fn call(&self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let mut first: BTreeMap<usize, Reason> = BTreeMap::new();
        for ((name, judged), column) in self.columns.iter().zip(columns) {
            for (row, reason, value) in self.faults(*judged, column)? {
                first.entry(row).or_insert_with(|| Reason {
                    reason: reason.to_owned(),
                    column: name.clone(),
                    value,
                });
            }
        }
        if first.is_empty() {
            return Ok(Arc::new(StringArray::new_null(rows)));
        }
        let texts = (0..rows).map(|row| first.get(&row).map(Reason::to_json));
        Ok(Arc::new(texts.collect::<StringArray>()))
    }
}

type Fault = (usize, &'static str, String);

impl Judge {
    fn faults(&self, judged: Judged, column: &ArrayRef) -> Result<Vec<Fault>> {
        let mut faults = match column.data_type() {
            DataType::Int64 if matches!(judged, Judged::Number | Judged::NumericTarget) => {
                self.too_large(column.as_primitive())
            }
            DataType::Utf8 if judged == Judged::Number => self.too_large_texts(column.as_string()),
            _ => Vec::new(),
        };
        match judged {
            Judged::Number | Judged::Decimal => {}
            Judged::Image => faults.extend(payload::image_faults(column)),
            Judged::DecodedImage => faults.extend(payload::missing_images(column)),
            Judged::Document => faults.extend(payload::document_faults(column)),
            Judged::Unmatched | Judged::Dropped => {
                let reason = match judged {
                    Judged::Dropped => join::reason::DROPPED,
                    _ => join::reason::UNMATCHED,
                };
                let keys = column.as_string::<i32>().iter().enumerate();
                faults.extend(keys.filter_map(|(row, key)| {
                    let shown = key?.chars().take(SHOWN).collect();
                    Some((row, reason, shown))
                }));
            }
            // Each whole number is a class.
            Judged::ClassTarget
                if matches!(column.data_type(), DataType::Boolean | DataType::Int64)
                    && column.null_count() == 0
                    && self.missing.numbers.is_empty()
                    && self.classes.is_empty() => {}
            Judged::ClassTarget => {
                let labels = Category(self.missing.clone()).read(column)?;
                let labels = labels.iter().enumerate();
                faults.extend(labels.filter_map(|(row, label)| match label {
                    None => Some((row, reason::TARGET_MISSING, String::new())),
                    Some(label) if self.is_class(label) => None,
                    Some(label) => {
                        let shown = label.chars().take(SHOWN).collect();
                        Some((row, reason::UNLISTED_CLASS, shown))
                    }
                }));
            }
            Judged::NumericTarget => faults.extend(self.target_faults(column)?),
        }
        Ok(faults)
    }

    fn is_class(&self, label: &str) -> bool {
        let place = || {
            self.classes
                .binary_search_by(|class| class.as_str().cmp(label))
        };
        self.classes.is_empty() || place().is_ok()
    }

    fn too_large(&self, values: &Int64Array) -> Vec<Fault> {
        let large = |v: &i64| v.unsigned_abs() > MAX_EXACT && !self.missing.number(to_float(*v));
        let rows = values
            .iter()
            .enumerate()
            .filter_map(|(row, v)| v.filter(large).map(|v| (row, v)));
        rows.map(|(row, v)| (row, reason::INTEGER_TOO_LARGE, v.to_string()))
            .collect()
    }

    fn too_large_texts(&self, texts: &StringArray) -> Vec<Fault> {
        let large = |text: &&str| is_large_integer(text, &self.missing);
        let rows = texts.iter().enumerate();
        let rows = rows.filter_map(|(row, text)| text.filter(large).map(|text| (row, text)));
        let fault = |(row, text): (usize, &str)| {
            let shown = text.trim().chars().take(SHOWN).collect();
            (row, reason::INTEGER_TOO_LARGE, shown)
        };
        rows.map(fault).collect()
    }

    fn target_faults(&self, column: &ArrayRef) -> Result<Vec<Fault>> {
        let numbers = Numeric(self.missing.clone(), self.signs).read(column)?;
        let texts = column.as_string_opt::<i32>();
        let fault = |row: usize| {
            let text = texts.filter(|t| t.is_valid(row)).map(|t| t.value(row));
            match (numbers.is_valid(row).then(|| numbers.value(row)), text) {
                (Some(number), _) if number.is_finite() => None,
                (Some(number), _) => Some((row, reason::TARGET_NOT_FINITE, number.to_string())),
                (None, Some(text))
                    if !self.missing.text(text) && signs::number(text, self.signs).is_none() =>
                {
                    Some((
                        row,
                        reason::TARGET_NOT_NUMERIC,
                        text.chars().take(SHOWN).collect(),
                    ))
                }
                (None, _) => Some((row, reason::TARGET_MISSING, String::new())),
            }
        };
        Ok((0..column.len()).filter_map(fault).collect())
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::BooleanArray;

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

    fn check(judged: Judged, column: ArrayRef, expected: &[Option<(&str, &str)>]) {
        let judge = Judge {
            columns: vec![("c".into(), judged)],
            missing: missing(),
            signs: None,
            classes: vec![],
        };
        let found = judge.call(&[Arc::clone(&column)], column.len()).unwrap();
        let found: Vec<Option<Reason>> = found
            .as_string::<i32>()
            .iter()
            .map(|v| v.map(Reason::from_json))
            .collect();
        let expected: Vec<Option<Reason>> = expected
            .iter()
            .map(|e| {
                e.map(|(reason, value)| Reason {
                    reason: reason.into(),
                    column: "c".into(),
                    value: value.into(),
                })
            })
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn unusable_targets_are_told_apart() {
        let column = texts(&[Some("1"), Some("x"), Some(" N/A"), None, Some("-inf")]);
        let expected = [
            None,
            Some(("target_not_numeric", "x")),
            Some(("target_missing", "")),
            Some(("target_missing", "")),
            Some(("target_not_finite", "-inf")),
        ];
        check(Judged::NumericTarget, Arc::clone(&column), &expected);
        check(
            Judged::ClassTarget,
            column,
            &[None, None, expected[2], expected[3], None],
        );
    }

    #[test]
    fn a_label_that_is_not_listed_is_told_apart_from_a_missing_one() {
        let judge = Judge {
            columns: vec![("c".into(), Judged::ClassTarget)],
            missing: missing(),
            signs: None,
            classes: vec!["1".into(), "no".into(), "yes".into()],
        };
        let reasons = |column: ArrayRef| -> Vec<Option<(String, String)>> {
            let found = judge.call(&[Arc::clone(&column)], column.len()).unwrap();
            let found = found.as_string::<i32>().iter();
            found
                .map(|v| v.map(Reason::from_json).map(|r| (r.reason, r.value)))
                .collect()
        };
        let unlisted = |value: &str| Some(("unlisted_class".to_owned(), value.to_owned()));
        let missing = Some(("target_missing".to_owned(), String::new()));
        let labels = [Some("yes"), Some("Yes"), None, Some("N/A"), Some("no")];
        assert_eq!(
            reasons(texts(&labels)),
            [None, unlisted("Yes"), missing.clone(), missing, None]
        );
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        assert_eq!(reasons(numbers), [None, unlisted("2")]);
        let numbers: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 1.5]));
        assert_eq!(reasons(numbers), [None, unlisted("1.5")]);
    }

    #[test]
    fn integers_a_float_cannot_hold_are_set_aside() {
        let edge = 1i64 << 53;
        let column: ArrayRef = Arc::new(Int64Array::from(vec![edge, edge + 1, -edge - 1]));
        let expected = [
            None,
            Some(("integer_too_large", "9007199254740993")),
            Some(("integer_too_large", "-9007199254740993")),
        ];
        check(Judged::Number, Arc::clone(&column), &expected);
        check(Judged::NumericTarget, Arc::clone(&column), &expected);
        check(Judged::ClassTarget, column, &[None, None, None]);
    }

    #[test]
    fn an_integer_beyond_a_float_is_set_aside_where_it_is_text_too() {
        let column = texts(&[
            Some("9007199254740992"),
            Some(" -9007199254740993 "),
            Some("0009007199254740992"),
            Some("9007199254740993.0"),
            Some("1234567890123456789012345678901234567890123"),
            Some("12"),
            None,
        ]);
        let large = |value| Some(("integer_too_large", value));
        let expected = [
            None,
            large("-9007199254740993"),
            None,
            None,
            large("1234567890123456789012345678901234567890123"),
            None,
            None,
        ];
        check(Judged::Number, Arc::clone(&column), &expected);
        check(Judged::Decimal, column, &[None; 7]);
        let declared = Missing::new(&["90071992547409930".into()], &[-9_007_199_254_740_994.0]);
        assert!(!is_large_integer("90071992547409930", &declared));
        assert!(!is_large_integer("-9007199254740994", &declared));
    }

    #[test]
    fn a_declared_missing_number_is_a_missing_target_and_a_fine_feature() {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![-200]));
        check(Judged::Number, Arc::clone(&column), &[None]);
        check(
            Judged::NumericTarget,
            column,
            &[Some(("target_missing", ""))],
        );
    }
}
