//! Target, features and keys of a table, from a preview of its columns.

mod image_columns;
mod one_value;
mod split_columns;
mod text_dates;

use std::collections::BTreeSet;

use feedline_ingest::{ColumnPreview, SourcePreview};
use feedline_preprocess::MAX_REJECT_FRACTION;
use feedline_schemas::{
    record::ColumnType,
    row_counter::{is_pandas_index, names_index},
};
use serde::Serialize;

use self::{one_value::is_value_or_missing, text_dates::looks_like_dates};
use super::{
    number_query::{identifier, number_by_sql},
    numbers::{has_mixed_decimals, has_split_decimals, number_key},
};
use crate::output::counted;

/// Names of columns that a model usually predicts.
const TARGETS: [&str; 10] = [
    "target",
    "label",
    "class",
    "y",
    "outcome",
    "response",
    "churn",
    "survived",
    "quality",
    "diagnosis",
];
/// Most distinct values of a column of integers or text that is predicted as a class.
const MAX_CLASSES: u64 = 20;
/// Most distinct values of text that is read as a category, and most of the values in it.
const MAX_CATEGORIES: u64 = 200;
/// Fewest words of a text.
const MIN_WORDS: usize = 3;
/// Minimum number of rows to decide if the values of a column differ in each row.
const MIN_ROWS: u64 = 20;

/// A column that is no feature, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Dropped {
    pub(crate) column: String,
    pub(crate) reason: String,
}

/// The use of the columns of a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct ColumnRoles {
    pub(crate) target: Option<String>,
    /// True if the target is a class.
    pub(crate) is_class: bool,
    pub(crate) dropped: Vec<Dropped>,
    /// Numeric features that have one value or are missing, which get an indicator of their missing cells.
    pub(crate) one_valued: Vec<String>,
    /// Column of timestamps, or of dates that land as text.
    pub(crate) time: Option<String>,
    /// Setting of the source that makes timestamps of the texts in `time`; none for timestamps.
    pub(crate) dates: Option<String>,
    /// Column of texts that a language model is trained on, where no column can be a feature.
    pub(crate) text: Option<String>,
    /// Column of image files that a model is trained on.
    pub(crate) images: Option<String>,
    /// Column that identifies an entity with several rows.
    pub(crate) entity: Option<String>,
    /// Decisions to review, each with its key.
    pub(crate) decisions: Vec<String>,
    /// Fraction of rows without a target, and the fraction of rejected rows to allow, where that is
    /// more than the default.
    pub(crate) missing_targets: Option<(f64, f64)>,
}

impl ColumnRoles {
    /// Decides the use of the previewed columns; `target` is the one that the user named.
    ///
    /// # Errors
    /// A message that lists the columns, if none is called `target`.
    pub(crate) fn decide(preview: &SourcePreview, target: Option<&str>) -> anyhow::Result<Self> {
        let columns = &preview.columns;
        if let Some(target) = target {
            check_exists(target, columns)?;
        }
        let mut found = Self {
            target: target.map(ToOwned::to_owned),
            ..Self::default()
        };
        if let Some(content) = image_columns::image_column(preview) {
            found.choose_images(content, preview);
            return Ok(found);
        }
        found.drop_columns(preview);
        if found.target.is_none() {
            found.choose_target(preview);
        }
        // Beside texts and without a named target, a column of one value is no reason for another model than one of the texts.
        let is_of_texts = target.is_none() && columns.iter().any(is_prose);
        let is_beside_texts = |column: &ColumnPreview| is_of_texts && is_value_or_missing(column);
        let mut features = columns.iter().filter(|column| found.is_feature(column));
        if features.any(|column| !is_beside_texts(column)) {
            found.choose_task(preview, MAX_CLASSES);
            found.keep_one_valued(preview);
            found.choose_split(preview);
            found.review_row_numbers(columns);
            found.review_epochs(columns);
        } else {
            // A named target is of another model.
            let texts = columns.iter().filter(|c| is_prose(c) && target.is_none());
            found.do_without_features(texts.max_by_key(|c| shown_length(c)));
        }
        Ok(found)
    }

