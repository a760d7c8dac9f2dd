//! Finished and open slices and values of a source.

use std::ops::Range;

use feedline_schemas::{
    commit::{Ledger, Position},
    config::SourceConfig,
    report::SlicesReport,
};

use super::{
    absent_values::failed_parts,
    intervals::{Intervals, WHOLE},
    listed_values::ListedValues,
    saved_list::is_counted,
    slices::Slices,
};

/// Finished and open slices, by the log, the configuration and the saved list of values. Without
/// that list, values that have left it count too. `None` for a source without slices and values, and
/// for an invalid configuration, which a run reports.
pub(crate) fn slices_report(
    config: &SourceConfig,
    position: Option<&Position>,
    listed: Option<&ListedValues>,
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
    for (values, done) in groups(config, ledger, listed) {
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
    reopen_failed(&mut report, ledger, listed, (&range, &count));
    report.in_work = ledger.slice.map(|slice| {
        let slice = slices.as_ref().map(|slices| slices.show(slice));
        let value = config.for_each.as_ref().map(|each| {
            let index = usize::try_from(ledger.value).unwrap_or(usize::MAX);
            let numbered = || format!("number {} of {}", ledger.value + 1, ledger.values);
            // Another list may have other values at this index.
            let is_same = is_counted(&each.values, ledger);
            let own = each.values.get(index).filter(|_| is_same);
            let saved = listed.and_then(|listed| listed.text(ledger.value));
            let value = saved.or(own.map(String::as_str)).map(str::to_owned);
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

/// Counts as open what is left of values whose requests failed.
fn reopen_failed(
    report: &mut SlicesReport,
    ledger: &Ledger,
    listed: Option<&ListedValues>,
    (range, count): (&Intervals, &dyn Fn(&Intervals) -> u64),
) {
    let before = Intervals::of(ledger.done.iter().copied());
    let target = Intervals::of([ledger.target]);
    for (value, parts) in failed_parts(ledger) {
        if listed.is_some_and(|listed| listed.text(value).is_none()) {
            continue;
        }
        let counted = match ledger.slice.is_some() && value >= ledger.value {
            true => before.clone(),
            false => before.plus(&target),
        };
        let counted = range.minus(&range.minus(&counted));
        let open = count(&counted.minus(&counted.minus(&parts)));
        report.done = report.done.saturating_sub(open);
        report.open = report.open.saturating_add(open);
        if open > 0 && range.minus(&counted).is_empty() {
            report.values_done = report.values_done.saturating_sub(1);
            report.values_open += 1;
        }
    }
}

/// Number of values, as far as known without the saved list.
fn count_listed(config: &SourceConfig, ledger: &Ledger) -> u64 {
    match &config.for_each {
        None => 1,
        Some(each) if each.source.is_none() => each.values.len() as u64,
        Some(_) => ledger.values,
    }
}

/// Groups of values with the same finished intervals, the furthest first.
fn groups(
    config: &SourceConfig,
    ledger: &Ledger,
    listed: Option<&ListedValues>,
) -> Vec<(u64, Intervals)> {
    let before = Intervals::of(ledger.done.iter().copied());
    let none = Intervals::default();
    let count = |values: Range<u64>| match listed {
        Some(listed) => listed.count(values),
        None => values.end.saturating_sub(values.start),
    };
    let (all, uncounted) = match listed {
        Some(listed) => (ledger.values, listed.uncounted),
        None => {
            let all = count_listed(config, ledger);
            (ledger.values.min(all), all.saturating_sub(ledger.values))
        }
    };
    let unread = (uncounted, none.clone());
    if ledger.slice.is_none() {
        return vec![(count(0..all), before), unread];
    }
    let target = Intervals::of([ledger.target]);
    let part = Intervals::of(ledger.part.iter().copied());
    let (value, old, values) = (ledger.value, ledger.old, ledger.values);
    let base = if value < old { &before } else { &none };
    vec![
        (count(0..value.min(old)), before.plus(&target)),
        (count(old..value), target),
        (count(value..value + 1), base.plus(&part)),
        (count(value + 1..old), before.clone()),
        (count((value + 1).max(old)..values), none),
        unread,
    ]
}
