//! Slices of a range and values of a list. The wanted intervals minus the finished ones are left to
//! read.
//!
//! A [`Ledger`] is part of the position, so it is committed with the records that it describes. A
//! pass fixes the wanted range when it begins. It reads the values in their order, and the
//! unfinished slices of each value from the lowest up. After a pass, all values have the same
//! finished intervals, and the ledger is as small as that of one value.
//!
//! A slice with more records than the API returns is halved. The upper half waits: `ends` is a
//! stack of the upper ends of the rest. A range of 2^k units has at most k of them.

mod absent_values;
mod intervals;
mod list_check;
mod list_history;
mod listed_values;
mod read_intervals;
mod reread_range;
mod saved_list;
mod settings;
mod slice_format;
mod slices;
mod slices_report;
mod trusted_clock;
mod value_cursors;
mod values;

use std::time::Duration;

use feedline_readers::record::Record;
use feedline_schemas::{
    commit::{Interval, Ledger},
    config::SourceConfig,
    ids::Hash128,
};

pub(crate) use self::{
    absent_values::{MOST_REMEMBERED, rereads_failed, warn_of_absent, warn_of_failed},
    list_check::{note_unsaved_list, wrong_lists},
    list_history::ListHistory,
    listed_values::ListedValues,
    read_intervals::{neighbours, span},
    reread_range::{BatchRange, range_of, show_ranges, undone, widen},
    saved_list::{has_other_list, show_values},
    settings::{check, depth, hashed},
    slices_report::slices_report,
    value_cursors::{
        CursorLines, ValueCursors, note_lost_cursors, report_cursors, write_cursors, wrong_cursors,
    },
    values::describe_refused_type,
};
use self::{
    intervals::{Intervals, WHOLE, below, of_value},
    saved_list::ListChange,
    slices::Slices,
    values::Values,
};
use crate::{context::Context, error::Error, param::Param};

/// Configured slices and values of a source.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    slices: Option<Slices>,
    values: Option<Values>,
    /// Wanted range of each value, by the clock at the start of this process.
    range: Interval,
    /// This machine's clock at the start of the process.
    now: Duration,
    /// Ends of the ranges of earlier passes, if they are timestamps.
    ends: Vec<i64>,
    /// Number of values of the last pass.
    counted: Option<u64>,
    /// Hash of the values of the last pass, if the list is another one now.
    continued: Option<Hash128>,
    /// Changes of the list since.
    change: ListChange,
    /// Newest landed rows that records are compared with; `None` if they are compared with all.
    compared_rows: Option<u64>,
    /// Rows that had landed before this run.
    landed_rows: u64,
}

impl Plan {
    /// Resolves the plan of a source; `None` if it has neither slices nor a list. Reads the values
    /// that another source has landed.
    ///
    /// # Errors
    /// [`Error::Config`], and for that other source [`Error::Log`], [`Error::Landed`],
    /// [`Error::Storage`].
    pub(crate) async fn new(
        config: &SourceConfig,
        context: &Context,
    ) -> Result<Option<Self>, Error> {
        if config.slices.is_none() && config.for_each.is_none() {
            return Ok(None);
        }
        let slices = config.slices.as_ref().map(Slices::new).transpose()?;
        let values = match &config.for_each {
            Some(each) => Some(Values::new(config, each, context).await?),
            None => None,
        };
        settings::check_together(config, slices.as_ref(), values.as_ref())?;
        let now = context.clock.unix();
        let range = slices.as_ref().map_or(WHOLE, |slices| slices.range_at(now));
        Ok(Some(Self {
            slices,
            values,
            range,
            now,
            ends: Vec::new(),
            counted: None,
            continued: None,
            change: ListChange::default(),
            compared_rows: (config.refresh.is_never() && config.incremental.is_none())
                .then(|| config.dedup_window()),
            landed_rows: 0,
        }))
    }

    /// Names of the request parameters for slice and value.
    pub(crate) fn params(&self) -> impl Iterator<Item = &str> {
        let values = self.values.iter().map(|values| values.param.as_str());
        values.chain(self.slices.iter().flat_map(Slices::params))
    }

    /// Begins a pass over unfinished intervals, at its first slice; `None` if all are finished.
    /// `before` is the ledger of the passes before. With `is_again`, finished intervals are read
    /// again.
    pub(crate) fn begin(&self, before: Option<&Ledger>, is_again: bool) -> Option<Ledger> {
        let values = self.values.as_ref().map_or(1, Values::len);
        let reread = before.and_then(|before| self.doubt(before, self.now));
        let done = before.filter(|_| !is_again);
        let done = done.map(|before| before.done.clone()).unwrap_or_default();
        let mut ledger = Ledger {
            done: below(done, reread),
            old: before.map_or(0, |before| before.values),
            target: self.range,
            values,
            values_hash: self.values.as_ref().map(|all| all.hash(values)),
            reread,
            absent: before
                .map(|before| before.absent.clone())
                .unwrap_or_default(),
            failed: before
                .map(|before| before.failed.clone())
                .unwrap_or_default(),
            ..Ledger::default()
        };
        self.seek(&mut ledger);
        ledger.slice.is_some().then_some(ledger)
    }