    /// No use of the columns, for the records of an API without a named target.
    pub(crate) fn without_target() -> Self {
        let decision = "no `[dataset]` and no `[train]` are written, because `init` does not guess a target among the fields of an \
                        API; `--target COLUMN --force` writes both, or add `dataset.target`";
        Self {
            decisions: vec![decision.to_owned()],
            ..Self::default()
        }
    }

    /// Drops the columns that are no features; the named target is not examined.
    fn drop_columns(&mut self, preview: &SourcePreview) {
        for column in &preview.columns {
            if self.target.as_ref() == Some(&column.name) {
                continue;
            }
            if let Some(reason) = no_feature(column, preview) {
                self.dropped.push(Dropped {
                    column: column.name.clone(),
                    reason,
                });
            }
        }
    }

    fn is_dropped(&self, column: &ColumnPreview) -> bool {
        let mut dropped = self.dropped.iter();
        dropped.any(|dropped| dropped.column == column.name)
    }

    /// Returns true for a feature, or a target that is no class: they are read as numbers if they are
    /// integers.
    pub(crate) fn reads_as_number(&self, name: &str) -> bool {
        let is_target = self.target.as_deref() == Some(name);
        let mut dropped = self.dropped.iter();
        let is_kept = dropped.all(|dropped| dropped.column != name);
        self.target.is_some() && if is_target { !self.is_class } else { is_kept }
    }

    fn is_feature(&self, column: &ColumnPreview) -> bool {
        self.target.as_ref() != Some(&column.name) && !self.is_dropped(column)
    }

    /// Chooses a target by its name, or the last column that can be one.
    fn choose_target(&mut self, preview: &SourcePreview) {
        let columns = preview.columns.iter();
        let mut free =
            columns.filter(|column| !self.is_dropped(column) && !is_value_or_missing(column));
        let by_name = free
            .clone()
            .find(|column| TARGETS.contains(&column.name.to_lowercase().as_str()));
        let last = free.rfind(|column| may_be_target(column, preview.rows));
        let Some(column) = by_name.or(last) else {
            return;
        };
        let reason = match by_name {
            Some(_) => "of its name",
            None => "it is the last column that can be one",
        };
        self.decisions.push(format!(
            "`{}` is taken for the target because {reason}; another one by `--target COLUMN` or `dataset.target`",
            column.name
        ));
        self.target = Some(column.name.clone());
    }

    /// Trains a language model on `text`, if there is such a column, or nothing.
    fn do_without_features(&mut self, text: Option<&ColumnPreview>) {
        let only = self.target.take();
        self.text = text.map(|column| column.name.clone());
        let decision = match (&self.text, only) {
            (Some(text), _) => {
                self.dropped.clear();
                format!(
                    "no column can be a feature as it is, and `{text}` has texts, so a language model of them is trained; \
                     `dataset.content` and `dataset.kind` change it"
                )
            }
            (None, Some(only)) => format!(
                "no column besides `{only}` can be a feature or the target as it is, so nothing is trained; list some in \
                 `dataset.features`, or for free text see `dataset.kind`"
            ),
            (None, None) => {
                "no column can be a feature as it is, so nothing is trained; list some in `dataset.features`, or for free text see \
                 `dataset.kind`"
                    .to_owned()
            }
        };
        self.decisions = vec![decision];
    }

    /// Chooses between classification and regression, and the fraction of rows without a target to
    /// allow.
    /// Up to `max_classes` distinct integers are classes.
    fn choose_task(&mut self, preview: &SourcePreview, max_classes: u64) {
        let mut columns = preview.columns.iter();
        let target = columns.find(|column| self.target.as_ref() == Some(&column.name));
        let Some(target) = target else { return };
        self.is_class = is_class(target, max_classes);
        let (task, other) = match self.is_class {
            true => ("classification", "regression"),
            false => ("regression", "classification"),
        };
        self.decisions.push(format!(
            "`{}` has {} in {}, so the task is {task}; `dataset.task = \"{other}\"` changes it",
            target.name,
            counted_classes(target),
            counted(target.compared, "row")
        ));
        self.decisions.extend(doubt_classes(target, preview));
        self.missing_targets = missing_targets(target.missing, preview.rows);
        if let Some((_, limit)) = self.missing_targets {
            self.decisions.push(format!(
                "`{}` is missing in {} of {} rows looked at, and such rows are rejected; `dataset.max_reject_fraction = {limit}` \
                 allows it",
                target.name, target.missing, preview.rows
            ));
        }
    }

