//! Build of a dataset from all rows: stage, check, fit, warn, write, check, describe, publish.
//!
//! [`FullBuild::run`] is the line of these stages. A stage returns its result, which later ones
//! borrow, and adds to the counts, the rejects and the warnings of the manifest. Readers see no
//! change before the last one.

mod describe;
mod fit;
mod publish;
mod stage;
mod write;

use std::time::Duration;

use datafusion::prelude::SessionContext;
use feedline_schemas::{
    manifest::DatasetCounts,
    report::{DatasetReport, Warning},
};

use super::prepare::Build;
use crate::{
    Error,
    engine::{scratch::Scratch, session},
    staging::rejects::Rejects,
};

/// A build of a dataset from all rows.
pub(super) struct FullBuild<'b> {
    build: &'b Build<'b>,
    scratch: &'b Scratch,
    session: SessionContext,
    /// Rows that were rejected so far.
    rejects: Rejects,
    /// Rows without duplicates, rejected ones included.
    distinct: u64,
    counts: DatasetCounts,
    warnings: Vec<Warning>,
}

impl<'b> FullBuild<'b> {
    /// Opens a session of the engine. Nothing is read yet.
    pub(super) fn open(build: &'b Build<'b>, scratch: &'b Scratch) -> Result<Self, Error> {
        let session = session::session(
            build.context,
            &scratch.path("spill"),
            build.spec.inputs.len() + 1,
            build.payload_bytes(),
            build.joined_bytes(),
        )?;
        Ok(Self {
            build,
            scratch,
            session,
            rejects: Rejects::default(),
            distinct: 0,
            counts: DatasetCounts {
                rows_in: build.input.rows,
                query_tables: build.input.query_tables(),
                ..DatasetCounts::default()
            },
            warnings: Vec::new(),
        })
    }

    /// Runs all stages and publishes the dataset. The build began at `started`.
    pub(super) async fn run(mut self, started: Duration) -> Result<DatasetReport, Error> {
        let staged = Box::pin(self.stage_rows()).await?;
        let split_warnings = Box::pin(self.check_staged(&staged)).await?;
        let moved = Box::pin(self.build.check_moved_rows(&staged.rows)).await?;
        self.warnings.extend(moved);
        let fitted = Box::pin(self.fit_transform(&staged)).await?;
        Box::pin(self.find_warnings(&staged, split_warnings, &fitted)).await?;
        let layout = self.shard_layout(&fitted)?;
        let mut written = Box::pin(self.write_shards(&staged, &fitted, &layout)).await?;
        Box::pin(self.check_written(&staged, &fitted, &mut written, &layout)).await?;
        let profile = Box::pin(self.measure_profile(&staged, &fitted)).await?;
        self.warn_of_written(&staged, &fitted, &mut written, profile.as_ref());
        let page = Box::pin(self.look_up_page(&staged, profile.as_ref())).await?;
        self.build.check_unchanged().await?;
        let manifest = self.put_files(&fitted, written, &layout, profile.as_ref());
        let manifest = Box::pin(manifest).await?;
        let page = page.zip(profile.as_ref());
        Box::pin(self.publish(manifest, &fitted, page, started)).await
    }
}
