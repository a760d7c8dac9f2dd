//! Warnings of default decisions of a build that change data or a result, with the key that changes
//! each.
//!
//! They depend on fitted statistics and counts, so on the rows alone: any number of partitions
//! gives the same.

pub(crate) mod classes;
pub(crate) mod zone;

use std::collections::BTreeMap;

use feedline_schemas::{
    config::Task,
    manifest::{ConflictCounts, Split},
    record::ColumnType,
    report::{FeatureShift, Warning},
    transform::{FittedCategories, FittedStep, FittedTarget, TransformArtefact},
};

use unicode_normalization::UnicodeNormalization;

use crate::{
    landed_columns::{MergedColumn, listed, shown},
    leakage::{self, Leak},
    profile::outside::FarOutside,
    reject_reason,
    series::Instant,
    sql::other_rows::Construct,
    steps::{self, ColumnWarning},
    transform::reason,
};

/// Fraction of the rows above which dropped duplicates are worth a warning.
const DUPLICATES: f64 = 0.01;

/// Groups of values that one warning names.
const GROUPS: usize = 5;

/// Columns that one warning names.
const COLUMNS: usize = 10;

/// Characters of a value that a message shows.
const SHOWN: usize = 40;

/// Key that lists the classes of a target.
const KEY_CLASSES: &str = "dataset.classes";

/// Minimum class count for the check of a classification.
const MANY_CLASSES: usize = 32;

/// Mean rows per class below which a target has too many classes.
const FEW_ROWS: u64 = 20;

/// Minimum value count for the check of a category.
const FEW_VALUES: usize = 5;

/// Minimum fraction of numeric values for a category to look numeric.
const MOSTLY: f64 = 0.8;

/// Makes warning `code`, about `key`.
fn warning(code: &str, key: &str, message: String) -> Warning {
    Warning::new(code, message).with_key(key)
}

/// Formats a fraction as a percentage.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", share(part, whole) * 100.0)
}

#[expect(clippy::cast_precision_loss, reason = "a share needs no 53 bits")]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// Quotes a value in backticks, shortened.
pub(crate) fn quoted(value: &str) -> String {
    let short: String = value.chars().take(SHOWN).collect();
    let more = if short.len() < value.len() { "..." } else { "" };
    format!("`{}{more}`", shown(&short))
}

