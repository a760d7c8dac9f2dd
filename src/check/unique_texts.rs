//! Features that a build leaves out because nearly each row has another text.

use feedline_ingest::{ColumnPreview, SourcePreview};
use feedline_preprocess::CheckedDataset;
use feedline_schemas::{
    config::DatasetConfig,
    report::{WarnedColumn, Warning},
};

use super::checked_source::CheckedSource;

/// Most columns that a message names.
const NAMED: usize = 5;
/// Training rows above which a build takes such texts for no categories.
const FEW_ROWS: f64 = 16.0;
/// Training rows above which it does so for any choice of the rows.
const ENOUGH_ROWS: f64 = 50.0;
/// Least fraction of training rows whose texts are like those of all rows.
const MOST_ROWS: f64 = 0.6;
/// Number of distinct texts in the training rows that a build refuses.
const MANY_TEXTS: u64 = 2_000;

/// Reports that no feature is left in a build of the rows of the only source: as an error where they
/// were all looked at, and otherwise as a warning.
pub(super) fn judge_unique_texts(
    settings: &DatasetConfig,
    dataset: &CheckedDataset,
    preview: &SourcePreview,
    source: &mut CheckedSource,
) {
    let is_of_texts = settings.kind.is_rows()
        && settings.features.is_empty()
        && dataset.numeric.is_empty()
        && !dataset.categorical.is_empty();
    let train = settings.split.train;
    let train_rows = preview.rows as f64 * train;
    if !is_of_texts || source.error.is_some() || train_rows <= FEW_ROWS {
        return;
    }
    let is_left_out = |name: &String| {
        let mut columns = preview.columns.iter();
        let column = columns.find(|column| column.name == *name);
        !is_listed(settings, name) && column.is_some_and(|column| is_unique(column, preview.rows))
    };
    if !dataset.categorical.iter().all(is_left_out) {
        return;
    }
    let names = dataset.categorical.iter().take(NAMED);
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    let message = format!(
        "a build leaves out columns with a text or a time of its own in nearly each row, and no other feature is left: {}; list one \
         in `dataset.categorical`, or set `dataset.kind` for images or documents",
        names.join(", ")
    );
    let is_all = preview.is_all && preview.landed == 0;
    let is_certain = !settings.split.by.is_named() && train >= MOST_ROWS;
    if is_all && is_certain && train_rows >= ENOUGH_ROWS {
        source.error = Some(message);
    } else {
        let columns = dataset.categorical.iter();
        let columns = columns.map(|name| WarnedColumn::new(name)).collect();
        let warning = Warning::new("no_feature_left", message).with_key("dataset.categorical");
        source.warnings.push(warning.with_columns(columns));
    }
}

/// Returns true if a key makes the column a category, or a number.
fn is_listed(settings: &DatasetConfig, name: &str) -> bool {
    let steps = settings.step.iter().flatten();
    let listed = steps.flat_map(|step| step.columns.iter().chain(step.by()));
    let mut listed = listed.chain(&settings.categorical);
    listed.any(|listed| listed == name)
}

/// Returns true if nearly each of `rows` rows has another value, or if there are many values.
fn is_unique(column: &ColumnPreview, rows: u64) -> bool {
    let is_own = column.distinct * 10 >= column.compared * 9 && column.missing * 4 <= rows;
    is_own || column.distinct >= MANY_TEXTS
}
