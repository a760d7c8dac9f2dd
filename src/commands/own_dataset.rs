//! Comparison of the existing dataset with the settings that would build it.

use feedline_preprocess::Engine;
use feedline_schemas::{
    manifest::Manifest,
    report::{DatasetRelation, UsedRun, Warning},
};

use super::work::PipelineWork;

/// Leaves out that the dataset of a run is the one at hand, which other settings built than the
/// configuration has.
pub(super) fn leave_out_relation(used: &mut UsedRun) {
    used.relation = used
        .relation
        .filter(|relation| *relation == DatasetRelation::Other);
}

impl PipelineWork<'_> {
    /// Returns a warning if the pipeline's own dataset was built with other settings of
    /// `[dataset]`, from other files, or by an earlier version, or if these settings can build none.
    /// Newly landed rows make no difference.
    pub(super) async fn dataset_warning(&self) -> Option<Warning> {
        let consequence = "the model is of the existing dataset";
        self.training_dataset_warning(consequence).await
    }

    /// The same with another `consequence`, where a training would read the pipeline's own dataset.
    pub(super) async fn training_dataset_warning(&self, consequence: &str) -> Option<Warning> {
        let train = self.loaded.config.train.as_ref();
        match train.is_some_and(|train| train.dataset.is_some()) {
            true => None,
            false => self.built_dataset_warning(consequence).await,
        }
    }

    /// The same with another `consequence`, whatever dataset a training would read.
    pub(super) async fn built_dataset_warning(&self, consequence: &str) -> Option<Warning> {
        let config = &self.loaded.config;
        config.dataset.as_ref()?;
        let manifest = feedline_preprocess::read_manifest(&self.root.child("dataset")).await;
        let (manifest, context) = (manifest.ok()?, self.preprocessing(Engine::Local));
        let built = feedline_preprocess::is_built_by(config, &manifest, &context).await;
        let (key, message) = match built {
            Ok(true) => return None,
            Ok(false) => {
                let message = format!(
                    "the dataset was built with other settings than `[dataset]` has now, from other files, or by an earlier \
                     version of feedline: {consequence}; run `feedline shards build` for one with these settings"
                );
                ("dataset".to_owned(), message)
            }
            Err(feedline_preprocess::Error::Config { key, reason }) => {
                let message = format!(
                    "`feedline shards build` would fail with these settings (`{key}`: {reason}), so whether the dataset was built with \
                     them is not known: {consequence}; correct the settings, then run `feedline shards build`"
                );
                (key, message)
            }
            // Without a readable landing zone there is nothing to compare.
            Err(_) => return None,
        };
        tracing::warn!(key = key.as_str(), "{message}");
        Some(Warning::new("dataset_settings_changed", message).with_key(&key))
    }

    /// Checks that images are decoded like those of the dataset.
    pub(super) async fn check_built_by(&self, manifest: &Manifest) -> anyhow::Result<()> {
        let context = self.preprocessing(Engine::Local);
        let built = Box::pin(feedline_preprocess::is_built_by(
            &self.loaded.config,
            manifest,
            &context,
        ));
        if !built.await.map_err(|e| self.preprocess_error(e))? {
            let reason = "it is not what the dataset was built by, or an earlier version of feedline built that, so images could \
                          be decoded in another way than those that the model knows; build the dataset again \
                          (`feedline shards build`), or use the configuration that it was built by";
            return Err(self.loaded.error("dataset", reason).into());
        }
        Ok(())
    }
}