    /// Adds the features that number the rows of each group to the decisions to review.
    fn review_row_numbers(&mut self, columns: &[ColumnPreview]) {
        let features = columns
            .iter()
            .filter(|column| column.numbers_rows && self.is_feature(column));
        let reviews: Vec<String> = features
            .map(|ColumnPreview { name, .. }| {
                format!(
                    "`{name}` counts up by one and restarts, as the row number of a group does, and is a feature; list it in \
                     `dataset.drop` if it is no quantity"
                )
            })
            .collect();
        self.decisions.extend(reviews);
    }
}

fn check_exists(target: &str, columns: &[ColumnPreview]) -> anyhow::Result<()> {
    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    anyhow::ensure!(
        names.contains(&target),
        "column `{target}` does not exist; the columns are `{}`",
        names.join("`, `")
    );
    Ok(())
}

/// Advice for a text with digits that no query surely reads as a number.
const NO_QUERY: &str = "if it is a number with other characters, make one by a query in `dataset.sql` that has no value for each cell \
                        of another form: to remove characters from all cells makes wrong numbers";

/// Doubt about a target of text with too many distinct values for classes, and the way to a number.
fn doubt_classes(target: &ColumnPreview, preview: &SourcePreview) -> Option<String> {
    if target.column_type != Some(ColumnType::Utf8) || !is_mostly_distinct(target) {
        return None;
    }
    let ColumnPreview { name, distinct, .. } = target;
    let has_digits = |text: &&String| text.contains(|c: char| c.is_ascii_digit());
    let are_numbers = target.samples.iter().filter(has_digits).count() == target.samples.len();
    let is_mixed = has_mixed_decimals(name, preview);
    let way = if is_mixed && has_split_decimals(preview) {
        "its files have different decimal separators; give the files of each separator a `[[source]]` of their own".to_owned()
    } else if is_mixed {
        format!(
            "it has numbers with a decimal comma in some rows and a decimal point in others; where no cell has groups of thousands, \
             `dataset.sql` with `try_cast(replace({}, ',', '.') as double)` reads both",
            identifier(name)
        )
    } else if are_numbers {
        number_by_sql(target, &preview.source).unwrap_or_else(|| NO_QUERY.to_owned())
    } else {
        "another target may be meant, see `dataset.target`".to_owned()
    };
    Some(format!(
        "`{name}` is text with {distinct} distinct values, and a build rejects rows of a class without a training row; {way}"
    ))
}

/// Returns true for text with too many distinct values for categories.
fn is_mostly_distinct(column: &ColumnPreview) -> bool {
    column.distinct > MAX_CATEGORIES && column.distinct * 2 > column.compared
}

/// Fraction of `rows` without a target, and a limit of rejected rows above it, where the default
/// limit is close or exceeded.
pub(super) fn missing_targets(missing: u64, rows: u64) -> Option<(f64, f64)> {
    let fraction = missing as f64 / rows.max(1) as f64;
    (fraction > MAX_REJECT_FRACTION / 2.0).then(|| {
        let limit = ((fraction * 1.5 + MAX_REJECT_FRACTION) * 100.0).ceil() / 100.0;
        (fraction, limit.min(1.0))
    })
}

