//! Counts of a dataset and of the rows that are appended to it, added up.

use std::collections::BTreeMap;

use feedline_schemas::manifest::{ClassCounts, DatasetCounts};

/// The counts of all rows, from those before and those that were added.
pub(super) fn together(before: &DatasetCounts, added: &DatasetCounts) -> DatasetCounts {
    DatasetCounts {
        rows_in: before.rows_in + added.rows_in,
        duplicates: before.duplicates + added.duplicates,
        rejected: sums(&before.rejected, &added.rejected),
        rejected_targets: sums(&before.rejected_targets, &added.rejected_targets),
        filtered: sums(&before.filtered, &added.filtered),
        unexpected: sums(&before.unexpected, &added.unexpected),
        train: before.train + added.train,
        validation: before.validation + added.validation,
        test: before.test + added.test,
        classes: class_sums(&before.classes, &added.classes),
        ..before.clone()
    }
}

/// Rows of each class in both; one transform gave all of them their ids.
fn class_sums(before: &[ClassCounts], added: &[ClassCounts]) -> Vec<ClassCounts> {
    let mut sums = before.to_vec();
    for (sum, added) in sums.iter_mut().zip(added) {
        sum.train += added.train;
        sum.validation += added.validation;
        sum.test += added.test;
    }
    sums
}

/// Counts of both, name by name.
pub(super) fn sums(
    before: &BTreeMap<String, u64>,
    added: &BTreeMap<String, u64>,
) -> BTreeMap<String, u64> {
    let mut sums = before.clone();
    for (name, count) in added {
        *sums.entry(name.clone()).or_default() += count;
    }
    sums
}
