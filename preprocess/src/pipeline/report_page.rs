//! Data of the dataset report besides the manifest, and writing it.

use bytes::Bytes;
use datafusion::prelude::DataFrame;
use feedline_schemas::{manifest::Manifest, profile::DatasetProfile, transform::TransformArtefact};

use super::prepare::Build;
use crate::{
    Error,
    dataset_report::{Before, DatasetPage, path_of},
    operators::dedup::duplicate_samples::{self, DuplicateContents},
    shards::manifest::{read_manifest, read_profile},
    staging::Staged,
    statistics::profile,
};

/// Data that is looked up for the report while the rows are still in scratch.
pub(super) struct Page {
    copies: Option<DuplicateContents>,
    before: Option<Before>,
}

impl Build<'_> {
    pub(super) async fn page(
        &self,
        staged: &Staged,
        profile: &DatasetProfile,
        copied: Option<DataFrame>,
    ) -> Result<Page, Error> {
        let copies = match copied {
            Some(rows) => {
                let is_skipped = |hash: &[u8]| staged.unusable.contains(hash);
                Some(duplicate_samples::samples(rows, is_skipped).await?)
            }
            None => None,
        };
        let before = match self.before().await {
            Some((manifest, before)) if before.hash != profile.hash => {
                let drift = profile::against(staged, profile, &before).await?;
                Some(Before {
                    fingerprint: manifest.fingerprint,
                    drift,
                    gone: profile::lacking(&before, profile),
                    new: profile::lacking(profile, &before),
                })
            }
            _ => None,
        };
        Ok(Page { copies, before })
    }

    /// The dataset that is still there, if it has a profile.
    async fn before(&self) -> Option<(Manifest, DatasetProfile)> {
        let read = async {
            let manifest = read_manifest(&self.store).await?;
            let profile = read_profile(&self.store, &manifest).await?;
            Ok::<_, Error>(profile.map(|profile| (manifest, profile)))
        };
        match read.await {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!(%error, "there is no earlier profile to compare with");
                None
            }
        }
    }

    pub(super) async fn put_page(
        &self,
        page: Page,
        manifest: &Manifest,
        artefact: &TransformArtefact,
        profile: &DatasetProfile,
        rejects: Vec<(String, u64, String)>,
    ) -> Result<(), Error> {
        let page = DatasetPage {
            manifest,
            artefact,
            profile,
            sources: &self.input.names,
            copies: page.copies,
            rejects,
            before: page.before,
        };
        let path = path_of(manifest.fingerprint);
        Ok(self.store.put(&path, Bytes::from(page.render())).await?)
    }
}
