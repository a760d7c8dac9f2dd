//! Columns that lose their values: missing values of a batch against all batches before it.
//!
//! An alarm is raised only if chance is an unlikely explanation: it would leave a column empty in a
//! complete batch less than once in a thousand times.

use feedline_schemas::{
    commit::{Decisions, Missing, Presence, note},
    count::counted,
};

/// Records after which a column that was never missing is expected to have no nulls.
const KNOWN_AFTER: u64 = 1_000;

/// Chance above which a missing value is no surprise.
const SURPRISE: f64 = 0.001;

/// Kinds of decisions of this module.
pub(crate) const TURNED_NULL: &str = "turned_null";
pub(crate) const VANISHED: &str = "vanished";
/// A required column that no record has had yet.
pub(crate) const REQUIRED_ABSENT: &str = "required_absent";
const NULL_DRIFT: &str = "null_drift";
/// All of them.
pub(crate) const ALARMS: [&str; 4] = [VANISHED, NULL_DRIFT, TURNED_NULL, REQUIRED_ABSENT];

/// Values that a batch has seen in a column.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Met {
    /// Landed records with a value.
    pub(super) present: u64,
    /// Landed records with a null, including one that replaced a value.
    pub(super) null: u64,
    /// True if one of them, or a value of the column in an earlier batch, is an integer beyond 2^53.
    pub(super) is_big: bool,
    /// Landed cells with a percent sign, other than 0.
    pub(super) percents: u64,
    /// Landed cells that are 0, with or without the sign, where it is read.
    pub(super) zeros: u64,
    /// True if one of them is a float that is no decimal.
    pub(super) is_beyond_decimal: bool,
}

/// Returns true if `column` is expected to have no nulls.
pub(super) fn is_never_null(before: &Presence, column: &str) -> bool {
    before.rows >= KNOWN_AFTER && !before.missing.contains_key(column)
}

/// Missing values of a column in a batch and before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    rows: u64,
    now: Missing,
    rows_before: u64,
    before: Missing,
}

impl Change {
    /// Compares a batch of so many landed records with `before`.
    pub(super) fn new(
        before: &Presence,
        column: &str,
        was_there: bool,
        (rows, met): (u64, Met),
    ) -> Self {
        Self {
            rows,
            now: Missing {
                absent: rows - met.present - met.null,
                null: met.null,
            },
            rows_before: before.rows,
            before: match was_there {
                true => before.missing(column),
                false => Missing {
                    absent: before.rows,
                    null: 0,
                },
            },
        }
    }

    /// Missing values of the column in all batches.
    pub(super) const fn sum(&self) -> Missing {
        Missing {
            absent: self.before.absent + self.now.absent,
            null: self.before.null + self.now.null,
        }
    }

    /// Notes a column with unexpected nulls. The alarm for missing columns covers those that are
    /// gone.
    pub(super) fn tell(&self, column: &str, decisions: &mut Decisions) {
        if self.now.sum() > 0 && !self.has_vanished() {
            note(decisions, TURNED_NULL, column, self.now.sum(), || {
                self.to_string()
            });
        }
    }

    /// Raises an alarm if the column has disappeared, or its fraction of missing values rose by
    /// more than `rise`.
    pub(super) fn alarm(&self, column: &str, rise: f64, decisions: &mut Decisions) {
        if self.rows == 0 || self.rows_before == 0 {
            return;
        }
        if self.has_vanished() {
            note(decisions, VANISHED, column, self.rows, || self.to_string());
            return;
        }
        let risen = share(self.now.sum(), self.rows) - share(self.before.sum(), self.rows_before);
        if risen > rise && self.is_surprise(self.before.sum()) {
            let count = self.now.sum();
            note(decisions, NULL_DRIFT, column, count, || self.to_string());
        }
    }

    /// Returns true if a column that most records had is missing in all records of the batch.
    fn has_vanished(&self) -> bool {
        let was_in_most = self.rows_before > 0 && self.before.absent * 2 <= self.rows_before;
        self.now.absent == self.rows && was_in_most && self.is_surprise(self.before.absent)
    }

    /// Returns true if so many missing values would be improbable, given the rate before the batch.
    /// Each value is taken to be missing independently at that rate.
    fn is_surprise(&self, missing_before: u64) -> bool {
        let likely = share(missing_before.max(1), self.rows_before + 1);
        let mut chance = 1.0;
        for _ in 0..self.now.sum().min(1_000) {
            chance *= likely;
            if chance < SURPRISE {
                return true;
            }
        }
        false
    }
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            rows,
            now,
            rows_before,
            before,
        } = self;
        write!(
            f,
            "{}, {} with null and {} without it",
            counted(*rows, "record"),
            now.null,
            now.absent
        )?;
        if *rows_before == 0 {
            return Ok(());
        }
        write!(
            f,
            "; before, {}, {} with null and {} without it",
            counted(*rows_before, "record"),
            before.null,
            before.absent
        )
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a share of counts far below 2^53"
)]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}
