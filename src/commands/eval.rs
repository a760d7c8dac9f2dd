//! `feedline eval`: a trained model on a split.

use std::path::Path;

use feedline_preprocess::PassthroughRows;
use feedline_schemas::manifest::{Manifest, Split};
use feedline_storage::Store;
use feedline_trainer::Use;

use super::{own_dataset::leave_out_relation, tools::Tools, work::PipelineWork};
use crate::{
    cli::EvalOptions,
    exit::Outcome,
    predict::{Output, split::SplitColumns},
};

/// Evaluates, and writes the predictions of all rows to the requested file.
pub(super) async fn evaluate_run(options: EvalOptions, tools: &Tools) -> anyhow::Result<Outcome> {
    let work = PipelineWork::load(&options.pipeline, tools)?;
    let split: Split = options.split.into();
    let (config, mut context) = work.training()?;
    if let Some(url) = &options.dataset {
        context.dataset = tools.open(url)?;
    }
    let choice = options.run.choice();
    let chosen = work.choose(&choice, Use::Shards, &config, &context).await?;
    let written = match &options.predictions {
        Some(file) => Some(work.prediction_file(file, split, &context.dataset).await?),
        None => None,
    };
    let runtime = tokio::runtime::Handle::current();
    let evaluate = move || match written {
        Some((columns, kept, output)) => {
            columns.evaluate(&chosen, (split, kept), &context, output, &runtime)
        }
        None => Ok(feedline_trainer::evaluate_run(
            &chosen, None, split, &context,
        )?),
    };
    let changed = match options.dataset {
        None => work.dataset_warning().await,
        Some(_) => None,
    };
    let report = tokio::task::spawn_blocking(evaluate).await?;
    let mut report = report.map_err(|error| work.stage_error(error))?;
    if let Some(used) = report.run.as_mut().filter(|_| changed.is_some()) {
        leave_out_relation(used);
    }
    report.warnings.extend(changed);
    tools.print(&report, work.json)?;
    let behind = work.check_baseline(&report.warnings);
    Ok(behind.unwrap_or(Outcome::Done))
}

impl PipelineWork<'_> {
    /// Prepares the file of the predictions of `split`: its columns and the passthrough columns.
    async fn prediction_file(
        &self,
        file: &Path,
        split: Split,
        dataset: &Store,
    ) -> anyhow::Result<(SplitColumns, Option<PassthroughRows>, Output)> {
        let manifest = feedline_preprocess::read_manifest(dataset).await?;
        let artefact = feedline_preprocess::read_transform(dataset, &manifest).await?;
        let columns = SplitColumns::new(&manifest, &artefact);
        let kept = PassthroughRows::of(dataset, &manifest, split);
        self.warn_of_unnamed_windows(&manifest);
        Ok((columns, kept, Output::of(Some(file), false)?))
    }

    /// Warns if the columns of a file of window predictions identify neither entity nor time.
    fn warn_of_unnamed_windows(&self, manifest: &Manifest) {
        let dataset = self.loaded.config.dataset.as_ref();
        let Some(series) = dataset.and_then(|dataset| dataset.series.as_ref()) else {
            return;
        };
        let is_kept = |name: &&String| manifest.kept.iter().any(|kept| kept.name == **name);
        let wanted = series.entity.iter().chain([&series.time]);
        let missing: Vec<String> = wanted
            .filter(|name| !is_kept(name))
            .map(|name| format!("\"{name}\""))
            .collect();
        if manifest.counts.sequence.is_some() && !missing.is_empty() {
            tracing::warn!(
                missing = missing.join(", "),
                "the file names windows by the row of their target, without entity or time, which the shards do not keep; to have \
                 them, list these columns in `dataset.passthrough` and build again"
            );
        }
    }
}
