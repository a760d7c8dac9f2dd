//! Warnings: automatic decisions and observations that end nothing.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::count::first_counted;

/// Most columns that a message names; the others are counted.
pub const NAMED_COLUMNS: usize = 5;
/// Most columns of a finding that keep their values in words. A table may have thousands of columns, and each
/// entry of a commit log has the warnings that hold.
const DESCRIBED_COLUMNS: usize = 20;

/// A decision or an observation that a person should know of, as commands show it.
///
/// Unlike an error it ends nothing. A source has at most one of each `code`; the newest holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Warning {
    /// Fixed word in snake case, such as `total_above_rows`.
    pub code: String,
    /// One sentence with the figures.
    pub message: String,
    /// Configuration key that changes the decision, such as `dataset.dedup`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Columns that it is about, and the findings in them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// Rows of a dataset that its figures are of, if not all rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<WarnedRows>,
}

/// A finding of a warning, with its columns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// The columns, in the order in which they were found. A message names the first ones: five of a source, at
    /// most ten of a dataset.
    pub columns: Vec<WarnedColumn>,
    /// Part of the message after the columns, such as `leading zeros are kept as text`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub finding: String,
    /// End of the message: the advice.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub advice: String,
    /// Settings that the advice names, by their keys, such as `csv.decimal_separator`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, Value>,
    /// Settings under which this was found, by their keys, where other ones would change it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub under: BTreeMap<String, Value>,
}

/// A column that a warning is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WarnedColumn {
    /// Name of the column.
    pub name: String,
    /// Source of the column, where a warning of a dataset is about a column of a source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Some of its values in words, as the message has them in parentheses.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub found: String,
    /// Values that the finding is about, where they are few.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// Rows of a dataset that the figures of a warning are of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WarnedRows {
    /// The rows that the transform was fitted on, and not those that were appended later.
    Fitted,
    /// The rows appended last.
    Appended,
    /// The rows of the build, whose message this is, and also the rows appended last.
    BuiltAndAppended(String),
}

impl WarnedColumn {
    /// A column by its name alone.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// A column with the words that a message has in parentheses behind its name.
    #[must_use]
    pub fn with_found(name: &str, found: impl Into<String>) -> Self {
        Self {
            found: found.into(),
            ..Self::new(name)
        }
    }

    /// The column in a message: its name, with its values in parentheses.
    fn shown(&self) -> String {
        match self.found.as_str() {
            "" => format!("`{}`", self.name),
            found => format!("`{}` ({found})", self.name),
        }
    }
}

impl Finding {
    /// Drops the words of columns behind the first ones.
    fn shorten(&mut self) {
        let further = self.columns.iter_mut().skip(DESCRIBED_COLUMNS);
        further.for_each(|column| column.found.clear());
    }

    /// The message of this finding: columns, finding and advice.
    #[must_use]
    pub fn message(&self) -> String {
        let columns: Vec<String> = self.columns.iter().map(WarnedColumn::shown).collect();
        let columns = first_counted(&columns, NAMED_COLUMNS, "column");
        let end = match self.finding.ends_with('?') {
            true => " ",
            false => "; ",
        };
        match self.advice.as_str() {
            "" => format!("{columns}: {}", self.finding),
            advice => format!("{columns}: {}{end}{advice}", self.finding),
        }
    }
}

impl Warning {
    /// A warning that no key changes.
    #[must_use]
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            message: message.into(),
            ..Self::default()
        }
    }

    /// A warning whose message is that of its findings, one after the other.
    #[must_use]
    pub fn of_findings(code: &str, key: &str, findings: Vec<Finding>) -> Self {
        Self::new(code, "").with_key(key).with_findings(findings)
    }

    /// The same warning with the message of these findings.
    #[must_use]
    pub fn with_findings(mut self, mut findings: Vec<Finding>) -> Self {
        findings.iter_mut().for_each(Finding::shorten);
        let messages: Vec<String> = findings.iter().map(Finding::message).collect();
        self.message = messages.join("; ");
        self.findings = findings;
        self
    }

    /// The same warning about these columns, which its message names in its own words.
    #[must_use]
    pub fn with_columns(mut self, columns: Vec<WarnedColumn>) -> Self {
        let mut finding = Finding {
            columns,
            ..Finding::default()
        };
        finding.shorten();
        self.findings = vec![finding];
        self
    }

    /// Columns that the warning is about.
    pub fn columns(&self) -> impl Iterator<Item = &WarnedColumn> {
        self.findings.iter().flat_map(|finding| &finding.columns)
    }

    /// Returns true if the warning is about the column of this name.
    #[must_use]
    pub fn is_about(&self, column: &str) -> bool {
        self.columns().any(|warned| warned.name == column)
    }

    /// The same warning with the configuration key that changes the decision.
    #[must_use]
    pub fn with_key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }
}

/// Adds `warning` to `warnings`, in place of one with its code.
pub fn replace_warning(warnings: &mut Vec<Warning>, warning: Warning) {
    match warnings.iter_mut().find(|old| old.code == warning.code) {
        Some(old) => *old = warning,
        None => warnings.push(warning),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(columns: usize, finding: &str) -> Finding {
        let columns = (0..columns).map(|at| WarnedColumn::with_found(&format!("c{at}"), "`x`"));
        Finding {
            columns: columns.collect(),
            finding: finding.to_owned(),
            advice: "do it".to_owned(),
            ..Finding::default()
        }
    }

    #[test]
    fn the_message_is_made_of_all_findings() {
        let findings = vec![finding(2, "it lands"), finding(6, "is it 1 or 2?")];
        let warning = Warning::of_findings("odd", "k", findings);
        let message = "`c0` (`x`), `c1` (`x`): it lands; do it; `c0` (`x`), `c1` (`x`), `c2` (`x`), `c3` (`x`), `c4` (`x`) \
                       and 1 more column: is it 1 or 2? do it";
        assert_eq!(warning.message, message);
        assert_eq!(warning.columns().count(), 8);
        assert!(warning.is_about("c5") && !warning.is_about("c6"));
    }

    #[test]
    fn all_columns_are_kept_and_the_values_of_the_first() {
        let warning = Warning::of_findings("odd", "k", vec![finding(1_000, "it lands")]);
        let described = warning.columns().filter(|column| !column.found.is_empty());
        assert_eq!(described.count(), DESCRIBED_COLUMNS);
        assert_eq!(warning.columns().count(), 1_000);
    }

    #[test]
    fn documents_without_findings_are_read_and_written_unchanged() {
        let text = r#"{"code":"odd","message":"m","key":"k"}"#;
        let warning: Warning = serde_json::from_str(text).unwrap();
        assert_eq!(warning, Warning::new("odd", "m").with_key("k"));
        assert_eq!(serde_json::to_string(&warning).unwrap(), text);
    }
}
