//! `feedline plan`: the plan of a run, before it starts.

use feedline_ingest::Suggestion;
use feedline_loader::{Loader, LoaderPlan};
use feedline_schemas::report::{SourceReport, Warning};
use feedline_trainer::Fit;
use serde::Serialize;

/// Plan of a run.
#[derive(Debug, Serialize)]
pub(crate) struct PlanReport {
    /// Status of the sources, which a run resumes from.
    pub(crate) sources: Vec<SourceReport>,
    /// `--ask`: suggestions from first responses. None of them is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) suggestions: Option<Vec<Suggestion>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) train: Option<TrainPlan>,
    /// Observations about the dataset that the training would read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<Warning>,
}

/// Data and memory of a training run.
#[derive(Debug, Serialize)]
pub(crate) struct TrainPlan {
    pub(crate) dataset: String,
    /// Most epochs.
    pub(crate) epochs: u64,
    /// Steps of all of them.
    pub(crate) steps: u64,
    /// Samples in a global batch.
    pub(crate) batch_size: u32,
    /// None while the dataset is not built.
    pub(crate) loader: Option<LoaderPlan>,
    /// Memory fit. `None` while the dataset is not built.
    pub(crate) fit: Option<Fit>,
}

impl TrainPlan {
    /// Opens the training split as training would, and reads no shard.
    ///
    /// # Errors
    /// The reason why the dataset is unusable. A missing dataset is no error.
    pub(crate) async fn new(
        config: &feedline_schemas::config::TrainConfig,
        context: &feedline_trainer::Context,
    ) -> Result<Self, feedline_trainer::Error> {
        use feedline_trainer::{Error, open_training, settled};

        let config = &settled(config, &context.dataset).await?;
        let clock = std::sync::Arc::clone(&context.clock);
        let loader = match open_training(config, &context.dataset, clock).await {
            Ok(loader) => Some(loader),
            Err(Error::Loader(feedline_loader::Error::NoDataset { .. })) => None,
            Err(error) => return Err(error),
        };
        let batches = loader.as_ref().map_or(0, Loader::batches_per_epoch);
        Ok(Self {
            dataset: context.dataset.url(),
            epochs: config.epochs,
            steps: batches.saturating_mul(config.epochs),
            batch_size: config.batch_size,
            loader: loader.as_ref().map(Loader::plan),
            fit: None,
        })
    }
}
