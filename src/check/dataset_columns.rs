//! Columns of the dataset and its expectations, as far as they are known before a run.

use std::collections::BTreeMap;

use feedline_ingest::SourcePreview;
use feedline_preprocess::{CheckedDataset, Context, Error};
use feedline_schemas::{
    config::PipelineConfig,
    ids::Name,
    record::{Column, ColumnType},
};

use super::{checked_source::CheckedSource, indicator_names::shared_indicator_name};

/// A checked dataset, and the problems of its settings.
#[derive(Debug, Default)]
pub(super) struct DatasetFindings {
    /// None if its columns do not resolve.
    pub(super) dataset: Option<CheckedDataset>,
    /// Keys and reasons.
    pub(super) problems: Vec<(String, String)>,
}

/// Returns true if the root may be read. The log of a landed source is a file of the root.
pub(super) fn is_root_reached(context: &Context, is_offline: bool) -> bool {
    !is_offline || context.root.local_path().is_some()
}

/// Checks `[dataset]` with the columns that landed or were seen, and its file of expectations.
///
/// # Errors
/// Errors of the store.
pub(super) async fn check_dataset(
    config: &PipelineConfig,
    context: &Context,
    columns: &BTreeMap<Name, Vec<Column>>,
    sources: &[CheckedSource],
    is_offline: bool,
) -> Result<DatasetFindings, Error> {
    let mut found = DatasetFindings::default();
    let is_reached = is_root_reached(context, is_offline);
    match resolve_columns(config, context, columns, sources, is_reached).await {
        Ok(dataset) => {
            let both = config.dataset.as_ref().zip(dataset.as_ref());
            let shared =
                both.and_then(|(settings, dataset)| shared_indicator_name(settings, dataset));
            found.problems.extend(shared);
            found.dataset = dataset;
        }
        Err(Error::Config { key, reason }) => found.problems.push((key, reason)),
        Err(error) => return Err(error),
    }
    match feedline_preprocess::check_expectations(config, context, is_offline).await {
        Ok(()) => {}
        Err(Error::Config { key, reason }) => found.problems.push((key, reason)),
        Err(error) => return Err(error),
    }
    Ok(found)
}

/// Resolves the columns of the dataset among those that landed or were seen.
async fn resolve_columns(
    config: &PipelineConfig,
    context: &Context,
    columns: &BTreeMap<Name, Vec<Column>>,
    sources: &[CheckedSource],
    is_reached: bool,
) -> Result<Option<CheckedDataset>, Error> {
    if !is_reached {
        feedline_preprocess::check(config)?;
        return Ok(not_reached(config));
    }
    let resolved = feedline_preprocess::check_columns(config, context, columns).await;
    let mut sources = sources.iter();
    match (resolved, sources.find(|source| source.is_without_columns())) {
        // A column is missed where no row has shown any.
        (Err(Error::Config { .. }), Some(source)) => {
            feedline_preprocess::check(config).map(|()| not_seen(config, &source.name))
        }
        (resolved, _) => resolved,
    }
}

/// Columns of the sources that could be read.
pub(super) fn seen_columns(
    config: &PipelineConfig,
    previews: &[SourcePreview],
) -> BTreeMap<Name, Vec<Column>> {
    let read = previews.iter().filter(|preview| preview.error.is_none());
    let named = read.filter_map(|preview| {
        let mut sources = config.source.iter();
        let source = sources.find(|source| source.name.as_str() == preview.source)?;
        let columns = (1..)
            .zip(&preview.columns)
            .map(|(field_id, column)| Column {
                field_id,
                name: column.name.clone(),
                r#type: column.column_type.unwrap_or(ColumnType::Null),
                whole: false,
            });
        Some((source.name.clone(), columns.collect()))
    });
    named.collect()
}

/// Result for a dataset whose root is not on this machine: only its settings are checked.
fn not_reached(config: &PipelineConfig) -> Option<CheckedDataset> {
    config.dataset.as_ref()?;
    Some(CheckedDataset {
        unchecked: Some(
            "columns are not checked: `pipeline.root` is in an object store, and `--offline` sends no request"
                .to_owned(),
        ),
        ..CheckedDataset::default()
    })
}

/// Result for a dataset with a source that has shown no columns.
fn not_seen(config: &PipelineConfig, source: &str) -> Option<CheckedDataset> {
    config.dataset.as_ref()?;
    Some(CheckedDataset {
        unchecked: Some(format!(
            "columns are not checked: no usable row of `{source}` was seen, and a run may find some"
        )),
        ..CheckedDataset::default()
    })
}
