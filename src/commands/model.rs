//! Choice of the run whose model a command uses, and the text encoder of a language model.

use feedline_preprocess::TextEncoder;
use feedline_schemas::{config::TrainConfig, manifest::Manifest};
use feedline_storage::Store;
use feedline_trainer::{Choice, ChosenRun, Use};

use super::work::PipelineWork;
use crate::cli::RunOption;

/// A run of texts, and the encoder of its vocabulary.
pub(super) struct TextRun {
    pub(super) chosen: ChosenRun,
    pub(super) context: feedline_trainer::Context,
    pub(super) encoder: TextEncoder,
}

impl PipelineWork<'_> {
    /// Chooses the run whose model is used.
    pub(super) async fn choose(
        &self,
        choice: &Choice,
        used_on: Use,
        config: &TrainConfig,
        context: &feedline_trainer::Context,
    ) -> anyhow::Result<ChosenRun> {
        let (choice, config, context) = (choice.clone(), config.clone(), context.clone());
        let choose =
            move || feedline_trainer::choose(&config, &choice, used_on, &context).map_err(Box::new);
        let chosen = tokio::task::spawn_blocking(choose).await?;
        chosen.map_err(|error| self.trainer_error(*error))
    }

    /// Creates the text encoder for the model of a run.
    pub(super) async fn text_encoder(
        &self,
        chosen: &ChosenRun,
        context: &feedline_trainer::Context,
        manifest: &Manifest,
        dataset: &Store,
    ) -> anyhow::Result<TextEncoder> {
        let (run, runs) = (chosen.clone(), context.clone());
        let tokenizer = tokio::task::spawn_blocking(move || run.tokenizer(&runs).map_err(Box::new));
        let tokenizer = tokenizer
            .await?
            .map_err(|error| self.trainer_error(*error))?;
        let encoder = TextEncoder::open(chosen.transform(), tokenizer, manifest, dataset).await;
        encoder.map_err(|e| self.preprocess_error(e))
    }

    /// Chooses a run whose model reads texts as the dataset prepares them.
    pub(super) async fn text_run(
        &self,
        run: &RunOption,
        manifest: &Manifest,
        dataset: &Store,
    ) -> anyhow::Result<TextRun> {
        let (config, context) = self.training()?;
        let choice = run.choice();
        let chosen = self
            .choose(&choice, Use::NewRows, &config, &context)
            .await?;
        if !chosen.has_columns_of(manifest) {
            let reason = format!(
                "run `{}` was trained on texts that were prepared by other settings than those of the dataset, so its model would \
                 read other texts; choose another run with `--run`, or build the dataset by the settings of the run",
                chosen.used().name
            );
            return Err(self.loaded.error("dataset.text", reason).into());
        }
        let encoder = self.text_encoder(&chosen, &context, manifest, dataset);
        let encoder = encoder.await?;
        Ok(TextRun {
            chosen,
            context,
            encoder,
        })
    }
}
