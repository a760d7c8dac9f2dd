//! Expectations for the cells of new rows: violations are counted, and reject no row.

use arrow::array::RecordBatch;
use feedline_schemas::{
    config::ExpectConfig, count::counted, expect::ExpectedColumn, report::Warning,
    transform::TransformArtefact,
};

use super::{Rows, Violation, columns::Faults, read::read_file};
use crate::{Context, message_with_causes};

const KEY: &str = "dataset.expect";

/// Expectations for single cells of the inputs of new rows, with the violations so far.
///
/// `max_missing_fraction` and `unique` concern a column of all splits, so they are not checked.
#[derive(Debug, Default)]
pub struct ExpectedInputs {
    rules: Rows,
    faults: Faults,
    /// URL of the file.
    url: String,
    /// Reason why the file cannot be used.
    unread: Option<String>,
}

impl ExpectedInputs {
    /// Reads the file that `config` names, and takes what it expects of the inputs of `artefact`. A
    /// file that cannot be used is one of the [`warnings`](Self::warnings).
    pub async fn read(
        config: &ExpectConfig,
        artefact: &TransformArtefact,
        context: &Context,
    ) -> Self {
        match read_file(config, context).await {
            Ok(file) => Self::new(&file.columns, file.url, artefact),
            Err(error) => Self {
                unread: Some(message_with_causes(&error)),
                ..Self::default()
            },
        }
    }

    fn new(columns: &[ExpectedColumn], url: String, artefact: &TransformArtefact) -> Self {
        let is_input = |column: &&ExpectedColumn| {
            let mut inputs = artefact.inputs.iter();
            inputs.any(|input| input.name == column.name && input.kind == column.kind)
        };
        Self {
            rules: Rows::new(columns.iter().filter(is_input)),
            url,
            ..Self::default()
        }
    }

    /// Counts violations in `rows`, without those that `is_bad` returns true for; `first` is the
    /// number of the first row.
    pub(crate) fn count(&mut self, first: u64, rows: &RecordBatch, is_bad: impl Fn(usize) -> bool) {
        let names = self.rules.0.iter().map(|rule| &rule.column);
        let cells: Option<Vec<_>> = names
            .map(|name| rows.column_by_name(name).cloned())
            .collect();
        let good: Vec<(usize, u64)> = (first..)
            .zip(0..rows.num_rows())
            .map(|(number, row)| (row, number))
            .filter(|(row, _)| !is_bad(*row))
            .collect();
        if let Some(cells) = cells {
            let good = good.iter().copied();
            self.faults.count_rows(&self.rules, good, &cells);
        }
    }

    /// A warning for each violated expectation, or for a file that cannot be used.
    #[must_use]
    pub fn warnings(&self) -> Vec<Warning> {
        if let Some(reason) = &self.unread {
            let message = format!("new rows are not checked against expectations: {reason}");
            return vec![Warning::new("expectations_unread", message).with_key(KEY)];
        }
        let found = self.faults.clone().named(&self.rules).into_iter();
        found.map(|violation| self.warning(&violation)).collect()
    }

    fn warning(&self, Violation { path, rows, sample }: &Violation) -> Warning {
        let are = if *rows == 1 { "is" } else { "are" };
        let such_as = match sample.as_str() {
            "" => String::new(),
            sample => format!(", such as `{sample}`"),
        };
        let message = format!(
            "{} {are} not as `{path}` in `{}` expects{such_as}; expectations reject rows of a build only, and none here",
            counted(*rows, "new row"),
            self.url
        );
        Warning::new("unexpected_rows", message).with_key(KEY)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Float64Array, StringArray};
    use feedline_schemas::{
        expect::Expectations,
        format::TRANSFORM,
        ids::Hash128,
        transform::{InputColumn, InputKind},
    };

    use super::*;

    const FILE: &str = "[[column]]\nname = \"price\"\nkind = \"numeric\"\nmin = 0.0\nmax = 500.0\nrequired = true\n\
        [[column]]\nname = \"kind\"\nkind = \"categorical\"\nvalues = [\"a\", \"b\"]\n\
        [[column]]\nname = \"label\"\nkind = \"categorical\"\nrequired = true\n";

    fn artefact() -> TransformArtefact {
        let input = |name: &str, kind| InputColumn {
            name: name.to_owned(),
            kind,
        };
        TransformArtefact {
            format: TRANSFORM.format.to_owned(),
            version: TRANSFORM.version,
            hash: Hash128::new(0),
            fitted_rows: 0,
            null_values: Vec::new(),
            missing_values: Vec::new(),
            inputs: vec![
                input("price", InputKind::Numeric),
                input("kind", InputKind::Categorical),
            ],
            steps: Vec::new(),
            features: Vec::new(),
            target: None,
            other_targets: Vec::new(),
            characters: None,
            images: None,
            tokens: None,
            signs: None,
        }
    }

    #[test]
    fn violations_of_new_rows_are_counted_by_expectation_without_bad_rows_and_other_columns() {
        let columns = Expectations::parse(FILE).unwrap().column;
        let mut expected = ExpectedInputs::new(&columns, "expect.toml".to_owned(), &artefact());
        assert!(expected.warnings().is_empty());
        let prices = [Some(1.0), Some(900.0), None, Some(-1.0), Some(501.0)];
        let price: ArrayRef = Arc::new(Float64Array::from(prices.to_vec()));
        let kinds = [Some("a"), Some("c"), Some("b"), None, Some("a")];
        let kind: ArrayRef = Arc::new(StringArray::from(kinds.to_vec()));
        let rows = [("price", price, true), ("kind", kind, true)];
        let rows = RecordBatch::try_from_iter_with_nullable(rows).unwrap();
        expected.count(0, &rows, |row| row == 3);
        expected.count(5, &rows, |row| row != 1);
        let messages = expected.warnings().into_iter().map(|warning| {
            assert_eq!(warning.code, "unexpected_rows");
            warning.message
        });
        let messages: Vec<String> = messages.collect();
        let begins = [
            "3 new rows are not as `price.max` in `expect.toml` expects, such as `900`; expectations reject",
            "1 new row is not as `price.required` in `expect.toml` expects; expectations reject rows of a build only",
            "2 new rows are not as `kind.values` in `expect.toml` expects, such as `c`; expectations",
        ];
        assert_eq!(messages.len(), begins.len(), "{messages:?}");
        for (message, begin) in messages.iter().zip(begins) {
            assert!(message.starts_with(begin), "{message}");
        }
    }

    #[tokio::test]
    async fn expectations_that_cannot_be_read_are_a_warning() {
        let root = feedline_storage::Store::memory();
        let (context, scratch) = crate::testing::context(&root, 1);
        let file = scratch.path().join("absent.toml").display().to_string();
        let config: ExpectConfig =
            serde_json::from_value(serde_json::json!({ "file": file })).unwrap();
        let found = ExpectedInputs::read(&config, &artefact(), &context).await;
        let warnings = found.warnings();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert_eq!(warnings[0].code, "expectations_unread");
        let part = "new rows are not checked against expectations: ";
        assert!(warnings[0].message.starts_with(part), "{warnings:?}");
    }
}
