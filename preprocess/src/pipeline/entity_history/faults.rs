//! Reasons for a row without a prediction.

use feedline_schemas::count::counted;

use crate::{
    Fault,
    operators::time_series::{self, Sequence},
    schema::reject_reason::{Reason, SAME_TIME},
};

/// Names of the reasons besides those of the build.
mod reason {
    /// Too few rows of its entity follow one another up to it.
    pub(super) const INCOMPLETE_WINDOW: &str = "incomplete_window";
    /// The build would reject it.
    pub(super) const ROW_REJECTED: &str = "row_rejected";
}

/// Reason of a row that the build rejects as `json` says. `takes_history` is true if rows may be given in
/// the place of those that have landed.
pub(super) fn rejected(json: &str, takes_history: bool) -> Fault {
    let Reason {
        reason,
        column,
        value,
    } = Reason::from_json(json);
    if reason == SAME_TIME {
        let advice = match takes_history {
            true => "give the rows before it with `--history`",
            false => {
                "set `dataset.series.duplicates = \"last\"` and rebuild the dataset, so that the new row counts"
            }
        };
        let detail = format!(
            "`{reason}`: another row of its entity at `{value}` counts, which has landed or is in the same file; to predict a \
             row that has landed, {advice}"
        );
        return Fault::new(reason::ROW_REJECTED, detail);
    }
    let of = match column.is_empty() {
        true => String::new(),
        false => format!("column `{column}`: "),
    };
    Fault::new(reason::ROW_REJECTED, format!("`{reason}`: {of}`{value}`"))
}

pub(super) fn is_rejected(fault: &Fault) -> bool {
    fault.reason != reason::INCOMPLETE_WINDOW
}

/// Returns true for a row that the build rejects, as `json` says, since another row of its entity at its
/// time counts.
pub(super) fn has_same_time(json: &str) -> bool {
    Reason::from_json(json).reason == SAME_TIME
}

pub(super) fn no_place(time: Option<i64>) -> Fault {
    let detail = match time {
        Some(time) => format!(
            "another row of its entity at {} counts",
            time_series::shown(time)
        ),
        None => "its time cannot be read".to_owned(),
    };
    Fault::new(reason::ROW_REJECTED, detail)
}

pub(super) fn incomplete(sequence: Sequence) -> Fault {
    let detail = format!(
        "fewer than {} of its entity follow one another up to it",
        counted(sequence.length.into(), "usable row")
    );
    Fault::new(reason::INCOMPLETE_WINDOW, detail)
}
