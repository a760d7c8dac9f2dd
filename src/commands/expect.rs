//! `feedline shards expect`: an expectations file from the training split.

use feedline_schemas::report::ExpectReport;
use feedline_storage::PutNew;

use super::{tools::Tools, work::PipelineWork};
use crate::{cli::Pipeline, exit::Outcome};

/// Infers expectations and writes them to a new file.
pub(super) async fn infer_expectations(
    pipeline: &Pipeline,
    to: Option<String>,
    tools: &Tools,
) -> anyhow::Result<Outcome> {
    let work = PipelineWork::load(pipeline, tools)?;
    let dataset = work.root.child("dataset");
    let found = feedline_preprocess::infer_expectations(&dataset).await;
    let found = found.map_err(|e| work.preprocess_error(e))?;
    let config = work.loaded.config.dataset.as_ref();
    let named = config.and_then(|dataset| Some(dataset.expect.as_ref()?.file.clone()));
    let to = to.or(named).unwrap_or_else(|| "expect.toml".to_owned());
    let (folder, name) = match to.rsplit_once('/') {
        None => (".", to.as_str()),
        Some(("", name)) => ("/", name),
        Some(parts) => parts,
    };
    let file = tools.open(folder)?;
    let report = ExpectReport {
        columns: found.column.len() as u64,
        file: file.url_of(name),
    };
    let written = file.put_new(name, found.to_toml().into()).await?;
    anyhow::ensure!(
        matches!(written, PutNew::Created),
        "`{}` is there already; remove it, or name another file with `--to`",
        report.file
    );
    tools.print(&report, work.json)?;
    Ok(Outcome::Done)
}
