//! Values that the server did not know (status 404, or a failure beside an empty list): one wrong
//! response must not drop them permanently.
//!
//! Each later pass requests the absent parts of a value again. A completely absent value costs one
//! request.

use std::collections::BTreeSet;

use feedline_schemas::{
    commit::{Interval, Ledger},
    count::counted,
    report::Warning,
};

use super::{
    Plan,
    intervals::{Intervals, of_value},
};

/// Maximum number of absent values remembered for another request.
const MOST: usize = 2_000;

impl Plan {
    /// Returns the ledger after the server did not know the current slice and value.
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
}

fn set(all: &mut Vec<(u64, Vec<Interval>)>, value: u64, intervals: Intervals) {
    let intervals = intervals.into_vec();
    let count = all.len();
    match all.iter_mut().find(|(of, _)| *of == value) {
        Some((_, of)) => *of = intervals,
        None if count < MOST => all.push((value, intervals)),
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
    let more = if absent.len() >= MOST {
        "; others beyond them are not requested again"
    } else {
        ""
    };
    let them = if absent.len() == 1 { "it" } else { "them" };
    (!absent.is_empty()).then(|| Warning {
        code: "values_absent".into(),
        message: format!(
            "the server knew nothing of {} (status 404, or a failure beside an empty list) at the last request; each later run requests {them} again{more}",
            counted(absent.len() as u64, "value")
        ),
        key: Some("for_each.missing".into()),
    })
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
}
