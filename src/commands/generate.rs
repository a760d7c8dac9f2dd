//! `feedline generate`.

use feedline_schemas::{config::ConfigError, report::GeneratingRule};

use super::{model::TextRun, own_dataset::leave_out_relation, tools::Tools, work::PipelineWork};
use crate::{
    cli,
    exit::Outcome,
    generate::{self, Generate},
    output,
};

/// Continues a prompt by the language model of a run.
pub(super) async fn continue_prompt(
    options: &cli::Generate,
    tools: &Tools,
) -> anyhow::Result<Outcome> {
    let work = PipelineWork::load(&options.pipeline, tools)?;
    work.check_is_text()?;
    let given = options.prompt.clone();
    let reading = tokio::task::spawn_blocking(move || generate::prompt(given));
    let prompt = tools.stop.unless_stopped(reading).await???;
    work.check_prompt(&prompt, options)?;
    let dataset = work.dataset()?;
    let changed = work.dataset_warning().await;
    let manifest = feedline_preprocess::read_manifest(&dataset).await?;
    let run = work.text_run(&options.run, &manifest, &dataset).await?;
    let generate = text_generation(options, prompt, run, &work);
    tools.clear_bars();
    let report = tokio::task::spawn_blocking(move || generate.run()).await?;
    let mut report = report.map_err(|error| work.stage_error(error))?;
    if let Some(changed) = changed {
        report.warnings.push(changed);
        leave_out_relation(&mut report.run);
    }
    match work.json {
        true => output::print(&report, true)?,
        false => output::print_aside(&report, false)?,
    }
    tools.stop.check()?;
    Ok(Outcome::Done)
}

fn text_generation(
    options: &cli::Generate,
    prompt: String,
    run: TextRun,
    work: &PipelineWork<'_>,
) -> Generate {
    let sampling = &options.sampling;
    Generate {
        prompt,
        texts: options.texts,
        rule: GeneratingRule {
            tokens: options.tokens,
            temperature: sampling.temperature,
            top_k: sampling.top_k,
            top_p: sampling.top_p,
            seed: sampling.seed,
        },
        writes: !work.json,
        encoder: run.encoder,
        chosen: run.chosen,
        context: run.context,
        stop: work.tools.stop.clone(),
    }
}

impl PipelineWork<'_> {
    /// Refuses a dataset without texts.
    fn check_is_text(&self) -> Result<(), ConfigError> {
        let config = self.loaded.config.dataset.as_ref();
        if config.is_some_and(|config| !config.kind.is_text()) {
            let reason = "only a model of texts continues one; train it on a dataset of `dataset.kind = \"tokens\"` or \
                          `\"characters\"`";
            return Err(self.loaded.error("dataset.kind", reason));
        }
        Ok(())
    }

    /// Refuses an empty prompt, and several texts that would be equal.
    fn check_prompt(&self, prompt: &str, options: &cli::Generate) -> Result<(), ConfigError> {
        if prompt.is_empty() {
            let reason = "it is empty, and a model continues at least one token; give text";
            return Err(self.loaded.error("--prompt", reason));
        }
        if options.sampling.temperature == 0.0 && options.texts > 1 {
            let reason = "all texts are equal at temperature 0, which takes the most probable token; ask for one text, or use a \
                          `--temperature` above 0";
            return Err(self.loaded.error("--texts", reason));
        }
        Ok(())
    }
}