/// Lists the first of `parts`, and how many more exist.
fn first_of(parts: &[String], most: usize) -> String {
    let first = parts[..parts.len().min(most)].join(", ");
    match parts.len().saturating_sub(most) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Code of a warning of dropped duplicates.
pub(crate) const DUPLICATES_DROPPED: &str = "duplicates_dropped";

/// Returns whether the dropped duplicates are many enough for a warning.
pub(crate) fn are_many(duplicates: u64, rows: u64) -> bool {
    share(duplicates, rows) > DUPLICATES
}

/// Warns of duplicates dropped by default. `sample` describes a row that has some.
pub(crate) fn duplicates_dropped(dropped: u64, rows: u64, sample: Option<&str>) -> Option<Warning> {
    let sample = sample.map_or_else(String::new, |sample| format!(", such as {sample}"));
    are_many(dropped, rows).then(|| {
        let message = format!(
            "{dropped} of {rows} rows ({}) were dropped since they equal another row in every column{sample}; where equal rows \
             are different observations, keep them with `dataset.dedup = \"none\"`: all copies of a row are then in one split",
            percent(dropped, rows)
        );
        warning(DUPLICATES_DROPPED, "dataset.dedup", message)
    })
}

/// Code of a warning about copies of images with other targets.
const LABELS_DIFFER: &str = "labels_differ";

/// Warns of images whose copies have other values of `target`. `sample` names one.
pub(crate) fn labels_differ(counts: ConflictCounts, target: &str, sample: &str) -> Option<Warning> {
    let ConflictCounts { contents, rows } = counts;
    (contents > 0).then(|| {
        let message = format!(
            "{contents} images appear in {rows} rows with different values of `{target}`{sample}; of each image the row \
             that \
             landed first is kept, and the values of the others are lost: correct the labels, or keep all rows with \
             `dataset.dedup = \"none\"`"
        );
        warning(LABELS_DIFFER, "dataset.dedup", message)
    })
}

/// Code of a warning about the cells of one column that are no numbers, in the rows of one build.
pub(crate) const TEXTS_NOT_NUMBERS: &str = "texts_not_numbers";

/// Code of a warning about rows without a key, in the rows of one build.
const MISSING_KEYS: &str = "missing_keys";

/// Code of a warning about infinite cells of all columns, in the rows of one build.
const INFINITE_CAPPED: &str = "infinite_capped";

/// Code of a warning about NaN cells of all columns, in the rows of one build.
const NAN_MISSING: &str = "nan_missing";

/// Code of a warning about values of categories that the transform does not know, in the rows of one build.
const UNKNOWN_CATEGORIES: &str = "unknown_categories";

/// Code of a warning about a category whose values the transform knows in part.
pub(crate) const CATEGORIES_CUT: &str = "categories_cut";

/// Code of a warning about a category that is the key of the split.
pub(crate) const KEY_IS_FEATURE: &str = "key_is_feature";

/// Codes of warnings whose figures cover the rows of one build alone.
const OF_ONE_BUILD: [&str; 5] = [
    TEXTS_NOT_NUMBERS,
    INFINITE_CAPPED,
    MISSING_KEYS,
    NAN_MISSING,
    UNKNOWN_CATEGORIES,
];

/// Text before the newest message about appended rows.
const APPENDED: &str = "; in the rows appended last: ";

/// Merges the warnings of a dataset with those of appended rows. A new one replaces that with its
/// code, or is added to its message where the figures cover the appended rows alone.
pub(crate) fn with_appended(before: &[Warning], appended: Vec<Warning>) -> Vec<Warning> {
    let column = |warning: &Warning| warning.message.split('`').nth(1).map(str::to_owned);
    let mut all = before.to_vec();
    // Those of the rows appended before are no longer those appended last.
    all.retain(|warning| warning.code != MANY_REJECTS);
    for new in appended {
        let is_same = |old: &&mut Warning| match new.code.as_str() {
            TEXTS_NOT_NUMBERS => old.code == new.code && column(old) == column(&new),
            code => old.code == code,
        };
        match all.iter_mut().find(is_same) {
            Some(old) if OF_ONE_BUILD.contains(&new.code.as_str()) => {
                let first = old.message.split(APPENDED).next().unwrap_or_default();
                old.message = format!("{first}{APPENDED}{}", new.message);
            }
            Some(old) => *old = new,
            None => all.push(new),
        }
    }
    all
}

/// Warns of sources that dropped duplicate records before landing, each with the count.
pub(crate) fn left_at_landing(sources: &[(String, u64)]) -> Option<Warning> {
    let sources: Vec<String> = sources
        .iter()
        .map(|(source, records)| format!("`{source}` ({records} records)"))
        .collect();
    (!sources.is_empty()).then(|| {
        let message = format!(
            "`dataset.dedup = \"none\"` keeps copies that landed, and sources left out records that were equal to others: {}; \
             set their `batch.dedup_window = 0` and ingest into another root to have them",
            first_of(&sources, COLUMNS)
        );
        warning("copies_left_at_landing", "batch.dedup_window", message)
    })
}

/// Warns of columns that have far more cells outside the training range in a split than in the
/// training split itself.
pub(crate) fn far_outside(found: &[FarOutside]) -> Option<Warning> {
    let columns: Vec<String> = found
        .iter()
        .map(|found| {
            let (share, train) = (found.share * 100.0, found.train * 100.0);
            let column = shown(&found.column);
            format!(
                "`{column}` ({share:.2} % of {}, {train:.2} % of train)",
                found.split
            )
        })
        .collect();
    (!columns.is_empty()).then(|| {
        let message = format!(
            "far more cells are outside of the caps or the range of the training split than in it, so the columns have drifted: {}",
            first_of(&columns, COLUMNS)
        );
        warning("splits_drifted", "dataset.split", message)
    })
}

/// Category with only its most frequent values known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CutCategories {
    pub(crate) column: String,
    /// Count of known values.
    pub(crate) known: usize,
    /// Count of distinct values in the training split.
    pub(crate) distinct: u64,
    /// Rows with an unknown value and all rows, per split in the order of [`Split::ALL`].
    pub(crate) unknown: [(u64, u64); 3],
}

impl CutCategories {
    /// Describes the column, its values and the rows that became unknown.
    pub(crate) fn warning(&self) -> Warning {
        let Self {
            column,
            known,
            distinct,
            unknown,
        } = self;
        let splits = Split::ALL.into_iter().zip(unknown);
        let splits = splits.filter(|(_, (_, rows))| *rows > 0);
        let splits: Vec<String> = splits
            .map(|(split, (unknown, rows))| {
                format!(
                    "{unknown} of {rows} {split} rows ({})",
                    percent(*unknown, *rows)
                )
            })
            .collect();
        let message = format!(
            "column `{}` has {distinct} values in the training split and the {known} most frequent are known; {} became \
             unknown; raise `max_values` of its `categories` step, or encode it by `frequency` or `hash`",
            shown(column),
            splits.join(", ")
        );
        warning(CATEGORIES_CUT, "dataset.step.max_values", message)
    }
}

