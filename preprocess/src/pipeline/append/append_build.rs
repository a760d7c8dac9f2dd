//! Shards of appended rows: stage, check, write, check, compare with the shards before.

use std::sync::Arc;

use datafusion::{
    logical_expr::ident,
    prelude::{DataFrame, SessionContext},
};
use feedline_schemas::{
    config::DedupMode,
    manifest::{DatasetCounts, Manifest, Split, SplitShards},
    report::Warning,
    transform::TransformArtefact,
};

use super::{
    AppendOutcome, rows_of,
    shifts::{check_leaks, find_shifts, targets_of_all},
};
use crate::{
    Context, Engine, Error, Transform,
    engine::{scalar_function::RowFunction, scratch::Scratch, session},
    fit::check_texts,
    pass_progress::PassProgress,
    pipeline::{
        checks::extremes::TrainingNumbers,
        prepare::Build,
        write_pass::{Fitted, Written},
    },
    plan,
    schema::system_columns,
    shards::{
        shard_index::{IsNew, ShardIndex, keys_of, look},
        shard_layout::ShardLayout,
    },
    staging::{HashPartitioning, Staged, rejects::Rejects, stage},
    transform::reason,
    warnings::{many_rejects, unknown_categories},
};

/// A build of the shards of appended rows.
pub(super) struct AppendBuild<'b> {
    build: &'b Build<'b>,
    before: &'b Manifest,
    scratch: &'b Scratch,
    context: Context,
    session: SessionContext,
    layout: ShardLayout,
    /// Rows that were rejected so far.
    rejects: Rejects,
    /// Rows without duplicates, rejected ones included.
    distinct: u64,
    counts: DatasetCounts,
    warnings: Vec<Warning>,
}

/// New rows in scratch, and the keys that they share with the dataset.
struct StagedAppend {
    rows: Staged,
    /// Keys of new rows in the shards before.
    there: ShardIndex,
    /// The same keys without their splits.
    known: Arc<[u64]>,
}

impl<'b> AppendBuild<'b> {
    /// Opens a session of the engine for rows that are appended to the dataset of `before`.
    pub(super) fn open(
        build: &'b Build<'b>,
        before: &'b Manifest,
        artefact: &TransformArtefact,
        scratch: &'b Scratch,
    ) -> Result<Self, Error> {
        // The new rows are few compared to the dataset, and are compared with keys that this
        // process holds.
        let context = Context {
            engine: Engine::Local,
            ..build.context.clone()
        };
        let session = session::session(
            &context,
            &scratch.path("spill"),
            build.spec.inputs.len() + 1,
            None,
            0,
        )?;
        let (rows, sizes) = (before.layout.clone(), &build.spec.config.shards);
        let layout = ShardLayout {
            kept: before.kept.clone(),
            ..ShardLayout::new(build.name, artefact.hash, rows, sizes)
        };
        Ok(Self {
            build,
            before,
            scratch,
            context,
            session,
            layout,
            rejects: Rejects::default(),
            distinct: 0,
            counts: DatasetCounts {
                rows_in: build.input.rows,
                ..DatasetCounts::default()
            },
            warnings: Vec::new(),
        })
    }

    /// Runs all stages. Nothing names the shards yet.
    pub(super) async fn run(mut self, artefact: TransformArtefact) -> Result<AppendOutcome, Error> {
        let staged = Box::pin(self.stage_new_rows()).await?;
        Box::pin(self.check_staged(&staged.rows, &artefact)).await?;
        let fitted = Arc::new(Fitted {
            transform: Transform::new(artefact)?,
            tokenizer: None,
            encoder: None,
        });
        let (build, layout, scratch) = (self.build, &self.layout, self.scratch);
        let mut written = build.write(&staged.rows, &fitted, layout, scratch).await?;
        let artefact = fitted.transform.artefact();
        Box::pin(self.check_written(artefact, &mut written)).await?;
        let added = Box::pin(self.measure_written(&written.splits, &staged)).await?;
        check_leaks(&staged.there, &added)?;
        let shifts = find_shifts(artefact, &staged.there, &added, &self.counts.classes);
        let targets = targets_of_all(artefact, &staged.there, &added);
        self.warn_of_written(artefact, &staged, &written);
        let differences = build.unseen_differences(artefact, &self.layout.layout);
        let has_rows = rows_of(&written.splits) != [0; 3];
        let (session, names) = (&self.session, &build.input.names);
        Ok(AppendOutcome {
            counts: self.counts,
            splits: written.splits,
            rejects: self.rejects.publish(session, &build.store, names).await?,
            sample: self.rejects.sample(names),
            shifts,
            infinite: written.infinite,
            warnings: self.warnings,
            may_equal_others: has_rows && differences.exist(),
            targets,
        })
    }

    /// Plans the new rows, drops those that the dataset has, and writes the others to scratch.
    async fn stage_new_rows(&mut self) -> Result<StagedAppend, Error> {
        let (build, session) = (self.build, &self.session);
        let (spec, sources) = (&build.spec, &build.input.sources);
        let direct = HashPartitioning::of(spec, sources, &self.context);
        let texts = check_texts(session, sources, spec, true).await?;
        let frame = plan::frame(session, sources, spec, None, direct.is_some()).await?;
        let wanted = keys_of(frame.rows.clone()).await?;
        let fitted_on = self.before.additions.first();
        let fitted_on = fitted_on.map_or(u64::MAX, |first| first.first_shards[0]);
        let there = self
            .look_at(&self.before.splits, &wanted, fitted_on)
            .await?;
        let known = there.known();
        let rows = match spec.config.dedup {
            DedupMode::Exact if !known.is_empty() => {
                let is_new = IsNew(Arc::clone(&known)).over(vec![ident(system_columns::HASH)]);
                frame.rows.filter(is_new)?
            }
            DedupMode::Exact | DedupMode::None => frame.rows,
        };
        let (rows, rejects) = self.stage_frame(rows, direct).await?;
        let missing_keys = Box::pin(build.missing_keys(&rows)).await?;
        let nan = Box::pin(build.nan_cells(session, sources, &frame.notes.nan)).await?;
        self.rejects = rejects;
        self.warnings.extend(texts);
        self.warnings.extend(missing_keys);
        self.warnings.extend(nan);
        Ok(StagedAppend { rows, there, known })
    }

