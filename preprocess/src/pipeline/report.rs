//! Report of a build.

use feedline_schemas::{
    manifest::{DatasetCounts, Manifest},
    report::DatasetReport,
};

use super::prepare::Build;
use crate::dataset_report;

impl Build<'_> {
    pub(super) fn report(
        &self,
        manifest: &Manifest,
        up_to_date: bool,
        reject_sample: Option<String>,
    ) -> DatasetReport {
        let shards = || manifest.splits.iter().flat_map(|s| &s.shards);
        let page = manifest.profile.as_ref();
        DatasetReport {
            reject_sample,
            shards: shards().count() as u64,
            bytes: shards().map(|s| s.bytes).sum(),
            up_to_date,
            fingerprint: manifest.fingerprint.to_string(),
            url: self.store.url(),
            report: page.map(|_| {
                self.store
                    .url_of(&dataset_report::path_of(manifest.fingerprint))
            }),
            dropped_columns: manifest.dropped_columns.clone(),
            warnings: self.without_declared(&manifest.warnings),
            naive: manifest.naive.clone(),
            added: None,
            anew: self.previous.rebuild_reason.clone().filter(|_| !up_to_date),
            ..report_counts(&manifest.counts)
        }
    }
}

/// The counts of a dataset, as a report has them.
fn report_counts(counts: &DatasetCounts) -> DatasetReport {
    DatasetReport {
        rows_in: counts.rows_in,
        duplicates: counts.duplicates,
        rejected: counts.rejected.values().sum(),
        rejected_by_reason: counts.rejected.clone(),
        rejected_targets: counts.rejected_targets.clone(),
        filtered: counts.filtered.clone(),
        unexpected: counts.unexpected.clone(),
        conflicts: counts.conflicts,
        groups: counts.groups,
        near_dup: counts.near_dup,
        redacted: counts.redacted,
        joins: counts.joins.clone(),
        near_images: counts.near_images,
        boxes: counts.boxes,
        classes: counts.classes.clone(),
        train: counts.train,
        validation: counts.validation,
        test: counts.test,
        tokens: counts.tokens,
        cut: counts.cut,
        sequence: counts.sequence,
        ..DatasetReport::default()
    }
}
