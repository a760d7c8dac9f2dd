//! `feedline plan`: the plan of a run.

use super::{tools::Tools, work::PipelineWork};
use crate::{
    cli::Pipeline,
    exit::Outcome,
    plan::{PlanReport, TrainPlan},
};

/// Shows the plan. With `ask`, sources are requested for a suggested pagination, and the outcome is
/// bad if one returns no page.
pub(super) async fn show_plan(
    pipeline: &Pipeline,
    ask: bool,
    tools: &Tools,
) -> anyhow::Result<Outcome> {
    let work = PipelineWork::load(pipeline, tools)?;
    let config = &work.loaded.config;
    let suggestions = if ask {
        let suggestions = feedline_ingest::suggest(config, &work.ingesting()).await;
        Some(suggestions.map_err(|e| work.ingest_error(e))?)
    } else {
        None
    };
    let mut suggested = suggestions.iter().flatten();
    let is_bad = suggested.any(|suggestion| suggestion.error.is_some());
    let status = feedline_ingest::status(config, &work.root).await;
    let sources = status.map_err(|e| work.ingest_error(e))?.sources;
    let train = work.plan_training().await?;
    let consequence = "the plan is of the existing dataset";
    let changed = match &train {
        Some(_) => work.training_dataset_warning(consequence).await,
        None => None,
    };
    let report = PlanReport {
        sources,
        suggestions,
        train,
        warnings: changed.into_iter().collect(),
    };
    tools.print(&report, work.json)?;
    Ok(if is_bad { Outcome::Bad } else { Outcome::Done })
}

impl PipelineWork<'_> {
    /// Plans the training, if the pipeline has one.
    async fn plan_training(&self) -> anyhow::Result<Option<TrainPlan>> {
        if self.loaded.config.train.is_none() {
            return Ok(None);
        }
        let (config, context) = self.training()?;
        let plan = TrainPlan::new(&config, &context).await;
        let mut plan = plan.map_err(|e| self.trainer_error(e))?;
        if plan.loader.is_some() {
            let fit = move || feedline_trainer::fit(&config, &context).map_err(Box::new);
            let fit = tokio::task::spawn_blocking(fit).await?;
            plan.fit = Some(fit.map_err(|e| self.trainer_error(*e))?);
        }
        Ok(Some(plan))
    }
}
