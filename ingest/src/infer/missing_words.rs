//! Spellings of a missing value in text columns, where they stay text: a word such as `None` or `NA`
//! may be a category or a code there.

use feedline_schemas::{config::SourceConfig, count::counted, report::Warning};

/// Code of the warning about them.
pub(super) const MISSING_WORDS: &str = "missing_words";

/// Explanation in its message, behind the columns.
pub(super) const EXPLANATION: &str = "usual spellings of a missing value stay text in a text column; list those that mean a missing value in `csv.null_values`, or declare the column `text` (`contract.column.<name>.type`) if they are values";

/// End of the description of a column.
const END: &str = " values)";

/// Describes a column with these spellings, each with its number, among `values` values.
pub(super) fn describe(column: &str, spellings: &str, values: u64) -> String {
    format!("`{column}` ({spellings} of {})", counted(values, "value"))
}

/// Returns a landed warning as it holds under `config`: without the columns whose type is declared by
/// now, and with advice to reset if a spelling is listed in `csv.null_values` by now. Other warnings
/// are not changed.
pub(crate) fn follow_missing_words(mut warning: Warning, config: &SourceConfig) -> Option<Warning> {
    let parts = warning.message.split_once(&format!(": {EXPLANATION}"));
    let Some((columns, _)) = parts.filter(|_| warning.code == MISSING_WORDS) else {
        return Some(warning);
    };
    let (named, more) = columns.rsplit_once(END).unwrap_or((columns, ""));
    let open = |column: &&str| !is_declared(column, config);
    let open: Vec<&str> = named.split(&format!("{END}, ")).filter(open).collect();
    if open.is_empty() && more.is_empty() {
        return None;
    }
    let columns = match open[..] {
        [] => more.trim_start_matches(" and ").to_owned(),
        _ => format!("{}{END}{more}", open.join(&format!("{END}, "))),
    };
    let is_listed = |word: &String| {
        let word = word.trim();
        [" of ", ", "]
            .iter()
            .any(|after| columns.contains(&format!(" `{word}`{after}")))
    };
    let explanation = match config.csv.null_values.iter().any(is_listed) {
        true => format!(
            "`csv.null_values` lists a spelling of a missing value, but rows that have landed keep it as text: `feedline \
             ingest reset PIPELINE.toml {}` re-reads everything with it",
            config.name
        ),
        false => EXPLANATION.to_owned(),
    };
    warning.message = format!("{columns}: {explanation}");
    Some(warning)
}

/// Returns true if the type of the described column is declared.
fn is_declared(column: &str, config: &SourceConfig) -> bool {
    let mut declared = config.contract.column.iter();
    declared.any(|(name, own)| own.r#type.is_some() && column.starts_with(&format!("`{name}` (")))
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::{DeclaredType, PaginationKind};

    use super::*;

    fn landed(columns: &str) -> Warning {
        Warning::new(MISSING_WORDS, format!("{columns}: {EXPLANATION}"))
    }

    /// Message of the warning about `columns` with these columns declared text and these null values.
    fn follow(columns: &str, declared: &[&str], nulls: &[&str]) -> Option<String> {
        let mut config = crate::testing::config("http://h/", PaginationKind::Page);
        for name in declared {
            let columns = &mut config.contract.column;
            let column = columns.entry((*name).to_owned()).or_default();
            column.r#type = Some(DeclaredType::Text);
        }
        config.csv.null_values = nulls.iter().map(|word| (*word).to_owned()).collect();
        follow_missing_words(landed(columns), &config).map(|warning| warning.message)
    }

    #[test]
    fn columns_that_are_declared_later_are_no_longer_named() {
        let first = describe("country", "2 `NA`", 9);
        let second = describe("kind", "1 `(null)`, 3 `None`", 9);
        let both = format!("{first}, {second}");
        assert_eq!(follow(&both, &[], &["-"]), Some(landed(&both).message));
        let left = follow(&both, &["country", "other"], &[]);
        assert_eq!(left, Some(landed(&second).message));
        let left = follow(&both, &["kind"], &[]);
        assert_eq!(left, Some(landed(&first).message));
        assert_eq!(follow(&both, &["kind", "country"], &[]), None);
        let more = format!("{both} and 2 more columns");
        let left = follow(&more, &["kind", "country"], &[]);
        assert_eq!(left, Some(landed("2 more columns").message));
    }

    #[test]
    fn a_spelling_that_is_listed_later_needs_a_reset() {
        let column = describe("kind", "1 `-`, 3 `None`", 9);
        for word in ["None", " - "] {
            let message = follow(&column, &[], &[word]).unwrap();
            assert!(message.starts_with(&format!("{column}: ")), "{message}");
            assert!(message.contains("feedline ingest reset"), "{message}");
        }
        let message = follow(&column, &[], &["kind"]).unwrap();
        assert!(!message.contains("reset"), "{message}");
    }
}
