//! `feedline shards`: building, verifying and inspecting a dataset.

use std::{path::Path, time::Duration};

use feedline_preprocess::PruneRule;
use feedline_schemas::report::DatasetReport;
use feedline_storage::clock::SystemClock;

use super::{expect, tools::Tools, work::PipelineWork};
use crate::{
    check,
    cli::{BuildShards, Building, Dataset, Options, Pipeline, PruneDataset, ShardsCommand},
    exit::Outcome,
    output::Inspection,
};

pub(super) async fn run_shards(command: ShardsCommand, tools: &Tools) -> anyhow::Result<Outcome> {
    match command {
        ShardsCommand::Build(options) => build_shards(options, tools).await,
        ShardsCommand::Verify(dataset) => verify_dataset(&dataset, tools).await,
        ShardsCommand::Inspect(dataset) => inspect_dataset(&dataset, tools).await,
        ShardsCommand::Prune(options) => prune_dataset(&options, tools).await,
        ShardsCommand::Expect { pipeline, to } => {
            expect::infer_expectations(&pipeline, to, tools).await
        }
    }
}

async fn build_shards(options: BuildShards, tools: &Tools) -> anyhow::Result<Outcome> {
    let work = PipelineWork::load(&options.pipeline, tools)?;
    let report = work.build(options.building).await?;
    work.print(&report, options.detail, None)?;
    Ok(options.rejects.outcome(report.new_rejected()))
}

async fn verify_dataset(dataset: &Dataset, tools: &Tools) -> anyhow::Result<Outcome> {
    check_is_dataset(dataset, tools)?;
    let store = tools.open(&dataset.url)?;
    let verify = feedline_preprocess::verify(&store);
    let report = tools.stop.unless_stopped(verify).await??;
    tools.print(&report, dataset.json)?;
    Ok(if report.problems.is_empty() {
        Outcome::Done
    } else {
        Outcome::Bad
    })
}

async fn inspect_dataset(dataset: &Dataset, tools: &Tools) -> anyhow::Result<Outcome> {
    check_is_dataset(dataset, tools)?;
    let store = tools.open(&dataset.url)?;
    let manifest = feedline_preprocess::read_manifest(&store).await?;
    let transform = feedline_preprocess::read_transform(&store, &manifest).await?;
    let inspection = Inspection {
        url: store.url(),
        manifest,
        transform,
    };
    tools.print(&inspection, dataset.json)?;
    Ok(Outcome::Done)
}

async fn prune_dataset(options: &PruneDataset, tools: &Tools) -> anyhow::Result<Outcome> {
    check_is_dataset(&options.dataset, tools)?;
    let store = tools.open(&options.dataset.url)?;
    let rule = PruneRule {
        keep: options.keep,
        grace: Duration::from_secs(options.grace_s),
        dry_run: options.dry_run,
    };
    let report = feedline_preprocess::prune(&store, rule, &SystemClock).await?;
    tools.print(&report, options.dataset.json)?;
    Ok(Outcome::Done)
}

/// Refuses a pipeline file where a dataset is expected, and names its dataset.
fn check_is_dataset(dataset: &Dataset, tools: &Tools) -> anyhow::Result<()> {
    let file = Path::new(&dataset.url);
    if file.extension().is_none_or(|end| end != "toml") || !file.is_file() {
        return Ok(());
    }
    let pipeline = Pipeline {
        file: file.to_owned(),
        options: Options {
            set: Vec::new(),
            json: false,
        },
    };
    let work = PipelineWork::load(&pipeline, tools)?;
    let folder = work.root.child("dataset").url();
    anyhow::bail!(
        "`{}` is a pipeline file, and this command reads a dataset; that of the pipeline is `{folder}`",
        dataset.url
    )
}

impl PipelineWork<'_> {
    /// Builds the dataset, or appends newly landed rows to it.
    pub(super) async fn build(&self, building: Building) -> anyhow::Result<DatasetReport> {
        if self.loaded.config.dataset.is_none() {
            let reason = "the pipeline has no `[dataset]`; add one to build shards";
            return Err(self.loaded.error("dataset", reason).into());
        }
        self.check_dataset()?;
        let secret = self.tools.environment.cluster_secret();
        let mut context = self.preprocessing(building.engine.with_secret(secret)?);
        if let Some(mib) = building.memory {
            context.memory_bytes = Some(mib << 20);
        }
        if let Some(partitions) = building.partitions {
            context.partitions = usize::from(partitions);
        }
        let build = async {
            match building.refit {
                true => feedline_preprocess::refit(&self.loaded.config, &context).await,
                false => feedline_preprocess::build(&self.loaded.config, &context).await,
            }
        };
        // Boxed: the future of a build is large. Dropping it is safe: nothing is published yet.
        let report = self.tools.stop.unless_stopped(Box::pin(build)).await?;
        let mut report = report.map_err(|e| self.preprocess_error(e))?;
        report
            .warnings
            .extend(check::warn_of_empty_features(&self.loaded));
        Ok(report)
    }
}