/// Warns of columns that are no features by default, grouped by reason.
pub(crate) fn columns_dropped(dropped: &BTreeMap<String, String>) -> Vec<Warning> {
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (column, reason) in dropped {
        by_reason.entry(reason).or_default().push(column);
    }
    let each = by_reason.into_iter().map(|(reason, columns)| {
        let of_texts = reason.contains("text");
        let (key, advice) = match of_texts {
            true => (
                "dataset.categorical",
                "list it in `dataset.categorical` to have it as a category, or in `dataset.drop`",
            ),
            false => (
                "dataset.drop",
                "list it in `dataset.drop` to say that this is meant",
            ),
        };
        let names = listed(&columns, "`");
        let message = match columns.len() {
            1 => format!("column {names} is no feature: it {reason}; {advice}"),
            _ => format!("columns {names} are no features: each {reason}; {advice}"),
        };
        warning("columns_dropped", key, message)
    });
    each.collect()
}

/// Returns the reason that a landed column of this type cannot be a feature, if any.
pub(crate) fn why_no_feature(r#type: ColumnType) -> Option<&'static str> {
    match r#type {
        ColumnType::Null => Some("holds no value in any row"),
        ColumnType::Binary => Some("holds bytes"),
        ColumnType::Json => Some("holds lists or objects"),
        list if list.is_list() => Some("holds lists"),
        _ => None,
    }
}

