//! Spellings of a missing value in text columns, where they stay text: a word such as `None` or `NA`
//! may be a category or a code there.

use feedline_schemas::{config::SourceConfig, report::Finding};

use super::held_advice::without_declared;

/// Code of the warning about them.
pub(super) const MISSING_WORDS: &str = "missing_words";

/// The finding.
pub(super) const FINDING: &str = "usual spellings of a missing value stay text in a text column";
/// The advice about it.
pub(super) const ADVICE: &str = "list those that mean a missing value in `csv.null_values`, or declare the column `text` (`contract.column.<name>.type`) if they are values";

/// Returns the finding of a landed warning as it holds under `config`: without the columns whose type is
/// declared by now, and with advice to reset if a spelling is listed in `csv.null_values` by now.
pub(super) fn hold(finding: Finding, config: &SourceConfig) -> Option<Finding> {
    let mut open = without_declared(finding, config)?;
    let nulls = config.csv.null_values.iter().map(|word| word.trim());
    let nulls: Vec<&str> = nulls.collect();
    let mut words = open.columns.iter().flat_map(|column| &column.values);
    if words.any(|word| nulls.contains(&word.trim())) {
        open.finding = "`csv.null_values` lists a spelling of a missing value, but rows that have landed keep it as text".to_owned();
        open.advice = format!(
            "`feedline ingest reset PIPELINE.toml {}` re-reads everything with it",
            config.name
        );
    }
    Some(open)
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{
        config::{DeclaredType, PaginationKind},
        report::{WarnedColumn, Warning},
    };

    use super::*;
    use crate::infer::hold_under;

    fn column(name: &str, found: &str, words: &[&str]) -> WarnedColumn {
        WarnedColumn {
            values: words.iter().map(|word| (*word).to_owned()).collect(),
            ..WarnedColumn::with_found(name, found)
        }
    }

    fn landed(columns: &[WarnedColumn]) -> Warning {
        let finding = Finding {
            columns: columns.to_vec(),
            finding: FINDING.to_owned(),
            advice: ADVICE.to_owned(),
            ..Finding::default()
        };
        Warning::of_findings(MISSING_WORDS, "csv.null_values", vec![finding])
    }

    /// The warning about `columns` with these columns declared text and these null values.
    fn follow(columns: &[WarnedColumn], declared: &[&str], nulls: &[&str]) -> Option<Warning> {
        let mut config = crate::testing::config("http://h/", PaginationKind::Page);
        for name in declared {
            let columns = &mut config.contract.column;
            let column = columns.entry((*name).to_owned()).or_default();
            column.r#type = Some(DeclaredType::Text);
        }
        config.csv.null_values = nulls.iter().map(|word| (*word).to_owned()).collect();
        hold_under(&config, landed(columns))
    }

    #[test]
    fn columns_that_are_declared_later_are_no_longer_named() {
        let first = column("country", "2 `NA` of 9 values", &["NA"]);
        let second = column(
            "kind",
            "1 `(null)`, 3 `None` of 9 values",
            &["(null)", "None"],
        );
        let both = [first.clone(), second.clone()];
        assert_eq!(follow(&both, &[], &["-"]), Some(landed(&both)));
        let left = follow(&both, &["country", "other"], &[]);
        assert_eq!(left, Some(landed(&[second])));
        assert_eq!(follow(&both, &["kind"], &[]), Some(landed(&[first])));
        assert_eq!(follow(&both, &["kind", "country"], &[]), None);
        let many: Vec<WarnedColumn> = ["a", "b", "c", "d", "e", "f", "g"]
            .map(WarnedColumn::new)
            .into();
        let left = follow(&many, &["a", "b", "c", "d", "e"], &[]).unwrap();
        let message = format!("`f`, `g`: {FINDING}; {ADVICE}");
        assert_eq!(left.message, message);
    }

    #[test]
    fn a_spelling_that_is_listed_later_needs_a_reset() {
        let kind = [column(
            "kind",
            "1 `-`, 3 `None` of 9 values",
            &["-", "None"],
        )];
        for word in ["None", " - "] {
            let message = follow(&kind, &[], &[word]).unwrap().message;
            let begin = "`kind` (1 `-`, 3 `None` of 9 values): ";
            assert!(message.starts_with(begin), "{message}");
            assert!(message.contains("feedline ingest reset"), "{message}");
        }
        let message = follow(&kind, &[], &["kind"]).unwrap().message;
        assert!(!message.contains("reset"), "{message}");
    }
}
