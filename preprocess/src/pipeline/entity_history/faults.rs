//! Reasons for a row without a prediction.

use feedline_schemas::count::counted;

use crate::{
    Fault,
    operators::time_series::{self, Sequence},
    schema::reject_reason::Reason,
};

/// Names of the reasons besides those of the build.
mod reason {
    /// Too few rows of its entity follow one another up to it.
    pub(super) const INCOMPLETE_WINDOW: &str = "incomplete_window";
    /// The build would reject it.
    pub(super) const ROW_REJECTED: &str = "row_rejected";
}

pub(super) fn rejected(json: &str) -> Fault {
    let Reason {
        reason,
        column,
        value,
    } = Reason::from_json(json);
    let of = match column.is_empty() {
        true => String::new(),
        false => format!("column `{column}`: "),
    };
    Fault {
        reason: reason::ROW_REJECTED,
        detail: format!("`{reason}`: {of}`{value}`"),
    }
}

pub(super) fn is_rejected(fault: &Fault) -> bool {
    fault.reason != reason::INCOMPLETE_WINDOW
}

pub(super) fn no_place(time: Option<i64>) -> Fault {
    let detail = match time {
        Some(time) => format!(
            "another row of its entity at {} counts",
            time_series::shown(time)
        ),
        None => "its time cannot be read".to_owned(),
    };
    Fault {
        reason: reason::ROW_REJECTED,
        detail,
    }
}

pub(super) fn incomplete(sequence: Sequence) -> Fault {
    Fault {
        reason: reason::INCOMPLETE_WINDOW,
        detail: format!(
            "fewer than {} of its entity follow one another up to it",
            counted(sequence.length.into(), "usable row")
        ),
    }
}