/// Returns the warnings of the fitted statistics. `columns` are the landed ones, and `by_default`
/// says which of them are features only by default.
pub(crate) fn of_transform(
    artefact: &TransformArtefact,
    columns: &[MergedColumn],
    by_default: impl Fn(&str) -> bool,
) -> Vec<Warning> {
    let steps = artefact.steps.iter();
    let categories: Vec<&FittedCategories> = steps
        .filter_map(|step| match step {
            FittedStep::Categories { columns } => Some(columns),
            _ => None,
        })
        .flatten()
        .collect();
    let mut found = Vec::new();
    found.extend(constant_columns(artefact, &categories));
    let asked = |c: &&&FittedCategories| by_default(&c.name) && c.buckets.is_none();
    for category in categories.iter().filter(asked) {
        let landed = columns.iter().find(|column| column.name == category.name);
        let r#type = landed.map(|column| column.r#type);
        found.extend(times_as_categories(category, r#type));
        found.extend(numbers_as_categories(category, r#type));
    }
    for category in &categories {
        let counted = category.values.iter().zip(category.counts.iter().copied());
        let alike = alike(counted);
        if !alike.is_empty() {
            let message = format!(
                "values of column `{}` differ in {} only and are categories of their own: {}; write them alike in the source, or with \
                 `lower(trim(...))` in `dataset.sql`",
                shown(&category.name),
                difference(&alike),
                first_of(&alike, GROUPS)
            );
            found.push(warning("categories_alike", "dataset.sql", message));
        }
    }
    found.extend(of_classes(artefact));
    found
}

/// Warns of columns that are (nearly) constant over all training rows after the steps.
fn constant_columns(
    artefact: &TransformArtefact,
    categories: &[&FittedCategories],
) -> Vec<Warning> {
    let mut constant: Vec<&str> = Vec::new();
    let mut warned: Vec<(&str, ColumnWarning)> = Vec::new();
    for column in artefact.steps.iter().flat_map(steps::columns) {
        let name = column.name();
        let is_warned = warned.iter().any(|(other, _)| *other == name);
        if column.is_constant() && !is_warned {
            constant.push(name);
        }
        warned.extend(column.warning().map(|warning| (name, warning)));
    }
    let rows = artefact.fitted_rows;
    let is_same = |c: &&&FittedCategories| match c.counts.as_slice() {
        [] => c.buckets.is_none(),
        [all] => *all == rows,
        _ => false,
    };
    constant.extend(categories.iter().filter(is_same).map(|c| c.name.as_str()));
    constant.sort_unstable();
    constant.dedup();
    let mut found = Vec::new();
    if !constant.is_empty() {
        let message = format!(
            "the same value (as a 64-bit float) in all training rows, so a model cannot learn from it: {}; leave it out with `dataset.drop`",
            listed(&constant, "`")
        );
        found.push(warning("constant_columns", "dataset.drop", message));
    }
    found.extend(of_columns(&warned));
    found
}

/// One warning for each code, with its columns in order.
fn of_columns(warned: &[(&str, ColumnWarning)]) -> Vec<Warning> {
    let mut found: Vec<Warning> = Vec::new();
    for (_, first) in warned {
        if found.iter().any(|warning| warning.code == first.code) {
            continue;
        }
        let same = warned.iter().filter(|(_, other)| other.code == first.code);
        let columns = same.map(|(name, of)| format!("`{}` ({})", shown(name), of.figures));
        let columns: Vec<String> = columns.collect();
        let (problem, advice) = (first.problem, first.advice);
        let message = format!("{problem}: {}; {advice}", first_of(&columns, COLUMNS));
        found.push(warning(first.code, "dataset.step", message));
    }
    found
}

/// Warns of a column of times that became a category.
fn times_as_categories(category: &FittedCategories, r#type: Option<ColumnType>) -> Option<Warning> {
    let values = &category.values;
    let iso = Instant::iso();
    let is_date = |value: &String| value.contains(['-', ':']) && iso.of_text(value).is_some();
    let is_time = r#type == Some(ColumnType::Timestamp)
        || (values.len() >= FEW_VALUES && values.iter().all(is_date));
    is_time.then(|| {
        let sample = values.first().map_or_else(String::new, |v| quoted(v));
        let message = format!(
            "column `{}` holds times such as {sample} and became a category of {} values: a time that comes later is unknown \
             to a model; leave it out with `dataset.drop`, make it the time of `dataset.series`, or compute numbers of it \
             with `dataset.sql`",
            shown(&category.name),
            values.len()
        );
        warning("times_as_categories", "dataset.drop", message)
    })
}

/// Warns of a column of mostly numeric strings that became a category.
fn numbers_as_categories(
    category: &FittedCategories,
    r#type: Option<ColumnType>,
) -> Option<Warning> {
    if !matches!(r#type, Some(ColumnType::Utf8)) || category.values.len() < FEW_VALUES {
        return None;
    }
    let (numbers, others): (Vec<&String>, Vec<&String>) =
        category.values.iter().partition(|value| is_number(value));
    let most = share(numbers.len() as u64, category.values.len() as u64);
    (most >= MOSTLY).then(|| {
        let others: Vec<String> = others.iter().map(|value| quoted(value)).collect();
        let others = match others.is_empty() {
            true => String::new(),
            false => format!(", the others are {}", first_of(&others, GROUPS)),
        };
        let key = match numbers.iter().any(|number| number.contains('%')) {
            true => "`csv.percent`, and `csv.decimal_separator` for commas, of its source, before it lands",
            false => "`dataset.decimal_separator`",
        };
        let message = format!(
            "column `{}` landed as text and became a category, yet {} of its {} known values look like numbers, such as \
             {}{others}; name the spellings of a missing value (`csv.null_values` of its source, before it lands), or how its \
             numbers are written ({key}), and list it in the `columns` of numeric steps",
            shown(&category.name),
            numbers.len(),
            category.values.len(),
            quoted(numbers.first().map_or("", |value| value.as_str())),
        );
        warning("numbers_as_categories", "dataset.step", message)
    })
}

/// Returns whether a string is a number as people write one: with a point or a comma, a sign, a
/// percent sign.
fn is_number(text: &str) -> bool {
    let text = text.trim().trim_end_matches('%').trim_end();
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_code =
        digits.len() > 1 && digits.starts_with('0') && digits.as_bytes()[1].is_ascii_digit();
    if is_code || !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == ',') {
        return false;
    }
    let whole = digits
        .rsplit_once([',', '.'])
        .map_or(digits, |(whole, _)| whole);
    let mut groups = whole.split([',', '.']);
    let first = groups.next().map_or(0, str::len);
    let is_grouped = (1..=3).contains(&first) && groups.all(|group| group.len() == 3);
    digits.replace(',', ".").parse::<f64>().is_ok()
        || (is_grouped && digits.replace([',', '.'], "").parse::<u64>().is_ok())
}

/// Returns the warnings about the classes of a target.
fn of_classes(artefact: &TransformArtefact) -> Vec<Warning> {
    let Some(FittedTarget::Classification {
        column,
        classes,
        counts,
    }) = &artefact.target
    else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let alike = alike(classes.iter().zip(counts.iter().copied()));
    if !alike.is_empty() {
        let message = format!(
            "labels of `{}` differ in {} only and are classes of their own: {}; write them alike in the source, or with \
             `lower(trim(...))` in `dataset.sql`",
            shown(column),
            difference(&alike),
            first_of(&alike, GROUPS)
        );
        found.push(warning("labels_alike", "dataset.sql", message));
    }
    let empty = classes.iter().zip(counts).filter(|(_, rows)| **rows == 0);
    let empty: Vec<String> = empty.map(|(class, _)| quoted(class)).collect();
    if !empty.is_empty() {
        let message = format!(
            "no training row has a class of `{}` that `dataset.classes` lists, so no model can learn it: {}",
            shown(column),
            first_of(&empty, COLUMNS)
        );
        found.push(warning("classes_without_rows", KEY_CLASSES, message));
    }
    let are_numbers = classes.iter().all(|class| is_number(class));
    let mean = artefact.fitted_rows / (classes.len() as u64).max(1);
    if classes.len() >= MANY_CLASSES && (are_numbers || mean < FEW_ROWS) {
        let numbers = match are_numbers {
            true => {
                ", all of them numbers; to predict a number set `dataset.task = \"regression\"`"
            }
            false => "; is this the column to predict?",
        };
        let message = format!(
            "target `{}` has {} classes in {} training rows, {mean} rows a class{numbers}",
            shown(column),
            classes.len(),
            artefact.fitted_rows
        );
        found.push(warning("many_classes", "dataset.task", message));
    }
    found
}

/// Writes a value without differences of blanks, letter case and Unicode form.
pub(crate) fn folded(value: &str) -> String {
    let words: Vec<&str> = value.split_whitespace().collect();
    let words = words.join(" ");
    match words.is_ascii() {
        true => words.to_ascii_lowercase(),
        // A letter and its accent are one character or two.
        false => words
            .nfkc()
            .collect::<String>()
            .to_lowercase()
            .nfkc()
            .collect(),
    }
}

/// Names the differences of values that are [`alike`].
fn difference(alike: &[String]) -> &'static str {
    match alike.iter().all(|values| values.is_ascii()) {
        true => "blanks or letter case",
        false => "blanks, letter case or Unicode form",
    }
}

/// Groups values that are equal but for blanks, letter case and Unicode form, each group as text with
/// the rows of each value.
fn alike<'a>(values: impl Iterator<Item = (&'a String, u64)>) -> Vec<String> {
    let mut groups: BTreeMap<String, Vec<(&str, u64)>> = BTreeMap::new();
    for (value, rows) in values {
        groups
            .entry(folded(value))
            .or_default()
            .push((value.as_str(), rows));
    }
    let several = groups.into_values().filter(|group| group.len() > 1);
    let mut several: Vec<Vec<(&str, u64)>> = several.collect();
    for group in &mut several {
        group.sort_by_key(|(value, rows)| (std::cmp::Reverse(*rows), *value));
    }
    several.sort_by_key(|group| std::cmp::Reverse(group.iter().map(|(_, rows)| rows).sum::<u64>()));
    let text = |group: Vec<(&str, u64)>| {
        let values = group.iter();
        let values = values.map(|(value, rows)| format!("{} ({rows} rows)", quoted(value)));
        values.collect::<Vec<_>>().join(" and ")
    };
    several.into_iter().map(text).collect()
}

