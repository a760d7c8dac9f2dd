//! Rejection of rows whose predictions are no finite numbers.

use std::collections::BTreeMap;

use feedline_preprocess::Fault;

/// Returns a usable prediction of a row, or records its fault. Rows of a file have a `number` there.
pub(super) fn usable<T>(
    row: usize,
    number: Option<u64>,
    answer: Option<T>,
    bad: &mut BTreeMap<usize, Fault>,
) -> Option<T> {
    if bad.contains_key(&row) {
        return None;
    }
    if answer.is_none() {
        let what = "the model returns no finite number";
        let detail = match number {
            Some(number) => format!("row {number}: {what}"),
            None => what.to_owned(),
        };
        bad.insert(row, Fault::new("prediction_not_finite", detail));
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prediction_that_is_not_finite_names_its_row_only_in_a_file() {
        let mut bad = BTreeMap::new();
        assert_eq!(usable(0, None, None::<u8>, &mut bad), None);
        assert_eq!(usable(1, Some(7), None::<u8>, &mut bad), None);
        assert_eq!(usable(2, Some(8), Some(5), &mut bad), Some(5));
        assert_eq!(usable(0, None, Some(5), &mut bad), None);
        let details: Vec<&str> = bad.values().map(|fault| fault.detail.as_str()).collect();
        let what = "the model returns no finite number";
        let numbered = format!("row 7: {what}");
        assert_eq!(details, [what, numbered.as_str()]);
    }
}
