//! Local times of new rows of a series that clocks show twice.

use feedline_schemas::{manifest::KeptColumn, record::ColumnType, report::Warning};

use crate::{
    operators::time_series::RepeatedTimeCheck, predict::repeated_times::RepeatedTimes,
    schema::dataset_spec::DatasetSpec, warnings::RepeatedHour,
};

/// New rows whose local time names two instants, if the configuration does not say how such times
/// are read.
#[derive(Debug)]
pub(super) struct LocalNewTimes {
    /// Column of the time.
    column: String,
    /// Places of the time, and of the time of day, among the passthrough columns.
    places: Vec<usize>,
    check: RepeatedTimeCheck,
    found: RepeatedTimes,
}

impl LocalNewTimes {
    /// Counter for the series of `spec` with these passthrough columns; `None` if its times are
    /// instants, or its configuration says how they are read.
    pub(super) fn of(spec: &DatasetSpec, columns: &[KeptColumn]) -> Option<Self> {
        let series = spec.series.as_ref()?;
        let times = series.local_times()?;
        let place = |name: &&str| {
            let is_text =
                |column: &KeptColumn| column.name == **name && column.r#type == ColumnType::Utf8;
            columns.iter().position(is_text)
        };
        Some(Self {
            column: series.time.clone(),
            places: times.columns.iter().map(place).collect::<Option<_>>()?,
            check: times.check(),
            found: RepeatedTimes::default(),
        })
    }

    /// Counts the row of this number if its passthrough cells have such a time.
    pub(super) fn note(&mut self, row: u64, cells: &[Option<String>]) {
        let parts = self.places.iter();
        let parts: Option<Vec<&str>> = parts
            .map(|place| cells.get(*place)?.as_deref().map(str::trim))
            .collect();
        let Some(text) = parts.map(|parts| parts.join(" ")) else {
            return;
        };
        if self.check.is_repeated(&text) {
            self.found.note(row, &text);
        }
    }

    /// Warns of the rows so far, if any.
    pub(super) fn warning(&self) -> Option<Warning> {
        self.found
            .warning(RepeatedHour::Series, &self.column, self.check.zone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_rows_with_a_local_time_that_clocks_show_twice_are_counted() {
        let rome = r#"{"format":null,"unit":null,"zone":"Europe/Rome","is_later":false}"#;
        let mut times = LocalNewTimes {
            column: "on".to_owned(),
            places: vec![2, 0],
            check: RepeatedTimeCheck::new(&serde_json::from_str(rome).unwrap()),
            found: RepeatedTimes::default(),
        };
        assert_eq!(times.warning(), None);
        for (row, clock, day) in [
            (0, Some("01:30"), Some("2024-10-27")),
            (1, Some("02:30"), Some("2024-10-27")),
            (2, Some("02:30+01:00"), Some("2024-10-27")),
            (3, Some("02:30"), None),
            (4, Some("02:59:59"), Some(" 2024-10-27 ")),
            (5, Some("02:30"), Some("2024-10-28")),
        ] {
            let cells = [clock, None, day].map(|cell| cell.map(str::to_owned));
            times.note(row, &cells);
        }
        let found = times.warning().unwrap();
        for part in [
            "2 times of `on`",
            "clocks in `Europe/Rome` show twice",
            "such as `2024-10-27 02:30`",
            "; the first is in row 1",
        ] {
            assert!(found.message.contains(part), "{}", found.message);
        }
    }
}
