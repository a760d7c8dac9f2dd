//! Versions of rows that are texts, in all sources whose latest versions are read.

use std::collections::BTreeSet;

use datafusion::prelude::SessionContext;
use feedline_schemas::report::Warning;

use crate::{
    Error,
    pipeline::prepare::Build,
    source::version_order::{check_versions, is_declared_since},
};

impl Build<'_> {
    /// Warns of sources whose latest versions are decided by the bytes of texts.
    pub(in crate::pipeline) async fn text_versions(
        &self,
        session: &SessionContext,
    ) -> Result<Vec<Warning>, Error> {
        let mut seen = BTreeSet::new();
        let mut found = Vec::new();
        for source in self.input.sources.iter().chain(&self.input.joined) {
            // Child tables of one source have the same records.
            if seen.insert(&source.reference.name.source) {
                found.extend(Box::pin(check_versions(session, source)).await?);
            }
        }
        Ok(found)
    }

    /// Warnings of a dataset that is built, without those that a declaration has turned off since.
    pub(in crate::pipeline) fn without_declared(&self, built: &[Warning]) -> Vec<Warning> {
        let is_declared = |warning: &Warning| {
            let mut sources = self.input.sources.iter().chain(&self.input.joined);
            sources.any(|source| is_declared_since(warning, source))
        };
        let open = built.iter().filter(|warning| !is_declared(warning));
        open.cloned().collect()
    }
}
