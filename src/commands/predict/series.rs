//! `feedline predict` for rows whose features are computed from earlier rows, and for windows.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::IsTerminal as _,
    path::Path,
    sync::Arc,
};

use anyhow::Context as _;
use feedline_preprocess::{Engine, SeriesRequest, SeriesRows, Transform};
use feedline_schemas::{
    count::counted,
    manifest::Manifest,
    record::{ColumnType, RecordSchema},
    report::{PredictReport, SourceReport, Warning},
    transform::TransformArtefact,
};

use super::RunModel;
use crate::{
    cli,
    commands::work::PipelineWork,
    exit::Outcome,
    predict::{self, Answers, Output, series},
    stop::Stop,
};

impl PipelineWork<'_> {
    /// Predicts rows with features computed from earlier rows, or windows of rows.
    pub(super) async fn predict_series(
        &self,
        options: &cli::Predict,
        model: Option<RunModel>,
        manifest: &Manifest,
        artefact: TransformArtefact,
    ) -> anyhow::Result<Outcome> {
        let context = self.preprocessing(Engine::Local);
        let folder = series::Folder::create(&context.scratch)?;
        let mut report = PredictReport::default();
        let dataset = self.loaded.config.dataset.as_ref();
        let has_windows = dataset.is_some_and(|dataset| dataset.sequence.is_some());
        let file = file_of_rows(options, has_windows, std::io::stdin().is_terminal());
        let work = (folder.path(), &context);
        let (request, rejects) = self
            .land_series((options, file), manifest, work, &mut report)
            .await?;
        let transform = Arc::new(Transform::new(artefact)?);
        let opened = feedline_preprocess::series_rows(
            &self.loaded.config,
            manifest,
            Arc::clone(&transform),
            request,
            &context,
        );
        let rows = Box::pin(opened)
            .await
            .map_err(|e| self.preprocess_error(e))?;
        let output = Output::of(options.to.as_deref(), options.escape_formulas)?;
        report.transform = transform.artefact().hash.to_string();
        report.to = output.name();
        let features = dataset.into_iter().flat_map(|dataset| &dataset.feature);
        let prediction = SeriesPrediction {
            rows,
            rejects: file.is_some().then_some(rejects),
            features: features.map(|feature| feature.name.clone()).collect(),
            flags: options.flags,
            transform,
            model,
            output,
            stop: self.tools.stop.clone(),
        };
        let runtime = tokio::runtime::Handle::current();
        let predict = move || prediction.run(&runtime, report);
        let mut report = tokio::task::spawn_blocking(predict).await?;
        drop(folder);
        if let (Ok(report), Some(file)) = (&mut report, file)
            && report.rows + report.copies == 0
        {
            let message = format!("`{file}` has no rows, so nothing was predicted");
            report.warnings.push(Warning::new("no_rows", message));
        }
        self.finish_predict(options, report)
    }

    /// Lands the new rows of `file` and the earlier ones below `folder`. Returns the new rows that are
    /// rejected, too.
    async fn land_series(
        &self,
        (options, file): (&cli::Predict, Option<&str>),
        manifest: &Manifest,
        (folder, context): (&Path, &feedline_preprocess::Context),
        report: &mut PredictReport,
    ) -> anyhow::Result<(SeriesRequest, Vec<series::FileReject>)> {
        let config = &self.loaded.config;
        let landed = self.types_of_rows(manifest).await?;
        let mut request = SeriesRequest {
            keep: options.keep.clone(),
            ..SeriesRequest::default()
        };
        let mut rejects = Vec::new();
        if let Some(file) = file {
            if file == "-" {
                tracing::info!(
                    "rows of a series are predicted after the end of standard input, since a later row may belong before an \
                     earlier one; for predictions while rows arrive, run the command for each batch of them"
                );
            }
            let needed = self.needed_columns(options, context).await?;
            let format = options.format.map(Into::into);
            let landing = series::Landing::of(file, "rows", format, config, &landed, folder)?;
            let landing = landing.needing(&needed);
            let found = Box::pin(self.land_typed(landing, &landed)).await?;
            series::add_rejects(report, &found.report);
            if let Some(warning) = series::unneeded_cells_warning(&found.report, config, &needed) {
                tracing::warn!("{}", warning.message);
                report.warnings.push(warning);
            }
            rejects = found.rejects;
            request.rows = Some(found.rows);
        }
        if let Some(history) = &options.history {
            let landing = series::Landing::of(history, "history", None, config, &landed, folder)?;
            // A build would have these rows only if ingest landed them.
            let landing = landing.into_past(config);
            let found = Box::pin(self.land_typed(landing, &landed)).await?;
            report.rejected_before += found.report.rejected;
            if found.rows.is_empty {
                let warning = without_history(history, &found.report, file.is_some())?;
                tracing::warn!("{}", warning.message);
                report.warnings.push(warning);
            }
            request.history = Some(found.rows);
        }
        Ok((request, rejects))
    }

    /// Columns whose cells a row needs, with the passthrough columns of `options`.
    async fn needed_columns(
        &self,
        options: &cli::Predict,
        context: &feedline_preprocess::Context,
    ) -> anyhow::Result<BTreeSet<String>> {
        let config = &self.loaded.config;
        let found = feedline_preprocess::series_columns(config, &options.keep, context);
        Box::pin(found).await.map_err(|e| self.preprocess_error(e))
    }

    /// Lands the file of `landing` with the types of `landed`.
    async fn land_typed(
        &self,
        landing: series::Landing,
        landed: &BTreeMap<String, ColumnType>,
    ) -> anyhow::Result<series::LandedFile> {
        let trial = feedline_ingest::Context {
            is_trial: true,
            ..self.ingesting()
        };
        let report = self.land_in(&landing, trial).await?;
        let log = landing.log().await?;
        let retyped = match &log {
            Some(log) => landing.retyped(log, landed)?,
            None => None,
        };
        let Some((typed, columns)) = retyped else {
            let warnings = report.warnings.iter();
            for warning in warnings.filter(|warning| feedline_ingest::is_about_types(warning)) {
                tracing::warn!(file = %landing.file, "{}", warning.message);
            }
            return series::LandedFile::read(landing, report, log, landed).await;
        };
        Box::pin(self.land_columns(&typed, columns)).await?;
        let report = self.land(&typed).await?;
        let log = typed.log().await?;
        series::LandedFile::read(typed, report, log, landed).await
    }

    /// Lands `columns` without rows in the folder of `landing`.
    async fn land_columns(
        &self,
        landing: &series::Landing,
        columns: RecordSchema,
    ) -> anyhow::Result<()> {
        let Some(source) = landing.config.source.first() else {
            return Ok(());
        };
        let context = feedline_ingest::Context {
            root: landing.root.clone(),
            ..self.ingesting()
        };
        let landed = feedline_ingest::land_columns(source, columns, &context);
        let landed = Box::pin(landed).await;
        landed.with_context(|| format!("cannot read `{}`", landing.file))
    }

    /// Lands the file of `landing` in its folder.
    pub(super) async fn land(&self, landing: &series::Landing) -> anyhow::Result<SourceReport> {
        self.land_in(landing, self.ingesting()).await
    }

    /// Lands the file of `landing` in its folder, by the other components of `context`.
    async fn land_in(
        &self,
        landing: &series::Landing,
        context: feedline_ingest::Context,
    ) -> anyhow::Result<SourceReport> {
        let context = feedline_ingest::Context {
            root: landing.root.clone(),
            ..context
        };
        let ingest = feedline_ingest::ingest_all(&landing.config, None, &context);
        let end = Box::pin(ingest).await.map_err(anyhow::Error::from);
        let end = end.with_context(|| format!("cannot read `{}`", landing.file))?;
        if let Some(error) = end.error {
            return Err(
                anyhow::Error::from(error).context(format!("cannot read `{}`", landing.file))
            );
        }
        let found = end.report.sources.into_iter().next().unwrap_or_default();
        if let Some(error) = &found.error {
            anyhow::bail!("cannot read `{}`: {error}", landing.file);
        }
        Ok(found)
    }
}

