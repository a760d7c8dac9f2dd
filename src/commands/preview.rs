//! `feedline preview`: the columns of sources as they would land.

use std::collections::BTreeMap;

use feedline_ingest::SourcePreview;
use feedline_schemas::{
    config::{DatasetConfig, PipelineConfig, Task},
    ids::Name,
    report::Warning,
};

use super::{tools::Tools, work::PipelineWork};
use crate::{
    check::warn_of_plain_secrets, cli::PreviewOptions, exit::Outcome, formatted_times,
    output::PreviewReport,
};

/// Previews sources, or a data file; the outcome is bad if one cannot be read.
pub(super) async fn preview_sources(
    options: PreviewOptions,
    tools: &Tools,
) -> anyhow::Result<Outcome> {
    let PreviewOptions {
        pipeline,
        source,
        rows,
    } = options;
    let is_pipeline = pipeline.file.extension().is_some_and(|end| end == "toml");
    let work = match is_pipeline {
        true => PipelineWork::load(&pipeline, tools)?,
        false => PipelineWork::of_table(&pipeline, tools)?,
    };
    work.has_sources()?;
    let only = work.only_source(source)?;
    let rows = rows.map_or(0, usize::from);
    // A data file has no landing zone.
    let context = match is_pipeline {
        true => work.ingesting(),
        false => work.inspecting(),
    };
    let config = &work.loaded.config;
    let mut plain = find_plain_secrets(config, only.as_ref());
    let previews = feedline_ingest::preview(config, only.as_ref(), rows, &context).await;
    let mut sources = previews.map_err(|e| work.ingest_error(e))?;
    if let Some(dataset) = &config.dataset {
        warn_of_large_integers(dataset, &mut sources);
    }
    for source in &mut sources {
        formatted_times::remove_warnings(config, &source.source, &mut source.warnings);
        source.warnings.extend(plain.remove(&source.source));
    }
    let is_bad = sources.iter().any(|source| source.error.is_some());
    tools.print(&PreviewReport { sources }, work.json)?;
    Ok(if is_bad { Outcome::Bad } else { Outcome::Done })
}

/// Logs the secrets in plain text of the sources that are read, or of the source `only`, before any
/// request. Returns the warnings by source.
fn find_plain_secrets(config: &PipelineConfig, only: Option<&Name>) -> BTreeMap<String, Warning> {
    let sources = config.source.iter();
    let sources = sources.filter(|source| only.is_none_or(|only| *only == source.name));
    let found = sources.filter_map(|source| {
        let warning = warn_of_plain_secrets(source, false)?;
        Some((source.name.to_string(), warning))
    });
    found.collect()
}

/// Warns of integers in numeric features and targets that no 64-bit float holds. The columns of a
/// query are not known before it runs.
fn warn_of_large_integers(dataset: &DatasetConfig, sources: &mut [SourcePreview]) {
    let has = |names: &[String], name: &str| names.iter().any(|own| own == name);
    let is_number = |name: &str| {
        if has(dataset.targets(), name) {
            return dataset.task != Task::Classification;
        }
        let is_feature = dataset.features.is_empty() || has(&dataset.features, name);
        is_feature && !has(&dataset.drop, name) && !has(&dataset.categorical, name)
    };
    if dataset.sql.is_none() && dataset.kind.is_rows() {
        for source in sources {
            let warning = source.warn_of_large_integers(is_number);
            source.warnings.extend(warning);
        }
    }
}