/// Reason that a column is no feature.
fn no_feature(column: &ColumnPreview, preview: &SourcePreview) -> Option<String> {
    let ColumnPreview {
        name,
        missing,
        compared,
        distinct,
        column_type,
        numbers_rows,
        restarts_index,
        has_rising_index,
        ..
    } = column;
    let is_unique = *compared >= MIN_ROWS && distinct == compared;
    // The first file of many may be that of one shop, or of one month.
    // A spelling of a missing value is counted in both, so the sum of a first page may be larger.
    let are_all_compared = preview.is_all && compared + missing == preview.rows;
    let rows = preview.rows;
    if !names_entity(name)
        && let Some(reason) = too_large(column, rows)
    {
        return Some(reason);
    }
    let reason = match column_type {
        None | Some(ColumnType::Null) => {
            return Some(format!(
                "no value in the {} looked at",
                counted(rows, "row")
            ));
        }
        Some(ColumnType::Timestamp) => Some("a timestamp"),
        Some(ColumnType::Int64) if is_pandas_index(name) => {
            Some("the index that pandas writes, by its name")
        }
        Some(ColumnType::Binary) => Some("bytes"),
        Some(ColumnType::Json) => Some("lists or objects"),
        Some(list) if list.is_list() => Some("lists or objects"),
        Some(ColumnType::Utf8) if looks_like_dates(name, preview) => Some(
            "dates that land as text until `contract.dates` is set; as timestamps they are no feature either",
        ),
        Some(ColumnType::Utf8) if column.are_times => {
            Some("dates that land as text; as timestamps they are no feature either")
        }
        Some(ColumnType::Utf8) if has_mixed_decimals(name, preview) => Some(
            "numbers with a decimal comma in some rows and a decimal point in others; they land as text",
        ),
        Some(ColumnType::Utf8) if is_mostly_distinct(column) => {
            if let Some(key) = number_key(name, preview) {
                let until = match key.as_str() {
                    "dataset.sql" => "a query in `dataset.sql` reads them".to_owned(),
                    key => format!("`{key}` is set"),
                };
                return Some(format!(
                    "numbers that land as text until {until}; then remove it from `dataset.drop`"
                ));
            }
            Some("text with too many distinct values for a category")
        }
        Some(ColumnType::Utf8) if is_unique => Some("text that differs in each row"),
        Some(ColumnType::Int64 | ColumnType::Utf8) if names_entity(name) => {
            Some("an identifier by its name")
        }
        Some(ColumnType::Int64)
            if (is_unique || *numbers_rows) && is_index_name(name)
                || *has_rising_index && names_index(name) =>
        {
            Some("a row number by its name")
        }
        Some(ColumnType::Int64)
            if (is_unique || *numbers_rows || *restarts_index || *has_rising_index)
                && has_empty_header(name, preview) =>
        {
            Some("a row number by its empty header")
        }
        Some(_) if *compared >= MIN_ROWS && *distinct == 1 && *missing == 0 && are_all_compared => {
            return Some(format!("one value in all {rows} rows"));
        }
        Some(_) => None,
    };
    reason.map(ToOwned::to_owned)
}

/// Reason that integers beyond 2^53 are no feature, if a build would reject more of the `rows` than
/// it may: fewer such values are errors in the data.
fn too_large(column: &ColumnPreview, rows: u64) -> Option<String> {
    let large = column.large_integers.as_ref()?;
    let is_most = large.count as f64 > MAX_REJECT_FRACTION * rows as f64;
    is_most.then(|| {
        format!(
            "integers beyond 2^53, such as `{}`, which no 64-bit float holds; to use codes as categories, list the column in \
             `dataset.categorical` instead",
            large.sample
        )
    })
}

/// `id`, `customer_id`, `customerId`, `uuid`.
fn names_entity(name: &str) -> bool {
    let lower = name.to_lowercase();
    let is_camel = name.ends_with("Id") || name.ends_with("ID");
    matches!(lower.as_str(), "id" | "uuid" | "guid" | "_id")
        || ["_id", "-id", " id", ".id", "_uuid"]
            .iter()
            .any(|end| lower.ends_with(end))
        || is_camel && name.len() > 2
}

/// Returns true for the first column without a name in its header, as pandas writes an index. Where no column has
/// a name, there is no header.
pub(crate) fn has_empty_header(name: &str, preview: &SourcePreview) -> bool {
    let mut columns = preview.columns.iter();
    let is_first = columns.next().is_some_and(|first| first.name == name);
    is_first && name == "column_1" && columns.any(|column| !column.name.starts_with("column_"))
}

