//! Appending rows that have landed since the last build to the dataset.
//!
//! The existing shards are searched for keys (duplicates and leaks are found by them) and for the
//! means of the features. The first time they are read; later a digest of 8 bytes a row is read in
//! their place. Landed rows that the shards hold are not read. The new shards follow the old ones,
//! which stay unchanged, and one manifest lists all of them: nothing changes until it is published.

use std::sync::Arc;

use datafusion::logical_expr::ident;
use feedline_schemas::{
    config::DedupMode,
    format::MANIFEST,
    ids::Hash128,
    manifest::{Addition, ClassCounts, DatasetCounts, Manifest, Split, SplitShards, TargetSummary},
    report::{AddedReport, DatasetReport, FeatureShift, Warning},
    transform::{FittedTarget, TransformArtefact},
};

use super::{
    count_sums::together,
    grown::Grown,
    prepared::{Build, There},
    sources::columns_hash,
    write::{Fitted, SplitCells},
};
use crate::{
    Context, Engine, Error, Transform,
    fit::check_texts,
    landing::Landed,
    manifest::{publish, settle},
    meter::Meter,
    plan, rejects,
    scalar::RowFunction,
    scratch::Scratch,
    seen::{IsNew, Measured, Seen, keys_of, look, shift_of, shifts, strongest},
    session,
    shard::ShardLayout,
    stage::{Direct, stage},
    system_columns,
    transform::reason,
    warnings::{self, many_rejects, unknown_categories},
};

/// Leaked keys that are named.
const SAMPLES: usize = 5;

/// Outcome of an append.
#[derive(Default)]
struct Added {
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
    /// The numeric targets over all training rows, those before included; all or none.
    targets: Vec<TargetSummary>,
}

