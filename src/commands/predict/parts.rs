//! `feedline predict` for rows that have an image, a text or both beside their numbers.

use anyhow::Context as _;
use feedline_schemas::{ids::Name, manifest::Manifest};
use feedline_trainer::Use;

use crate::{
    cli,
    commands::work::PipelineWork,
    exit::Outcome,
    predict::{
        self, Output,
        multi::{self, PredictParts},
    },
};

impl PipelineWork<'_> {
    /// Predicts rows that have an image, a text or both beside their numbers.
    pub(super) async fn predict_parts(
        &self,
        options: &cli::Predict,
        manifest: &Manifest,
    ) -> anyhow::Result<Outcome> {
        anyhow::ensure!(
            options.history.is_none(),
            "`--history` is for series, and the rows have images or texts; remove it"
        );
        let config = &self.loaded.config;
        let dataset = config.dataset.as_ref().context("there is a dataset")?;
        let (train, context) = self.training()?;
        let choice = options.run.choice();
        let chosen = self.choose(&choice, Use::NewRows, &train, &context).await?;
        let column = multi::image_column(options, dataset);
        let images = match column {
            Some(column) => {
                self.check_built_by(manifest).await?;
                let folder = multi::image_folder(options)?;
                let background = chosen.transform().image_background();
                let files = multi::ImageFiles::new(folder, dataset, background)?;
                Some((column, files))
            }
            None => None,
        };
        let encoder = match &chosen.transform().tokens {
            Some(_) => {
                let store = self.dataset()?;
                let encoder = self.text_encoder(&chosen, &context, manifest, &store);
                Some(encoder.await?)
            }
            None => None,
        };
        let landed = self.types_of_rows(manifest).await?;
        let is_table = |name: &Name| multi::is_table(config, name);
        let mut reading = predict::reading_as(options, config, landed, is_table)?;
        self.plan_joins(&mut reading, manifest, chosen.transform())
            .await?;
        let predict = PredictParts {
            rows: options.rows.clone().unwrap_or_else(|| "-".to_owned()),
            reading,
            expected: self.expected_inputs(chosen.transform()).await,
            transform: feedline_preprocess::Transform::new(chosen.transform().clone())?,
            encoder,
            images,
            chosen,
            context,
            output: Output::of(options.to.as_deref(), options.escape_formulas)?,
            flags: options.flags,
            stop: self.tools.stop.clone(),
        };
        let report = tokio::task::spawn_blocking(move || predict.run()).await?;
        self.finish_predict(options, report)
    }
}
