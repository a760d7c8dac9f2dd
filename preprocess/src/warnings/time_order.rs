//! Warnings of splits that do not follow the time of a series.

use feedline_schemas::{count::counted, manifest::Split, report::Warning};

use super::message::{toml_string, warned_columns, warning};
use crate::{operators::time_series, schema::landed_columns::shown};

/// Counts of training rows that are later than a row of validation or test of their entity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LaterTrainingRows {
    pub(crate) rows: u64,
    /// Rows of validation and test that are earlier than a training row of their entity.
    pub(crate) earlier_rows: u64,
    /// Entities that have such rows.
    pub(crate) entities: u64,
    /// Time of the first one, and time and split of the oldest row that it is later than.
    pub(crate) first: Option<(i64, i64, Split)>,
}

/// Warns of a split by range that puts rows of a series by the time `column` into training that are
/// later than rows it is measured on. Training has `train` rows, validation and test have `measured`
/// ones together. The side with fewer such rows is counted: one late row is earlier than most others.
pub(crate) fn range_not_by_time(
    column: &str,
    later: &LaterTrainingRows,
    [train, measured]: [u64; 2],
) -> Option<Warning> {
    let (time, oldest, split) = later.first?;
    let is_or_are = |rows: u64| if rows == 1 { "is" } else { "are" };
    let found = match (later.rows, later.earlier_rows) {
        (rows, earlier) if earlier < rows => format!(
            "{earlier} of {} of validation and test {} earlier than a training row",
            counted(measured, "row"),
            is_or_are(earlier)
        ),
        (rows, _) => format!(
            "{rows} of {} {} later than a row of validation or test",
            counted(train, "training row"),
            is_or_are(rows)
        ),
    };
    let message = format!(
        "{found} of the same entity, in {}, such as a training row at {} and a {split} row at {}: `by = \"range\"` splits rows in the order in which they landed, which is not that of `{}`, so a \
         model learns from rows that come after those it is measured on; split by time with `split = {{ by = \"time\", time = {} }}`, \
         or land the rows in the order of time",
        counted(later.entities, "entity"),
        time_series::shown(time),
        time_series::shown(oldest),
        shown(column),
        toml_string(column)
    );
    Some(
        warning("range_not_by_time", "dataset.split.by", message)
            .with_columns(warned_columns([column])),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_trains_on_later_rows_is_a_warning_with_two_times() {
        let later = LaterTrainingRows {
            rows: 7,
            earlier_rows: 7,
            entities: 2,
            first: Some((86_400_000_000, 0, Split::Test)),
        };
        let found = range_not_by_time("at", &later, [10, 9]).unwrap();
        assert_eq!(found.key.as_deref(), Some("dataset.split.by"));
        for part in [
            "7 of 10 training rows are later than a row of validation or test of the same entity",
            "in 2 entities, such as a training row at 1970-01-02T00:00:00Z and a test row at 1970-01-01T00:00:00Z",
            "`split = { by = \"time\", time = \"at\" }`",
        ] {
            assert!(found.message.contains(part), "{}", found.message);
        }
        assert_eq!(
            range_not_by_time("at", &LaterTrainingRows::default(), [10, 9]),
            None
        );
        let later = LaterTrainingRows {
            earlier_rows: 1,
            ..later
        };
        let found = range_not_by_time("at", &later, [10, 9]).unwrap();
        let begin = "1 of 9 rows of validation and test is earlier than a training row of the same entity, in 2 entities";
        assert!(found.message.starts_with(begin), "{}", found.message);
    }
}
