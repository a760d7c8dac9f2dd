//! Rejection of rows whose time is no instant.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, StringArray},
    datatypes::DataType,
};
use datafusion::error::Result;
use serde::{Deserialize, Serialize};

use super::instant::Instant;
use crate::{
    engine::scalar_function::RowFunction,
    schema::reject_reason::{self, Reason, SHOWN},
};

/// Reason to reject a row, from its earlier reason, if any, its time, and the time as it landed:
/// its text, and that of the time of day where it has a column of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Untimed {
    pub(super) column: String,
    pub(super) instant: Instant,
}

impl Untimed {
    /// The time as it landed, and why clocks show no instant or two then, if that is its fault.
    fn describe(&self, date: Option<&str>, clock: Option<&str>) -> String {
        let text = match (date, clock) {
            (None, _) => return String::new(),
            (Some(date), None) => date.to_owned(),
            (Some(date), Some(clock)) => format!("{} {}", date.trim(), clock.trim()),
        };
        let shown: String = text.chars().take(SHOWN).collect();
        match self.instant.why_no_instant(&text) {
            Some(why) => format!("{shown} ({why})"),
            None => shown,
        }
    }
}

impl RowFunction for Untimed {
    const NAME: &'static str = "feedline_untimed";
    const RETURNS: DataType = DataType::Utf8;

    fn call(&self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let (reasons, times) = (columns[0].as_string::<i32>(), &columns[1]);
        let [dates, clocks] = [2, 3].map(|place: usize| {
            let column = columns.get(place);
            column.and_then(|column| column.as_string_opt::<i32>())
        });
        let reason = |row: usize| {
            if reasons.is_valid(row) {
                return Some(reasons.value(row).to_owned());
            }
            times.is_null(row).then(|| {
                let reason = Reason {
                    reason: reject_reason::TIME_UNREADABLE.to_owned(),
                    column: self.column.clone(),
                    value: self.describe(text_of(dates, row), text_of(clocks, row)),
                };
                reason.to_json()
            })
        };
        Ok(Arc::new((0..rows).map(reason).collect::<StringArray>()))
    }
}

fn text_of(cells: Option<&StringArray>, row: usize) -> Option<&str> {
    let cells = cells.filter(|cells| cells.is_valid(row))?;
    Some(cells.value(row))
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use feedline_schemas::config::AmbiguousTime;

    use super::*;

    /// The value of the reject of a row whose time cannot be read.
    fn check(untimed: &Untimed, cells: &[Option<&str>], expected: &str) {
        let columns: [ArrayRef; 2] = [
            Arc::new(StringArray::new_null(1)),
            Arc::new(Int64Array::new_null(1)),
        ];
        let cells = cells
            .iter()
            .map(|cell| Arc::new(StringArray::from(vec![*cell])) as ArrayRef);
        let columns: Vec<ArrayRef> = columns.into_iter().chain(cells).collect();
        let found = untimed.call(&columns, 1).unwrap();
        let found = Reason::from_json(found.as_string::<i32>().value(0));
        assert_eq!(found.reason, "time_unreadable");
        assert_eq!(
            (found.column.as_str(), found.value.as_str()),
            ("Date", expected)
        );
    }

    #[test]
    fn a_time_that_clocks_skip_or_show_twice_is_rejected_with_that_reason() {
        let untimed = |ambiguous| Untimed {
            column: "Date".to_owned(),
            instant: Instant {
                zone: Some("Europe/Rome".to_owned()),
                ambiguous,
                ..Instant::by("%d/%m/%Y %H:%M:%S")
            },
        };
        let rome = untimed(None);
        let skipped = "28/03/2004 02:00:00 (clocks in Europe/Rome skip this time)";
        check(&rome, &[Some(" 28/03/2004"), Some("02:00:00 ")], skipped);
        check(&rome, &[Some("28/03/2004 02:00:00")], skipped);
        check(&rome, &[Some("28/03/2004"), None], "28/03/2004");
        check(&rome, &[Some("soon"), Some("02:00:00")], "soon 02:00:00");
        check(&rome, &[None, Some("02:00:00")], "");
        let reject = untimed(Some(AmbiguousTime::Reject));
        let twice = "31/10/2004 02:30:00 (clocks in Europe/Rome show this time twice, and ambiguous = reject)";
        check(&reject, &[Some("31/10/2004"), Some("02:30:00")], twice);
        let utc = Untimed {
            column: "Date".to_owned(),
            instant: Instant::iso(),
        };
        check(&utc, &[Some("28/03/2004")], "28/03/2004");
    }
}
