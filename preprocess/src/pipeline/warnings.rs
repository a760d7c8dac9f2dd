//! Build warnings from the staged rows and the fitted statistics, found before any write.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use arrow::{
    array::{AsArray, RecordBatch},
    datatypes::Float64Type,
};
use datafusion::{
    logical_expr::{Expr, ident},
    prelude::SessionContext,
};
use feedline_schemas::{
    config::{DedupMode, Step},
    manifest::{DatasetCounts, Split},
    record::ColumnType,
    report::Warning,
    row_counter::is_pandas_index,
    transform::{FittedCategories, FittedStep, InputKind, TransformArtefact},
};

use super::{prepare::Build, write_pass::SplitCells};
use crate::{
    Error,
    fit::{aggregate::Rows, check_nans},
    operators::coerce::NanSeen,
    schema::{column_roles::columns_in_other_use, no_feature::NoFeatureReason},
    shards::manifest,
    source::{landing_zone::Landed, sql::other_rows::Sight},
    staging::Staged,
    statistics::profile::categories,
    steps,
    warnings::{self, CutCategories, SplitKey, precision::RoundedNumbers},
};

/// Training rows of the first pass, before the check of all rows.
const FIRST_ROWS: usize = 10_000;

/// Training rows below which a column of distinct integers is normal.
const FEW_ROWS: u64 = 100;

