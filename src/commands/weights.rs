//! `feedline weights`: trained weights as a file.

use feedline_schemas::report::ExportReport;
use feedline_trainer::Use;

use super::{tools::Tools, work::PipelineWork};
use crate::{
    cli::{ExportWeights, WeightsCommand},
    exit::Outcome,
};

pub(super) async fn run_weights(command: WeightsCommand, tools: &Tools) -> anyhow::Result<Outcome> {
    match command {
        WeightsCommand::Export(options) => export_weights(options, tools).await,
    }
}

/// Writes the best weights of a run.
async fn export_weights(options: ExportWeights, tools: &Tools) -> anyhow::Result<Outcome> {
    let ExportWeights {
        pipeline,
        run,
        to,
        merge_lora,
        dtype,
        layout,
    } = options;
    let options = feedline_trainer::ExportOptions {
        merge_lora,
        precision: dtype.into(),
        layout: layout.into(),
    };
    let work = PipelineWork::load(&pipeline, tools)?;
    let (config, context) = work.training()?;
    let chosen = work
        .choose(&run.choice(), Use::Weights, &config, &context)
        .await?;
    let mut run = chosen.used().clone();
    let export =
        move || feedline_trainer::export_run(&chosen, None, options, &context).map_err(Box::new);
    let exported = tokio::task::spawn_blocking(export).await?;
    let exported = exported.map_err(|e| work.trainer_error(*e))?;
    run.warnings.extend(exported.warnings);
    let (folder, name) = feedline_trainer::weights_file(&to);
    let store = tools.open(folder)?;
    let report = ExportReport {
        run,
        to: store.url_of(name),
        bytes: exported.file.len() as u64,
    };
    store.put(name, exported.file.into()).await?;
    tools.print(&report, work.json)?;
    Ok(Outcome::Done)
}
