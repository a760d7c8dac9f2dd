//! The shards, and the checks of what was written.

use feedline_schemas::{manifest::Split, profile::DatasetProfile};

use super::{FullBuild, fit::FittedDataset, stage::StagedDataset};
use crate::{
    Error,
    pipeline::{rows, write_pass::Written},
    shards::shard_layout::ShardLayout,
    statistics::profile,
    warnings,
};

impl FullBuild<'_> {
    /// Applies the transform to all rows, and writes the shards of rows or of windows over them.
    pub(super) async fn write_shards(
        &self,
        staged: &StagedDataset<'_>,
        fitted: &FittedDataset,
        layout: &ShardLayout,
    ) -> Result<Written, Error> {
        let (build, scratch) = (self.build, self.scratch);
        let (rows, fitted) = (&staged.rows, &fitted.fitted);
        match build.sequence() {
            Some(sequence) => {
                let windows = build.write_windows(rows, fitted, layout, scratch, sequence);
                Box::pin(windows).await
            }
            None => build.write(rows, fitted, layout, scratch).await,
        }
    }

    /// Checks rejects, splits and documents once more after the last rejections, and reads the shards back.
    ///
    /// # Errors
    /// Those of [`build`](crate::build()) that are about rows and shards.
    pub(super) async fn check_written(
        &mut self,
        staged: &StagedDataset<'_>,
        fitted: &FittedDataset,
        written: &mut Written,
        layout: &ShardLayout,
    ) -> Result<(), Error> {
        let (build, artefact) = (self.build, fitted.artefact());
        self.count_written(fitted, written);
        self.warnings.extend(written.extreme_warnings(artefact));
        let repeated = written.repeated_targets(artefact, &build.spec, "training row");
        self.warnings.extend(repeated);
        self.rejects.merge(std::mem::take(&mut written.rejects));
        build
            .check_rejects(&self.session, &self.rejects, self.distinct)
            .await?;
        let rows = self.written_rows();
        build.check_splits(rows, Some(staged.split_rows()), &self.rejects)?;
        let tokens = staged.documents.map(|documents| {
            let kind = build.spec.config.kind;
            rows::conserved(kind, documents, &written.splits, written.texts)
        });
        self.counts.tokens = tokens.transpose()?;
        let absent = warnings::classes::without_rows(artefact, &self.counts.classes, rows);
        self.warnings.extend(absent);
        self.warnings.extend(build.size_warnings(&self.counts));
        self.counts.cut = rows::cut(&layout.layout, written.texts);
        self.counts.rejected = self.rejects.rejected();
        self.counts.filtered = self.rejects.filtered();
        self.counts.rejected_targets = build.rejected_targets(&self.rejects);
        build.audit(&written.splits, layout).await
    }

    /// Adds the counts of what was written.
    fn count_written(&mut self, fitted: &FittedDataset, written: &Written) {
        let [train, validation, test] = [0, 1, 2].map(|i: usize| written.splits[i].rows);
        let counts = &mut self.counts;
        (counts.train, counts.validation, counts.test) = (train, validation, test);
        counts.classes = written.class_counts(fitted.artefact());
        counts.boxes = written.boxes;
        counts.sequence = written.sequence;
    }

    /// Samples of each split in the shards, in the order of [`Split::ALL`].
    fn written_rows(&self) -> [u64; 3] {
        let counts = &self.counts;
        Split::ALL.map(|split| match split {
            Split::Train => counts.train,
            Split::Validation => counts.validation,
            Split::Test => counts.test,
        })
    }

    /// Adds the warnings of what was written, and of the `profile` of it.
    pub(super) fn warn_of_written(
        &mut self,
        staged: &StagedDataset<'_>,
        fitted: &FittedDataset,
        written: &mut Written,
        profile: Option<&DatasetProfile>,
    ) {
        let (build, artefact) = (self.build, fitted.artefact());
        let far: Vec<_> = profile
            .into_iter()
            .flat_map(profile::outside::far)
            .collect();
        self.warnings.extend(warnings::far_outside(&far));
        let rows = self.written_rows();
        let all = rows.iter().sum();
        let found = build.written_warnings(&self.counts.rejected, all, &written.infinite);
        self.warnings.extend(found);
        // Unknown categories are counted in rows, also where the dataset has windows of them.
        let read = build.sequence().map_or(rows, |_| staged.split_rows());
        let unknown = std::mem::take(&mut written.unknown);
        let unknown = build.unknown_categories(unknown, read, &self.warnings);
        self.warnings.extend(unknown);
        let capped = std::mem::take(&mut written.capped);
        let beside = [Split::Validation, Split::Test];
        let capped = build.mostly_capped(artefact, capped, staged.split_rows(), &beside);
        self.warnings.extend(capped);
        self.warnings.extend(written.equal.take());
    }
}
