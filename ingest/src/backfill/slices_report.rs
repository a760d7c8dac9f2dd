//! Finished and open slices and values of a source.

use feedline_schemas::{
    commit::{Ledger, Position},
    config::SourceConfig,
    report::SlicesReport,
};

use super::{
    intervals::{Intervals, WHOLE},
    saved_list::is_counted,
    slices::Slices,
};

/// Finished and open slices, by the log and the configuration alone. `None` for a source without
/// slices and values, and for an invalid configuration, which a run reports.
pub(crate) fn slices_report(
    config: &SourceConfig,
    position: Option<&Position>,
) -> Option<SlicesReport> {
    if config.slices.is_none() && config.for_each.is_none() {
        return None;
    }
    let slices = config.slices.as_ref().map(Slices::new).transpose().ok()?;
    let none = Ledger::default();
    let ledger = position.and_then(Position::ledger).unwrap_or(&none);
    let reached = ledger
        .done
        .iter()
        .chain([&ledger.target])
        .map(|[_, to]| *to)
        .max();
    let range = match &slices {
        None => WHOLE,
        Some(slices) if slices.end().is_some() => slices.range(None),
        Some(slices) => slices.range(reached),
    };
    let range = Intervals::of([range]);
    let count = |intervals: &Intervals| match &slices {
        Some(slices) => slices.count(intervals),
        None => u64::from(!intervals.is_empty()),
    };
    let total = count(&range);
    let mut report = SlicesReport::default();
    for (values, done) in groups(ledger, listed(config, ledger)) {
        let left = range.minus(&done);
        let open = count(&left);
        report.open = report.open.saturating_add(open.saturating_mul(values));
        let complete = total.saturating_sub(open).saturating_mul(values);
        report.done = report.done.saturating_add(complete);
        if left.is_empty() && !range.is_empty() {
            report.values_done += values;
        } else {
            report.values_open += values;
        }
        if values > 0
            && let Some(slices) = &slices
        {
            report.ranges = done.iter().map(|done| slices.show(done)).collect();
        }
    }
    report.in_work = ledger.slice.map(|slice| {
        let slice = slices.as_ref().map(|slices| slices.show(slice));
        let value = config.for_each.as_ref().map(|each| {
            let index = usize::try_from(ledger.value).unwrap_or(usize::MAX);
            let numbered = || format!("number {} of {}", ledger.value + 1, ledger.values);
            // Another list may have other values at this index.
            let is_same = is_counted(&each.values, ledger);
            let value = each.values.get(index).filter(|_| is_same).cloned();
            let value = value.unwrap_or_else(numbered);
            format!("{}: {value}", each.param)
        });
        [value, slice]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(", ")
    });
    Some(report)
}

/// Number of values, as far as known.
fn listed(config: &SourceConfig, ledger: &Ledger) -> u64 {
    match &config.for_each {
        None => 1,
        Some(each) if each.source.is_none() => each.values.len() as u64,
        Some(_) => ledger.values,
    }
}

/// Groups of values with the same finished intervals, the furthest first.
fn groups(ledger: &Ledger, listed: u64) -> Vec<(u64, Intervals)> {
    let before = Intervals::of(ledger.done.iter().copied());
    let none = Intervals::default();
    let unread = (listed.saturating_sub(ledger.values), none.clone());
    if ledger.slice.is_none() {
        return vec![(ledger.values.min(listed), before), unread];
    }
    let target = Intervals::of([ledger.target]);
    let part = Intervals::of(ledger.part.iter().copied());
    let Ledger {
        value, old, values, ..
    } = ledger;
    let base = if value < old { &before } else { &none };
    vec![
        (*value.min(old), before.plus(&target)),
        (value.saturating_sub(*old), target),
        (1, base.plus(&part)),
        (old.saturating_sub(value + 1), before.clone()),
        (values.saturating_sub((value + 1).max(*old)), none),
        unread,
    ]
}