    /// Returns the ledger after the current slice was read to its end. It has no slice after the
    /// pass.
    pub(crate) fn advance(&self, mut ledger: Ledger) -> Ledger {
        let Some(slice) = ledger.slice.take() else {
            return ledger;
        };
        ledger.part = Intervals::of(ledger.part.into_iter().chain([slice])).into_vec();
        match ledger.ends.pop() {
            Some(end) => ledger.slice = Some([slice[1], end]),
            None => self.seek(&mut ledger),
        }
        self.close(ledger)
    }

    /// The ledger of a pass that has no slice left; any other as it is.
    fn close(&self, ledger: Ledger) -> Ledger {
        if ledger.slice.is_some() {
            return ledger;
        }
        // New values have finished only this pass. Further finished intervals of the others are
        // dropped here, so they would be read again if the range included them again.
        let target = Intervals::of([ledger.target]);
        let is_of_all = ledger.old >= ledger.values;
        let done = if is_of_all {
            target.plus(&Intervals::of(ledger.done))
        } else {
            target
        };
        let mut failed = ledger.failed;
        failed.retain(|value| ledger.gone.iter().any(|(gone, _)| gone == value));
        Ledger {
            done: done.into_vec(),
            target: ledger.target,
            values: ledger.values,
            values_hash: ledger.values_hash,
            reread: ledger.reread,
            absent: ledger.gone,
            failed,
            ..Ledger::default()
        }
    }

    /// Finds the next unfinished slice, from the current value on.
    fn seek(&self, ledger: &mut Ledger) {
        let is_removed = |value| {
            let values = self.values.as_ref();
            values.is_some_and(|values| values.is_removed(value))
        };
        while ledger.value < ledger.values {
            if let Some(gap) = todo(ledger).first().filter(|_| !is_removed(ledger.value)) {
                ledger.slice = Some(self.slices.as_ref().map_or(gap, |slices| slices.first(gap)));
                return;
            }
            ledger.value += 1;
            ledger.part.clear();
        }
    }

    /// Halves the current slice and continues with the lower half; `None` for a slice of the
    /// smallest unit.
    pub(crate) fn cut(&self, ledger: &Ledger) -> Option<Ledger> {
        let [from, to] = ledger.slice.filter(|_| self.slices.is_some())?;
        let middle = from + (to - from) / 2;
        if middle == from {
            return None;
        }
        let mut ledger = ledger.clone();
        ledger.slice = Some([from, middle]);
        ledger.ends.push(to);
        Some(ledger)
    }

    /// Request parameters of the current slice and value.
    ///
    /// # Errors
    /// [`Error::Config`] if the value does not exist.
    pub(crate) fn query(&self, ledger: &Ledger) -> Result<Vec<Param<'_>>, Error> {
        let mut query = Vec::new();
        if let Some(values) = &self.values {
            let Some(text) = values.text(ledger.value) else {
                return Err(values.refuse(ledger));
            };
            query.push(Param::text(&values.param, text));
        }
        if let (Some(slices), Some(slice)) = (&self.slices, ledger.slice) {
            query.extend(slices.query(slice));
        }
        Ok(query)
    }

    /// The text of the current value; `None` without a list.
    pub(crate) fn value_of(&self, ledger: &Ledger) -> Option<String> {
        self.values.as_ref()?.text(ledger.value)
    }

    /// Adds the column with the current value to records.
    pub(crate) fn mark(&self, ledger: &Ledger, records: &mut [Record]) {
        if let Some(values) = &self.values {
            values.mark(ledger.value, records);
        }
    }

    /// Formats the current slice and value for messages.
    pub(crate) fn show(&self, ledger: &Ledger) -> String {
        let value = self.values.as_ref().map(|values| {
            let text = values.text(ledger.value).unwrap_or_default();
            format!("the value `{}` of `{}`", text.escape_debug(), values.param)
        });
        let slice = self.slices.as_ref().zip(ledger.slice);
        let slice = slice.map(|(slices, slice)| format!("the slice {}", slices.show(slice)));
        [slice, value]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(" of ")
    }
}

/// Intervals of the current value that the pass has still to read.
fn todo(ledger: &Ledger) -> Intervals {
    let before = if ledger.value < ledger.old {
        ledger.done.as_slice()
    } else {
        &[]
    };
    let target = Intervals::of([ledger.target]);
    let part = Intervals::of(ledger.part.iter().copied());
    let absent = of_value(&ledger.absent, ledger.value);
    let done = Intervals::of(before.iter().copied()).minus(&absent);
    target.minus(&done.plus(&part))
}

#[cfg(test)]
mod tests;
