//! Values that the server did not know (status 404, or a failure beside an empty list), and values
//! whose requests failed: one wrong response must not drop them permanently.
//!
//! Each later pass requests the missing parts of a value again, of at most [`MOST_REMEMBERED`] values.
//! A completely absent value costs one request.

use std::collections::BTreeSet;

use feedline_schemas::{
    commit::{Interval, Ledger},
    count::counted,
    report::Warning,
};

use super::{
    Plan,
    intervals::{Intervals, of_value},
    todo,
};

/// Maximum number of absent and failed values remembered for another request. Small in tests.
pub(crate) const MOST_REMEMBERED: usize = if cfg!(test) { 30 } else { 2_000 };

impl Plan {
    /// Returns the ledger after the server did not know the current slice and value. A value whose requests
    /// failed before stays a failed one: it may have landed some of its records.
    pub(crate) fn advance_absent(&self, mut ledger: Ledger) -> Ledger {
        if let Some(slice) = ledger.slice {
            let before = of_value(&ledger.absent, ledger.value);
            let target = Intervals::of([ledger.target]);
            let mut gone = of_value(&ledger.gone, ledger.value).plus(&Intervals::of([slice]));
            if target.minus(&before).is_empty() {
                // It was absent before too: the rest of it is not requested in this pass.
                let rest = before.minus(&target.minus(&before));
                ledger.part = Intervals::of(ledger.part).plus(&rest).into_vec();
                ledger.ends.clear();
                gone = gone.plus(&rest);
            }
            set(&mut ledger.gone, ledger.value, gone);
        }
        self.advance(ledger)
    }

    /// Returns the ledger after requests of the current value failed: the next pass requests what is
    /// left of it. `None` without a list, and if it could not be remembered beside all others.
    pub(crate) fn advance_failed(&self, mut ledger: Ledger) -> Option<Ledger> {
        let slice = ledger.slice.filter(|_| self.values.is_some())?;
        if !can_remember(&ledger) {
            return None;
        }
        let value = ledger.value;
        let rest = todo(&ledger).plus(&Intervals::of([slice]));
        let gone = of_value(&ledger.gone, value).plus(&rest);
        set(&mut ledger.gone, value, gone);
        if let Err(place) = ledger.failed.binary_search(&value) {
            ledger.failed.insert(place, value);
        }
        ledger.part = Intervals::of(ledger.part).plus(&rest).into_vec();
        ledger.ends.clear();
        Some(self.advance(ledger))
    }

    /// Describes the loss of the current value, which is absent and cannot be remembered for another
    /// request; `None` if it can.
    pub(crate) fn describe_lost_value(&self, ledger: &Ledger) -> Option<String> {
        let text = self.value_of(ledger).filter(|_| !can_remember(ledger))?;
        Some(format!(
            "the server knew nothing of `{}`, beyond the {MOST_REMEMBERED} absent or failed values that each later run requests again: no later run requests it or others beyond them; take values that the API does not have out of `for_each`, and to request one again, take it out of the list for one run and put it back; this warning ends with `feedline ingest reset` or a run with `refresh`",
            text.escape_debug()
        ))
    }
}

/// Returns true if the current value can be remembered for another request.
fn can_remember(ledger: &Ledger) -> bool {
    let mut gone = ledger.gone.iter();
    ledger.gone.len() < MOST_REMEMBERED || gone.any(|(gone, _)| *gone == ledger.value)
}

/// Values whose requests failed the last time, with what is left of them.
pub(super) fn failed_parts(ledger: &Ledger) -> impl Iterator<Item = (u64, Intervals)> + '_ {
    let is_over = ledger.slice.is_none();
    ledger.failed.iter().filter_map(move |value| {
        // Within a pass, those before the current value are known by it.
        let parts = match is_over || *value >= ledger.value {
            true => of_value(&ledger.absent, *value),
            false => of_value(&ledger.gone, *value),
        };
        (!parts.is_empty()).then_some((*value, parts))
    })
}

/// Returns true if the pass after `ledger`, or the one that it is in, requests values again whose
/// requests failed in an earlier pass. They may have landed some of their records.
pub(crate) fn rereads_failed(ledger: &Ledger) -> bool {
    let is_failed = |value: &u64| ledger.failed.binary_search(value).is_ok();
    ledger.absent.iter().any(|(value, _)| is_failed(value))
}

