//! The file of weights that a training begins with, compared with the model as far as that is possible.

use std::fmt;

use feedline_preprocess::Context;
use feedline_schemas::{
    config::{PipelineConfig, TrainConfig},
    report::Warning,
};
use feedline_storage::Store;
use feedline_trainer::Error;
use serde::Serialize;

use crate::output::{line, write_warnings};

/// Result for the file that `train.init.from` names.
#[derive(Debug, Default, Serialize)]
pub(crate) struct CheckedWeights {
    /// Reason that the file is not compared with the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unchecked: Option<String>,
    /// Warnings of a training about the file.
    pub(crate) warnings: Vec<Warning>,
}

impl CheckedWeights {
    fn unchecked(reason: impl Into<String>) -> Self {
        Self {
            unchecked: Some(reason.into()),
            ..Self::default()
        }
    }

    pub(super) fn write(&self, out: &mut String) -> fmt::Result {
        let text = self.unchecked.as_deref();
        line(out, "  init", text.unwrap_or("the weights fit the model"))?;
        write_warnings(&self.warnings, out)
    }
}

/// Checks the file that `train.init.from` names, and that its weights fit the model for the dataset, if a training would read
/// that dataset as it is. `None` without the key.
///
/// # Errors
/// A key that cannot be used.
pub(super) async fn check_initial_weights(
    config: &PipelineConfig,
    context: &Context,
    is_offline: bool,
) -> Result<Option<CheckedWeights>, Box<Error>> {
    let Some(train) = &config.train else {
        return Ok(None);
    };
    let Some(init) = &train.init else {
        return Ok(None);
    };
    let (folder, _) = feedline_trainer::weights_file(&init.from);
    let weights = Store::open(folder, &context.store_options);
    let weights = weights.map_err(|error| Error::Config {
        key: "train.init.from".to_owned(),
        reason: error.to_string(),
    })?;
    if is_offline && weights.local_path().is_none() {
        let reason = "the weights are not read: they are in an object store, and `--offline` sends no request";
        return Ok(Some(CheckedWeights::unchecked(reason)));
    }
    let dataset = current_dataset(config, train, context, is_offline).await;
    let checked = feedline_trainer::check_init(train, &weights, dataset.as_ref());
    let found = match Box::pin(checked).await {
        Ok(_) if dataset.is_none() => CheckedWeights::unchecked(
            "the weights can be read; they are compared with the model once the dataset is built with these settings, from all rows \
             that have landed",
        ),
        Ok(warnings) => CheckedWeights {
            warnings,
            ..CheckedWeights::default()
        },
        Err(error @ Error::Config { .. }) => return Err(Box::new(error)),
        // A build or the training itself reports what is wrong with the dataset.
        Err(error) => CheckedWeights::unchecked(format!(
            "the weights can be read, but are not compared with the model: {error}"
        )),
    };
    Ok(Some(found))
}

/// The dataset that a training would read, if it is built, and a run would keep it or append to it.
async fn current_dataset(
    config: &PipelineConfig,
    train: &TrainConfig,
    context: &Context,
    is_offline: bool,
) -> Option<Store> {
    let dataset = match &train.dataset {
        Some(url) => Store::open(url, &context.store_options).ok()?,
        None => context.root.child("dataset"),
    };
    if is_offline && dataset.local_path().is_none() {
        return None;
    }
    let manifest = feedline_preprocess::read_manifest(&dataset).await.ok()?;
    if train.dataset.is_some() || config.dataset.is_none() {
        return Some(dataset);
    }
    let is_kept = feedline_preprocess::is_kept_by(config, &manifest, context);
    let is_current = Box::pin(is_kept).await.unwrap_or(false);
    is_current.then_some(dataset)
}
