//! Landed rows that cannot be used: the first fault of each is its reason to be rejected.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, Int64Array, StringArray},
    datatypes::DataType,
};
use datafusion::error::Result;
use feedline_schemas::{number::MAX_EXACT, transform::NumberSigns};
use serde::{Deserialize, Serialize};

use crate::{
    engine::scalar_function::RowFunction,
    operators::{
        coerce::{Category, Missing, Numeric, is_large_integer, to_float},
        content_column, number_format,
    },
    schema::reject_reason::{self, Reason, SHOWN},
};

/// Part of a column in the judgement of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Judged {
    /// Numeric feature. Integers beyond 2^53 are faults, whether they landed as integers, decimals or text; fractions are
    /// rounded.
    Number,
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
            Judged::Number => {}
            Judged::Image => faults.extend(content_column::image_faults(column)),
            Judged::DecodedImage => faults.extend(content_column::missing_images(column)),
            Judged::Document => faults.extend(content_column::document_faults(column)),
            Judged::Unmatched | Judged::Dropped => {
                let reason = match judged {
                    Judged::Dropped => reject_reason::UNMATCHED_DROPPED,
                    _ => reject_reason::UNMATCHED,
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
                    && !self.missing.has_numbers()
                    && self.classes.is_empty() => {}
            Judged::ClassTarget => {
                let labels = Category(self.missing.clone()).read(column)?;
                let labels = labels.iter().enumerate();
                faults.extend(labels.filter_map(|(row, label)| match label {
                    None => Some((row, reject_reason::TARGET_MISSING, String::new())),
                    Some(label) if self.is_class(label) => None,
                    Some(label) => {
                        let shown = label.chars().take(SHOWN).collect();
                        Some((row, reject_reason::UNLISTED_CLASS, shown))
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
        rows.map(|(row, v)| (row, reject_reason::INTEGER_TOO_LARGE, v.to_string()))
            .collect()
    }

    fn too_large_texts(&self, texts: &StringArray) -> Vec<Fault> {
        let large = |text: &&str| is_large_integer(text, &self.missing);
        let rows = texts.iter().enumerate();
        let rows = rows.filter_map(|(row, text)| text.filter(large).map(|text| (row, text)));
        let fault = |(row, text): (usize, &str)| {
            let shown = text.trim().chars().take(SHOWN).collect();
            (row, reject_reason::INTEGER_TOO_LARGE, shown)
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
                (Some(number), _) => {
                    Some((row, reject_reason::TARGET_NOT_FINITE, number.to_string()))
                }
                (None, Some(text))
                    if !self.missing.text(text)
                        && number_format::number(text, self.signs).is_none() =>
                {
                    Some((
                        row,
                        reject_reason::TARGET_NOT_NUMERIC,
                        text.chars().take(SHOWN).collect(),
                    ))
                }
                (None, _) => Some((row, reject_reason::TARGET_MISSING, String::new())),
            }
        };
        Ok((0..column.len()).filter_map(fault).collect())
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Float64Array;

    use super::*;

    fn missing() -> Missing {
        Missing::new(&["N/A".into()], &[-200.0])
    }

    fn texts(values: &[Option<&str>]) -> ArrayRef {
        Arc::new(StringArray::from(values.to_vec()))
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
        check(Judged::Number, column, &expected);
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
