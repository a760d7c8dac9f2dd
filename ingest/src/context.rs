//! Resources that a run receives from its caller.

use std::sync::Arc;

use feedline_http::{Hosts, RequestContext, Secrets};
use feedline_schemas::progress::Progress;
use feedline_storage::{Store, StoreOptions, clock::Clock};
use tokio::sync::watch;

use crate::{formatted_dates::FormattedDates, metrics::PipelineMetrics};

/// Components of an ingest run. Settings are in the pipeline's configuration.
#[derive(Clone, Debug)]
pub struct Context {
    /// The pipeline's root folder; sources land in `landing/<name>/` below it.
    pub root: Store,
    /// Options for stores that `files` sources read from.
    pub store_options: StoreOptions,
    /// Receiver of progress.
    pub progress: Arc<dyn Progress>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Resolver of secrets.
    pub secrets: Arc<dyn Secrets>,
    /// State of the requested hosts. Runs that share it share their request budgets.
    pub hosts: Arc<Hosts>,
    /// Progress and waits of the pipeline's sources.
    pub metrics: Arc<PipelineMetrics>,
    /// Dates that land as text for a key of the dataset. No log asks for `contract.dates` for them.
    pub formatted_dates: Arc<FormattedDates>,
    /// True if the landing is a trial whose columns get their types later. It logs no warning about
    /// their types.
    pub is_trial: bool,
    /// Unique id of this process run, recorded in each commit.
    pub run_id: String,
    /// True if Delta tables are written behind commits (`ingest.delta`).
    pub delta: bool,
    /// Becomes true when the run should stop. It is checked between pages and in every wait. Pages
    /// read before that are committed, and a later run resumes after them.
    pub cancel: watch::Receiver<bool>,
}

impl Context {
    /// Returns true if the run should stop.
    pub(crate) fn is_cancelled(&self) -> bool {
        *self.cancel.borrow()
    }

    /// Components of the requests of the source called `source`.
    pub(crate) fn requests_of(&self, source: &str) -> RequestContext {
        RequestContext {
            run_id: self.run_id.clone(),
            clock: Arc::clone(&self.clock),
            secrets: Arc::clone(&self.secrets),
            hosts: Arc::clone(&self.hosts),
            meter: Arc::clone(self.metrics.of(source).requests()),
            cancel: self.cancel.clone(),
        }
    }
}
