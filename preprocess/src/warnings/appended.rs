//! Warnings of appended rows, and of rows that landed since the last build.

use std::collections::BTreeMap;

use feedline_schemas::{
    count::counted,
    report::{FeatureShift, Warning},
};

use super::{
    categories::UNKNOWN_CATEGORIES,
    cells::{
        FAR_FROM_TRAINING_ROWS, INFINITE_CAPPED, MOSTLY_CAPPED, NAN_MISSING,
        TARGET_REPEATS_EXTREME, TEXTS_NOT_NUMBERS,
    },
    keys::MISSING_KEYS,
    message::{COLUMNS, GROUPS, first_of, percent, share, warning},
    sizes::OF_SIZES,
};
use crate::schema::landed_columns::shown;

/// Codes of warnings whose figures cover the rows of one build alone.
const OF_ONE_BUILD: [&str; 8] = [
    TEXTS_NOT_NUMBERS,
    FAR_FROM_TRAINING_ROWS,
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
    let column = |warning: &Warning| warning.message.split('`').nth(1).map(str::to_owned);
    let kept = before.iter().cloned().filter_map(without_append_before);
    let mut all: Vec<Warning> = kept.collect();
    for mut new in appended {
        let is_same = |old: &&mut Warning| match new.code.as_str() {
            TEXTS_NOT_NUMBERS | TARGET_REPEATS_EXTREME => {
                old.code == new.code && column(old) == column(&new)
            }
            code => old.code == code,
        };
        let is_of_one_build = OF_ONE_BUILD.contains(&new.code.as_str());
        match all.iter_mut().find(is_same) {
            Some(old) if is_of_one_build => {
                old.message = format!("{}{ALSO_APPENDED}{}", old.message, new.message);
            }
            Some(old) => *old = new,
            None => {
                if is_of_one_build {
                    new.message = format!("{APPENDED}{}", new.message);
                }
                all.push(new);
            }
        }
    }
    all
}

/// A warning of a dataset without figures of the rows appended last, which are no longer the last; `None` if it has no others.
/// Sizes are counted over all rows.
fn without_append_before(mut warning: Warning) -> Option<Warning> {
    let code = warning.code.as_str();
    if code == MANY_REJECTS || OF_SIZES.contains(&code) {
        return None;
    }
    if OF_ONE_BUILD.contains(&code) {
        if warning.message.starts_with(APPENDED) {
            return None;
        }
        if let Some((first, _)) = warning.message.split_once(ALSO_APPENDED) {
            warning.message = first.to_owned();
        }
    }
    if OF_FIT.contains(&code) && !warning.message.starts_with(FITTED) {
        warning.message.insert_str(0, FITTED);
    }
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
        warning("new_rows_differ", "dataset.profile", message)
    })
}
