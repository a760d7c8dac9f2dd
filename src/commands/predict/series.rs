//! `feedline predict` for rows whose features are computed from earlier rows, and for windows.

use std::{path::Path, sync::Arc};

use anyhow::Context as _;
use feedline_preprocess::{Engine, SeriesRequest, SeriesRows, Transform};
use feedline_schemas::{
    manifest::Manifest,
    report::{PredictReport, SourceReport},
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
        anyhow::ensure!(
            !options.flags,
            "`--flags` is for rows that need no rows before them, and features are computed from the past of each entity; remove it"
        );
        let context = self.preprocessing(Engine::Local);
        let folder = series::Folder::create(&context.scratch)?;
        let mut report = PredictReport::default();
        let request = self
            .land_series(options, manifest, folder.path(), &mut report)
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
        let prediction = SeriesPrediction {
            rows,
            transform,
            model,
            output,
            stop: self.tools.stop.clone(),
        };
        let runtime = tokio::runtime::Handle::current();
        let predict = move || prediction.run(&runtime, report);
        let report = tokio::task::spawn_blocking(predict).await?;
        drop(folder);
        self.finish_predict(options, report)
    }

    /// Lands the files of new and earlier rows below `folder`.
    async fn land_series(
        &self,
        options: &cli::Predict,
        manifest: &Manifest,
        folder: &Path,
        report: &mut PredictReport,
    ) -> anyhow::Result<SeriesRequest> {
        let landed = feedline_preprocess::landed_types(&self.root, manifest).await?;
        let config = &self.loaded.config;
        let mut request = SeriesRequest {
            keep: options.keep.clone(),
            ..SeriesRequest::default()
        };
        if let Some(file) = &options.rows {
            let format = options.format.map(Into::into);
            let landing = series::Landing::of(file, "rows", format, config, &landed, folder)?;
            series::add_rejects(report, &self.land(&landing).await?);
            request.rows = Some(landing.landed());
        }
        if let Some(file) = &options.history {
            let landing = series::Landing::of(file, "history", None, config, &landed, folder)?;
            report.rejected_before += self.land(&landing).await?.rejected;
            request.history = Some(landing.landed());
        }
        Ok(request)
    }

    /// Lands the file of `landing` in its folder.
    pub(super) async fn land(&self, landing: &series::Landing) -> anyhow::Result<SourceReport> {
        let context = feedline_ingest::Context {
            root: landing.root.clone(),
            ..self.ingesting()
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

/// Rows of series with what predicts and writes them.
struct SeriesPrediction {
    rows: SeriesRows,
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
            transform,
            model,
            output,
            stop,
        } = self;
        let predictor = match &model {
            Some((chosen, context)) => {
                let features = rows.numbers();
                Some(predict::open_model(chosen, context, features, &mut report)?)
            }
            None => None,
        };
        report.ordered_by = rows.order().to_vec();
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
            flags: false,
        };
        series::answer(rows, &answers, output, (&stop, runtime), &mut report)?;
        Ok(report)
    }
}
