//! Alarm for a site that has changed its layout: selectors that matched and no longer do.
//!
//! A single page without rows, or with missing columns, is not unusual. Many in a row raise a
//! warning. A row without any column is a reject, so `contract.max_reject_fraction` stops the run
//! before it is committed.

use std::collections::BTreeMap;

use feedline_readers::{record::Record, value::Value};

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

    /// Columns without a value in any row; none unless these are all of the `landed` rows.
    pub(super) fn never_matched(&self, landed: u64) -> Vec<&str> {
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
