//! `feedline bench`.

use std::sync::Arc;

use super::tools::Tools;
use crate::{bench, cli::LoaderBench, exit::Outcome};

pub(super) async fn bench_loader(options: LoaderBench, tools: &Tools) -> anyhow::Result<Outcome> {
    let (clock, stop) = (Arc::clone(&tools.clock), tools.stop.clone());
    let store_options = tools.environment.store_options();
    let json = options.json;
    let run = move || bench::loader(&options, store_options, &clock, &stop);
    tools.print(&tokio::task::spawn_blocking(run).await??, json)?;
    Ok(Outcome::Done)
}
