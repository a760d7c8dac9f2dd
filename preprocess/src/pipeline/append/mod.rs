//! Appending rows that have landed since the last build to the dataset.
//!
//! The existing shards are searched for keys (duplicates and leaks are found by them) and for the
//! means of the features. The first time they are read; later a digest of 8 bytes a row is read in
//! their place. Landed rows that the shards hold are not read. The new shards follow the old ones,
//! which stay unchanged, and one manifest lists all of them: nothing changes until it is published.

mod append_build;
pub(super) mod eligibility;
mod shifts;

use feedline_schemas::{
    format::MANIFEST,
    ids::Hash128,
    manifest::{Addition, DatasetCounts, Manifest, Split, SplitShards, TargetSummary},
    report::{AddedReport, DatasetReport, FeatureShift, Warning},
};

use self::append_build::AppendBuild;
use super::{
    append::eligibility::AppendableDataset,
    count_sums::together,
    prepare::{Build, PreviousCounts},
    sources::columns_hash,
    write_pass::SplitCells,
};
use crate::{
    Error,
    engine::scratch::Scratch,
    operators::split::SPLIT_MISSES_SHARE,
    shards::manifest::{publish, settle},
    source::landing_zone::Landed,
    staging::rejects,
    warnings,
};

/// Outcome of an append.
#[derive(Default)]
struct AppendOutcome {
    counts: DatasetCounts,
    splits: Vec<SplitShards>,
    /// Files of rejected rows.
    rejects: Vec<String>,
    /// A rejected row.
    sample: Option<String>,
    shifts: Vec<FeatureShift>,
    infinite: SplitCells,
    /// Warnings of the appended rows alone.
    warnings: Vec<Warning>,
    /// True if rows of other splits may equal these in all that a model sees.
    may_equal_others: bool,
    /// The numeric targets over all training rows, those before included; all or none.
    targets: Vec<TargetSummary>,
}

impl Build<'_> {
    /// Adds the rows, and publishes the dataset that has them.
    pub(super) async fn add(mut self, grown: AppendableDataset) -> Result<DatasetReport, Error> {
        let started = self.context.clock.monotonic();
        let before = grown.manifest;
        self.input.rows = grown.behind.iter().map(Landed::rows).sum();
        self.input.sources = grown.behind;
        self.previous.counts = PreviousCounts::of(&before);
        self.verify_sources().await?;
        let scratch = Scratch::claim(&self.context.scratch)?;
        let added = match self.input.rows {
            0 => AppendOutcome::default(),
            _ => {
                let append = AppendBuild::open(&self, &before, &grown.artefact, &scratch)?;
                Box::pin(append.run(grown.artefact)).await?
            }
        };
        self.check_unchanged().await?;
        let mut manifest = self.with(before, &added)?;
        settle(&self.store, &mut manifest).await?;
        publish(&self.store, self.previous.pointer.as_ref(), &manifest).await?;
        let ended = self.context.clock.monotonic();
        let seconds = ended.saturating_sub(started).as_secs_f64();
        tracing::info!(
            dataset = %self.name,
            fingerprint = %manifest.fingerprint,
            rows = self.input.rows,
            seconds,
            "rows were added to the dataset"
        );
        let sample = match added.sample.clone() {
            Some(sample) => Some(sample),
            None => rejects::sample(&self.store, &manifest.rejects).await?,
        };
        Ok(DatasetReport {
            added: Some(self.added_report(added)),
            ..self.report(&manifest, false, sample)
        })
    }

    /// Merges the warnings of the dataset `before` with those of the appended rows.
    fn warnings_with(
        &self,
        before: &Manifest,
        added: &AppendOutcome,
    ) -> Result<Vec<Warning>, Error> {
        // The rows appended last stay the last.
        if self.input.rows == 0 {
            return Ok(before.warnings.clone());
        }
        let counts = together(&before.counts, &added.counts);
        let duplicates = match self.drops_copies() {
            true => warnings::duplicates_dropped(
                (counts.duplicates, counts.rows_in),
                self.what_is_equal(),
                None,
            ),
            false => None,
        };
        let rows = counts.train + counts.validation + counts.test;
        let rest = self.written_warnings(&counts.rejected, rows, &added.infinite);
        let share = self.missed_share_of_all(&counts)?;
        let sizes = self.size_warnings(&counts).into_iter().chain(share);
        let own = added.warnings.iter().cloned();
        let now = duplicates.into_iter().chain(sizes).chain(rest);
        let now: Vec<Warning> = now.chain(own).collect();
        let earlier = before.warnings.iter();
        let earlier = earlier.filter(|warning| warning.code != SPLIT_MISSES_SHARE);
        let earlier: Vec<Warning> = earlier.cloned().collect();
        Ok(warnings::with_appended(&earlier, now))
    }

    /// The manifest of the dataset `before` with what was added.
    fn with(&self, before: Manifest, added: &AppendOutcome) -> Result<Manifest, Error> {
        let addition = Addition {
            behind: before.sources.clone(),
            rows_in: self.input.rows,
            rows: rows_of(&added.splits),
            first_shards: self.previous.counts.shards.map(|shards| shards as u64),
        };
        let sources = self.input.sources.iter();
        let mut targets = added.targets.iter().copied();
        let target = targets.next().or(before.target);
        let other_targets = match target.is_some() && added.targets.is_empty() {
            true => before.other_targets.clone(),
            false => targets.collect(),
        };
        Ok(Manifest {
            version: MANIFEST.version,
            fingerprint: Hash128::new(0),
            input_hash: self.input.hash,
            columns_hash: Some(columns_hash(self.dataset)),
            sources: sources.map(|source| source.reference.clone()).collect(),
            warnings: self.warnings_with(&before, added)?,
            counts: together(&before.counts, &added.counts),
            splits: append_shards(&before.splits, &added.splits),
            rejects: [&before.rejects[..], &added.rejects].concat(),
            target,
            other_targets,
            additions: match self.input.rows {
                0 => before.additions.clone(),
                _ => [&before.additions[..], &[addition]].concat(),
            },
            ..before
        })
    }

    fn added_report(&self, added: AppendOutcome) -> AddedReport {
        let counts = added.counts;
        let new = added.splits.iter().map(|split| split.shards.len() as u64);
        AddedReport {
            rows_in: self.input.rows,
            duplicates: counts.duplicates,
            rejected: counts.rejected.values().sum(),
            train: counts.train,
            validation: counts.validation,
            test: counts.test,
            shards: new.sum(),
            kept_shards: self.previous.counts.shards.iter().sum::<usize>() as u64,
            equal_rows_not_compared: added.may_equal_others,
            shifts: added.shifts,
        }
    }
}

/// Shards of each split in `before`, then those of the same split in `added`.
fn append_shards(before: &[SplitShards], added: &[SplitShards]) -> Vec<SplitShards> {
    let splits = before.iter().map(|old| {
        let new = added.iter().find(|new| new.split == old.split);
        let new = new.map_or(&[][..], |new| &new.shards);
        SplitShards {
            split: old.split,
            rows: old.rows + new.iter().map(|shard| shard.rows).sum::<u64>(),
            shards: [&old.shards[..], new].concat(),
            table: None,
        }
    });
    splits.collect()
}

/// Rows of the splits, in the order train, validation, test.
fn rows_of(splits: &[SplitShards]) -> [u64; 3] {
    Split::ALL.map(|split| {
        let found = splits.iter().find(|found| found.split == split);
        found.map_or(0, |found| found.rows)
    })
}