/// Returns the column and the classes of a target that is a class.
fn target_classes(artefact: &TransformArtefact) -> Option<(&str, &[String])> {
    match &artefact.target {
        Some(FittedTarget::Classification {
            column, classes, ..
        }) => Some((column, classes)),
        Some(FittedTarget::Regression { .. }) | None => None,
    }
}

/// Warns of classes of a target whose ids were others `before`.
pub(crate) fn moved_classes(
    before: &TransformArtefact,
    now: &TransformArtefact,
) -> Option<Warning> {
    let ((other, before), (column, now)) = target_classes(before).zip(target_classes(now))?;
    if column != other {
        return None;
    }
    let ids: BTreeMap<&String, usize> = before.iter().zip(0..).collect();
    let moved = now.iter().enumerate().filter_map(|(id, class)| {
        let old = ids.get(class).filter(|old| **old != id)?;
        Some(format!("{} from {old} to {id}", quoted(class)))
    });
    let moved: Vec<String> = moved.collect();
    (!moved.is_empty()).then(|| {
        let message = format!(
            "{} classes of `{}` have other ids than in the dataset before: {}; `train.init` matches classes by name, other \
             readers must take the names of the new dataset; list the classes to fix their ids",
            moved.len(),
            shown(column),
            first_of(&moved, COLUMNS)
        );
        warning("class_ids_moved", KEY_CLASSES, message)
    })
}

