//! Cursors of sources and their lag, for reports of ingest.

use feedline_schemas::report::{ValueCursor, ValueCursorsReport};

use super::text::{counted, shortened};

/// Describes the cursors of the values of a list.
pub(super) fn show_value_cursors(cursors: &ValueCursorsReport) -> String {
    let ValueCursorsReport {
        values,
        smallest,
        greatest,
    } = cursors;
    let show = |end: &ValueCursor| {
        let behind = end.lag_s.map(|lag| format!(", {} behind now", span(lag)));
        let behind = behind.unwrap_or_default();
        let value = shortened(&end.value.escape_debug().to_string());
        format!("{} (`{value}`{behind})", shortened(&end.cursor))
    };
    let (values, smallest, greatest) = (counted(*values, "value"), show(smallest), show(greatest));
    format!("{values}, from {smallest} to {greatest}")
}

/// Formats a duration in its largest unit, with the next smaller one where that matters.
pub(super) fn span(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        (1..=9, _, _) => format!("{days} d {} h", hours % 24),
        _ => format!("{days} d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_units_that_fit() {
        for (seconds, expected) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (7_199, "1 h 59 min"),
            (90_000, "1 d 1 h"),
            (86_400 * 40, "40 d"),
        ] {
            assert_eq!(span(seconds), expected);
        }
    }
}
