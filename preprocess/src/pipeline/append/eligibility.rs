//! Decision whether rows that have landed since the last build can be appended to the dataset.
//!
//! Rows can be appended if each new row can be checked, split and transformed by itself. Where all
//! rows decide about each, old rows would have to change: then the dataset is rebuilt, and if that
//! could move rows to another split, only on request.

use feedline_schemas::{
    config::{DatasetConfig, SplitBy},
    manifest::{Layout, Manifest, SourceReference},
    record::RecordSchema,
    transform::TransformArtefact,
};

use crate::{
    Error,
    operators::{join, split::Rule},
    pipeline::{
        prepare::{Build, DatasetChanges, DatasetSettings, Earlier, MovableDataset},
        sources::BuildVersion,
    },
    schema::{
        column_roles,
        landed_columns::{self, shown, values_of},
    },
    shards::manifest::{is_whole, read_transform},
    source::landing_zone::{Generation, Landed},
};

/// A dataset, and what is to be added to it.
pub(in crate::pipeline) struct AppendableDataset {
    pub(in crate::pipeline) manifest: Manifest,
    /// Transform of the dataset.
    pub(in crate::pipeline) artefact: TransformArtefact,
    /// New rows of each source.
    pub(in crate::pipeline) behind: Vec<Landed>,
}

/// Rows of each source that landed after a position, and the schemas of those before it.
struct RowsBehind {
    behind: Vec<Landed>,
    schemas: EarlierSchemas,
}

/// Schemas of all that had landed when a dataset was built.
struct EarlierSchemas {
    /// Schemas of the sources of rows.
    own: Vec<RecordSchema>,
    /// Joined sources with their schemas, without files.
    joined: Vec<Landed>,
}

/// Cause of a rebuild that can move rows to another split.
const ROWS_LANDED: &str = "rows have landed since the dataset was built";

