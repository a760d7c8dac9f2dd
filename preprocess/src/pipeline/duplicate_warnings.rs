//! Warnings of dropped duplicates: many of them, and labels that are lost with them.

use arrow::{array::Array, util::display::array_value_to_string};
use datafusion::{
    logical_expr::{ident, lit},
    prelude::DataFrame,
};
use feedline_schemas::{
    config::DedupMode,
    ids::{Origin, TableName},
    manifest::{ConflictCounts, Split},
    report::Warning,
};

use super::prepare::Build;
use crate::{
    Error,
    operators::{
        content_column::ContentKind,
        dedup::{
            conflicts::{self, LabelConflicts},
            duplicate_samples,
        },
    },
    schema::{landed_columns::shown, system_columns},
    source::landing_zone::Landed,
    staging::{Repeated, Staged},
    warnings::{self, EqualParts},
};

/// Cells of a sample row that a message shows.
const SHOWN_CELLS: usize = 6;

impl Build<'_> {
    /// Warns of many rows dropped as duplicates. `copied` has hash and origin of all rows,
    /// duplicates included.
    pub(super) async fn many_duplicates(
        &self,
        staged: &Staged,
        duplicates: u64,
        copied: Option<DataFrame>,
    ) -> Result<Option<Warning>, Error> {
        if !self.drops_copies() || !warnings::are_many(duplicates, self.input.rows) {
            return Ok(None);
        }
        let sample = match (staged.repeated(), copied) {
            (Some(Repeated { rows, first }), _) => {
                let first = Origin::from_packed(first);
                Some(self.copied_sample(rows, first, staged).await?)
            }
            // The engine has to count the rows of each content again.
            (None, Some(copied)) => {
                let is_skipped = |hash: &[u8]| staged.unusable.contains(hash);
                let copies = duplicate_samples::samples(copied, is_skipped);
                let copies = Box::pin(copies).await?;
                match copies.samples.first() {
                    Some(most) => Some(self.copied_sample(most.rows, most.first, staged).await?),
                    None => None,
                }
            }
            (None, None) => None,
        };
        Ok(warnings::duplicates_dropped(
            (duplicates, self.input.rows),
            self.what_is_equal(),
            sample.as_deref(),
        ))
    }

    /// Returns what rows that are dropped as duplicates have in common.
    pub(super) fn what_is_equal(&self) -> EqualParts<'_> {
        let Some(payload) = &self.spec.payload else {
            return EqualParts::Columns {
                ignored: &self.spec.config.dedup_ignore,
                has_conflicts: self.spec.config.conflicts.is_some(),
            };
        };
        match (payload.kind, &payload.images) {
            (ContentKind::Text, _) => EqualParts::Document,
            (ContentKind::Image, Some(images)) if images.how.hashes => EqualParts::ImagePixels,
            (ContentKind::Image, _) => EqualParts::ImageBytes,
        }
    }

    /// Counts images that have copies with another target, among `rows` and among those that were staged, and warns of them: one
    /// target of each is kept.
    pub(super) async fn labels_differ(
        &self,
        rows: Option<DataFrame>,
        staged: &Staged,
    ) -> Result<Option<(ConflictCounts, Warning)>, Error> {
        let Some(target) = &self.spec.target else {
            return Ok(None);
        };
        let mut found = staged.conflicts.clone();
        if let Some(rows) = rows {
            let is_skipped = |hash: &[u8]| staged.unusable.contains(hash);
            found.merge(conflicts::count(rows, &target.column, is_skipped).await?);
        }
        let sample = self.conflict_sample(&found);
        let warning = warnings::labels_differ(found.counts, &target.column, &sample);
        Ok(warning.map(|warning| (found.counts, warning)))
    }

    /// Warns of near-duplicates with several targets, if one of them is kept.
    pub(super) fn near_labels_differ(&self, found: &LabelConflicts) -> Option<Warning> {
        let target = self.spec.target.as_ref()?;
        let sample = self.conflict_sample(found);
        warnings::near_labels_differ(found.counts, &target.column, &sample)
    }

    /// Describes the first of the contents that have several targets.
    fn conflict_sample(&self, found: &LabelConflicts) -> String {
        found.sample.as_ref().map_or_else(String::new, |sample| {
            let [one, other] = &sample.targets;
            let first = place(&self.input.names, Origin::from_packed(sample.first));
            format!(", such as `{one}` and `{other}` of {first}")
        })
    }

    /// Returns true if rows are dropped for their content alone. For a source with a key the latest
    /// version replaces older rows, which are expected and are counted among the duplicates.
    pub(super) fn drops_copies(&self) -> bool {
        let has_key = |table: &Landed| !table.newest().0.is_empty();
        self.spec.config.dedup == DedupMode::Exact && !self.tables().iter().any(has_key)
    }

    /// Describes the most frequent row, which occurs `rows` times, first at `first`.
    async fn copied_sample(
        &self,
        rows: u64,
        first: Origin,
        staged: &Staged,
    ) -> Result<String, Error> {
        let inputs = self.spec.landed_inputs().map(|column| column.name.as_str());
        let target = self
            .spec
            .apart_targets()
            .map(|target| target.column.as_str());
        let names: Vec<&str> = inputs.chain(target).take(SHOWN_CELLS).collect();
        let cells = match staged.repeated() {
            Some(_) => staged.repeated_cells(&names).await?,
            None => self.cells_of(&names, staged, first).await?,
        };
        let cells = cells.into_iter().flat_map(|cells| names.iter().zip(cells));
        let cells: Vec<String> = cells
            .map(|(name, value)| {
                let value = value.unwrap_or_else(|| "missing".to_owned());
                let value: String = value.chars().take(SHOWN_CELLS * 4).collect();
                format!("{} = {}", shown(name), shown(&value))
            })
            .collect();
        let at = match self.input.query {
            Some(_) => "the row".to_owned(),
            None => place(&self.input.names, first),
        };
        let cells = match cells.is_empty() {
            true => String::new(),
            false => format!(" ({})", cells.join(", ")),
        };
        Ok(format!("{at}{cells}, which occurs {rows} times"))
    }

    /// Cells of the columns `names` in the row of `origin`, if the dataset keeps it: `None` for a missing cell.
    async fn cells_of(
        &self,
        names: &[&str],
        staged: &Staged,
        origin: Origin,
    ) -> Result<Option<Vec<Option<String>>>, Error> {
        if names.is_empty() {
            return Ok(None);
        }
        for split in Split::ALL {
            let rows = staged.frame(split)?;
            let rows = rows
                .filter(ident(system_columns::ORIGIN).eq(lit(origin.packed())))?
                .select(names.iter().map(|name| ident(*name)).collect::<Vec<_>>())?;
            for batch in Box::pin(rows.limit(0, Some(1))?.collect()).await? {
                if batch.num_rows() == 0 {
                    continue;
                }
                let cells = batch.columns().iter().map(|column| {
                    let text = column.is_valid(0).then(|| array_value_to_string(column, 0));
                    text.transpose()
                });
                return Ok(Some(cells.collect::<Result<_, _>>()?));
            }
        }
        Ok(None)
    }
}

/// Describes the landing position of a row.
fn place(names: &[TableName], origin: Origin) -> String {
    let source = usize::try_from(origin.source())
        .ok()
        .and_then(|i| names.get(i));
    let source = source.map_or_else(|| "?".to_owned(), TableName::to_string);
    format!(
        "row {} of batch {} of `{source}`, from 0",
        origin.row(),
        origin.sequence().get()
    )
}
