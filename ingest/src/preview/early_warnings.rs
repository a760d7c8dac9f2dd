//! Warnings of a landing that are known before anything lands.

use feedline_schemas::{
    commit::{Missing, Presence},
    count::first_counted,
    report::{Warning, replace_warning},
};

use super::SourcePreview;
use crate::{
    contract,
    infer::{Inferred, MIXED_TYPES},
    source::{Page, Source},
    warnings::WarningChange,
};

/// Code of the warning about integers that a build rejects.
const INTEGER_TOO_LARGE: &str = "integer_too_large";

/// Most columns that a warning names.
const NAMED: usize = 5;

/// Decisions of a source that has read its first page, and its sample.
pub(super) fn source_warnings(source: &mut dyn Source, page: &Page) -> Vec<Warning> {
    let raised = source.take_warnings().into_iter();
    let raised = raised.filter_map(|change| match change {
        WarningChange::Raise(warning) => Some(warning),
        WarningChange::Lift(_) | WarningChange::LiftEnds => None,
    });
    let crawled = page.crawled.iter().flat_map(|page| page.warnings.clone());
    let mut warnings = Vec::new();
    for warning in raised.chain(crawled).chain(source.warnings()) {
        replace_warning(&mut warnings, warning);
    }
    warnings
}

/// Warning of columns in the sampled records that may be one column under two names.
pub(super) fn warn_of_alike_columns(inferred: &Inferred) -> Option<Warning> {
    let missing = inferred.columns.iter().map(|column| {
        let missing = Missing {
            absent: column.absent,
            null: 0,
        };
        (column.name.clone(), missing)
    });
    let presence = Presence {
        rows: inferred.rows,
        missing: missing.collect(),
        ..Presence::default()
    };
    let names = inferred.columns.iter().map(|column| column.name.as_str());
    contract::alike_warning(names, &presence)
}

impl SourcePreview {
    /// Adds to the warning of columns of several types that only the first page was looked at: a batch may
    /// have so few of the other values that they are odd values, and no reason for a column of text.
    pub(super) fn qualify_types(&mut self) {
        let mut mixed = self.warnings.iter_mut();
        if let Some(mixed) = mixed.find(|warning| warning.code == MIXED_TYPES) {
            mixed.message.push_str(
                "; this is the first page alone, and a run decides by its first batch: up to `infer.max_odd_fraction` of \
                 other values there, the column gets the type of the rest, and `contract.types` decides about the others",
            );
        }
    }

    /// Rows looked at with an integer beyond 2^53, in the column with most of them among those for
    /// which `is_number` returns true.
    #[must_use]
    pub fn rows_with_large_integers(&self, is_number: impl Fn(&str) -> bool) -> u64 {
        let columns = self.columns.iter().filter(|column| is_number(&column.name));
        let counts = columns.filter_map(|column| Some(column.large_integers.as_ref()?.count));
        counts.max().unwrap_or_default()
    }

    /// Warning of integers beyond 2^53 in the columns for which `is_number` returns true: those of
    /// numeric features and targets. A build rejects their rows.
    pub fn warn_of_large_integers(&self, is_number: impl Fn(&str) -> bool) -> Option<Warning> {
        let columns = self.columns.iter().filter(|column| is_number(&column.name));
        let columns = columns.filter_map(|column| {
            let large = column.large_integers.as_ref()?;
            let (name, count, sample) = (&column.name, large.count, &large.sample);
            Some(format!(
                "`{name}` ({count} of {} rows looked at, such as `{sample}`)",
                self.rows
            ))
        });
        let columns: Vec<String> = columns.collect();
        if columns.is_empty() {
            return None;
        }
        let named = first_counted(&columns, NAMED, "column");
        let message = format!(
            "{named}: integers beyond 2^53 land exactly, but no 64-bit float holds them, so a build rejects their rows; list a column of codes in `dataset.categorical`, or one that is no feature in `dataset.drop`"
        );
        Some(Warning::new(INTEGER_TOO_LARGE, message).with_key("dataset.categorical"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warning_of_mixed_types_says_that_the_first_batch_decides() {
        let warned = |code: &str| Warning::new(code, "`price` (...): columns land as text");
        let mut preview = SourcePreview {
            warnings: vec![warned("text_times"), warned("mixed_types")],
            ..SourcePreview::default()
        };
        preview.qualify_types();
        assert_eq!(preview.warnings[0], warned("text_times"));
        let message = &preview.warnings[1].message;
        let part = "a run decides by its first batch";
        assert!(message.contains(part), "{message}");
    }
}
