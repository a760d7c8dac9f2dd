//! The first stages: all rows in scratch, by split, and the checks of them.

use std::sync::Arc;

use datafusion::prelude::DataFrame;
use feedline_schemas::{manifest::Split, report::Warning};

use super::FullBuild;
use crate::{
    Error,
    fit::check_texts,
    operators::{dedup::near, document, join, split::lookback_leak},
    pass_progress::PassProgress,
    pipeline::rows,
    plan::{self, Frame, FrameNotes},
    staging::{
        HashPartitioning, Staged,
        rejects::{RejectWriter, Rejects},
        stage,
    },
    warnings,
};

/// Rows in scratch, by split, and what the plan noted of them.
pub(super) struct StagedDataset<'b> {
    pub(super) rows: Staged,
    pub(super) notes: FrameNotes,
    /// The pass that looked for near-duplicates.
    near_dup: Option<near::Pass<'b>>,
    /// Bytes or characters of all documents, in a dataset that has some.
    pub(super) documents: Option<u64>,
    /// Warnings of text columns that are read as numbers.
    pub(super) texts: Vec<Warning>,
}

impl StagedDataset<'_> {
    /// Rows of each split, in the order of [`Split::ALL`].
    pub(super) fn split_rows(&self) -> [u64; 3] {
        Split::ALL.map(|split| self.rows.rows(split))
    }
}

impl<'b> FullBuild<'b> {
    /// Plans the rows, and writes them to scratch in one pass.
    pub(super) async fn stage_rows(&mut self) -> Result<StagedDataset<'b>, Error> {
        let (build, session) = (self.build, &self.session);
        let (spec, tables) = (&build.spec, build.tables());
        let texts = check_texts(session, tables, spec, false).await?;
        Box::pin(join::limit_batches(session, &spec.joins)).await?;
        self.counts.joins = join::counted(session, tables, &spec.joins, build.input.rows).await?;
        let unmatched =
            join::unmatched::find_warnings(session, tables, &spec.joins, &self.counts.joins);
        self.warnings.extend(Box::pin(unmatched).await?);
        self.warnings
            .extend(Box::pin(build.mixed_types(session)).await?);
        let near_dup = build.near_dup(self.scratch);
        let direct = HashPartitioning::of(spec, tables, build.context);
        let (near, with_copies) = (near_dup.as_ref(), direct.is_some());
        let frame = plan::frame(session, tables, spec, near, with_copies).await?;
        let Frame {
            rows,
            documents,
            notes,
        } = frame;
        let documents = match documents {
            Some(documents) => Some(rows::units_of(documents, spec.config.kind).await?),
            None => None,
        };
        let rows = self.stage_frame(rows, direct, notes.copied.clone()).await?;
        let documents = self.count_documents(&rows, documents).await?;
        let transparent = warnings::transparent_images(rows.transparent, spec.images());
        self.warnings.extend(transparent);
        self.counts.near_dup = notes.near_dup;
        self.counts.conflicts = notes.conflicts;
        self.counts.near_images = rows.near_images;
        Ok(StagedDataset {
            rows,
            notes,
            near_dup,
            documents,
            texts,
        })
    }

    /// Writes the rows of the plan to scratch, and keeps the rejected ones. `copied` has hash and origin of all rows,
    /// duplicates included.
    async fn stage_frame(
        &mut self,
        frame: DataFrame,
        direct: Option<HashPartitioning>,
        copied: Option<DataFrame>,
    ) -> Result<Staged, Error> {
        let (build, session) = (self.build, &self.session);
        let meter = Arc::new(PassProgress::new(
            &build.context.progress,
            "shards: clean and split",
            build.input.rows,
        ));
        let (staged, mut rejects) = match direct {
            Some(direct) => {
                direct
                    .stage(session, frame, &build.spec, self.scratch, meter)
                    .await?
            }
            None => stage(session, frame, &build.spec, self.scratch, meter).await?,
        };
        let distinct = build.kept(&staged) + rejects.all();
        let may_have_copies = !staged.unusable.is_empty() && distinct < build.input.rows;
        if let Some(copied) = copied.filter(|_| may_have_copies) {
            rejects.merge(self.reject_unusable_copies(&staged, copied).await?);
        }
        build.name_files(session, &mut rejects).await?;
        self.rejects = rejects;
        Ok(staged)
    }

    /// Rejects of the rows that were dropped as duplicates of images that cannot be decoded.
    async fn reject_unusable_copies(
        &self,
        staged: &Staged,
        copied: DataFrame,
    ) -> Result<Rejects, Error> {
        let path = self.scratch.path("rejects-unusable-copies.parquet");
        let mut rejects = RejectWriter::new(path);
        let copies = staged.unusable.reject_copies(copied, &mut rejects);
        Box::pin(copies).await?;
        rejects.finish()
    }

    /// Bytes or characters of the documents that were staged; `planned` where a row is nothing but its document.
    async fn count_documents(
        &self,
        staged: &Staged,
        planned: Option<u64>,
    ) -> Result<Option<u64>, Error> {
        let spec = &self.build.spec;
        match spec.document() {
            // Rows may have been rejected for another part.
            Some(text) if spec.payload.is_none() => Ok(Some(
                rows::units_staged(staged, &text.column, spec.config.kind).await?,
            )),
            _ => Ok(planned),
        }
    }

    /// Checks counts, targets, expectations, splits and groups. Returns warnings of the splits.
    ///
    /// # Errors
    /// Those of [`build`](crate::build()) that are about rows.
    pub(super) async fn check_staged(
        &mut self,
        staged: &StagedDataset<'_>,
    ) -> Result<Vec<Warning>, Error> {
        let (build, session, rows) = (self.build, &self.session, &staged.rows);
        self.distinct = build.kept(rows) + self.rejects.all();
        self.counts.duplicates = build.input.rows.saturating_sub(self.distinct);
        build.check_count(self.distinct)?;
        build.check_target(rows, &self.rejects)?;
        build
            .check_rejects(session, &self.rejects, self.distinct)
            .await?;
        let unexpected = build.unexpected(session, rows, &self.rejects);
        self.counts.unexpected = Box::pin(unexpected).await?;
        build.check_splits(staged.split_rows(), None, &self.rejects)?;
        let checked = Box::pin(build.check_groups(session, rows, &self.rejects)).await?;
        let (groups, mut warnings) = checked;
        self.counts.groups = groups;
        lookback_leak::check(build.spec.series.as_deref(), rows).await?;
        warnings.extend(build.range_not_by_time(rows).await?);
        warnings.extend(Box::pin(build.equal_documents(rows)).await?);
        let near_dup = staged.near_dup.as_ref();
        if let Some(near_dup) = near_dup.filter(|_| !build.cuts_documents()) {
            near_dup.audit(session, rows).await?;
        }
        self.counts.redacted = match &build.spec.config.text {
            Some(text) if !text.redact.is_empty() => Some(document::redactions(rows).await?),
            _ => None,
        };
        Ok(warnings)
    }
}