/// File of the rows to predict, by default standard input (`-`). `None` for windows, which are forecast
/// without further rows, and where standard input is a terminal or the history.
fn file_of_rows(options: &cli::Predict, has_windows: bool, is_terminal: bool) -> Option<&str> {
    let is_history = options.history.as_deref() == Some("-");
    let has_input = !has_windows && !is_terminal && !is_history;
    options.rows.as_deref().or(has_input.then_some("-"))
}

/// Warning of a history without a usable row: new rows then have no earlier ones.
///
/// # Errors
/// Rows that are all rejected, and windows that end with the last rows of the history.
fn without_history(file: &str, found: &SourceReport, has_new: bool) -> anyhow::Result<Warning> {
    if found.rejected > 0 {
        let sample = found.reject_sample.as_deref().unwrap_or_default();
        anyhow::bail!(
            "no row of the history `{file}` can be used: {} rejected, the first one: {sample}; write its columns as those of \
             the pipeline's source",
            counted(found.rejected, "row")
        );
    }
    anyhow::ensure!(
        has_new,
        "the history `{file}` has no rows, so there is no window to forecast from; give a file with the last rows of each \
         entity, or remove `--history` to use the rows that have landed"
    );
    let message = format!(
        "the history `{file}` has no rows, so the new rows have no earlier rows but one another; remove `--history` to use \
         the rows that have landed"
    );
    Ok(Warning::new("no_rows", message))
}

