//! `feedline export`: landed rows or the dataset as files of other tools.

use feedline_preprocess::{Engine, ExportRequest, ExportSelection};
use feedline_schemas::{config::ConfigError, ids::TableName};

use super::{tools::Tools, work::PipelineWork};
use crate::{
    cli::{CompressionName, Export, ExportName},
    exit::Outcome,
};

/// Column of documents, unless the configuration names one.
const TEXT: &str = "text";

/// Exports rows and prints the report.
pub(super) async fn export_rows(options: &Export, tools: &Tools) -> anyhow::Result<Outcome> {
    let work = PipelineWork::load(&options.pipeline, tools)?;
    let compress = match options.compression {
        Some(CompressionName::Zstd) if options.format == ExportName::Webdataset => {
            let reason =
                "`zstd` is not for WebDataset, whose readers know no zstd; remove the option";
            return Err(work.loaded.error("--compression", reason).into());
        }
        other => other.map(|name| name == CompressionName::Zstd),
    };
    let config = &work.loaded.config;
    let selection = work.selection(options)?;
    let consequence = "the exported rows are those of the existing dataset";
    let changed = match &selection {
        ExportSelection::Dataset => work.built_dataset_warning(consequence).await,
        ExportSelection::Landed { .. } => None,
    };
    let configured = config
        .dataset
        .as_ref()
        .and_then(|d| d.text_column.as_deref());
    let request = ExportRequest {
        pipeline: &config.pipeline.name,
        selection,
        format: options.format.into(),
        rows_per_file: options.rows_per_file,
        max_bytes: options.max_bytes,
        compress,
        text_column: Some(configured.unwrap_or(TEXT)),
        overwrite: options.overwrite,
        run: work.run_id(),
    };
    let target = tools.open(&options.to)?;
    let context = work.preprocessing(Engine::Local);
    let export = feedline_preprocess::export(request, &target, &context);
    let report = tools.stop.unless_stopped(Box::pin(export)).await?;
    let mut report = report.map_err(|e| work.preprocess_error(e))?;
    report.warnings.extend(changed);
    tools.print(&report, work.json)?;
    Ok(Outcome::Done)
}

impl PipelineWork<'_> {
    /// Rows that the options name, or that the pipeline has alone.
    fn selection(&self, options: &Export) -> Result<ExportSelection<'_>, ConfigError> {
        let config = &self.loaded.config;
        let of_source = |name: TableName| {
            let known = self.source(name.source.as_str())?;
            let source = config.source.iter().find(|source| source.name == known);
            let source = source.ok_or_else(|| self.loaded.error("source", "it does not exist"))?;
            Ok(ExportSelection::Landed {
                source,
                table: name.table,
                all_versions: options.all_versions,
            })
        };
        match (&options.source, &config.source[..]) {
            _ if options.dataset && config.dataset.is_none() => {
                let reason =
                    "the pipeline has no `[dataset]`; add one, or export a source with `--source`";
                Err(self.loaded.error("dataset", reason))
            }
            (Some(text), _) => {
                let name = TableName::new(text);
                of_source(name.map_err(|reason| self.loaded.error("source", reason))?)
            }
            (None, _) if options.dataset => Ok(ExportSelection::Dataset),
            (None, _) if config.dataset.is_some() && !options.all_versions => {
                Ok(ExportSelection::Dataset)
            }
            (None, [source]) => of_source(TableName::from(source.name.clone())),
            (None, sources) => {
                let names: Vec<&str> = sources.iter().map(|s| s.name.as_str()).collect();
                let reason = format!(
                    "the pipeline has {} sources; name one with `--source`: {}",
                    names.len(),
                    names.join(", ")
                );
                Err(self.loaded.error("source", reason))
            }
        }
    }
}