impl Build<'_> {
    /// Adds the rows, and publishes the dataset that has them.
    pub(super) async fn add(mut self, grown: Grown) -> Result<DatasetReport, Error> {
        let started = self.context.clock.monotonic();
        let before = grown.manifest;
        self.rows = grown.behind.iter().map(Landed::rows).sum();
        self.sources = grown.behind;
        self.there = There {
            shards: Split::ALL
                .map(|split| before.split(split).map_or(0, |split| split.shards.len())),
            rows: before
                .counts
                .rows_in
                .saturating_sub(before.counts.duplicates),
            rejected: before.counts.rejected.clone(),
        };
        self.verify_sources().await?;
        let scratch = Scratch::claim(&self.context.scratch)?;
        let added = match self.rows {
            0 => Added::default(),
            _ => Box::pin(self.added(&before, grown.artefact, &scratch)).await?,
        };
        self.check_unchanged().await?;
        let mut manifest = self.with(before, &added);
        settle(&self.store, &mut manifest).await?;
        publish(&self.store, self.pointer.as_ref(), &manifest).await?;
        let seconds = self
            .context
            .clock
            .monotonic()
            .saturating_sub(started)
            .as_secs_f64();
        tracing::info!(
            dataset = %self.name,
            fingerprint = %manifest.fingerprint,
            rows = self.rows,
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

    /// Writes the shards of what has landed since.
    async fn added(
        &self,
        before: &Manifest,
        artefact: TransformArtefact,
        scratch: &Scratch,
    ) -> Result<Added, Error> {
        // The new rows are few compared to the dataset, and are compared with keys that this
        // process holds.
        let context = Context {
            engine: Engine::Local,
            ..self.context.clone()
        };
        let session = session::session(
            &context,
            &scratch.path("spill"),
            self.spec.inputs.len() + 1,
            None,
            0,
        )?;
        let layout = ShardLayout {
            kept: before.kept.clone(),
            ..ShardLayout::new(
                self.name,
                artefact.hash,
                before.layout.clone(),
                &self.spec.config.shards,
            )
        };
        let direct = Direct::of(&self.spec, &self.sources, &context);
        let copies = direct.is_some();
        let mut warnings = check_texts(&session, &self.sources, &self.spec, true).await?;
        let frame = plan::frame(&session, &self.sources, &self.spec, None, copies).await?;
        let wanted = keys_of(frame.rows.clone()).await?;
        let fitted_on = before.additions.first();
        let fitted_on = fitted_on.map_or(u64::MAX, |first| first.first_shards[0]);
        let there = self
            .look_at(&before.splits, &wanted, fitted_on, &layout)
            .await?;
        let known = there.known();
        let rows = match self.spec.config.dedup {
            DedupMode::Exact if !known.is_empty() => {
                let is_new = IsNew(Arc::clone(&known)).over(vec![ident(system_columns::HASH)]);
                frame.rows.filter(is_new)?
            }
            DedupMode::Exact | DedupMode::None => frame.rows,
        };
        let meter = Arc::new(Meter::new(
            &self.context.progress,
            "shards: clean and split",
            self.rows,
        ));
        let (staged, mut rejects) = match direct {
            Some(direct) => {
                direct
                    .stage(&session, rows, &self.spec, scratch, meter)
                    .await?
            }
            None => stage(&session, rows, &self.spec, scratch, meter).await?,
        };
        warnings.extend(Box::pin(self.missing_keys(&staged)).await?);
        let nan = Box::pin(self.nan_cells(&session, &self.sources, &frame.nan));
        warnings.extend(nan.await?);
        let distinct = staged.total() + rejects.all();
        self.check_rejects(&session, &rejects, distinct).await?;
        let unexpected = Box::pin(self.unexpected(&session, &staged, &rejects)).await?;
        let names = names_of(&artefact);
        let fitted = Arc::new(Fitted {
            transform: Transform::new(artefact)?,
            tokenizer: None,
            encoder: None,
        });
        let written = self.write(&staged, &fitted, &layout, scratch).await?;
        let classes = written.class_counts(fitted.transform.artefact());
        rejects.merge(written.rejects);
        if let Some(rows) = rejects.rejected().get(reason::UNKNOWN_CLASS) {
            tracing::warn!(
                rows,
                "new rows have classes that the dataset was not fitted on and are rejected; `--refit` refits it"
            );
        }
        if let Some(rows) = rejects.rejected().get(reason::UNKNOWN_CATEGORY) {
            tracing::warn!(
                rows,
                "new rows have categories that the dataset was not fitted on and are rejected; `--refit` refits it"
            );
        }
        self.check_rejects(&session, &rejects, distinct).await?;
        let limit = self.spec.max_reject_fraction;
        warnings.extend(many_rejects(&rejects.rejected(), distinct, limit));
        self.audit(&written.splits, &layout).await?;
        let added = self
            .look_at(&written.splits, &known, u64::MAX, &layout)
            .await?;
        check_leaks(&there, &added)?;
        let artefact = fitted.transform.artefact();
        let mut shifts = shifts(&names, &there, &added);
        shifts.extend(class_shifts(artefact, &classes));
        let shifts = strongest(shifts);
        let targets = targets_of_all(artefact, &there, &added);
        for shift in &shifts {
            tracing::warn!(
                feature = shift.feature,
                before = shift.before,
                after = shift.after,
                deviations = shift.deviations,
                "new training rows differ from those that the transform was fitted on; `--refit` refits it"
            );
        }
        let [train, validation, test] = rows_of(&written.splits);
        let rows = [train, validation, test];
        warnings.extend(unknown_categories(&written.unknown, rows, &Split::ALL));
        Ok(Added {
            counts: DatasetCounts {
                rows_in: self.rows,
                duplicates: self.rows.saturating_sub(distinct),
                rejected: rejects.rejected(),
                filtered: rejects.filtered(),
                unexpected,
                train,
                validation,
                test,
                classes,
                rejected_targets: self.rejected_targets(&rejects),
                ..DatasetCounts::default()
            },
            splits: written.splits,
            rejects: rejects.publish(&session, &self.store, &self.names).await?,
            sample: rejects.sample(&self.names),
            shifts,
            infinite: written.infinite,
            warnings,
            targets,
        })
    }

    /// Merges the warnings of the dataset `before` with those of the appended rows.
    fn warnings_with(&self, before: &Manifest, added: &Added) -> Vec<Warning> {
        let counts = together(&before.counts, &added.counts);
        let duplicates = match self.drops_copies() {
            true => warnings::duplicates_dropped(counts.duplicates, counts.rows_in, None),
            false => None,
        };
        let rows = counts.train + counts.validation + counts.test;
        let rest = self.written_warnings(&counts.rejected, rows, &added.infinite);
        let own = added.warnings.iter().cloned();
        let now: Vec<Warning> = duplicates.into_iter().chain(rest).chain(own).collect();
        warnings::with_appended(&before.warnings, now)
    }

    async fn look_at(
        &self,
        splits: &[SplitShards],
        wanted: &Arc<[u64]>,
        measured: u64,
        layout: &ShardLayout,
    ) -> Result<Seen, Error> {
        let total = splits.iter().map(|split| split.rows).sum();
        let meter = Meter::new(&self.context.progress, "shards: compare", total);
        look(
            &self.store,
            splits,
            wanted,
            measured,
            |split| layout.schema(split),
            |rows| meter.add(rows),
        )
        .await
    }

    /// The manifest of the dataset `before` with what was added.
    fn with(&self, before: Manifest, added: &Added) -> Manifest {
        let first_shards = self.there.shards.map(|shards| shards as u64);
        let addition = Addition {
            behind: before.sources.clone(),
            rows_in: self.rows,
            rows: rows_of(&added.splits),
            first_shards,
        };
        let splits = before.splits.iter().map(|old| {
            let new = added.splits.iter().find(|new| new.split == old.split);
            let new = new.map_or(&[][..], |new| &new.shards);
            SplitShards {
                split: old.split,
                rows: old.rows + new.iter().map(|shard| shard.rows).sum::<u64>(),
                shards: [&old.shards[..], new].concat(),
                table: None,
            }
        });
        let sources = self.sources.iter().map(|source| source.reference.clone());
        let mut targets = added.targets.iter().copied();
        let target = targets.next().or(before.target);
        let other_targets = match target.is_some() && added.targets.is_empty() {
            true => before.other_targets.clone(),
            false => targets.collect(),
        };
        Manifest {
            version: MANIFEST.version,
            fingerprint: Hash128::new(0),
            input_hash: self.input_hash,
            columns_hash: Some(columns_hash(self.dataset)),
            sources: sources.collect(),
            warnings: self.warnings_with(&before, added),
            counts: together(&before.counts, &added.counts),
            splits: splits.collect(),
            rejects: [&before.rejects[..], &added.rejects].concat(),
            target,
            other_targets,
            additions: match self.rows {
                0 => before.additions.clone(),
                _ => [&before.additions[..], &[addition]].concat(),
            },
            ..before
        }
    }

    fn added_report(&self, added: Added) -> AddedReport {
        let counts = added.counts;
        let new = added.splits.iter().map(|split| split.shards.len() as u64);
        AddedReport {
            rows_in: self.rows,
            duplicates: counts.duplicates,
            rejected: counts.rejected.values().sum(),
            train: counts.train,
            validation: counts.validation,
            test: counts.test,
            shards: new.sum(),
            kept_shards: self.there.shards.iter().sum::<usize>() as u64,
            shifts: added.shifts,
        }
    }
}

/// Names of the features, then of the targets that are numbers.
fn names_of(artefact: &TransformArtefact) -> Vec<String> {
    let features = artefact.features.iter().map(|feature| feature.name.clone());
    let targets = artefact.targets().filter_map(|target| match target {
        FittedTarget::Regression { column, .. } => Some(column.clone()),
        FittedTarget::Classification { .. } => None,
    });
    features.chain(targets).collect()
}

/// Classes with another share of the appended training rows, `added`, than of those that the transform was fitted on, each by
/// the name `<column>=<class>`.
fn class_shifts(artefact: &TransformArtefact, added: &[ClassCounts]) -> Vec<FeatureShift> {
    let Some(FittedTarget::Classification { column, counts, .. }) = &artefact.target else {
        return Vec::new();
    };
    let fitted: u64 = counts.iter().sum();
    let appended: u64 = added.iter().map(|class| class.train).sum();
    let shifts = counts.iter().zip(added).filter_map(|(before, class)| {
        let name = format!("{column}={}", class.name);
        shift_of(&name, share(*before, fitted), share(class.train, appended))
    });
    shifts.collect()
}

/// The share of `count` of `rows` rows, as the mean of a feature that is 1 or 0.
#[expect(clippy::cast_precision_loss, reason = "row counts are far below 2^53")]
fn share(count: u64, rows: u64) -> Measured {
    let mean = count as f64 / rows.max(1) as f64;
    Measured {
        rows: rows as f64,
        mean,
        variance: mean * (1.0 - mean),
    }
}

/// The numeric targets of `artefact` over the training rows of both; none where one has no rows.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it counts rows"
)]
fn targets_of_all(artefact: &TransformArtefact, there: &Seen, added: &Seen) -> Vec<TargetSummary> {
    let targets = artefact.targets().enumerate().map(|(place, target)| {
        let FittedTarget::Regression { scale, offset, .. } = target else {
            return None;
        };
        let (rows, stored) = there.target(added, place)?;
        Some(TargetSummary {
            rows: rows as u64,
            mean: stored * scale + offset,
        })
    });
    let targets: Option<Vec<TargetSummary>> = targets.collect();
    targets.unwrap_or_default()
}

/// Rows of the splits, in the order train, validation, test.
fn rows_of(splits: &[SplitShards]) -> [u64; 3] {
    Split::ALL.map(|split| {
        let found = splits.iter().find(|found| found.split == split);
        found.map_or(0, |found| found.rows)
    })
}

/// Checks that no appended row is in another split than an existing row with the same key.
fn check_leaks(there: &Seen, added: &Seen) -> Result<(), Error> {
    let leaks = there.leaks(added);
    if leaks.is_empty() {
        return Ok(());
    }
    let named = leaks.iter().take(SAMPLES);
    Err(Error::Leak {
        keys: leaks.len() as u64,
        samples: named.map(|key| format!("key `{key:016x}`")).collect(),
    })
}
