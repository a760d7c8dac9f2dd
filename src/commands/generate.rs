//! `feedline generate`.

use feedline_schemas::{manifest::Manifest, report::GeneratingRule};
use feedline_storage::Store;
use feedline_trainer::{ChosenRun, Use};

use super::{TextEncoder, Work};
use crate::{
    cli::{self, RunOption},
    exit::Outcome,
    generate::{self, Generate},
    output,
};

/// A run of texts, and the encoder of its vocabulary.
pub(super) struct TextRun {
    pub(super) chosen: ChosenRun,
    pub(super) context: feedline_trainer::Context,
    pub(super) encoder: TextEncoder,
}

impl Work<'_> {
    /// Continues a prompt by the language model of a run.
    pub(super) async fn generate(&self, options: &cli::Generate) -> anyhow::Result<Outcome> {
        let config = self.loaded.config.dataset.as_ref();
        if config.is_some_and(|config| !config.kind.is_text()) {
            let reason = "only a model of texts continues one; train it on a dataset of `dataset.kind = \"tokens\"` or \
                          `\"characters\"`";
            return Err(self.loaded.error("dataset.kind", reason).into());
        }
        let given = options.prompt.clone();
        let reading = tokio::task::spawn_blocking(move || generate::prompt(given));
        let prompt = self.tools.stop.unless_stopped(reading).await???;
        if prompt.is_empty() {
            let reason = "it is empty, and a model continues at least one token; give text";
            return Err(self.loaded.error("--prompt", reason).into());
        }
        if options.sampling.temperature == 0.0 && options.texts > 1 {
            let reason = "all texts are equal at temperature 0, which takes the most probable token; ask for one text, or use a \
                          `--temperature` above 0";
            return Err(self.loaded.error("--texts", reason).into());
        }
        let dataset = self.dataset()?;
        // It is logged.
        let _changed = self.dataset_warning().await;
        let manifest = feedline_preprocess::read_manifest(&dataset).await?;
        let run = self.text_run(&options.run, &manifest, &dataset).await?;
        let generate = Generate {
            prompt,
            texts: options.texts,
            rule: GeneratingRule {
                tokens: options.tokens,
                temperature: options.sampling.temperature,
                top_k: options.sampling.top_k,
                top_p: options.sampling.top_p,
                seed: options.sampling.seed,
            },
            writes: !self.json,
            encoder: run.encoder,
            chosen: run.chosen,
            context: run.context,
            stop: self.tools.stop.clone(),
        };
        self.tools.clear_bars();
        let report = tokio::task::spawn_blocking(move || generate.run()).await?;
        let report = report.map_err(|error| self.stage_error(error))?;
        match self.json {
            true => output::print(&report, true)?,
            false => output::print_aside(&report, false)?,
        }
        self.tools.stop.check()?;
        Ok(Outcome::Done)
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
