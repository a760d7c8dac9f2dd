//! `feedline tune`: a search for the best values of keys.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{tools::Tools, work::PipelineWork};
use crate::{cli::Pipeline, exit::Outcome, tune};

/// Searches, or resumes a stopped search.
pub(super) async fn search(pipeline: &Pipeline, tools: &Tools) -> anyhow::Result<Outcome> {
    let work = PipelineWork::load(pipeline, tools)?;
    let Some(config) = work.loaded.config.tune.clone() else {
        let reason = "the pipeline has no `[tune]`; add one to search";
        return Err(work.loaded.error("tune", reason).into());
    };
    let (_, context) = work.training()?;
    let consequence = "the models of all trials are of the existing dataset";
    let changed = work.training_dataset_warning(consequence).await;
    let folder = work.root.child("tune");
    let loaded = work.loaded.clone();
    let search = move || {
        let make = |values: &[(String, Value)]| tune::made(&loaded, values);
        let section = |values: &BTreeMap<String, Value>| tune::best_section(loaded.text(), values);
        feedline_trainer::tune::tune(&config, &make, &section, &folder, &context).map_err(Box::new)
    };
    let report = tokio::task::spawn_blocking(search).await?;
    let mut report = report.map_err(|e| work.trainer_error(*e))?;
    report.train.warnings.extend(changed);
    tools.print(&report, work.json)?;
    Ok(Outcome::Done)
}
