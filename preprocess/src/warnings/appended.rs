//! Warnings of appended rows, and of rows that landed since the last build.

use std::collections::BTreeMap;

use feedline_schemas::{
    count::counted,
    report::{FeatureShift, WarnedColumn, WarnedRows, Warning},
};

use super::{
    categories::UNKNOWN_CATEGORIES,
    cells::{
        FAR_FROM_TRAINING_ROWS, FEATURE_REPEATS_EXTREME, INFINITE_CAPPED, MOSTLY_CAPPED,
        NAN_MISSING, TARGET_REPEATS_EXTREME, TEXTS_NOT_NUMBERS,
    },
    duplicates::EQUAL_ROWS,
    keys::MISSING_KEYS,
    message::{COLUMNS, GROUPS, first_of, percent, share, warned_columns, warning},
    sizes::OF_SIZES,
};
use crate::schema::landed_columns::shown;

/// Codes of warnings whose figures cover the rows of one build alone.
const OF_ONE_BUILD: [&str; 10] = [
    EQUAL_ROWS,
    TEXTS_NOT_NUMBERS,
    FAR_FROM_TRAINING_ROWS,
    FEATURE_REPEATS_EXTREME,
    TARGET_REPEATS_EXTREME,
    INFINITE_CAPPED,
    MOSTLY_CAPPED,
    MISSING_KEYS,
    NAN_MISSING,
    UNKNOWN_CATEGORIES,
];

/// Codes of warnings about the rows that the transform was fitted on; appended rows may contradict them.
const OF_FIT: [&str; 11] = [
    MOSTLY_CAPPED,
    "bins_merged",
    "constant_by_caps",
    "constant_columns",
    "knn_of_one_column",
    "looks_like_identifier",
    "looks_like_row_number",
    "splits_drifted",
    "target_is_sum",
    "target_leakage",
    "unscaled_columns",
];

/// Text before a message of one of these in a dataset with appended rows.
const FITTED: &str = "in the rows that the dataset was fitted on: ";

/// Text before a message about the rows of the newest append alone.
const APPENDED: &str = "in the rows appended last: ";

/// The same behind a message about the rows before.
const ALSO_APPENDED: &str = "; in the rows appended last: ";

/// Merges the warnings of a dataset with those of appended rows. A new one replaces that with its
/// code, or is added to its message where the figures cover the appended rows alone. Figures of the
/// append before are left out, and warnings of the fit alone say so.
pub(crate) fn with_appended(before: &[Warning], appended: Vec<Warning>) -> Vec<Warning> {
    let kept = before.iter().cloned().filter_map(without_append_before);
    let mut all: Vec<Warning> = kept.collect();
    for new in appended {
        let is_of_one_build = OF_ONE_BUILD.contains(&new.code.as_str());
        match all.iter_mut().find(|old| is_same(old, &new)) {
            Some(old) if is_of_one_build => add_appended(old, new),
            Some(old) => *old = new,
            None if is_of_one_build => all.push(of_appended(new)),
            None => all.push(new),
        }
    }
    all
}

/// Returns true if two warnings are about the same: their codes are equal and, where each column has a warning of its own, their
/// columns.
fn is_same(old: &Warning, new: &Warning) -> bool {
    fn names(warning: &Warning) -> impl Iterator<Item = &String> {
        warning.columns().map(|WarnedColumn { name, .. }| name)
    }
    let has_one_column = [TEXTS_NOT_NUMBERS, TARGET_REPEATS_EXTREME].contains(&new.code.as_str());
    old.code == new.code && (!has_one_column || names(old).eq(names(new)))
}

/// A warning whose figures are of the rows appended last.
fn of_appended(new: Warning) -> Warning {
    Warning {
        message: format!("{APPENDED}{}", new.message),
        rows: Some(WarnedRows::Appended),
        ..new
    }
}

/// Adds to a warning the figures of the rows appended last. Its first finding remains that of the rows before.
fn add_appended(old: &mut Warning, new: Warning) {
    let both = format!("{}{ALSO_APPENDED}{}", old.message, new.message);
    let before = std::mem::replace(&mut old.message, both);
    old.rows = match old.rows.take() {
        None | Some(WarnedRows::Fitted) => Some(WarnedRows::BuiltAndAppended(before)),
        already => already,
    };
    // Without a finding of the rows before, this would be taken for it.
    if !old.findings.is_empty() {
        old.findings.extend(new.findings);
    }
}

/// A warning of a dataset without figures of the rows appended last, which are no longer the last; `None` if it has no others.
/// Sizes are counted over all rows.
fn without_append_before(mut warning: Warning) -> Option<Warning> {
    let code = warning.code.as_str();
    if code == MANY_REJECTS || OF_SIZES.contains(&code) {
        return None;
    }
    let is_of_fit = OF_FIT.contains(&code);
    match warning.rows.take() {
        Some(WarnedRows::Appended) => return None,
        Some(WarnedRows::BuiltAndAppended(built)) => {
            warning.message = built;
            warning.findings.truncate(1);
        }
        // Earlier builds wrote the words, and no `rows`.
        None if is_of_fit && !warning.message.starts_with(FITTED) => {
            warning.message.insert_str(0, FITTED);
        }
        None | Some(WarnedRows::Fitted) => {}
    }
    warning.rows = is_of_fit.then_some(WarnedRows::Fitted);
    Some(warning)
}

/// Code of the warning of appended rows that were rejected.
const MANY_REJECTS: &str = "many_rejects";

/// Warns of appended rows with a larger share of rejects than a build allows of all rows.
pub(crate) fn many_rejects(
    rejected: &BTreeMap<String, u64>,
    rows: u64,
    limit: f64,
) -> Option<Warning> {
    let all: u64 = rejected.values().sum();
    (share(all, rows) > limit).then(|| {
        let reasons: Vec<String> = rejected
            .iter()
            .map(|(reason, rows)| format!("{rows} as `{reason}`"))
            .collect();
        let message = format!(
            "{all} of the {} appended last ({}) were rejected ({}), a larger share than `dataset.max_reject_fraction` = {limit}: \
             the build stops only where all rows of the dataset, those before included, are above it; look at the source",
            counted(rows, "row"),
            percent(all, rows),
            first_of(&reasons, GROUPS)
        );
        warning(MANY_REJECTS, "dataset.max_reject_fraction", message)
    })
}

/// Warns of training rows landed since the last build that differ from earlier ones, when the
/// dataset is rebuilt from all of them.
pub(crate) fn new_rows_differ(shifts: &[FeatureShift], rows: [u64; 2]) -> Option<Warning> {
    let shifted: Vec<String> = shifts
        .iter()
        .map(|shift| {
            format!(
                "`{}` has mean {:.4} where it had {:.4} ({} deviations of the earlier rows away)",
                shown(&shift.feature),
                shift.after,
                shift.before,
                shift.deviations_text()
            )
        })
        .collect();
    (!shifted.is_empty()).then(|| {
        let [before, new] = rows;
        let message = format!(
            "the {new} training rows that landed since the last build differ from the {before} before, in the units of its \
             transform: {}; dataset and transform are now made of all of them, so train again or look at the source",
            first_of(&shifted, COLUMNS)
        );
        let features = warned_columns(shifts.iter().map(|shift| shift.feature.as_str()));
        warning("new_rows_differ", "dataset.profile", message).with_columns(features)
    })
}