/// Warns of rows of classes that no training row has. `rows` were kept.
pub(crate) fn unknown_classes(
    rejected: &BTreeMap<String, u64>,
    column: &str,
    task: Task,
    rows: u64,
) -> Option<Warning> {
    let unknown = rejected.get(reason::UNKNOWN_CLASS).copied();
    let unknown = unknown.filter(|_| task == Task::Classification)?;
    let message = format!(
        "{unknown} rows, beside the {rows} that were kept ({}), have a class of `{}` that no training row has, and were rejected \
         as `{}`: the figures on validation and test rows are without them; a class that is listed here has an id without training rows",
        percent(unknown, rows + unknown),
        shown(column),
        reason::UNKNOWN_CLASS
    );
    Some(warning("unknown_classes", KEY_CLASSES, message))
}

/// Warns of rows with labels that `dataset.classes` does not list. `rows` were kept.
pub(crate) fn unlisted_classes(
    rejected: &BTreeMap<String, u64>,
    column: &str,
    classes: &[String],
    rows: u64,
) -> Option<Warning> {
    let unlisted = rejected.get(reject_reason::UNLISTED_CLASS).copied()?;
    let classes: Vec<String> = classes.iter().map(|class| quoted(class)).collect();
    let message = format!(
        "{unlisted} rows, beside the {rows} that were kept ({}), have a label of `{}` that is none of the listed classes {}, \
         and were rejected as `{}`; the files of rejects have each label",
        percent(unlisted, rows + unlisted),
        shown(column),
        first_of(&classes, COLUMNS),
        reject_reason::UNLISTED_CLASS
    );
    Some(warning("unlisted_classes", KEY_CLASSES, message))
}

/// Warns of rows that have no value in any column of the split's `key`, where the configuration does not say what they are.
pub(crate) fn missing_keys(without: u64, rows: u64, key: &[String]) -> Option<Warning> {
    let names: Vec<&str> = key.iter().map(String::as_str).collect();
    let (names, share) = (listed(&names, "`"), percent(without, rows));
    (without > 0).then(|| {
        let message = format!(
            "{without} of {rows} rows ({share}) have no value in {names}, the key of the split: each is a group of its own, so rows of \
             one entity may be in several splits; hold them in one split with `dataset.split.missing_key = \"one\"`, reject them with \
             `\"reject\"`, say that this is meant with `\"own\"`, or fill in the key in the source"
        );
        warning(MISSING_KEYS, "dataset.split.missing_key", message)
    })
}

/// Warns of integer features that differ from row to row, as identifiers do.
pub(crate) fn look_like_identifiers(columns: &[&str], rows: u64) -> Option<Warning> {
    (!columns.is_empty()).then(|| {
        let message = format!(
            "a different integer in each of {rows} training rows, as an identifier has, and a feature: {}; leave it out with \
             `dataset.drop`, or list it in `dataset.features` if it is a quantity",
            listed(columns, "`")
        );
        warning("looks_like_identifier", "dataset.drop", message)
    })
}

/// Warns of features that give the target away in training rows.
pub(crate) fn target_leakage(target: &str, leaks: &[Leak]) -> Vec<Warning> {
    let target = shown(target);
    let alone: Vec<String> = leaks.iter().filter_map(describe_leak).collect();
    let quoted = |name: &str| format!("\"{}\"", shown(name));
    let mut found = Vec::new();
    if !alone.is_empty() {
        let drop = leakage::columns_of(leaks).into_iter().map(quoted);
        let message = format!(
            "each of these features alone gives the target `{target}` away in (nearly) all training rows looked at: {}; where it \
             is not known before the target is, leave it out with `dataset.drop = [{}]`",
            first_of(&alone, COLUMNS),
            first_of(&drop.collect::<Vec<_>>(), COLUMNS)
        );
        found.push(warning("target_leakage", "dataset.drop", message));
    }
    for leak in leaks {
        let Leak::Sum { terms, residual } = leak else {
            continue;
        };
        let names = terms.iter().map(|(name, _)| quoted(name));
        let sum = terms.iter().map(|(name, factor)| {
            let factor = format!("{factor:.6}");
            let factor = factor.trim_end_matches('0').trim_end_matches('.');
            format!("{factor} x `{}`", shown(name))
        });
        let message = format!(
            "the target `{target}` is a sum of features in all training rows looked at: {} and a constant, with {residual:.1e} of \
             its variance left; where they are not known before the target is, leave them out with `dataset.drop = [{}]`",
            sum.collect::<Vec<_>>().join(" + "),
            names.collect::<Vec<_>>().join(", ")
        );
        found.push(warning("target_is_sum", "dataset.drop", message));
    }
    found
}