fn is_index_name(name: &str) -> bool {
    let lower = name.to_lowercase();
    [
        "",
        "index",
        "row",
        "no",
        "nr",
        "number",
        "unnamed: 0",
        "rownames",
        "rank",
        "#",
        "seq",
        "sequence",
        "row number",
        "row_number",
        "record number",
        "record_number",
        "sample number",
        "sample_number",
    ]
    .contains(&lower.as_str())
}

/// Returns true for a column of texts of several words.
fn is_prose(column: &ColumnPreview) -> bool {
    let words = |text: &String| text.split_whitespace().count();
    let has_words = column
        .samples
        .iter()
        .filter(|text| words(text) >= MIN_WORDS);
    column.column_type == Some(ColumnType::Utf8)
        && !column.samples.is_empty()
        && has_words.count() * 2 > column.samples.len()
}

/// Characters of the samples of a column.
fn shown_length(column: &ColumnPreview) -> usize {
    column.samples.iter().map(String::len).sum()
}

/// Returns true for a column of `rows` rows that is missing in less than half of them and has few
/// enough distinct texts.
fn may_be_target(column: &ColumnPreview, rows: u64) -> bool {
    if column.missing * 2 > rows {
        return false;
    }
    match column.column_type {
        Some(ColumnType::Utf8) => column.distinct > 1 && column.distinct <= MAX_CLASSES,
        Some(ColumnType::Bool | ColumnType::Int64 | ColumnType::Float64 | ColumnType::Decimal) => {
            true
        }
        _ => false,
    }
}

/// Returns true for text, booleans, and up to `max_classes` distinct whole numbers, such as `0.0` and `1.0`.
fn is_class(column: &ColumnPreview, max_classes: u64) -> bool {
    let is_few = |distinct: u64| column.compared >= MIN_ROWS && distinct <= max_classes;
    match column.column_type {
        Some(ColumnType::Utf8 | ColumnType::Bool) => true,
        Some(ColumnType::Int64) => is_few(distinct_numbers(column).unwrap_or(column.distinct)),
        Some(ColumnType::Float64) => distinct_whole_numbers(column).is_some_and(is_few),
        _ => false,
    }
}

/// Distinct values of a target, for a message: `1` and `1.0` are one number.
fn counted_classes(target: &ColumnPreview) -> String {
    let whole = distinct_whole_numbers(target);
    if target.column_type == Some(ColumnType::Float64)
        && let Some(whole) = whole
    {
        return counted(whole, "distinct whole number");
    }
    let distinct = distinct_numbers(target).unwrap_or(target.distinct);
    let is_float = target.column_type == Some(ColumnType::Float64);
    match is_float && target.value_counts.is_some() {
        true => counted(distinct, "distinct number") + ", not all whole,",
        false => counted(distinct, "distinct value"),
    }
}

/// Number of distinct numbers; none where the values are many, or no plain numbers.
fn distinct_numbers(column: &ColumnPreview) -> Option<u64> {
    count_numbers(column, |_| true)
}

/// The same of whole numbers; none if any has a fraction.
fn distinct_whole_numbers(column: &ColumnPreview) -> Option<u64> {
    count_numbers(column, |number| number.fract() == 0.0)
}

fn count_numbers(column: &ColumnPreview, fits: impl Fn(f64) -> bool) -> Option<u64> {
    let numeric = [ColumnType::Int64, ColumnType::Float64];
    column.column_type.filter(|found| numeric.contains(found))?;
    let texts = column.value_counts.as_ref()?.keys();
    let numbers: Option<BTreeSet<String>> = texts
        .map(|text| {
            let number: f64 = text.parse().ok()?;
            // The sum makes 0 of -0.
            fits(number).then(|| (number + 0.0).to_string())
        })
        .collect();
    numbers
        .filter(|numbers| !numbers.is_empty())
        .map(|numbers| numbers.len() as u64)
}

#[cfg(test)]
mod tests;