/// Rows of series with what predicts and writes them.
struct SeriesPrediction {
    rows: SeriesRows,
    /// Rows of the file that are rejected; `None` without a file of rows.
    rejects: Option<Vec<series::FileReject>>,
    /// Names of the features that are made of earlier rows.
    features: Vec<String>,
    /// Adds a column of each row's anomalies.
    flags: bool,
    transform: Arc<Transform>,
    model: Option<RunModel>,
    output: Output,
    stop: Stop,
}

impl SeriesPrediction {
    /// Blocks; `runtime` reads the rows.
    fn run(
        self,
        runtime: &tokio::runtime::Handle,
        mut report: PredictReport,
    ) -> anyhow::Result<PredictReport> {
        let Self {
            rows,
            rejects,
            features,
            flags,
            transform,
            model,
            output,
            stop,
        } = self;
        let predictor = match &model {
            Some((chosen, context)) => {
                let numbers = rows.numbers();
                Some(predict::open_model(chosen, context, numbers, &mut report)?)
            }
            None => None,
        };
        if rejects.is_none() {
            report.ordered_by = rows.order().to_vec();
        }
        let kept_types = output.types_of(&rows.passthrough_types());
        let (texts, numbers) = series::further_names(&rows);
        let answers = Answers {
            predictor,
            names: series::window_names(&transform, &rows),
            transform,
            kept: rows.kept().into_iter().chain(texts).collect(),
            kept_types,
            numbers,
            predicted: None,
            flags,
        };
        let length = rows.window().map_or(1, |(length, _)| length);
        let rejects = rejects.as_deref();
        series::answer(
            rows,
            rejects,
            &answers,
            output,
            (&stop, runtime),
            &mut report,
        )?;
        let artefact = answers.transform.artefact();
        let imputed = series::imputed_features_warning(&report, artefact, &features, length);
        if let Some(warning) = imputed {
            tracing::warn!("{}", warning.message);
            report.warnings.push(warning);
        }
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn rows_come_from_standard_input_unless_windows_are_forecast() {
        let cases: [(&[&str], bool, bool, Option<&str>); 6] = [
            (&[], false, false, Some("-")),
            (&["--format", "csv"], false, false, Some("-")),
            (&[], true, false, None),
            (&[], false, true, None),
            (&["--history", "-"], false, false, None),
            (&["new.csv"], true, true, Some("new.csv")),
        ];
        for (more, has_windows, is_terminal, expected) in cases {
            let line = ["feedline", "predict", "p.toml"];
            let parsed = cli::Cli::try_parse_from(line.iter().chain(more)).unwrap();
            let cli::Command::Predict(options) = parsed.command else {
                panic!("{more:?}")
            };
            let file = file_of_rows(&options, has_windows, is_terminal);
            assert_eq!(file, expected, "{more:?}");
        }
    }
}
