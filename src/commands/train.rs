//! `feedline train`, in this process or by ranks, and the hidden `feedline rank`.

use std::sync::Arc;

use feedline_schemas::{
    config::BaselinePolicy,
    report::{TrainReport, Warning},
};
use feedline_trainer::Resume;

use super::{tools::Tools, work::PipelineWork};
use crate::{
    cli::{Pipeline, RankOptions, Ranks, TrainOptions},
    exit::{self, Outcome},
    launch::{RankLaunch, RankReporter},
    output,
};

/// Trains the model, or shows a summary of it.
pub(super) async fn train_model(options: TrainOptions, tools: &Tools) -> anyhow::Result<Outcome> {
    let TrainOptions {
        pipeline,
        resume,
        summary,
        ranks,
        detail,
    } = options;
    let work = PipelineWork::load(&pipeline, tools)?;
    if summary {
        return work.show_summary().await;
    }
    let resume = match resume {
        true => Resume::Prolong,
        false => Resume::Fresh,
    };
    let changed = work.dataset_warning().await;
    let mut report = work.train_with(&pipeline, ranks, resume).await?;
    report.warnings.extend(changed);
    let next = work.next_commands(&pipeline);
    work.print(&report, detail, Some(next))?;
    let behind = work.check_baseline(&report.warnings);
    Ok(behind.unwrap_or(Outcome::Done))
}

/// Runs one of the processes that `--ranks` starts, and reports its end to the launcher.
pub(super) async fn train_rank(options: &RankOptions, tools: &Tools) -> anyhow::Result<Outcome> {
    let resume = match (options.resume, options.prolong) {
        (true, true) => Resume::Prolong,
        (true, false) => Resume::Continue,
        (false, _) => Resume::Fresh,
    };
    let reporter = RankReporter::begin(tools.environment.group()?, Arc::clone(&tools.stop.flag))?;
    let heard = tools.with_progress(reporter.report_first_progress(Arc::clone(&tools.progress)));
    let train = async {
        let work = PipelineWork::load(&options.pipeline, &heard)?;
        work.train(resume).await
    };
    let result = train.await;
    tools.clear_bars();
    reporter.end(result);
    Ok(Outcome::Done)
}

impl PipelineWork<'_> {
    /// Trains in this process, or with the requested number of processes.
    pub(super) async fn train_with(
        &self,
        pipeline: &Pipeline,
        ranks: Ranks,
        resume: Resume,
    ) -> anyhow::Result<TrainReport> {
        let Some(ranks) = ranks.ranks else {
            let report = self.train(resume).await;
            return report.map_err(|error| exit::with_advice(error, resume));
        };
        let (config, context) = self.training()?;
        anyhow::ensure!(
            !context.group.has_others(),
            "`--ranks` starts the ranks itself; leave it out where torchrun or Slurm starts them"
        );
        self.tools.clear_bars();
        let launch = RankLaunch::new(usize::from(ranks), pipeline, config.parallel)?;
        let launch = launch.resuming(resume);
        let seed = u64::try_from(self.tools.clock.unix().as_nanos() & u128::from(u64::MAX))?;
        let (stop, clock) = (context.stop, context.clock);
        let resumes = resume != Resume::Fresh;
        let train = move || launch.carry_out(resumes, seed, &stop, &*clock);
        tokio::task::spawn_blocking(train).await?
    }

    async fn train(&self, resume: Resume) -> anyhow::Result<TrainReport> {
        let (config, context) = self.training()?;
        let train = move || feedline_trainer::train(&config, resume, &context).map_err(Box::new);
        let report = tokio::task::spawn_blocking(train).await?;
        report.map_err(|e| self.trainer_error(*e))
    }

    async fn show_summary(&self) -> anyhow::Result<Outcome> {
        let (config, context) = self.training()?;
        let summarize = move || feedline_trainer::summarize(&config, &context).map_err(Box::new);
        let summary = tokio::task::spawn_blocking(summarize).await?;
        let summary = summary.map_err(|e| self.trainer_error(*e))?;
        self.tools.print(&summary, self.json)?;
        Ok(Outcome::Done)
    }

    /// Commands for a trained model.
    pub(super) fn next_commands(&self, pipeline: &Pipeline) -> String {
        let file = pipeline.file.display().to_string();
        let file = output::shell_word(&file);
        // Another root, source or model is another run.
        let set = pipeline.options.set.iter();
        let set: String = set
            .map(|set| format!(" --set '{}={}'", set.key, set.value))
            .collect();
        let dataset = self.loaded.config.dataset.as_ref();
        let is_text = dataset.is_some_and(|dataset| dataset.kind.is_text());
        let first = match is_text {
            true => format!("feedline generate {file} --prompt TEXT{set}"),
            false => format!("feedline predict {file} NEW_ROWS{set}"),
        };
        format!("open the report; `{first}`, `feedline eval {file}{set}`")
    }

    /// Returns `Bad` for a model that is no better than its baseline, if that is required.
    pub(super) fn check_baseline(&self, warnings: &[Warning]) -> Option<Outcome> {
        let train = self.loaded.config.train.as_ref()?;
        let must = train.require_better_than_baseline == BaselinePolicy::Fail;
        let is_behind = warnings.iter().any(|w| w.code == "worse_than_baseline");
        if !must || !is_behind {
            return None;
        }
        tracing::error!(
            key = "train.require_better_than_baseline",
            "the model is worse than its baseline, which this key makes a failure; everything is saved"
        );
        Some(Outcome::Bad)
    }
}
