//! Local times of new rows in the hour that clocks repeat at the end of daylight saving time.

use feedline_schemas::report::Warning;

use crate::warnings::{self, RepeatedHour};

/// New rows whose local time names two instants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RepeatedTimes {
    rows: u64,
    /// Number of the first of them, from 0.
    first: u64,
    /// Its time, as written.
    sample: String,
}

impl RepeatedTimes {
    /// Counts the row of this number, with the time `text`.
    pub(crate) fn note(&mut self, row: u64, text: &str) {
        if self.rows == 0 {
            (self.first, self.sample) = (row, text.to_owned());
        }
        self.rows += 1;
    }

    /// Warns of the rows, if any; `zone` is that of the configuration for the times in `column`.
    pub(crate) fn warning(
        &self,
        of: RepeatedHour,
        column: &str,
        zone: Option<&str>,
    ) -> Option<Warning> {
        (self.rows > 0).then(|| {
            let mut found = warnings::repeated_hour(of, column, zone, self.rows, &self.sample);
            found.message += &format!("; the first is in row {}", self.first);
            found
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_with_a_time_that_clocks_show_twice_are_one_warning_with_their_count_and_the_first() {
        let mut found = RepeatedTimes::default();
        let warn =
            |found: &RepeatedTimes| found.warning(RepeatedHour::Series, "at", Some("Europe/Rome"));
        assert_eq!(warn(&found), None);
        found.note(7, "2024-10-27 02:30");
        found.note(9, "2024-10-27 02:10");
        let found = warn(&found).unwrap();
        assert_eq!(found.code, "ambiguous_times");
        for part in [
            "2 times of `at`",
            "such as `2024-10-27 02:30`",
            "; the first is in row 7",
        ] {
            assert!(found.message.contains(part), "{}", found.message);
        }
    }
}
