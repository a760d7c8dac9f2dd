//! Alarm for a site that has changed its layout: selectors that matched and no longer do.
//!
//! A single page without rows, or with missing columns, is not unusual. Many in a row raise a
//! warning. A row without any column is a reject, so `contract.max_reject_fraction` stops the run
//! before it is committed.

use std::collections::BTreeMap;

use feedline_readers::{record::Record, value::Value};
use feedline_schemas::{
    config::{PageConfig, PageExtract},
    count::counted,
    report::{WarnedColumn, Warning},
};

/// Code of the warning about columns without a value in any row.
pub(crate) const SELECTOR_WITHOUT_MATCH: &str = "selector_without_match";
/// Pages in a row without rows, and rows in a row without a column, that raise the alarm.
const ALARM_AFTER: u64 = 20;

/// Consecutive misses.
#[derive(Debug, Default)]
pub(super) struct Drift {
    pages: u64,
    /// Misses by column; a column that never matched counts too.
    columns: BTreeMap<String, u64>,
    /// Rows so far.
    rows: u64,
}

impl Drift {
    /// Checks the records of a page that should have some. Each alarm is returned once.
    pub(super) fn look(&mut self, records: &[Record]) -> Vec<String> {
        let mut alarms = Vec::new();
        if records.is_empty() {
            self.pages += 1;
            if self.pages == ALARM_AFTER {
                alarms.push(format!("the last {ALARM_AFTER} pages have no rows"));
            }
            return alarms;
        }
        self.pages = 0;
        for record in records {
            let Record::Value(Value::Object(entries)) = record else {
                continue;
            };
            self.rows += 1;
            for (name, value) in entries {
                let missing = self.columns.entry(name.clone()).or_default();
                *missing = if *value == Value::Null {
                    *missing + 1
                } else {
                    0
                };
                if *missing == ALARM_AFTER {
                    alarms.push(format!("the last {ALARM_AFTER} rows have no `{name}`"));
                }
            }
        }
        alarms
    }

    /// Warns of columns of `page` without a value in any row. The warning has each column with its
    /// place in a row, also as a value, which is never left out. No warning unless these are all of the
    /// `landed` rows.
    pub(super) fn warn_of_unmatched(&self, page: &PageConfig, landed: u64) -> Option<Warning> {
        if page.extract != PageExtract::Rows {
            return None;
        }
        let names = self.never_matched(landed).into_iter();
        let columns = names.filter_map(|name| {
            let place = page.columns.get(name)?;
            Some(WarnedColumn {
                values: vec![place.clone()],
                ..WarnedColumn::with_found(name, place)
            })
        });
        let columns: Vec<WarnedColumn> = columns.collect();
        let have = match columns.len() {
            0 => return None,
            1 => "has",
            _ => "have",
        };
        let shown = columns.iter();
        let shown = shown.map(|column| format!("`{}` (`{}`)", column.name, column.found));
        let shown: Vec<String> = shown.collect();
        let message = format!(
            "{} {have} no value in any of {}, so only nulls land; correct the selector in `page.columns`",
            shown.join(", "),
            counted(landed, "row")
        );
        let warning = Warning::new(SELECTOR_WITHOUT_MATCH, message).with_key("page.columns");
        Some(warning.with_columns(columns))
    }

    /// Columns without a value in any row; none unless these are all of the `landed` rows.
    fn never_matched(&self, landed: u64) -> Vec<&str> {
        if self.rows != landed {
            return Vec::new();
        }
        let columns = self.columns.iter();
        let columns = columns.filter(|(_, missing)| **missing == self.rows);
        columns.map(|(name, _)| name.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(price: Value) -> Record {
        let name = Value::Text("x".into());
        Record::Value(Value::Object(vec![
            ("name".into(), name),
            ("price".into(), price),
        ]))
    }

    #[test]
    fn columns_that_never_matched_are_known_if_all_rows_were_seen() {
        let mut drift = Drift::default();
        drift.look(&[row(Value::Null), row(Value::Null)]);
        assert_eq!(drift.never_matched(2), ["price"]);
        assert!(drift.never_matched(3).is_empty());
        drift.look(&[row(Value::Int(1))]);
        assert!(drift.never_matched(3).is_empty());
    }

    #[test]
    fn the_warning_of_a_column_without_a_value_has_its_name_and_its_place() {
        let columns = [("name", "h2"), ("price", ".price")];
        let page = PageConfig {
            extract: PageExtract::Rows,
            columns: columns.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            ..PageConfig::default()
        };
        let mut drift = Drift::default();
        drift.look(&[row(Value::Null)]);
        let warning = drift.warn_of_unmatched(&page, 1).unwrap();
        let place = WarnedColumn {
            values: vec![".price".to_owned()],
            ..WarnedColumn::with_found("price", ".price")
        };
        assert_eq!(warning.columns().collect::<Vec<_>>(), [&place]);
        let begin = "`price` (`.price`) has no value in any of 1 row, so only nulls land";
        assert!(warning.message.starts_with(begin), "{warning:?}");
        assert_eq!(drift.warn_of_unmatched(&page, 2), None);
    }

    #[test]
    fn what_stops_matching_is_told_once() {
        let mut drift = Drift::default();
        let mut alarms = Vec::new();
        let mut look = |records: &[Record]| alarms.extend(drift.look(records));
        (0..15).for_each(|_| look(&[]));
        look(&[row(Value::Int(1))]);
        (0..30).for_each(|_| look(&[]));
        (0..19).for_each(|_| look(&[row(Value::Null)]));
        look(&[row(Value::Int(1))]);
        (0..30).for_each(|_| look(&[row(Value::Null)]));
        assert_eq!(
            alarms,
            [
                "the last 20 pages have no rows",
                "the last 20 rows have no `price`"
            ]
        );
    }
}
