//! The test for a local time in the hour that clocks repeat at the end of daylight saving time: such a
//! time names two instants.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, AsArray, BooleanArray},
    datatypes::{DataType, Int64Type},
};
use datafusion::error::Result;
use serde::{Deserialize, Serialize};

use super::instant::{Instant, LocalTimes};
use crate::engine::scalar_function::RowFunction;

/// True for a cell, or a date and a time of day, that names two instants; false for a time with an
/// offset, and for a cell that is no time.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct RepeatedTimeCheck {
    /// Readers of the earlier and of the later instant.
    readers: [Instant; 2],
}

impl LocalTimes<'_> {
    /// Test for those of the times that name two instants.
    pub(crate) fn check(&self) -> RepeatedTimeCheck {
        RepeatedTimeCheck::new(self.instant)
    }
}

impl RepeatedTimeCheck {
    /// Makes the test for times that `instant` reads.
    pub(crate) fn new(instant: &Instant) -> Self {
        Self {
            readers: [false, true].map(|is_later| instant.repeated(is_later)),
        }
    }

    /// Returns true if `text` names two instants.
    pub(crate) fn is_repeated(&self, text: &str) -> bool {
        let [earlier, later] = self.readers.each_ref().map(|reader| reader.of_text(text));
        are_two_instants(earlier, later)
    }

    /// Name of the zone of times without an offset; `None` for those that name theirs.
    pub(crate) fn zone(&self) -> Option<&str> {
        let [earlier, _] = &self.readers;
        earlier.zone()
    }
}

/// Returns true if the earlier and the later reading of one cell are two instants.
fn are_two_instants(earlier: Option<i64>, later: Option<i64>) -> bool {
    earlier.is_some() && later.is_some() && earlier != later
}

impl RowFunction for RepeatedTimeCheck {
    const NAME: &'static str = "feedline_repeated_time";
    const RETURNS: DataType = DataType::Boolean;

    fn call(&self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let [earlier, later] = &self.readers;
        let (earlier, later) = (earlier.call(columns, rows)?, later.call(columns, rows)?);
        let earlier = earlier.as_primitive::<Int64Type>().iter();
        let pairs = earlier.zip(later.as_primitive::<Int64Type>());
        let found = pairs.map(|(earlier, later)| Some(are_two_instants(earlier, later)));
        Ok(Arc::new(found.collect::<BooleanArray>()))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringArray};

    use super::*;

    fn check_of(zone: &str) -> RepeatedTimeCheck {
        let instant =
            format!("{{\"format\":null,\"unit\":\"s\",\"zone\":\"{zone}\",\"is_later\":false}}");
        RepeatedTimeCheck::new(&serde_json::from_str(&instant).unwrap())
    }

    #[test]
    fn a_time_names_two_instants_only_in_the_hour_that_clocks_repeat_and_without_an_offset() {
        let cells = [
            Some("2024-10-27 01:59:59"),
            Some("2024-10-27 02:00:00"),
            Some("2024-10-27 02:30:00+01:00"),
            Some("2024-10-27 02:59:59"),
            Some("2024-10-27 03:00:00"),
            // Clocks skip this.
            Some("2024-03-31 02:30:00"),
            Some("soon"),
            None,
        ];
        let column: ArrayRef = Arc::new(StringArray::from(cells.to_vec()));
        for (zone, expected) in [("Europe/Rome", vec![1, 3]), ("Asia/Tokyo", Vec::new())] {
            let check = check_of(zone);
            let of_texts = cells.map(|cell| cell.is_some_and(|cell| check.is_repeated(cell)));
            let found = check.call(&[Arc::clone(&column)], cells.len()).unwrap();
            let of_column: Vec<bool> = found.as_boolean().iter().flatten().collect();
            assert_eq!(of_column, of_texts);
            let rows: Vec<usize> = (0..cells.len()).filter(|row| of_texts[*row]).collect();
            assert_eq!(rows, expected, "{zone}");
        }
    }

    #[test]
    fn a_date_with_a_time_of_day_is_one_time_and_numbers_are_instants() {
        let text = |text: &str| -> ArrayRef { Arc::new(StringArray::from(vec![text])) };
        let rome = check_of("Europe/Rome");
        let found = rome.call(&[text("2024-10-27"), text("02:30")], 1).unwrap();
        assert!(found.as_boolean().value(0));
        // The first of the two instants at 02:30.
        let second: ArrayRef = Arc::new(Int64Array::from(vec![1_729_989_000]));
        assert!(!rome.call(&[second], 1).unwrap().as_boolean().value(0));
    }
}
