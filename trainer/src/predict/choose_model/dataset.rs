//! A dataset that a kept model is used on, without its rows.

use feedline_schemas::{manifest::Manifest, transform::TransformArtefact};

use crate::{Context, data::transform_artefact::read_transform, error::Error};

/// A dataset, without its rows.
pub(crate) struct Dataset {
    pub(super) manifest: Manifest,
    pub(super) artefact: TransformArtefact,
    pub(super) url: String,
}

impl Dataset {
    /// The context's dataset.
    pub(super) async fn read(context: &Context) -> Result<Self, Error> {
        let manifest = feedline_loader::read_manifest(&context.dataset).await?;
        Self::of(manifest, context).await
    }

    /// Its transform.
    pub(crate) const fn artefact(&self) -> &TransformArtefact {
        &self.artefact
    }

    /// The context's dataset with this manifest.
    pub(crate) async fn of(manifest: Manifest, context: &Context) -> Result<Self, Error> {
        let artefact = read_transform(&context.dataset, &manifest).await?;
        Ok(Self {
            manifest,
            artefact,
            url: context.dataset.url(),
        })
    }
}
