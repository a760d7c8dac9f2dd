//! Expectations of the dataset for rows to predict.

use feedline_preprocess::{Engine, ExpectedInputs};
use feedline_schemas::transform::TransformArtefact;

use crate::commands::work::PipelineWork;

impl PipelineWork<'_> {
    /// Reads what the dataset expects of the inputs of `artefact`; `None` if it expects nothing.
    pub(super) async fn expected_inputs(
        &self,
        artefact: &TransformArtefact,
    ) -> Option<ExpectedInputs> {
        let dataset = self.loaded.config.dataset.as_ref()?;
        let expect = dataset.expect.as_ref()?;
        let context = self.preprocessing(Engine::Local);
        Some(ExpectedInputs::read(expect, artefact, &context).await)
    }
}
