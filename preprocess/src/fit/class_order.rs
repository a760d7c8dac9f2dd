//! Order of class ids: numbers by value, then texts by code points.
//!
//! The order follows from each label alone. So neither the counts of the training split nor other labels decide which of
//! two classes comes first, and labels 0 to 9 have the ids 0 to 9.

use std::{cmp::Ordering, collections::HashSet};

use feedline_schemas::{
    config::{ClassLabel, DatasetConfig, Task},
    count::counted,
};

use crate::{
    Error, fit::MOST_VALUES, operators::coerce::float_text, schema::landed_columns::shown,
};

const KEY: &str = "dataset.classes";

/// Sort key of a label.
#[derive(Clone, Debug)]
struct Key<'a> {
    /// Value of a label that is a number.
    number: Option<f64>,
    /// Exact value of an integer; floats round beyond 2^53.
    integer: Option<i128>,
    text: &'a str,
}

impl<'a> Key<'a> {
    fn new(label: &'a str) -> Self {
        // Words such as `nan` and `inf` are texts.
        let digits = label.trim_start_matches(['+', '-']);
        let is_number = digits.starts_with(|first: char| first.is_ascii_digit() || first == '.');
        let number = label.parse().ok();
        let number = number.filter(|number: &f64| is_number && number.is_finite());
        Self {
            number,
            integer: label.parse().ok().or_else(|| number.and_then(whole)),
            text: label,
        }
    }
}

/// A number without a fraction as an integer: `1.0` as 1.
#[expect(
    clippy::cast_possible_truncation,
    clippy::float_cmp,
    reason = "a number without a fraction, and beyond the range the nearest integer, which only orders equal numbers"
)]
fn whole(number: f64) -> Option<i128> {
    (number.trunc() == number).then_some(number as i128)
}

/// Compares two labels by the order of class ids: numbers by value, then texts by code points. Labels of one value, such as
/// `1` and `1.0`, follow by code points.
pub(crate) fn order(a: &str, b: &str) -> Ordering {
    let (a, b) = (Key::new(a), Key::new(b));
    let by_number = match (a.number, b.number) {
        // Adding 0 makes -0 the same as 0.
        (Some(a), Some(b)) => (a + 0.0).total_cmp(&(b + 0.0)),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    };
    by_number
        .then(a.integer.cmp(&b.integer))
        .then_with(|| a.text.cmp(b.text))
}

/// Returns the classes that `dataset.classes` lists, by id and as labels of the target are written; none where it lists none.
pub(crate) fn listed(config: &DatasetConfig) -> Result<Vec<String>, Error> {
    let refuse = |reason: String| Err(Error::config(KEY, reason));
    if config.classes.is_empty() {
        return Ok(Vec::new());
    }
    if config.task != Task::Classification {
        return refuse(
            "a number to predict has no classes; set `dataset.task = \"classification\"`, or remove this key"
                .to_owned(),
        );
    }
    let count = config.classes.len();
    if !(2..=MOST_VALUES as usize).contains(&count) {
        return refuse(format!(
            "it lists {}, allowed are 2 to {MOST_VALUES}",
            counted(count as u64, "class")
        ));
    }
    let classes: Vec<String> = config.classes.iter().map(text_of).collect();
    let mut seen = HashSet::new();
    for class in &classes {
        let is_null = config
            .null_values
            .iter()
            .any(|null| null.trim() == class.trim());
        if class.trim().is_empty() || is_null {
            return refuse(format!(
                "`{}` is read as a missing value, so no row has it",
                shown(class)
            ));
        }
        if !seen.insert(class) {
            return refuse(format!("`{}` is listed twice", shown(class)));
        }
    }
    Ok(classes)
}

/// The label as a cell of its type is read as a class.
fn text_of(label: &ClassLabel) -> String {
    match label {
        ClassLabel::Boolean(value) => value.to_string(),
        ClassLabel::Integer(value) => value.to_string(),
        ClassLabel::Number(value) => float_text(*value),
        ClassLabel::Text(value) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(sorted: &[&str]) {
        let mut found: Vec<&str> = sorted.iter().rev().copied().collect();
        found.sort_by(|a, b| order(a, b));
        assert_eq!(found, sorted);
    }

    #[test]
    fn numbers_come_by_value_and_texts_by_code_points() {
        check(&["0", "1", "2", "9", "10", "11"]);
        check(&["-10", "-1.5", "0", "0.25", "3", "1e3"]);
        check(&["bad", "good"]);
        check(&["no", "yes"]);
        check(&["false", "true"]);
        check(&["9", "10", "B", "a", "inf", "nan", "ä"]);
        check(&["1", "1.0", "2"]);
        check(&["9007199254740992", "9007199254740993"]);
    }

    proptest! {
        #[test]
        fn a_class_that_comes_later_changes_the_order_of_no_others(
            labels in prop::collection::btree_set("-?[0-9]{1,3}(\\.[0-9])?|[a-z]{0,3}", 1..12),
            other in "-?[0-9]{1,3}|[a-z]{0,3}",
        ) {
            let mut few: Vec<&str> = labels.iter().map(String::as_str).collect();
            let mut more: Vec<&str> = few.iter().copied().filter(|label| *label != other).collect();
            more.push(&other);
            few.sort_by(|a, b| order(a, b));
            more.sort_by(|a, b| order(a, b));
            few.retain(|label| *label != other);
            more.retain(|label| *label != other);
            prop_assert_eq!(few, more);
        }
    }
}
