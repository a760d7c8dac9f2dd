//! `feedline predict`: the kind of the rows, and the prediction of plain rows of a table.

mod expectations;
mod images;
mod joins;
mod parts;
mod series;
mod texts;

use std::{collections::BTreeMap, path::Path};

use feedline_preprocess::Engine;
use feedline_schemas::{
    config::DatasetKind, manifest::Manifest, record::ColumnType, report::PredictReport,
    transform::TransformArtefact,
};
use feedline_trainer::{ChosenRun, Use};

use super::{own_dataset::leave_out_relation, tools::Tools, work::PipelineWork};
use crate::{
    cli,
    exit::Outcome,
    output,
    predict::{self, Predict},
};

/// The chosen run and the context to use its model.
type RunModel = (ChosenRun, feedline_trainer::Context);

/// Predicts new rows as the kind of the dataset needs.
pub(super) async fn predict_rows(options: &cli::Predict, tools: &Tools) -> anyhow::Result<Outcome> {
    check_output(options)?;
    let mut work = PipelineWork::load(&options.pipeline, tools)?;
    let dataset = work.dataset()?;
    let changed = work.dataset_warning().await;
    work.changed = changed;
    let manifest = feedline_preprocess::read_manifest(&dataset).await?;
    let artefact = feedline_preprocess::read_transform(&dataset, &manifest).await?;
    let kind = work
        .loaded
        .config
        .dataset
        .as_ref()
        .map(|config| config.kind);
    let is_multi = kind == Some(DatasetKind::Multi);
    anyhow::ensure!(
        is_multi || (options.images.is_none() && options.image_column.is_none()),
        "`--images` and `--image-column` are for rows with an image beside their numbers (`dataset.kind = \"multi\"`); \
         leave them out"
    );
    if !options.transform_only && kind == Some(DatasetKind::Images) {
        return Box::pin(work.predict_images(options, &manifest)).await;
    }
    if kind.is_some_and(|kind| kind.is_text()) {
        return Box::pin(work.predict_texts(options, &manifest)).await;
    }
    if is_multi && !options.transform_only {
        return Box::pin(work.predict_parts(options, &manifest)).await;
    }
    work.predict_table(options, &manifest, artefact).await
}

/// Checks that the predictions do not replace their own input.
///
/// # Errors
/// `--to` is the file of the new rows or of the rows before them.
fn check_output(options: &cli::Predict) -> anyhow::Result<()> {
    let Some(to) = options.to.as_ref().and_then(|to| to.canonicalize().ok()) else {
        return Ok(());
    };
    let inputs = [options.rows.as_deref(), options.history.as_deref()];
    for input in inputs.into_iter().flatten() {
        anyhow::ensure!(
            Path::new(input).canonicalize().ok().as_ref() != Some(&to),
            "`--to` is the input `{input}`, which the predictions would replace; give another file"
        );
    }
    Ok(())
}

impl PipelineWork<'_> {
    /// Predicts rows of a table, by their series if their features need earlier rows.
    async fn predict_table(
        &self,
        options: &cli::Predict,
        manifest: &Manifest,
        mut artefact: TransformArtefact,
    ) -> anyhow::Result<Outcome> {
        let needs_past = self.needs_earlier_rows(manifest, &artefact);
        let model = match options.transform_only {
            true => None,
            false => {
                // Past rows come from the dataset, so the run must fit it.
                let used_on = match needs_past {
                    true => Use::PreparedRows,
                    false => Use::NewRows,
                };
                let (config, context) = self.training()?;
                let choice = options.run.choice();
                let chosen = self.choose(&choice, used_on, &config, &context).await?;
                artefact = chosen.transform().clone();
                Some((chosen, context))
            }
        };
        if needs_past || options.history.is_some() {
            return Box::pin(self.predict_series(options, model, manifest, artefact)).await;
        }
        self.predict_alone(options, model, manifest, artefact).await
    }

    /// Returns true if features or windows are made of earlier rows.
    fn needs_earlier_rows(&self, manifest: &Manifest, artefact: &TransformArtefact) -> bool {
        let dataset = self.loaded.config.dataset.iter();
        let mut features = dataset.flat_map(|dataset| &dataset.feature);
        manifest.counts.sequence.is_some()
            || features.any(|feature| artefact.inputs.iter().any(|i| i.name == feature.name))
    }

    /// Predicts rows that need no other rows.
    async fn predict_alone(
        &self,
        options: &cli::Predict,
        model: Option<RunModel>,
        manifest: &Manifest,
        artefact: TransformArtefact,
    ) -> anyhow::Result<Outcome> {
        let landed = self.types_of_rows(manifest).await?;
        let mut reading = predict::reading(options, &self.loaded.config, landed)?;
        self.plan_joins(&mut reading, manifest, &artefact).await?;
        let predict = Predict {
            rows: options.rows.clone().unwrap_or_else(|| "-".to_owned()),
            reading,
            expected: self.expected_inputs(&artefact).await,
            to: options.to.clone(),
            escapes_formulas: options.escape_formulas,
            flags: options.flags,
            transform: feedline_preprocess::Transform::new(artefact)?,
            model,
            stop: self.tools.stop.clone(),
        };
        let report = tokio::task::spawn_blocking(move || predict.run()).await?;
        self.finish_predict(options, report)
    }

    /// Types of the columns that new rows have, as far as they are known: those of the result of the
    /// query, else of what has landed.
    async fn types_of_rows(
        &self,
        manifest: &Manifest,
    ) -> anyhow::Result<BTreeMap<String, ColumnType>> {
        let config = &self.loaded.config;
        Ok(match &config.dataset {
            Some(dataset) if dataset.sql.is_some() => {
                let context = self.preprocessing(Engine::Local);
                Box::pin(feedline_preprocess::query_types(config, manifest, &context)).await
            }
            // The rows came from files, whose types are unknown.
            Some(dataset) if dataset.files.is_some() => BTreeMap::new(),
            _ => feedline_preprocess::landed_types(&self.root, manifest).await?,
        })
    }

    /// Prints the report of predictions.
    fn finish_predict(
        &self,
        options: &cli::Predict,
        report: anyhow::Result<PredictReport>,
    ) -> anyhow::Result<Outcome> {
        let mut report = report.map_err(|error| self.stage_error(error))?;
        if let Some(changed) = &self.changed {
            report.warnings.push(changed.clone());
            if let Some(used) = &mut report.used {
                leave_out_relation(used);
            }
        }
        if let Some(capped) = predict::mostly_capped(&report, self.loaded.config.dataset.as_ref()) {
            tracing::warn!("{}", capped.message);
            report.warnings.push(capped);
        }
        self.tools.clear_bars();
        match options.to {
            Some(_) => output::print(&report, self.json)?,
            None => output::print_aside(&report, self.json)?,
        }
        let dates = predict::dates_of_rows(&self.loaded.config);
        predict::check_any_predicted(&report, options, &dates)?;
        Ok(options.rejects.outcome(report.rejected))
    }
}
