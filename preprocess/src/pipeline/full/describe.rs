//! The profile of a dataset, and the data of its report, taken while the rows are still in scratch.

use feedline_schemas::profile::DatasetProfile;

use super::{FullBuild, fit::FittedDataset, stage::StagedDataset};
use crate::{Error, pipeline::report_page::Page, statistics::profile};

impl FullBuild<'_> {
    /// Measures the columns of all splits, where `dataset.profile` asks for it.
    pub(super) async fn measure_profile(
        &self,
        staged: &StagedDataset<'_>,
        fitted: &FittedDataset,
    ) -> Result<Option<DatasetProfile>, Error> {
        let (build, artefact) = (self.build, fitted.artefact());
        if !build.spec.config.profile {
            return Ok(None);
        }
        let missing = profile::missing(&self.session, build.tables(), artefact);
        let missing = Box::pin(missing).await?;
        let measured = Box::pin(profile::measure(&staged.rows, artefact, missing)).await?;
        Ok(Some(measured))
    }

    /// Looks up the data of the dataset report, where there is a profile.
    pub(super) async fn look_up_page(
        &self,
        staged: &StagedDataset<'_>,
        profile: Option<&DatasetProfile>,
    ) -> Result<Option<Page>, Error> {
        let Some(profile) = profile else {
            return Ok(None);
        };
        let copied = staged.notes.copied.clone();
        let page = self.build.page(&staged.rows, profile, copied);
        Ok(Some(Box::pin(page).await?))
    }
}
