//! Place of a record among the others of its file.

use std::fmt;

/// Unit that a [`RecordPlace`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceUnit {
    /// Lines of text, from 1.
    Line,
    /// Rows of a table with types, from 0.
    Row,
    /// Elements of a list, from 1.
    Element,
    /// Records, from 1.
    Record,
}

/// Number of a record in its file, such as `line 7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordPlace {
    unit: PlaceUnit,
    number: u64,
}

impl RecordPlace {
    /// The place with this number of the `unit`.
    #[must_use]
    pub const fn new(unit: PlaceUnit, number: u64) -> Self {
        Self { unit, number }
    }

    /// The place that is `count` units behind this one.
    #[must_use]
    pub const fn after(self, count: u64) -> Self {
        Self::new(self.unit, self.number + count)
    }

    /// Returns true if the record that follows `count` records from this place on is at `next`.
    #[must_use]
    pub fn leads_to(self, next: Option<Self>, count: u64) -> bool {
        next == Some(self.after(count))
    }
}

impl fmt::Display for RecordPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.unit {
            PlaceUnit::Line => "line",
            PlaceUnit::Row => "row",
            PlaceUnit::Element => "element",
            PlaceUnit::Record => "record",
        };
        write!(f, "{unit} {}", self.number)
    }
}
