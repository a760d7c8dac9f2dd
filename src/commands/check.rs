//! `feedline check`, and the checks of settings before other commands.

use feedline_preprocess::Engine;

use super::{tools::Tools, unset_variables::UnsetVariables, work::PipelineWork};
use crate::{check, cli::Pipeline, exit::Outcome};

/// Checks settings, secrets and sources, and prints the findings.
pub(super) async fn check_pipeline(
    pipeline: &Pipeline,
    is_offline: bool,
    tools: &Tools,
) -> anyhow::Result<Outcome> {
    let work = PipelineWork::load(pipeline, tools)?;
    let file = pipeline.file.display().to_string();
    let (ingest, preprocess) = (work.ingesting(), work.preprocessing(Engine::Local));
    let (loaded, environment) = (&work.loaded, &tools.environment);
    let unset = UnsetVariables::of(&loaded.config, |name| environment.is_set(name));
    let complete = |key: &str, reason: String, before: &[String]| {
        // A problem of one of them names all others.
        let is_known = unset.has_key(key) && before.iter().any(|key| unset.has_key(key));
        (!is_known).then(|| unset.name_others(key, reason))
    };
    let report = check::check(loaded, file, &ingest, &preprocess, is_offline, &complete).await?;
    tools.print(&report, work.json)?;
    Ok(report.outcome())
}

impl PipelineWork<'_> {
    /// Checks the settings of all stages that need no data, so that a later stage does not fail
    /// after an earlier one has worked for hours.
    pub(super) fn check_settings(&self) -> anyhow::Result<()> {
        let config = &self.loaded.config;
        if config.dataset.is_some() {
            self.check_dataset()?;
        }
        match &config.train {
            Some(train) => check::training(config, train).map_err(|e| self.trainer_error(*e)),
            None => Ok(()),
        }
    }

    /// Reads the file of expectations, if there is one, which the build after an ingest needs.
    pub(super) async fn check_expectations(&self) -> anyhow::Result<()> {
        let (config, context) = (&self.loaded.config, self.preprocessing(Engine::Local));
        let checked = feedline_preprocess::check_expectations(config, &context, false).await;
        checked.map_err(|e| self.preprocess_error(e))
    }

    /// Checks `[dataset]`.
    pub(super) fn check_dataset(&self) -> anyhow::Result<()> {
        let config = &self.loaded.config;
        feedline_preprocess::check(config).map_err(|e| self.preprocess_error(e))?;
        Ok(())
    }
}