/// Describes a feature that gives the target away by itself.
fn describe_leak(leak: &Leak) -> Option<String> {
    Some(match leak {
        Leak::Line {
            column,
            correlation,
        } => format!("`{}` (correlation {correlation:.6})", shown(column)),
        Leak::Order {
            column,
            correlation,
        } => format!(
            "`{}` (correlation of ranks {correlation:.6})",
            shown(column)
        ),
        Leak::Values { column, fraction } => format!(
            "`{}` (one class for each value in {:.2} % of the rows)",
            shown(column),
            fraction * 100.0
        ),
        Leak::Groups { column, explained } => format!(
            "`{}` (its values explain {:.3} % of the variance)",
            shown(column),
            explained * 100.0
        ),
        Leak::Ranges { column, ranges } => {
            format!(
                "`{}` ({ranges} ranges of it have one class each)",
                shown(column)
            )
        }
        Leak::Sum { .. } => return None,
    })
}

/// Warns of rows of other splits that equal a training row in all features, before any step, and in the target. `equal` has those of each split and the
/// rows looked at, of validation and test; `columns` are those in which such rows may differ.
pub(crate) fn equal_rows(
    equal: [(u64, u64); 2],
    columns: &[String],
    (is_sample, keeps_copies): (bool, bool),
) -> Option<Warning> {
    let is_much = |(equal, rows): &(u64, u64)| *equal > 1 && are_many(*equal, *rows);
    if !equal.iter().any(is_much) || columns.is_empty() {
        return None;
    }
    let splits = [Split::Validation, Split::Test].into_iter().zip(equal);
    let splits = splits.filter(|(_, (_, rows))| *rows > 0);
    let splits: Vec<String> = splits
        .map(|(split, (equal, rows))| {
            format!("{equal} of {rows} {split} rows ({})", percent(equal, rows))
        })
        .collect();
    let names: Vec<&str> = columns.iter().map(String::as_str).collect();
    let listed_columns: Vec<String> = names.iter().map(|n| format!("\"{}\"", shown(n))).collect();
    let of_sample = if is_sample {
        ", in a sample of the rows,"
    } else {
        ""
    };
    let also = if keeps_copies {
        " and `dataset.dedup = \"exact\"`"
    } else {
        ""
    };
    let message = format!(
        "{} equal a training row in every feature, as they landed, and in the target{of_sample}, and differ \
         from it in columns that no model sees: {}; where these are copies under another name, figures of validation and test are too \
         good: leave those columns out of what makes rows different with `dataset.dedup_ignore = [{}]`{also}, or name in \
         `dataset.split.key` what copies share; where they are different observations, nothing is wrong",
        splits.join(" and "),
        listed(&names, "`"),
        listed_columns.join(", ")
    );
    Some(warning("equal_rows", "dataset.dedup_ignore", message))
}

/// Warns of values of a `column` of the key that differ in blanks, letter case or Unicode form only.
pub(crate) fn keys_alike(key: &str, column: &str, alike: &[String], more: bool) -> Option<Warning> {
    (!alike.is_empty()).then(|| {
        let count = if more { "at least " } else { "" };
        let message = format!(
            "values of column `{}` differ in {} only, and rows of each are a group of their own ({count}{} cases): {}; write them \
             alike in the source, or with `lower(trim(...))` in `dataset.sql`",
            shown(column),
            difference(alike),
            alike.len(),
            first_of(alike, GROUPS)
        );
        warning("keys_alike", key, message)
    })
}

/// Warns of rows that have a value in some of several columns of a key and not in all.
pub(crate) fn keys_incomplete(
    key: &str,
    names: &[String],
    partly: u64,
    rows: u64,
) -> Option<Warning> {
    (partly > 0).then(|| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let message = format!(
            "{partly} of {rows} landed rows ({}) have a value in some of the columns {} and not in all: those that agree in what they \
             have are one group; fill in the columns in the source, or leave those out that are often missing",
            percent(partly, rows),
            listed(&names, "`")
        );
        warning("keys_incomplete", key, message)
    })
}

/// Warns of columns of `dataset.sql` that are made of other rows, each with what makes it so.
pub(crate) fn made_of_other_rows(found: &[(&str, &Construct)]) -> Option<Warning> {
    let columns: Vec<String> = found
        .iter()
        .map(|(column, construct)| {
            let Construct { text, sight, .. } = construct;
            let text: String = text.chars().take(2 * SHOWN).collect();
            format!(
                "`{}` by {} of {}",
                shown(column),
                quoted_call(&text),
                sight.rows()
            )
        })
        .collect();
    (!columns.is_empty()).then(|| {
        let message = format!(
            "the query makes columns of other rows, which no check of the splits sees, so they may hold values of another \
             split: {}; make such features with `[[dataset.feature]]`, which are checked, or let windows look back along \
             `dataset.split.time` alone and set a `dataset.split.embargo` as long as they do",
            first_of(&columns, COLUMNS)
        );
        warning("sql_sees_other_rows", "dataset.sql", message)
    })
}