/// Setting that no row can be appended under if it is true, and the reason.
type Obstacle = (bool, &'static str);

/// Reason for rebuilding a dataset from all rows.
pub(in crate::pipeline) struct NotAppendable {
    pub(in crate::pipeline) reason: String,
    /// Sources and transform of the dataset, if more rows have landed since.
    pub(in crate::pipeline) earlier: Option<Earlier>,
    /// The dataset, if the rebuild can put its rows into other splits.
    pub(in crate::pipeline) movable: Option<Box<MovableDataset>>,
}

impl From<String> for NotAppendable {
    fn from(reason: String) -> Self {
        Self {
            reason,
            earlier: None,
            movable: None,
        }
    }
}

impl Build<'_> {
    /// Returns the dataset of `manifest` with its new rows, or the reason for a rebuild.
    ///
    /// # Errors
    /// [`Error::Config`] where that could move rows to another split; damaged logs, and a store that cannot be read.
    pub(in crate::pipeline) async fn check_appendable(
        &self,
        manifest: Manifest,
    ) -> Result<Result<AppendableDataset, NotAppendable>, Error> {
        if !self.input.is_of(&manifest.sources) {
            let rows = self.input.sources.iter().map(|source| &source.reference);
            if !rows.eq(manifest.sources.iter().take(self.input.sources.len())) {
                self.check_splits_stay(ROWS_LANDED)?;
            }
            return Ok(Err("it was built from other sources".to_owned().into()));
        }
        self.warn_of_licences(&manifest.sources);
        let [before, joined, frozen] = self.input.references_by_role(&manifest.sources);
        let RowsBehind { behind, schemas } = match self.find_new_rows(&manifest).await? {
            Ok(found) => found,
            Err(reason) => return Ok(Err(self.rebuild_without_rows(manifest, reason).await?)),
        };
        let is_beside = self.has_changed_beside(joined, frozen);
        let has_rows = behind.iter().any(|landed| landed.rows() > 0);
        let changes = DatasetChanges {
            settings: self.compare_settings(&manifest, &schemas),
            has_joined: has_changed(&self.input.joined, joined),
            has_rows: has_rows || has_changed(&self.input.frozen, frozen),
            lacks_rows: false,
        };
        if (is_beside || has_rows) && !self.compares_splits(changes) {
            self.check_splits_stay(ROWS_LANDED)?;
        }
        if let Some(reason) = self.why_rebuild(&schemas, changes.settings, is_beside)? {
            return Ok(Err(NotAppendable {
                movable: self.movable(manifest, changes),
                ..NotAppendable::from(reason)
            }));
        }
        if let Some(reason) = self.other_columns(&schemas).or_else(|| self.obstacle()) {
            let earlier = self.made_of(&manifest, before, &behind).await?;
            return Ok(Err(NotAppendable {
                reason,
                earlier,
                movable: self.movable(manifest, changes),
            }));
        }
        if !is_whole(&self.store, &manifest).await? {
            return Ok(Err("it is damaged".to_owned().into()));
        }
        let artefact = read_transform(&self.store, &manifest).await?;
        if let Some(reason) = self.misfit(&manifest, &artefact) {
            return Ok(Err(reason.into()));
        }
        Ok(Ok(AppendableDataset {
            manifest,
            artefact,
            behind,
        }))
    }

    /// The rebuild of the dataset of `manifest` where a source no longer has all rows that it was built from, for this `reason`.
    async fn rebuild_without_rows(
        &self,
        manifest: Manifest,
        reason: String,
    ) -> Result<NotAppendable, Error> {
        let [before, joined, _] = self.input.references_by_role(&manifest.sources);
        let mut is_same_log = true;
        for (source, before) in self.input.sources.iter().zip(before) {
            is_same_log = is_same_log && source.continues_from(before).await?;
        }
        let changes = DatasetChanges {
            settings: self.compare_settings_now(&manifest),
            has_joined: has_changed(&self.input.joined, joined),
            has_rows: true,
            lacks_rows: true,
        };
        // In another log a landing position is that of another row.
        let movable = match is_same_log {
            true => self.movable(manifest, changes),
            false => None,
        };
        Ok(NotAppendable {
            movable,
            ..NotAppendable::from(reason)
        })
    }

    /// Warns of licences that are others than in the dataset, which was made of the sources `before`.
    fn warn_of_licences(&self, before: &[SourceReference]) {
        let now = self.input.all_sources().map(|source| &source.reference);
        for (now, before) in now.zip(before).filter(|(n, b)| n.licence != b.licence) {
            tracing::warn!(
                source = %now.name,
                licence = now.licence.as_deref().unwrap_or("none"),
                before = before.licence.as_deref().unwrap_or("none"),
                "the dataset records the changed `licence` of a source and gets another fingerprint, so a run trains a \
                 model again"
            );
        }
    }

    /// Returns true if sources that are joined to the rows, or compared with them, have other
    /// positions than these.
    fn has_changed_beside(&self, joined: &[SourceReference], frozen: &[SourceReference]) -> bool {
        has_changed(&self.input.joined, joined) || has_changed(&self.input.frozen, frozen)
    }

    /// Finds the rows that have landed since the dataset of `manifest` was built, or the reason why a source has other rows.
    async fn find_new_rows(
        &self,
        manifest: &Manifest,
    ) -> Result<Result<RowsBehind, String>, Error> {
        let [before, joined, _] = self.input.references_by_role(&manifest.sources);
        let (mut behind, mut own) = (Vec::new(), Vec::new());
        for (source, before) in self.input.sources.iter().zip(before) {
            let found = match source.behind(before).await? {
                Ok(found) => found,
                Err(reason) => {
                    // New files sort before existing ones.
                    let is_same = self.compare_settings_now(manifest) != DatasetSettings::Other;
                    if source.in_place.is_some() && is_same {
                        self.check_splits_stay(ROWS_LANDED)?;
                    }
                    let name = &source.reference.name;
                    let end = source.log_end().sequence;
                    if end < before.sequence {
                        tracing::warn!(
                            source = %name, entries = %end, before = %before.sequence,
                            "fewer rows have landed than the dataset was built from: the rebuild will drop rows from it"
                        );
                    }
                    return Ok(Err(reason));
                }
            };
            behind.push(found.landed);
            own.extend(found.schemas);
        }
        let joined = self.joined_before(joined).await?;
        let schemas = EarlierSchemas { own, joined };
        Ok(Ok(RowsBehind { behind, schemas }))
    }

    /// The joined sources with the schemas of what had landed up to the positions in `before`. One that no longer has the rows
    /// up to there has the schemas of now.
    async fn joined_before(&self, before: &[SourceReference]) -> Result<Vec<Landed>, Error> {
        let mut joined = Vec::with_capacity(before.len());
        for (source, before) in self.input.joined.iter().zip(before) {
            let mut earlier = source.clone();
            if source.reference != *before
                && let Ok(found) = source.behind(before).await?
            {
                let schemas = found.schemas.into_iter();
                let generations = schemas.map(|schema| Generation {
                    schema,
                    files: Vec::new(),
                });
                earlier.generations = generations.collect();
            }
            joined.push(earlier);
        }
        Ok(joined)
    }

    /// Reason for a rebuild of a dataset with these `settings` from a changed configuration or source, if any. `is_beside` says
    /// that a source beside the rows has changed.
    fn why_rebuild(
        &self,
        schemas: &EarlierSchemas,
        settings: DatasetSettings,
        is_beside: bool,
    ) -> Result<Option<String>, Error> {
        if settings == DatasetSettings::Same {
            let reason =
                "a source that is joined to its rows, or compared with them, has landed more rows";
            return Ok(is_beside.then(|| reason.to_owned()));
        }
        if let Some(columns) = self.other_columns(schemas) {
            return Ok(Some(columns));
        }
        if settings == DatasetSettings::EarlierVersion {
            self.check_splits_stay("an earlier version of feedline built the dataset")?;
            let reason = "an earlier version of feedline built it, and this one can build other rows from the same data";
            return Ok(Some(reason.to_owned()));
        }
        Ok(Some(self.changed_settings()))
    }

    /// Returns true if an earlier version of feedline built the dataset of `manifest` by this configuration.
    fn is_of_earlier_version(&self, manifest: &Manifest) -> bool {
        let at = self.input.references_by_role(&manifest.sources);
        let hash_of = |version| self.inputs_of_version(version, &self.spec.config, Some(at));
        let mut earlier = BuildVersion::earlier(&self.spec.config);
        earlier.any(|version| hash_of(version) == manifest.input_hash)
    }

    /// Compares the settings of the dataset of `manifest`, which was built when only files of `schemas` had landed.
    fn compare_settings(&self, manifest: &Manifest, schemas: &EarlierSchemas) -> DatasetSettings {
        let now = self.compare_settings_now(manifest);
        match now != DatasetSettings::Same && self.matched_at(schemas, manifest) {
            true => DatasetSettings::Same,
            false => now,
        }
    }

    /// Compares the settings of the dataset of `manifest`, as if the columns that had landed then were those of now.
    fn compare_settings_now(&self, manifest: &Manifest) -> DatasetSettings {
        if self.matches(&self.spec.config, manifest) {
            return DatasetSettings::Same;
        }
        match self.is_of_earlier_version(manifest) {
            true => DatasetSettings::EarlierVersion,
            false => DatasetSettings::Other,
        }
    }

    /// Returns true if `config` over the rows of `manifest` gives its dataset.
    fn matches(&self, config: &DatasetConfig, manifest: &Manifest) -> bool {
        let at = self.input.references_by_role(&manifest.sources);
        self.inputs_of(config, Some(at)) == manifest.input_hash
    }

    /// Returns true if this configuration gave the dataset of `manifest` when only files of `schemas` had landed.
    fn matched_at(&self, schemas: &EarlierSchemas, manifest: &Manifest) -> bool {
        let config = self.resolved(schemas);
        config.is_some_and(|config| self.matches(&config, manifest))
    }

    /// Returns true if the dataset of `manifest` was built with this configuration, from rows that
    /// its sources still have.
    pub(in crate::pipeline) async fn is_built_as(
        &self,
        manifest: &Manifest,
    ) -> Result<bool, Error> {
        if !self.input.is_of(&manifest.sources) {
            return Ok(false);
        }
        if self.matches(&self.spec.config, manifest) {
            return Ok(true);
        }
        // Steps without columns take those that had landed then.
        let found = self.rows_behind(manifest).await?;
        Ok(found.is_some_and(|found| self.matched_at(&found.schemas, manifest)))
    }

    /// Returns true if a build keeps the dataset of `manifest` or appends rows to it, and false if it rebuilds it or fails.
    /// Does not look for damaged files.
    pub(in crate::pipeline) async fn is_kept(&self, manifest: &Manifest) -> Result<bool, Error> {
        if manifest.input_hash == self.input.hash {
            return Ok(true);
        }
        if !self.input.is_of(&manifest.sources) {
            return Ok(false);
        }
        let [_, joined, frozen] = self.input.references_by_role(&manifest.sources);
        let Some(RowsBehind { behind, schemas }) = self.rows_behind(manifest).await? else {
            return Ok(false);
        };
        let is_built = self.compare_settings(manifest, &schemas) == DatasetSettings::Same;
        let has_rows = behind.iter().any(|landed| landed.rows() > 0);
        let is_refused = has_rows && self.check_splits_stay(ROWS_LANDED).is_err();
        let is_rebuilt = self.has_changed_beside(joined, frozen)
            || self.obstacle().is_some()
            || self.other_columns(&schemas).is_some();
        Ok(is_built && !is_refused && !is_rebuilt)
    }

    /// Finds the rows that have landed since the dataset of `manifest` was built. `None` if a source no longer has the rows
    /// before.
    async fn rows_behind(&self, manifest: &Manifest) -> Result<Option<RowsBehind>, Error> {
        let [before, joined, _] = self.input.references_by_role(&manifest.sources);
        let (mut behind, mut own) = (Vec::new(), Vec::new());
        for (source, before) in self.input.sources.iter().zip(before) {
            let Ok(found) = source.behind(before).await? else {
                return Ok(None);
            };
            behind.push(found.landed);
            own.extend(found.schemas);
        }
        let joined = self.joined_before(joined).await?;
        let schemas = EarlierSchemas { own, joined };
        Ok(Some(RowsBehind { behind, schemas }))
    }

    /// Returns the sources and transform of the dataset of `manifest`, if rows have landed `behind`
    /// it. Rows of a query have no landing position, so those give `None`.
    async fn made_of(
        &self,
        manifest: &Manifest,
        sources: &[SourceReference],
        behind: &[Landed],
    ) -> Result<Option<Earlier>, Error> {
        if self.input.query.is_some() || behind.iter().all(|landed| landed.rows() == 0) {
            return Ok(None);
        }
        match read_transform(&self.store, manifest).await {
            Ok(artefact) => Ok(Some(Earlier {
                sources: sources.to_vec(),
                artefact,
            })),
            // The rebuild replaces the dataset anyway.
            Err(Error::Input { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The configuration as it was resolved when only files of `schemas` had landed.
    fn resolved(&self, schemas: &EarlierSchemas) -> Option<DatasetConfig> {
        if self.input.query.is_some() {
            return None;
        }
        let mut columns = landed_columns::merge(&schemas.own);
        join::resolve(self.dataset, &mut columns, &schemas.joined).ok()?;
        let spec = column_roles::resolve(self.dataset, &columns).ok()?;
        Some(spec.config)
    }

    /// Fails if new rows could move existing rows to another split.
    pub(in crate::pipeline) fn check_splits_stay(&self, cause: &str) -> Result<(), Error> {
        let split = &self.spec.config.split;
        let (key, why) = match &self.spec.rule {
            Rule::Range if !self.cuts_documents() => ("by", "the position among all rows decides"),
            Rule::Time(_) if split.until().is_empty() => (
                "until",
                "fractions of all rows decide where the splits begin",
            ),
            Rule::Time(_) if !split.key.is_empty() => ("key", "the last row of each group decides"),
            Rule::Hash | Rule::Named(_) | Rule::Time(_) | Rule::Range => return Ok(()),
        };
        let advice = match key {
            "until" => "set the boundaries with `until`, so that rows can be appended",
            "key" => "leave out `key`, so that rows can be appended",
            _ => "split by `key`, or by `time` with `until`, so that rows can be appended",
        };
        let reason = format!(
            "{cause}, and {why}: rows that are in it could move to another split, which \
             a model may have been fitted on; pass `--refit` to split, fit and rebuild, or {advice}"
        );
        Err(Error::config(format!("dataset.split.{key}"), reason))
    }

    /// Reason why no row can be appended, whatever it holds.
    fn obstacle(&self) -> Option<String> {
        let mut obstacles = self
            .changes_old_rows()
            .into_iter()
            .chain(self.compares_all_rows())
            .chain(self.describes_all_rows());
        if let Some((_, reason)) = obstacles.find(|(is_one, _)| *is_one) {
            return Some(reason.to_owned());
        }
        let mut sources = self.input.sources.iter();
        let keyed = sources.find(|source| !source.newest().0.is_empty());
        keyed.map(|source| {
            let name = &source.reference.name;
            format!("rows of source `{name}` can replace older ones of the same `key`")
        })
    }

    /// Settings that change old rows when new ones are added.
    fn changes_old_rows(&self) -> [Obstacle; 5] {
        let spec = &self.spec;
        [
            (
                !spec.config.kind.is_rows(),
                "images and texts cannot be appended to",
            ),
            (
                self.input.query.is_some(),
                "`dataset.sql` can change the rows made of old ones",
            ),
            (
                !spec.joins.is_empty(),
                "`dataset.join` reports the number of matched rows over all rows",
            ),
            (
                spec.near_dup.is_some(),
                "`dataset.near_dup` compares all rows, and new ones can bring old ones together",
            ),
            (
                spec.series.is_some(),
                "`dataset.series` makes features of the rows before",
            ),
        ]
    }

    /// Settings that choose or split rows by comparing all of them.
    fn compares_all_rows(&self) -> [Obstacle; 4] {
        let config = &self.spec.config;
        [
            (
                config.split.frozen().is_some(),
                "`dataset.split.frozen` compares all rows with those of the frozen source",
            ),
            (
                matches!(self.spec.rule, Rule::Named(_)) && !config.split.key.is_empty(),
                "groups of `dataset.split.key` are looked at in all rows",
            ),
            (
                config.conflicts.is_some(),
                "`dataset.conflicts` chooses among all rows of one content",
            ),
            (
                config.split.tolerance.is_some(),
                "`dataset.split.tolerance` is about the groups of all rows",
            ),
        ]
    }

    /// Settings that describe, check or order all rows.
    fn describes_all_rows(&self) -> [Obstacle; 3] {
        let config = &self.spec.config;
        let mut expected = self.spec.expect.iter().flat_map(|expect| &expect.columns);
        [
            (
                config.profile,
                "`dataset.profile` describes all rows as they landed",
            ),
            (
                expected.any(|column| column.unique || column.max_missing_fraction.is_some()),
                "the expectations `unique` and `max_missing_fraction` are about all rows",
            ),
            (
                !config.shards.shuffle && self.input.sources.len() > 1,
                "with `dataset.shards.shuffle = false` the rows of a source come before those of the next",
            ),
        ]
    }

    /// Columns that are not what they were when only files of `schemas` had landed.
    fn other_columns(&self, schemas: &EarlierSchemas) -> Option<String> {
        let before = landed_columns::merge(&schemas.own);
        let today = self
            .input
            .sources
            .iter()
            .flat_map(|source| &source.generations);
        let today = landed_columns::merge(today.map(|generation| &generation.schema));
        let others = today
            .iter()
            .filter(|column| !before.contains(column) && self.is_read(&column.name));
        let others: Vec<String> = others
            .map(|column| {
                let name = shown(&column.name);
                match before.iter().find(|old| old.name == column.name) {
                    Some(old) => format!(
                        "`{name}` ({} before, {} now)",
                        values_of(old.r#type),
                        values_of(column.r#type)
                    ),
                    None => format!("`{name}` (new)"),
                }
            })
            .collect();
        (!others.is_empty()).then(|| {
            format!(
                "columns are new, or of another type than before: {}",
                others.join(", ")
            )
        })
    }

    /// Returns true unless the configuration leaves the column out of the features and does not name it for something else.
    fn is_read(&self, name: &String) -> bool {
        let config = &self.spec.config;
        let is_left_out = config.drop.contains(name)
            || (!config.features.is_empty() && !config.features.contains(name));
        let named = [
            &config.passthrough[..],
            &config.split.key,
            config.targets(),
            config.split.column().map_or(&[], std::slice::from_ref),
            config.split.time().map_or(&[], std::slice::from_ref),
        ];
        let mut expected = self.spec.expect.iter().flat_map(|expect| &expect.columns);
        let mut inputs = self.spec.inputs.iter();
        !is_left_out
            // An expression may name any column.
            || matches!(config.split.by, SplitBy::Expression(_))
            || named.iter().any(|names| names.contains(name))
            || expected.any(|column| column.name == *name)
            || inputs.any(|input| input.column.name == *name)
    }

    /// Reason why the transform does not fit the columns as they are now.
    fn misfit(&self, manifest: &Manifest, artefact: &TransformArtefact) -> Option<String> {
        if !matches!(manifest.layout, Layout::Dense { .. }) || manifest.kept != self.spec.kept {
            return Some("its shards have other columns".to_owned());
        }
        let inputs: Vec<_> = self.spec.inputs.iter().map(|input| &input.column).collect();
        let other = artefact
            .inputs
            .iter()
            .find(|input| !inputs.contains(input))?;
        Some(format!(
            "column `{}` is read differently than before",
            other.name
        ))
    }
}

/// Returns true if these sources have other positions than `before`.
fn has_changed(now: &[Landed], before: &[SourceReference]) -> bool {
    let mut both = now.iter().zip(before);
    both.any(|(now, before)| now.reference != *before)
}