impl Build<'_> {
    /// Returns true if the column is a feature, or the configuration names it for something else.
    pub(super) fn has_use(&self, name: &String) -> bool {
        let config = &self.spec.config;
        let named = [
            &config.drop[..],
            &config.passthrough,
            &config.split.key,
            config.targets(),
            config.split.column().map_or(&[], std::slice::from_ref),
            config.split.time().map_or(&[], std::slice::from_ref),
        ];
        let images = self.spec.images().into_iter();
        let mut beside = images.flat_map(crate::operators::images::Images::beside);
        let mut inputs = self.spec.inputs.iter();
        inputs.any(|input| input.column.name == *name)
            || named.iter().any(|names| names.contains(name))
            || self.spec.payloads().any(|payload| payload.column == *name)
            || beside.any(|(column, _)| column == name)
    }

    /// Returns the landed columns that are no features by default, each with the reason. `left_out`
    /// holds those that the fit left out.
    pub(super) fn dropped_columns(
        &self,
        left_out: &BTreeMap<String, NoFeatureReason>,
    ) -> BTreeMap<String, NoFeatureReason> {
        let mut dropped = left_out.clone();
        let config = &self.spec.config;
        if self.spec.payload.is_some() || !config.features.is_empty() {
            return dropped;
        }
        let others = columns_in_other_use(config, &self.spec.inputs);
        let others = others.into_iter();
        dropped.extend(others.map(|(name, key)| (name, NoFeatureReason::NamedIn(key))));
        for column in &self.input.columns {
            if self.has_use(&column.name) {
                continue;
            }
            if let Some(reason) = NoFeatureReason::of_type(column.r#type) {
                dropped.insert(column.name.clone(), reason);
            }
        }
        dropped
    }

    /// Warning of a zone of times that landed as instants, unless a contract declares them as such.
    fn zone_of_instants(&self) -> Option<Warning> {
        let series = self.spec.config.series.as_ref();
        let series = series.filter(|_| !self.input.declares_instants)?;
        warnings::zone::of_instants(series, &self.input.columns)
    }

    /// Finds all warnings that the rows and the fitted statistics give before the write.
    pub(super) async fn find_warnings(
        &self,
        staged: &Staged,
        artefact: &TransformArtefact,
        dropped: &BTreeMap<String, NoFeatureReason>,
    ) -> Result<Vec<Warning>, Error> {
        let by_default = |name: &str| {
            let mut inputs = self.spec.inputs.iter();
            inputs.any(|input| input.by_default && input.column.name == name)
        };
        let mut found = warnings::columns_dropped(dropped);
        found.extend(warnings::of_transform(
            artefact,
            &self.input.columns,
            by_default,
        ));
        found.extend(warnings::classes::one_class(artefact));
        found.extend(self.zone_of_instants());
        found.extend(self.time_step_warnings());
        for step in &artefact.steps {
            if let FittedStep::Categories { columns } = step {
                for category in columns {
                    let cut = Box::pin(self.cut_categories(staged, category)).await?;
                    found.extend(cut.map(|cut| cut.warning()));
                }
            }
        }
        found.extend(self.key_is_feature(staged, artefact));
        found.extend(self.made_of_other_rows(artefact));
        found.extend(self.repeated_by_query());
        found.extend(Box::pin(self.identifiers(staged, artefact)).await?);
        found.extend(Box::pin(self.rounded_numbers(staged, artefact)).await?);
        let sample = Box::pin(self.sample_train(staged, artefact)).await?;
        found.extend(self.sampled_numbers(&sample, artefact).await?);
        found.extend(Box::pin(self.target_leakage(&sample, artefact)).await?);
        found.extend(Box::pin(self.shifted(staged)).await?);
        found.extend(self.moved_classes(artefact).await?);
        Ok(found)
    }

    /// Warns of steps from row to row of a series that are long, or of no usual length, where rows are counted, of entities without
    /// a window, and of days that are not 24 hours long, where days are.
    fn time_step_warnings(&self) -> Vec<Warning> {
        let Some(series) = &self.spec.series else {
            return Vec::new();
        };
        let counts = series.long_steps.read();
        let season = series.sequence.and_then(|sequence| sequence.season);
        let long = warnings::long_steps(&series.time, &counts, season);
        let uneven = warnings::uneven_steps(&series.time, &counts, season);
        let days = series.clock_changes.read();
        let zone = series.zone().unwrap_or_default();
        let days = warnings::uneven_days(&series.time, zone, &days, series.spans_key());
        let windowless = series.windowless.read();
        let windowless = warnings::entities_without_windows(&windowless, series.max_gap.is_some());
        let of_steps = long.into_iter().chain(uneven);
        of_steps.chain(windowless).chain(days).collect()
    }

    /// Warns of columns that the query makes of other rows: no check of the build sees them. Features that look back along the time
    /// of the dataset are not named where an embargo keeps the splits apart.
    fn made_of_other_rows(&self, artefact: &TransformArtefact) -> Option<Warning> {
        let query = self.input.query.as_ref()?;
        let split = &self.spec.config.split;
        let series = self.spec.series.iter().map(|series| &series.time);
        let times: BTreeSet<&String> = split.time().into_iter().chain(series).collect();
        // The result may call the time by another name than the tables.
        let of_times = query.made.iter().filter(|made| times.contains(&made.name));
        let of_times = of_times.flat_map(|made| &made.of);
        let times: BTreeSet<&String> = of_times.chain(times.iter().copied()).collect();
        let has_embargo = split.by.is_time() && !split.embargo().is_none();
        let targets = || self.spec.targets().map(|target| &target.column);
        let mut found = Vec::new();
        for made in &query.made {
            let is_target = targets().any(|target| *target == made.name);
            let is_feature = artefact.inputs.iter().any(|input| input.name == made.name);
            if !is_target && !is_feature {
                continue;
            }
            for construct in &made.constructs {
                let by_time = construct
                    .order
                    .as_ref()
                    .is_some_and(|order| times.contains(order));
                let is_apart = has_embargo && by_time;
                // A target of a later row is a forecast.
                let is_meant = match construct.sight {
                    Sight::Behind => is_apart,
                    Sight::Ahead => is_apart && is_target,
                    Sight::All => false,
                };
                if !is_meant {
                    found.push((made.name.as_str(), construct));
                }
            }
        }
        warnings::made_of_other_rows(&found)
    }

    /// Warns of a query that returns more rows than it reads from the tables that it begins from, and of a join that repeats
    /// rows of another table with their target. Rows of one split key share a split, and so do rows of one time; a column or
    /// expression names the split of each row by itself.
    fn repeated_by_query(&self) -> Option<Warning> {
        let base = self.input.query.as_ref()?.base.as_ref()?;
        let split = &self.spec.config.split;
        if split.by.is_named() {
            return None;
        }
        let (rows, key, time) = (self.input.rows, &split.key[..], split.time());
        let targets = self.spec.targets().map(|target| &target.column);
        let repeated = targets.filter_map(|of| Some((of, base.repeated_with(of, rows)?)));
        let repeated: Vec<_> = repeated.collect();
        if repeated.is_empty() {
            let is_apart = rows > base.rows && !base.keeps_copies(key, time);
            return is_apart.then(|| warnings::sql_repeats_rows(rows, base));
        }
        let mut repeated = repeated.into_iter();
        let apart = repeated.find(|(_, table)| !base.keeps_copies_of(*table, key, time))?;
        Some(warnings::query_repeats_target(rows, apart.0, apart.1))
    }

    /// Warns of classes that had other ids in the dataset that this build replaces.
    async fn moved_classes(&self, artefact: &TransformArtefact) -> Result<Option<Warning>, Error> {
        let before = match manifest::current(&self.store).await {
            Ok(Some(manifest)) => manifest::read_transform(&self.store, &manifest).await,
            Ok(None) => return Ok(None),
            Err(error) => Err(error),
        };
        match before {
            Ok(before) => Ok(warnings::moved_classes(&before, artefact)),
            Err(Error::Storage(error)) if !error.is_not_found() => Err(error.into()),
            // The build replaces what cannot be read.
            Err(_) => Ok(None),
        }
    }

    /// Warns of duplicates that sources dropped before landing, if the dataset keeps duplicates.
    pub(super) fn left_at_landing(&self) -> Option<Warning> {
        if self.spec.config.dedup != DedupMode::None {
            return None;
        }
        let sources = self
            .input
            .sources
            .iter()
            .filter(|source| source.left_out > 0);
        let sources = sources.map(|source| (source.reference.name.to_string(), source.left_out));
        warnings::left_at_landing(&sources.collect::<Vec<_>>())
    }

    /// Counts the rows that became unknown, if a category has more values than are known.
    async fn cut_categories(
        &self,
        staged: &Staged,
        category: &FittedCategories,
    ) -> Result<Option<CutCategories>, Error> {
        let steps = self.spec.steps.iter();
        let mut steps = steps.filter(|step| step.columns.contains(&category.name));
        let most = steps.find_map(|step| match &step.step {
            Step::Categories(categories) => categories.max_values(),
            _ => None,
        });
        let is_full = most.is_some_and(|most| category.values.len() >= most as usize);
        if !is_full || category.rejects_unknown {
            return Ok(None);
        }
        let mut unknown = [(0, 0); 3];
        let mut distinct = 0;
        for (split, unknown) in Split::ALL.into_iter().zip(&mut unknown) {
            let rows = Rows::new(staged.frame(split)?, staged.rows(split));
            let [others, values] =
                categories::others(&rows, &category.name, &category.values).await?;
            if split == Split::Train {
                distinct = values;
            }
            *unknown = (others, rows.count());
        }
        let known = category.values.len();
        let cut = CutCategories {
            column: category.name.clone(),
            known,
            distinct,
            unknown,
        };
        Ok((distinct > known as u64).then_some(cut))
    }

    /// Fitted features by default that landed as integers.
    pub(super) fn integers_by_default(&self, artefact: &TransformArtefact) -> Vec<&str> {
        let is_integer = |name: &str| {
            let mut columns = self.input.columns.iter();
            columns.any(|column| column.name == name && column.r#type == ColumnType::Int64)
        };
        let inputs = self.spec.inputs.iter().filter(|input| {
            let is_fitted = artefact.inputs.contains(&input.column);
            input.by_default
                && is_fitted
                && input.column.kind == InputKind::Numeric
                && is_integer(&input.column.name)
        });
        inputs.map(|input| input.column.name.as_str()).collect()
    }

    /// Finds integer features that differ in all training rows.
    async fn identifiers(
        &self,
        staged: &Staged,
        artefact: &TransformArtefact,
    ) -> Result<Option<Warning>, Error> {
        let rows = staged.rows(Split::Train);
        if rows < FEW_ROWS {
            return Ok(None);
        }
        let mut names = self.integers_by_default(artefact);
        // An index is named as one.
        names.retain(|name| !is_pandas_index(name));
        if names.is_empty() {
            return Ok(None);
        }
        // Nearly all columns have two equal cells among the first rows.
        let cells: Vec<Expr> = names.iter().map(|name| ident(*name)).collect();
        let first = staged.frame(Split::Train)?.select(cells)?;
        let first = Box::pin(first.limit(0, Some(FIRST_ROWS))?.collect()).await?;
        let mut unique = Vec::new();
        for (at, name) in names.into_iter().enumerate() {
            if all_differ(&first, at) {
                let column = staged.frame(Split::Train)?.select(vec![ident(name)])?;
                let values = column.aggregate(vec![ident(name)], vec![])?;
                if Box::pin(values.count()).await? as u64 == rows {
                    unique.push(name);
                }
            }
        }
        Ok(warnings::look_like_identifiers(&unique, rows))
    }

    /// Warns of features whose integers a 32-bit float rounds, or whose floats it makes equal, as far as no step scales them.
    async fn rounded_numbers(
        &self,
        staged: &Staged,
        artefact: &TransformArtefact,
    ) -> Result<Vec<Warning>, Error> {
        let is_as_landed = |name: &str| {
            artefact.steps.iter().all(|step| match step {
                FittedStep::Impute { .. } | FittedStep::Winsorize { .. } => true,
                other => steps::column(other, name).is_none(),
            })
        };
        let inputs = artefact.inputs.iter();
        let inputs = inputs.filter(|input| input.kind == InputKind::Numeric);
        let names: Vec<&str> = inputs
            .map(|input| input.name.as_str())
            .filter(|name| is_as_landed(name))
            .collect();
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let cells: Vec<Expr> = names.iter().map(|name| ident(*name)).collect();
        let first = staged.frame(Split::Train)?.select(cells)?;
        let first = Box::pin(first.limit(0, Some(FIRST_ROWS))?.collect()).await?;
        let counted = names.into_iter().enumerate().map(|(at, name)| {
            let mut counted = RoundedNumbers::default();
            for batch in &first {
                let cells = batch.column(at).as_primitive::<Float64Type>();
                cells.iter().flatten().for_each(|cell| counted.add(cell));
            }
            (name, counted)
        });
        let counted: Vec<_> = counted.collect();
        let integers = warnings::precision::integers_rounded(&counted);
        let floats = warnings::precision::floats_rounded(&counted);
        Ok(integers.into_iter().chain(floats).collect())
    }

    /// Returns the warnings of small splits and classes, and of classes of very unequal size.
    pub(super) fn size_warnings(&self, counts: &DatasetCounts) -> Vec<Warning> {
        let split = &self.spec.config.split;
        let key = if split.by.is_named() || split.frozen().is_some() {
            SplitKey::Named
        } else if split.until().is_empty() {
            SplitKey::Fractions
        } else {
            SplitKey::Until
        };
        // Of documents the tokens count.
        let is_text = self.spec.config.kind.is_text();
        let rows = [counts.train, counts.validation, counts.test];
        let few = (!is_text).then(|| warnings::few_split_rows(rows, key));
        let target = self.spec.target.as_ref();
        let classes = target.map(|target| warnings::class_sizes(&target.column, &counts.classes));
        let classes = classes.into_iter().flatten();
        few.flatten().into_iter().chain(classes).collect()
    }

    /// Returns the warnings that depend on the written rows.
    pub(super) fn written_warnings(
        &self,
        rejected: &BTreeMap<String, u64>,
        rows: u64,
        infinite: &SplitCells,
    ) -> Vec<Warning> {
        let target = self.spec.target.as_ref();
        let classes = target.and_then(|target| {
            warnings::unknown_classes(rejected, &target.column, target.task, rows)
        });
        let unlisted = target.and_then(|target| {
            warnings::unlisted_classes(rejected, &target.column, &target.classes, rows)
        });
        classes
            .into_iter()
            .chain(unlisted)
            .chain(warnings::infinite_capped(infinite))
            .collect()
    }

    /// Warns of unknown categories in validation and test. Columns that another warning in `found` explains are left out.
    pub(super) fn unknown_categories(
        &self,
        mut unknown: SplitCells,
        rows: [u64; 3],
        found: &[Warning],
    ) -> Option<Warning> {
        let explains = |warning: &&Warning| {
            [warnings::CATEGORIES_CUT, warnings::KEY_IS_FEATURE].contains(&warning.code.as_str())
        };
        for warning in found.iter().filter(explains) {
            unknown.retain(|name, _| !warning.is_about(name));
        }
        warnings::unknown_categories(&unknown, rows, &[Split::Validation, Split::Test])
    }

    /// Warns of caps that change many cells of one of these `splits`, which have these rows. Columns that a `winsorize` step lists
    /// are meant to be capped.
    pub(super) fn mostly_capped(
        &self,
        artefact: &TransformArtefact,
        mut capped: SplitCells,
        rows: [u64; 3],
        splits: &[Split],
    ) -> Option<Warning> {
        let steps = self.dataset.step.iter().flatten();
        let steps = steps.filter(|step| matches!(step.step, Step::Winsorize(_)));
        let listed: Vec<&String> = steps.flat_map(|step| &step.columns).collect();
        capped.retain(|name, _| !listed.contains(&name));
        #[expect(clippy::cast_precision_loss, reason = "a share needs no 53 bits")]
        let fitted = |name: &str| {
            let clipped = steps::clipped_in_train(&artefact.steps, name);
            clipped as f64 / artefact.fitted_rows.max(1) as f64
        };
        warnings::mostly_capped(&capped, rows, splits, fitted)
    }

    /// Warns of a category that is the only column of the split's key, where there is a split beside the training split.
    fn key_is_feature(&self, staged: &Staged, artefact: &TransformArtefact) -> Option<Warning> {
        let [key] = &self.spec.config.split.key[..] else {
            return None;
        };
        let has_other = staged.total() > staged.rows(Split::Train);
        let mut inputs = artefact.inputs.iter();
        let is_category =
            inputs.any(|input| input.name == *key && input.kind == InputKind::Categorical);
        let config = &self.spec.config;
        // It is no feature unless one of these lists it.
        let listed = if config.features.contains(key) {
            "dataset.features"
        } else if config.categorical.contains(key) {
            "dataset.categorical"
        } else {
            "dataset.step"
        };
        (has_other && is_category).then(|| warnings::key_is_feature(key, listed))
    }

    /// Warns of NaN cells in `sources`. Another machine may have read them, which does not note them here.
    pub(super) async fn nan_cells(
        &self,
        session: &SessionContext,
        sources: &[Landed],
        nan: &NanSeen,
    ) -> Result<Option<Warning>, Error> {
        match nan.get() || !self.context.engine.is_local() {
            true => check_nans(session, sources, &self.spec).await,
            false => Ok(None),
        }
    }
}

/// Returns true if no two cells of the column at this place are equal, and none is missing.
fn all_differ(batches: &[RecordBatch], at: usize) -> bool {
    let mut seen = HashSet::new();
    batches.iter().all(|batch| {
        let mut cells = batch.column(at).as_primitive::<Float64Type>().iter();
        cells.all(|cell| cell.is_some_and(|cell| seen.insert(cell.to_bits())))
    })
}
