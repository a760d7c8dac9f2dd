//! Joins of the dataset for rows to predict.

use feedline_preprocess::{Engine, RowsReading};
use feedline_schemas::{manifest::Manifest, transform::TransformArtefact};

use crate::commands::work::PipelineWork;

impl PipelineWork<'_> {
    /// Has the joins of the dataset repeated for rows without their columns. Images are rows of
    /// their own, to which a table is joined by their paths; new rows are those of the table then.
    pub(super) async fn plan_joins(
        &self,
        reading: &mut RowsReading,
        manifest: &Manifest,
        artefact: &TransformArtefact,
    ) -> anyhow::Result<()> {
        let config = &self.loaded.config;
        let dataset = config.dataset.as_ref();
        if dataset.is_none_or(|dataset| dataset.image_column.is_some()) {
            return Ok(());
        }
        let context = self.preprocessing(Engine::Local);
        let joins =
            feedline_preprocess::row_joins(config, manifest, artefact, &reading.keep, &context);
        let joins = Box::pin(joins).await;
        reading.joins = joins.map_err(|error| self.preprocess_error(error))?;
        if let Some(landed) = reading.joins.as_ref().and_then(|joins| joins.landed()) {
            reading.landed = landed.clone();
        }
        Ok(())
    }
}