    /// Writes the rows of the plan to scratch, and keeps the rejected ones.
    async fn stage_frame(
        &self,
        frame: DataFrame,
        direct: Option<HashPartitioning>,
    ) -> Result<(Staged, Rejects), Error> {
        let (build, session) = (self.build, &self.session);
        let (spec, scratch) = (&build.spec, self.scratch);
        let meter = Arc::new(PassProgress::new(
            &build.context.progress,
            "shards: clean and split",
            build.input.rows,
        ));
        match direct {
            Some(direct) => direct.stage(session, frame, spec, scratch, meter).await,
            None => stage(session, frame, spec, scratch, meter).await,
        }
    }

    /// Checks rejects and expectations, counts duplicates, and looks for a number that many cells of a feature have.
    async fn check_staged(
        &mut self,
        rows: &Staged,
        artefact: &TransformArtefact,
    ) -> Result<(), Error> {
        let (build, session) = (self.build, &self.session);
        self.distinct = rows.total() + self.rejects.all();
        self.counts.duplicates = build.input.rows.saturating_sub(self.distinct);
        build
            .check_rejects(session, &self.rejects, self.distinct)
            .await?;
        let unexpected = build.unexpected(session, rows, &self.rejects);
        self.counts.unexpected = Box::pin(unexpected).await?;
        let sample = Box::pin(build.sample_train(rows, artefact)).await?;
        let repeated = build.repeated_features(&sample, artefact, "appended training row");
        self.warnings.extend(repeated.await?);
        Ok(())
    }

    /// Counts what was written, checks the rejects once more and reads the shards back.
    async fn check_written(
        &mut self,
        artefact: &TransformArtefact,
        written: &mut Written,
    ) -> Result<(), Error> {
        let build = self.build;
        self.counts.classes = written.class_counts(artefact);
        self.rejects.merge(std::mem::take(&mut written.rejects));
        let rejected = self.rejects.rejected();
        if let Some(rows) = rejected.get(reason::UNKNOWN_CLASS) {
            tracing::warn!(
                rows,
                "new rows have classes that the dataset was not fitted on and are rejected; `--refit` refits it"
            );
        }
        if let Some(rows) = rejected.get(reason::UNKNOWN_CATEGORY) {
            tracing::warn!(
                rows,
                "new rows have categories that the dataset was not fitted on and are rejected; `--refit` refits it"
            );
        }
        build
            .check_rejects(&self.session, &self.rejects, self.distinct)
            .await?;
        let limit = build.spec.max_reject_fraction;
        let warning = many_rejects(&rejected, self.distinct, limit);
        self.warnings.extend(warning);
        let [train, validation, test] = rows_of(&written.splits);
        let counts = &mut self.counts;
        (counts.train, counts.validation, counts.test) = (train, validation, test);
        counts.rejected = rejected;
        counts.filtered = self.rejects.filtered();
        counts.rejected_targets = build.rejected_targets(&self.rejects);
        build.audit(&written.splits, &self.layout).await
    }

    /// Warns of unknown categories, of capped cells, of numbers far from those of the rows before, of a number that many of the
    /// written targets have, and of written rows that equal one another.
    fn warn_of_written(
        &mut self,
        artefact: &TransformArtefact,
        staged: &StagedAppend,
        written: &Written,
    ) {
        let rows = rows_of(&written.splits);
        let unknown = unknown_categories(&written.unknown, rows, &Split::ALL);
        let (build, spec) = (self.build, &self.build.spec);
        let read = Split::ALL.map(|split| staged.rows.rows(split));
        let capped = build.mostly_capped(artefact, written.capped.clone(), read, &Split::ALL);
        let features = artefact.features.len();
        let train = TrainingNumbers {
            features: staged.there.largest_cells(features),
            targets: staged.there.measured_targets(features),
        };
        let far = written.appended_extremes(artefact, &train);
        let repeated = written.repeated_targets(artefact, spec, "appended training row");
        self.warnings.extend(far);
        self.warnings.extend(unknown);
        self.warnings.extend(capped);
        self.warnings.extend(repeated);
        self.warnings.extend(written.equal.clone());
    }

    /// Looks the keys that the dataset has up in the new shards, `splits`, and measures their training rows beside those before.
    async fn measure_written(
        &self,
        splits: &[SplitShards],
        staged: &StagedAppend,
    ) -> Result<ShardIndex, Error> {
        let mut added = self.look_at(splits, &staged.known, u64::MAX).await?;
        let store = &self.build.store;
        added.count_unlike(&staged.there, store, splits).await?;
        Ok(added)
    }

    /// Looks the keys `wanted` up in `splits`, and measures the first `measured` training shards.
    async fn look_at(
        &self,
        splits: &[SplitShards],
        wanted: &Arc<[u64]>,
        measured: u64,
    ) -> Result<ShardIndex, Error> {
        let total = splits.iter().map(|split| split.rows).sum();
        let meter = PassProgress::new(&self.build.context.progress, "shards: compare", total);
        look(
            &self.build.store,
            splits,
            wanted,
            measured,
            |split| self.layout.schema(split),
            |rows| meter.add(rows),
        )
        .await
    }
}
