//! Resources of every command.

use std::sync::Arc;

use feedline_schemas::progress::Progress;
use feedline_storage::{
    Store,
    clock::{Clock, SystemClock},
};
use serde::Serialize;

use crate::{
    environment::Environment,
    output::{self, Text},
    progress::{self, Bars},
    stop::Stop,
    user_info,
};

/// Resources of every command.
#[derive(Clone, Debug)]
pub(super) struct Tools {
    pub(super) environment: Arc<Environment>,
    pub(super) progress: Arc<dyn Progress>,
    bars: Option<Arc<Bars>>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) stop: Stop,
    /// One request budget for each host, shared by all pipelines of the process.
    pub(super) hosts: Arc<feedline_ingest::Hosts>,
}

impl Tools {
    /// Resources with bars on a terminal and the clock of the system.
    pub(super) fn new(environment: Environment, stop: Stop) -> Self {
        let (progress, bars) = progress::for_terminal(environment.leads());
        Self {
            environment: Arc::new(environment),
            progress,
            bars,
            clock: Arc::new(SystemClock),
            stop,
            hosts: Arc::default(),
        }
    }

    /// The same resources with another receiver of progress.
    pub(super) fn with_progress(&self, progress: Arc<dyn Progress>) -> Self {
        Self {
            progress,
            ..self.clone()
        }
    }

    pub(super) fn clear_bars(&self) {
        if let Some(bars) = &self.bars {
            bars.clear();
        }
    }

    /// Prints a report, once for all ranks that train together.
    pub(super) fn print<R: Serialize + Text>(&self, report: &R, json: bool) -> anyhow::Result<()> {
        self.clear_bars();
        if self.environment.leads() {
            output::print(report, json)?;
        }
        Ok(())
    }

    pub(super) fn open(&self, url: &str) -> anyhow::Result<Store> {
        let remedy = "set the environment variables of the store instead, such as `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`";
        if let Some(refusal) = user_info::refusal(url, remedy) {
            anyhow::bail!(refusal);
        }
        Ok(Store::open(url, &self.environment.store_options())?)
    }
}
