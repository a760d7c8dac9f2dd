//! Landed warnings about columns under the current settings: a column whose type is declared by now may
//! need no warning, and advice that was followed after the column landed needs a reset.

use std::collections::BTreeMap;

use feedline_schemas::{
    config::{SourceConfig, TypeContract},
    csv_cell::is_group_space,
    report::{Finding, WarnedColumn, Warning},
};
use serde_json::{Value, json};

use super::{
    marked_numbers::APOSTROPHES,
    missing_words::{self, MISSING_WORDS},
    rounded_digits::{self, DIGITS_ROUNDED},
    type_warnings::{
        LOOKS_LIKE_APOSTROPHES, LOOKS_LIKE_CODED_AMOUNTS, LOOKS_LIKE_CURRENCY, LOOKS_LIKE_DATES,
        LOOKS_LIKE_DECIMAL_COMMA, LOOKS_LIKE_DECIMAL_POINT, LOOKS_LIKE_LISTS, LOOKS_LIKE_PERCENT,
        LOOKS_LIKE_POINT_THOUSANDS, LOOKS_LIKE_SPACES, LOOKS_LIKE_THOUSANDS, ODD_VALUES,
        TEXT_TIMES, odd_fate,
    },
    version_numbers::{VERSION_IS_NUMBER, has_open_version},
};

const DATES: &str = "contract.dates";
const TYPES: &str = "contract.types";
const DECIMAL: &str = "csv.decimal_separator";

/// Settings of `csv` from lines such as `percent = true`.
pub(super) fn csv_settings<S: AsRef<str>>(lines: &[S]) -> BTreeMap<String, Value> {
    let lines = lines
        .iter()
        .filter_map(|line| line.as_ref().split_once(" = "));
    let settings = lines.map(|(key, value)| {
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
        (format!("csv.{key}"), value)
    });
    settings.collect()
}

/// The setting of these formats of dates, if there are any.
pub(super) fn date_settings<S: AsRef<str>>(formats: &[S]) -> BTreeMap<String, Value> {
    let formats: Vec<&str> = formats.iter().map(AsRef::as_ref).collect();
    let setting = (!formats.is_empty()).then(|| (DATES.to_owned(), json!(formats)));
    setting.into_iter().collect()
}

/// The setting that decides about values of another type than their column.
pub(super) fn odd_settings(types: TypeContract) -> BTreeMap<String, Value> {
    BTreeMap::from([(TYPES.to_owned(), json!(types))])
}

/// Returns a landed warning about columns as it holds under `config`; `None` if it does not hold. A warning
/// without findings, as earlier releases wrote it, is not changed.
pub(crate) fn hold_under(config: &SourceConfig, warning: Warning) -> Option<Warning> {
    let code = warning.code.clone();
    let key = warning.key.clone().unwrap_or_default();
    match code.as_str() {
        MISSING_WORDS => hold_each(warning, |finding| missing_words::hold(finding, config)),
        DIGITS_ROUNDED => hold_each(warning, |finding| rounded_digits::hold(finding, config)),
        ODD_VALUES => hold_each(warning, |finding| {
            has_odd_fate(&finding, config.contract.types).then_some(finding)
        }),
        VERSION_IS_NUMBER => has_open_version(&warning, config).then_some(warning),
        LOOKS_LIKE_POINT_THOUSANDS if config.csv.decimal_separator == Some('.') => None,
        code => hold_each(warning, |finding| {
            let open = match DECIDED_BY_TYPE.contains(&code) {
                true => without_declared(finding, config)?,
                false => finding,
            };
            Some(match is_followed(code, &open, config) {
                true => advise_reset(open, &key, config),
                false => open,
            })
        }),
    }
}