/// A call in backticks; words as they are.
fn quoted_call(text: &str) -> String {
    match text.contains('(') {
        true => format!("`{}`", shown(text)),
        false => shown(text),
    }
}

/// Warns of infinite cells of numeric features. Each column has the cells of each split, in the
/// order of [`Split::ALL`].
pub(crate) fn infinite_capped(cells: &BTreeMap<String, [u64; 3]>) -> Option<Warning> {
    let columns: Vec<String> = cells
        .iter()
        .map(|(column, [train, validation, test])| {
            let column = shown(column);
            format!("`{column}` ({train} train, {validation} validation, {test} test)")
        })
        .collect();
    (!columns.is_empty()).then(|| {
        let message = format!(
            "infinite cells of features were capped as the largest and smallest numbers are: {}; where they mean a \
             missing value, make them null in the source or with `dataset.sql`",
            first_of(&columns, COLUMNS)
        );
        warning(INFINITE_CAPPED, "dataset.step", message)
    })
}

/// Warns of NaN cells of numeric features, which became missing. Each column has these cells and all of its landed cells; `fills`
/// says whether a step imputes one of them.
pub(crate) fn nan_missing(cells: &BTreeMap<String, (u64, u64)>, fills: bool) -> Option<Warning> {
    let columns: Vec<String> = cells
        .iter()
        .map(|(column, (nan, all))| format!("`{}` ({nan} of {all})", shown(column)))
        .collect();
    let what = match fills {
        true => "were imputed; keep a mark of them with `indicator = true` of the `impute` step",
        false => {
            "rows that no step fills are rejected as `missing_value`; fill them with an `impute` step"
        }
    };
    (!columns.is_empty()).then(|| {
        let message = format!(
            "NaN cells of landed columns count as missing and {what}, or correct the source where NaN is a fault: {}",
            first_of(&columns, COLUMNS)
        );
        warning(NAN_MISSING, "dataset.step", message)
    })
}

/// Warns of rows whose category the transform does not know. Each column has such rows of each split, and all rows of it, in the
/// order of [`Split::ALL`]; splits without rows are absent from the message.
pub(crate) fn unknown_categories(
    cells: &BTreeMap<String, [u64; 3]>,
    rows: [u64; 3],
    splits: &[Split],
) -> Option<Warning> {
    let mut columns = Vec::new();
    for (column, cells) in cells {
        let counted = Split::ALL.into_iter().zip(cells).zip(rows);
        let counted = counted.filter(|((split, cells), _)| splits.contains(split) && **cells > 0);
        let counted: Vec<String> = counted
            .map(|((split, cells), rows)| {
                format!("{cells} of {rows} {split} rows, {}", percent(*cells, rows))
            })
            .collect();
        if !counted.is_empty() {
            columns.push(format!("`{}` ({})", shown(column), counted.join("; ")));
        }
    }
    (!columns.is_empty()).then(|| {
        let message = format!(
            "values of categories that are not known from training rows became unknown, so a model has learnt nothing of them: {}; \
             reject such rows with `unknown = \"reject\"` of the `categories` step, encode by `hash`, or leave the column out with \
             `dataset.drop`",
            first_of(&columns, COLUMNS)
        );
        warning(UNKNOWN_CATEGORIES, "dataset.step.unknown", message)
    })
}

/// Warns of a category that is the key of the split, so that other splits have other values of it. `key` lists it as a feature.
pub(crate) fn key_is_feature(column: &str, key: &str) -> Warning {
    let message = format!(
        "column `{}` is the key of the split and a category too: rows of one value are in one split, so its values in validation \
         and test rows occur in no training row, and a model cannot use what it learns of it; take it out of `{key}` (it remains \
         the key), or split by another `dataset.split.key`",
        shown(column)
    );
    warning(KEY_IS_FEATURE, key, message)
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
            "{all} of the {rows} rows appended last ({}) were rejected ({}), a larger share than `dataset.max_reject_fraction` = {limit}: \
             the build stops only where all rows of the dataset, those before included, are above it; look at the source",
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
                "`{}` has mean {:.4} where it had {:.4} ({:.2} deviations away)",
                shown(&shift.feature),
                shift.after,
                shift.before,
                shift.deviations.abs()
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

#[cfg(test)]
mod tests;
