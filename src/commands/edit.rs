//! `feedline edit`: resampling of the texts that a model was trained on.

use feedline_preprocess::Engine;

use super::{tools::Tools, work::PipelineWork};
use crate::{cli, edit::Edit, exit::Outcome};

pub(super) async fn edit_texts(options: &cli::Edit, tools: &Tools) -> anyhow::Result<Outcome> {
    let work = PipelineWork::load(&options.pipeline, tools)?;
    let (config, training) = work.training()?;
    let source = match &options.dataset {
        Some(url) => tools.open(url)?,
        None => training.dataset.clone(),
    };
    let edit = Edit {
        source,
        target: tools.open(&options.to)?,
        rule: options.rule(),
        config,
        training,
        writing: work.preprocessing(Engine::Local),
    };
    let report = tools.stop.unless_stopped(Box::pin(edit.run())).await?;
    let report = report.map_err(|error| work.stage_error(error))?;
    tools.print(&report, work.json)?;
    Ok(Outcome::Done)
}
