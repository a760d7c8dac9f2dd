//! Column of `source.version` whose CSV cells may be version numbers of several parts.

use feedline_readers::value::shorten;
use feedline_schemas::{
    config::SourceConfig,
    record::ColumnType,
    report::{WarnedColumn, Warning},
};

use super::{column_counts::ColumnCounts, inferred::Types};

/// Code of the warning about them. A build has it too, for text columns.
pub(super) const VERSION_IS_NUMBER: &str = "version_is_number";

/// Maximum characters of a cell in the message.
const SHOWN: usize = 40;

/// Cells of two notations that numbers seldom have at once.
#[derive(Clone, Debug, Default)]
pub(super) struct VersionNumbers {
    /// Last in byte order of those with one digit behind the point, such as `1.9`.
    short: Option<String>,
    /// First in byte order of those whose digits behind the point, two or more, end in 0, such as
    /// `1.10`.
    padded: Option<String>,
}

impl VersionNumbers {
    /// Returns the counter of a column if it is the version of `config`, which only has an effect
    /// with a key.
    pub(super) fn of_column(name: &str, version: Option<&str>) -> Option<Self> {
        (version == Some(name)).then(Self::default)
    }

    /// Notes a number without spaces around it.
    pub(super) fn add(&mut self, number: &str) {
        let Some((whole, part)) = number.split_once('.') else {
            return;
        };
        let is_digits =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_digits(whole) || !is_digits(part) {
            return;
        }
        if part.len() == 1 {
            if self.short.as_deref().is_none_or(|last| number > last) {
                self.short = Some(number.to_owned());
            }
        } else if part.ends_with('0') && self.padded.as_deref().is_none_or(|first| number < first) {
            self.padded = Some(number.to_owned());
        }
    }

    /// Returns the warning about `column` of the source, if it has numbers of both notations.
    fn warning(&self, column: &str, config: &SourceConfig) -> Option<Warning> {
        let (short, padded) = (self.short.as_deref()?, self.padded.as_deref()?);
        let number = padded.trim_end_matches('0').trim_end_matches('.');
        let [short, padded, number] = [short, padded, number].map(|text| shorten(text, SHOWN));
        let message = format!(
            "column `{column}` of source `{}` decides which row of a key is the latest, and has cells such as `{short}` and `{padded}` that are \
             read as numbers, so `{padded}` is `{number}`, and an older row may be taken for the latest if they are version \
             numbers of several parts: name another column then; if they are numbers, declare \
             `contract.column.{column:?}.type = \"float\"`",
            config.name
        );
        let warning = Warning::new(VERSION_IS_NUMBER, message).with_key("source.version");
        Some(warning.with_columns(vec![WarnedColumn::new(column)]))
    }
}

/// Column that decides which row of a key is the latest.
pub(super) fn version_of(config: &SourceConfig) -> Option<&String> {
    config.version.as_ref().filter(|_| !config.key.is_empty())
}

/// Warns of a version of numbers that may be version numbers of several parts. `types` are those of
/// the columns without a declared type.
pub(super) fn warn_of_version(
    columns: &[ColumnCounts],
    types: &Types,
    config: &SourceConfig,
) -> Option<Warning> {
    let numbers = columns
        .iter()
        .find_map(|column| Some((&column.name, column.version_numbers.as_ref()?)));
    let (name, numbers) = numbers?;
    let is_number = types.get(name).copied().is_some_and(ColumnType::is_number);
    numbers.warning(name, config).filter(|_| is_number)
}

/// Returns false for a landed warning about version numbers if the source has another `version` by
/// now, or a declared type of it.
pub(super) fn has_open_version(warning: &Warning, config: &SourceConfig) -> bool {
    let is_open = |name: &String| {
        let own = config.contract.column.get(name);
        let is_declared = own.is_some_and(|own| own.r#type.is_some());
        let is_named = warning.findings.is_empty() || warning.is_about(name);
        !is_declared && is_named
    };
    version_of(config).is_some_and(is_open)
}

#[cfg(test)]
mod tests {
    use feedline_readers::{record::Record, value::Value};
    use feedline_schemas::config::{DeclaredType, PaginationKind};

    use super::*;
    use crate::{held_warnings::holding, infer::Survey};

    /// A source whose column `rev` orders the rows of each `id`.
    fn source() -> SourceConfig {
        let mut config = crate::testing::config("http://h/", PaginationKind::Page);
        config.key = vec!["id".to_owned()];
        config.version = Some("rev".to_owned());
        config
    }

    fn with_type(r#type: DeclaredType) -> SourceConfig {
        let mut config = source();
        let column = config.contract.column.entry("rev".to_owned()).or_default();
        column.r#type = Some(r#type);
        config
    }

    /// Warnings about these values of `rev`.
    fn warnings(values: &[Value], config: &SourceConfig) -> Vec<Warning> {
        let found = |values: Vec<&Value>| {
            let mut survey = Survey::new(config);
            for value in values {
                let other = ("price".to_owned(), value.clone());
                let entries = vec![other, ("rev".to_owned(), value.clone())];
                survey.add(&Record::Value(Value::Object(entries)));
            }
            let found = survey.infer(config).warnings.into_iter();
            let found = found.filter(|warning| warning.code == VERSION_IS_NUMBER);
            found.collect::<Vec<_>>()
        };
        let forward = found(values.iter().collect());
        assert_eq!(forward, found(values.iter().rev().collect()));
        forward
    }

    fn cells(texts: &[&str]) -> Vec<Value> {
        let texts = texts.iter();
        texts.map(|text| Value::Cell((*text).to_owned())).collect()
    }

    #[test]
    fn versions_of_several_parts_that_are_read_as_numbers_are_a_warning() {
        let found = warnings(&cells(&["1.8", " 1.9 ", "1.20", "1.10", "2"]), &source());
        let [warning] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(warning.key.as_deref(), Some("source.version"));
        for part in [
            "column `rev` of source `",
            "cells such as `1.9` and `1.10` that are read as numbers, so `1.10` is `1.1`",
            "declare `contract.column.\"rev\".type = \"float\"`",
        ] {
            assert!(warning.message.contains(part), "{part}: {warning:?}");
        }
    }

    #[test]
    fn numbers_of_one_notation_and_other_columns_are_no_warning() {
        for texts in [
            &["1.9", "1.8"][..],
            &["1.10", "1.90"],
            &["1.9", "1.11"],
            &["19", "110"],
            // They land as text, and a build warns of them.
            &["1.9", "1.10", "1.2.3"],
        ] {
            assert_eq!(warnings(&cells(texts), &source()), [], "{texts:?}");
        }
        let both = cells(&["1.9", "1.10"]);
        for r#type in [DeclaredType::Float, DeclaredType::Text] {
            assert_eq!(warnings(&both, &with_type(r#type)), []);
        }
        let mut config = source();
        config.key.clear();
        assert_eq!(warnings(&both, &config), []);
        config = source();
        config.version = None;
        assert_eq!(warnings(&both, &config), []);
    }

    #[test]
    fn the_warning_holds_until_the_version_is_another_or_declared() {
        let landed = warnings(&cells(&["1.9", "1.10"]), &source());
        assert_eq!(holding(&source(), &landed), landed);
        assert_eq!(holding(&with_type(DeclaredType::Float), &landed), []);
        let mut config = source();
        config.version = Some("at".to_owned());
        assert_eq!(holding(&config, &landed), []);
    }
}