fn set(all: &mut Vec<(u64, Vec<Interval>)>, value: u64, intervals: Intervals) {
    let intervals = intervals.into_vec();
    let count = all.len();
    match all.iter_mut().find(|(of, _)| *of == value) {
        Some((_, of)) => *of = intervals,
        None if count < MOST_REMEMBERED => all.push((value, intervals)),
        None => {}
    }
}

/// Warns of values that were absent at their last request.
pub(crate) fn warn_of_absent(ledger: &Ledger) -> Option<Warning> {
    let values = ledger.absent.iter().map(|(value, _)| *value);
    let mut absent: BTreeSet<u64> = values.collect();
    if ledger.slice.is_some() {
        // The pass has not requested these yet.
        absent.retain(|value| *value >= ledger.value);
        absent.extend(ledger.gone.iter().map(|(value, _)| *value));
    }
    absent.retain(|value| ledger.failed.binary_search(value).is_err());
    let them = if absent.len() == 1 { "it" } else { "them" };
    (!absent.is_empty()).then(|| {
        let message = format!(
            "the server knew nothing of {} (status 404, or a failure beside an empty list) at the last request; each later run requests {them} again",
            counted(absent.len() as u64, "value")
        );
        Warning::new("values_absent", message).with_key("for_each.missing")
    })
}

/// Warns of values whose requests failed the last time.
pub(crate) fn warn_of_failed(ledger: &Ledger) -> Option<Warning> {
    let count = failed_parts(ledger).count() as u64;
    let [them, their, they, fail] = match count {
        0 => return None,
        1 => ["it", "its", "it", "fails"],
        _ => ["them", "their", "they", "fail"],
    };
    let message = format!(
        "the last requests of {} failed, and {their} records since then are missing; each later run requests {them} again, and ends with an error if {they} {fail} again",
        counted(count, "value")
    );
    Some(Warning::new("values_failed", message).with_key("for_each"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of absent values that a warning names.
    fn warned(ledger: &Ledger) -> Option<String> {
        let warning = warn_of_absent(ledger)?;
        let (_, rest) = warning.message.split_once("knew nothing of ")?;
        Some(rest.split(' ').next()?.to_owned())
    }

    #[test]
    fn values_that_were_absent_count_until_they_are_requested_again() {
        let of = |values: &[u64]| values.iter().map(|value| (*value, vec![[0, 1]])).collect();
        let mut ledger = Ledger {
            values: 6,
            old: 6,
            value: 2,
            slice: Some([0, 1]),
            absent: of(&[1, 2, 4]),
            gone: of(&[0]),
            ..Ledger::default()
        };
        assert_eq!(warned(&ledger).as_deref(), Some("3"));
        ledger.value = 5;
        assert_eq!(warned(&ledger).as_deref(), Some("1"));
        // After the pass these are what the last requests have found.
        (ledger.slice, ledger.absent, ledger.gone) = (None, of(&[0]), Vec::new());
        assert_eq!(warned(&ledger).as_deref(), Some("1"));
        ledger.absent.clear();
        assert_eq!(warned(&ledger), None);
    }

    #[test]
    fn values_that_failed_count_apart_from_those_that_were_absent() {
        let of = |values: &[u64]| values.iter().map(|value| (*value, vec![[0, 1]])).collect();
        let mut ledger = Ledger {
            values: 6,
            absent: of(&[0, 2, 4]),
            failed: vec![2, 4],
            ..Ledger::default()
        };
        let failed = |ledger: &Ledger| -> Vec<u64> {
            failed_parts(ledger).map(|(value, _)| value).collect()
        };
        assert_eq!(warned(&ledger).as_deref(), Some("1"));
        assert_eq!(failed(&ledger), vec![2, 4]);
        assert!(rereads_failed(&ledger));
        // A pass has read the value 2 since, and failed at 3.
        (ledger.slice, ledger.value) = (Some([0, 1]), 4);
        (ledger.gone, ledger.failed) = (of(&[0, 3]), vec![2, 3, 4]);
        assert_eq!(failed(&ledger), vec![3, 4]);
        let message = warn_of_failed(&ledger).unwrap().message;
        assert!(
            message.starts_with("the last requests of 2 values failed"),
            "{message}"
        );
        (ledger.absent, ledger.failed) = (Vec::new(), vec![3]);
        assert!(!rereads_failed(&ledger));
    }
}