/// Returns the warning with those of its findings that hold; `None` if none does.
fn hold_each(warning: Warning, hold: impl FnMut(Finding) -> Option<Finding>) -> Option<Warning> {
    if warning.findings.is_empty() {
        return Some(warning);
    }
    let held: Vec<Finding> = warning.findings.iter().cloned().filter_map(hold).collect();
    match held == warning.findings {
        true => Some(warning),
        false => (!held.is_empty()).then(|| warning.with_findings(held)),
    }
}

/// Warnings about columns that a declared type decides about.
const DECIDED_BY_TYPE: [&str; 5] = [
    LOOKS_LIKE_DECIMAL_POINT,
    LOOKS_LIKE_POINT_THOUSANDS,
    LOOKS_LIKE_CODED_AMOUNTS,
    LOOKS_LIKE_LISTS,
    TEXT_TIMES,
];

/// The finding without columns whose type is declared; `None` if no column is left.
pub(super) fn without_declared(mut finding: Finding, config: &SourceConfig) -> Option<Finding> {
    let is_open = |column: &WarnedColumn| {
        let own = config.contract.column.get(&column.name);
        own.is_none_or(|own| own.r#type.is_none())
    };
    finding.columns.retain(is_open);
    (!finding.columns.is_empty()).then_some(finding)
}

/// Returns true if `config` has the settings that the finding advises.
fn is_followed(code: &str, finding: &Finding, config: &SourceConfig) -> bool {
    let csv = &config.csv;
    let dates = &config.contract.dates;
    let thousands = csv.thousands_separator;
    if code == LOOKS_LIKE_DATES {
        return !dates.is_empty() && finding.under.get(DATES) != Some(&json!(dates));
    }
    if finding.settings.is_empty() {
        return false;
    }
    match code {
        LOOKS_LIKE_DECIMAL_COMMA if finding.settings.contains_key(DECIMAL) => {
            csv.decimal_separator == Some(',')
        }
        LOOKS_LIKE_DECIMAL_COMMA | LOOKS_LIKE_POINT_THOUSANDS => thousands == Some('.'),
        LOOKS_LIKE_THOUSANDS => [thousands, csv.decimal_separator].contains(&Some(',')),
        LOOKS_LIKE_APOSTROPHES => thousands.is_some_and(|sign| APOSTROPHES.contains(&sign)),
        LOOKS_LIKE_PERCENT => csv.percent,
        // One of several keys may have been set before.
        LOOKS_LIKE_SPACES | LOOKS_LIKE_CURRENCY => {
            finding
                .settings
                .iter()
                .all(|(key, value)| match key.as_str() {
                    DECIMAL => json!(csv.decimal_separator) == *value,
                    "csv.thousands_separator" if value == " " => {
                        thousands.is_some_and(is_group_space)
                    }
                    "csv.thousands_separator" => json!(thousands) == *value,
                    "csv.currency" => json!(csv.currency) == *value,
                    _ => csv.percent,
                })
        }
        TEXT_TIMES => {
            let advised = finding.settings.get(DATES).and_then(Value::as_array);
            let is_set = |format: &Value| dates.iter().any(|set| format == set);
            advised.is_some_and(|advised| advised.iter().all(is_set))
        }
        _ => false,
    }
}

/// The finding with the advice to reset, since the setting `key` was made after its columns had landed.
fn advise_reset(mut finding: Finding, key: &str, config: &SourceConfig) -> Finding {
    let end = finding.finding.trim_end_matches('?').len();
    finding.finding.truncate(end);
    finding.advice = format!(
        "`{key}` is set, but a column keeps its type: `feedline ingest reset PIPELINE.toml {}` re-reads everything with it",
        config.name
    );
    finding.settings.clear();
    finding
}

/// Returns true if odd values are handled as under the settings of the finding.
fn has_odd_fate(finding: &Finding, types: TypeContract) -> bool {
    let found = finding.under.get(TYPES);
    let found = found.and_then(|found| serde_json::from_value::<TypeContract>(found.clone()).ok());
    found.is_none_or(|found| odd_fate(found) == odd_fate(types))
}
