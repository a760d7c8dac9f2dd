//! Rows that a check has looked at, as the build of the dataset would read them.

use feedline_ingest::{ColumnPreview, SourcePreview};
use feedline_preprocess::{
    CheckedDataset, MAX_REJECT_FRACTION, looks_like_index, looks_like_row_number,
};
use feedline_schemas::{
    config::{DatasetConfig, PipelineConfig, Task},
    ids::Name,
    report::{WarnedColumn, Warning},
    row_counter::{is_pandas_index, names_index},
};
use feedline_storage::Store;
use serde_json::Value;

use super::{
    checked_source::CheckedSource,
    few_rows::judge_few_rows,
    named_values::warn_of_named_values,
    series_times::{judge_series_times, warn_of_zone},
    stored_images::warn_of_stored_images,
    unique_texts::judge_unique_texts,
};
use crate::init::has_empty_header;

/// Rows that were looked at, and the dataset that is built of them.
#[derive(Debug)]
pub(super) struct RowsLookedAt<'a> {
    pub(super) config: &'a PipelineConfig,
    pub(super) dataset: &'a CheckedDataset,
    pub(super) settings: &'a DatasetConfig,
    pub(super) previews: &'a [SourcePreview],
}

impl RowsLookedAt<'_> {
    /// Adds warnings to the sources, and the reason that a build of their rows fails. Rows that have
    /// landed are below `root`.
    pub(super) async fn judge(&self, sources: &mut [CheckedSource], root: &Store) {
        self.warn_of_missing_targets(sources);
        self.warn_of_large_integers(sources);
        self.warn_of_row_numbers(sources);
        self.warn_of_versions_in_splits(sources);
        self.warn_of_zones(sources);
        warn_of_stored_images(self.settings, self.config, self.previews, sources);
        if !self.are_read_as_they_land() {
            return;
        }
        self.judge_build_rejects(sources);
        if let ([preview], [source], [named]) = (self.previews, sources, &self.config.source[..]) {
            judge_series_times(self.settings, preview, source, self.reject_limit());
            judge_unique_texts(self.settings, self.dataset, preview, source);
            let targets = &self.dataset.targets;
            let named_values =
                warn_of_named_values(self.settings, targets, preview, self.reject_limit());
            source.warnings.extend(named_values);
            judge_few_rows(self.settings, preview, (&named.name, source), root).await;
        }
    }

    /// Returns true for a numeric feature, and for a target that is no class.
    fn reads_as_number(&self, name: &str) -> bool {
        let has = |names: &[String]| names.iter().any(|own| own == name);
        let is_target = has(&self.dataset.targets) && self.settings.task != Task::Classification;
        is_target || has(&self.dataset.numeric)
    }

    /// Warns of integers in numeric features and targets that no 64-bit float holds.
    fn warn_of_large_integers(&self, sources: &mut [CheckedSource]) {
        for preview in self.previews {
            let mut sources = sources.iter_mut();
            if let Some(source) = sources.find(|source| source.name == preview.source) {
                let warning = preview.warn_of_large_integers(|name| self.reads_as_number(name));
                source.warnings.extend(warning);
            }
        }
    }

    /// Warns of numeric features by default that number the rows of each group, by the first rows of the dataset.
    fn warn_of_row_numbers(&self, sources: &mut [CheckedSource]) {
        let first = self.dataset.first_source.as_ref().map(Name::as_str);
        let mut previews = self.previews.iter();
        let preview = previews.find(|preview| Some(preview.source.as_str()) == first);
        let source = sources
            .iter_mut()
            .find(|source| Some(source.name.as_str()) == first);
        let (Some(preview), Some(source)) = (preview, source) else {
            return;
        };
        let by_default = &self.dataset.numeric_by_default;
        let columns = preview.columns.iter();
        let features =
            columns.filter(|column| column.numbers_rows && by_default.contains(&column.name));
        let names: Vec<&str> = features.map(|column| column.name.as_str()).collect();
        source.warnings.extend(looks_like_row_number(&names));
        let is_named = |column: &&ColumnPreview| {
            let is_index = column.has_rising_index && names_index(&column.name);
            let is_named = column.r#type == "int" && is_pandas_index(&column.name);
            (is_index || is_named) && !column.numbers_rows
        };
        let named = preview.columns.iter().filter(is_named);
        let named = named.filter(|column| by_default.contains(&column.name));
        let named: Vec<&str> = named.map(|column| column.name.as_str()).collect();
        source.warnings.extend(looks_like_index(&named));
        let unnamed = empty_header_index(preview, by_default);
        source.warnings.extend(unnamed);
    }

    /// Warns of a first source whose rows have newer versions, where the content of a row decides its split.
    fn warn_of_versions_in_splits(&self, sources: &mut [CheckedSource]) {
        let split = &self.settings.split;
        let fractions = [split.train, split.validation, split.test];
        let is_divided = fractions.iter().filter(|fraction| **fraction > 0.0).count() > 1;
        if !split.by.is_key() || !split.key.is_empty() || !is_divided {
            return;
        }
        let first = self.dataset.first_source.as_ref();
        let mut named = self.config.source.iter();
        let named = named.find(|source| Some(&source.name) == first && !source.key.is_empty());
        let mut sources = sources.iter_mut();
        let source = sources.find(|source| Some(source.name.as_str()) == first.map(Name::as_str));
        if let (Some(named), Some(source)) = (named, source) {
            let key = Value::from(named.key.clone());
            let message = format!(
                "the source has a `key`, and the content of a row decides its split: a newer version of a row can be in another split, \
                 and builds warn of such rows (`rows_changed_split`); `dataset.split.key = {key}` keeps all versions in one split"
            );
            let warning = Warning::new("versions_change_split", message);
            source.warnings.push(warning.with_key("dataset.split.key"));
        }
    }

    /// Warns of a zone of a series whose times land as instants, by the first rows of the dataset.
    fn warn_of_zones(&self, sources: &mut [CheckedSource]) {
        let first = self.dataset.first_source.as_ref();
        let mut named = self.config.source.iter();
        let named = named.find(|source| Some(&source.name) == first);
        let is_first = |name: &str| Some(name) == first.map(Name::as_str);
        let mut previews = self.previews.iter();
        let preview = previews.find(|preview| is_first(&preview.source));
        let source = sources.iter_mut().find(|source| is_first(&source.name));
        if let (Some(named), Some(preview), Some(source)) = (named, preview, source) {
            let warning = warn_of_zone(self.settings, named, preview);
            source.warnings.extend(warning);
        }
    }

    /// Reports more rejects of a build than `dataset.max_reject_fraction` allows as errors: rows
    /// without a target where all rows were looked at, and integers beyond 2^53 also where every row
    /// has one.
    fn judge_build_rejects(&self, sources: &mut [CheckedSource]) {
        let limit = self.reject_limit();
        for source in sources.iter_mut().filter(|source| source.error.is_none()) {
            let mut previews = self.previews.iter();
            let Some(preview) = previews.find(|seen| seen.source == source.name) else {
                continue;
            };
            let rows = preview.rows;
            let large = preview.rows_with_large_integers(|name| self.reads_as_number(name));
            let targets = preview
                .columns
                .iter()
                .filter(|column| self.dataset.targets.contains(&column.name));
            let without = targets
                .map(|column| column.missing)
                .max()
                .unwrap_or_default();
            let faults = [
                (large, large == rows, "an integer beyond 2^53"),
                (without, false, "no target"),
            ];
            let fault = faults.into_iter().find(|(rejected, is_every, _)| {
                (preview.is_all || *is_every) && *rejected as f64 > limit * rows as f64
            });
            source.error = fault.map(|(rejected, _, fault)| {
                format!(
                    "{rejected} of {rows} rows looked at have {fault}, and a build rejects them: more than \
                     `dataset.max_reject_fraction` = {limit} allows"
                )
            });
        }
    }

    /// Returns true if the dataset has the rows of the only source, each of them as it lands.
    fn are_read_as_they_land(&self) -> bool {
        let [source] = self.config.source.as_slice() else {
            return false;
        };
        let mut tables = self.settings.sources.iter();
        source.key.is_empty()
            && self.settings.sql.is_none()
            && self.settings.join.is_empty()
            && tables.all(|table| table.to_string() == source.name.as_str())
    }

    /// Warns where more rows have no target than may be rejected, by the rows looked at.
    fn warn_of_missing_targets(&self, sources: &mut [CheckedSource]) {
        let limit = self.reject_limit();
        for source in sources {
            let mut previews = self.previews.iter();
            let preview = previews.find(|seen| seen.source == source.name);
            for target in &self.dataset.targets {
                let mut columns = preview.iter().flat_map(|preview| &preview.columns);
                let column = columns.rfind(|column| column.name == *target);
                let Some((without, rows)) = column.map(|column| (column.missing, source.rows))
                else {
                    continue;
                };
                if without as f64 <= limit * rows as f64 {
                    continue;
                }
                let message = format!(
                    "target `{target}` is missing in {without} of {rows} rows looked at; such rows are rejected, and more than {limit} \
                     of all stop the build"
                );
                let warning = Warning::new("target_missing", message)
                    .with_key("dataset.max_reject_fraction")
                    .with_columns(vec![WarnedColumn::new(target)]);
                source.warnings.push(warning);
            }
        }
    }

    /// Fraction of the rows that a build may reject.
    fn reject_limit(&self) -> f64 {
        let limit = self.settings.max_reject_fraction;
        limit.map_or(MAX_REJECT_FRACTION, |limit| limit.get())
    }
}

/// Warns of a first column with an empty header that has the numbers of an index, if it is a feature `by_default`.
fn empty_header_index(preview: &SourcePreview, by_default: &[String]) -> Option<Warning> {
    let column = preview.columns.first()?;
    let is_unique = column.compared > 1 && column.distinct == column.compared;
    let is_index = is_unique || column.restarts_index || column.has_rising_index;
    let is_new = is_index && !column.numbers_rows && by_default.contains(&column.name);
    if !is_new || !has_empty_header(&column.name, preview) {
        return None;
    }
    let numbers = if is_unique {
        "another number in each row looked at"
    } else if column.restarts_index {
        "numbers that count up by one and begin again, as in each file"
    } else {
        "numbers that rise from row to row and begin again, as in each file"
    };
    let message = format!(
        "`{}` has an empty header and {numbers}, as the index that pandas writes, and is a feature; leave it out with \
         `dataset.drop`, or list it in `dataset.features` if it is a quantity",
        column.name
    );
    let warning = Warning::new("looks_like_row_number", message).with_key("dataset.drop");
    Some(warning.with_columns(vec![WarnedColumn::new(&column.name)]))
}
