//! `feedline predict` for texts.

use feedline_schemas::manifest::Manifest;

use crate::{
    cli,
    commands::{model::TextRun, work::PipelineWork},
    exit::Outcome,
    predict::{
        self, Output,
        texts::{PredictTexts, TextSource},
    },
};

impl PipelineWork<'_> {
    /// Scores texts with the vocabulary of the run and its language model.
    pub(super) async fn predict_texts(
        &self,
        options: &cli::Predict,
        manifest: &Manifest,
    ) -> anyhow::Result<Outcome> {
        check_options(options)?;
        let dataset = self.dataset()?;
        let TextRun {
            chosen,
            context,
            encoder,
        } = self.text_run(&options.run, manifest, &dataset).await?;
        let landed = self.types_of_rows(manifest).await?;
        let reading = predict::reading(options, &self.loaded.config, landed)?;
        let place = options.rows.as_deref().unwrap_or("-");
        let source = TextSource::open(place, &reading, encoder.column(), &self.loaded.config)?;
        let predict = PredictTexts {
            kept: source.kept(&reading),
            source,
            encoder,
            chosen,
            context,
            output: Output::of(options.to.as_deref(), options.escape_formulas)?,
            stop: self.tools.stop.clone(),
        };
        let report = tokio::task::spawn_blocking(move || predict.run()).await?;
        self.finish_predict(options, report)
    }
}

/// Refuses options that are for rows of a table.
fn check_options(options: &cli::Predict) -> anyhow::Result<()> {
    anyhow::ensure!(
        options.history.is_none(),
        "`--history` is for series, and the model reads texts; remove it"
    );
    anyhow::ensure!(
        !options.flags,
        "`--flags` is for rows of features, and the model reads texts; remove it"
    );
    anyhow::ensure!(
        !options.transform_only,
        "`--transform-only` writes the features of rows, and texts have none: the model reads their token ids; remove it"
    );
    Ok(())
}
