//! Rows of all sources, typed and put one below another. Nothing is read yet.

use datafusion::prelude::{DataFrame, SessionContext};

use super::version_columns::VersionColumns;
use crate::{
    Error,
    engine::union::append_rows,
    operators::{
        coerce::{Missing, NanSeen},
        join, number_format,
    },
    schema::{dataset_spec::DatasetSpec, landed_cells::parent},
    source::{
        landed_scan,
        landing_zone::{Generation, Landed},
        latest_version::{self, LatestVersion},
    },
};

/// Typed rows of the sources of a dataset, duplicates included.
pub(super) struct SourceRows {
    pub(super) rows: DataFrame,
    /// Rows of the source that is the test split, if one is.
    pub(super) frozen: Option<DataFrame>,
    /// Note of a NaN that was read as a number.
    pub(super) nan: NanSeen,
}

/// Plans the rows of all `sources`.
///
/// # Errors
/// [`Error::Config`] for columns that do not fit, failures of the engine.
pub(super) fn read(
    session: &SessionContext,
    sources: &[Landed],
    spec: &DatasetSpec,
) -> Result<SourceRows, Error> {
    let nan = NanSeen::default();
    let missing = Missing::new(&spec.config.null_values, &spec.config.missing_values).noting(&nan);
    let (mut all, mut frozen): (Option<DataFrame>, Option<DataFrame>) = (None, None);
    for (index, source) in sources.iter().enumerate() {
        let is_frozen = spec.config.split.frozen() == Some(&source.reference.name);
        let reader = SourceReader {
            session,
            spec,
            source,
            index: index as u64,
            missing: missing.clone(),
            is_frozen,
        };
        let Some(own) = reader.read()? else { continue };
        let part = if is_frozen { &mut frozen } else { &mut all };
        *part = Some(append_rows(part.take(), own)?);
    }
    let rows = all.expect("a landed source has at least one row, so at least one file");
    Ok(SourceRows { rows, frozen, nan })
}

/// Reads the rows of one source.
struct SourceReader<'a> {
    session: &'a SessionContext,
    spec: &'a DatasetSpec,
    source: &'a Landed,
    /// Index of the source in an origin.
    index: u64,
    missing: Missing,
    /// True if the rows are the test split.
    is_frozen: bool,
}

impl SourceReader<'_> {
    /// Rows of all schema versions, the latest version of each key where the source has one; `None` without a row.
    fn read(&self) -> Result<Option<DataFrame>, Error> {
        let newest = LatestVersion::of(self.source)?;
        let mut own: Option<DataFrame> = None;
        for generation in &self.source.generations {
            let rows = self.version_rows(generation, newest.as_ref())?;
            own = Some(append_rows(own.take(), rows)?);
        }
        let Some(own) = own else { return Ok(None) };
        let own = match newest {
            Some(newest) => newest.keep(own)?,
            None => own,
        };
        Ok(Some(match &self.source.records {
            Some(records) => latest_version::of_newest(self.session, own, records)?,
            None => own,
        }))
    }

    /// Rows of one schema version, with the columns of their joins.
    fn version_rows(
        &self,
        generation: &Generation,
        newest: Option<&LatestVersion<'_>>,
    ) -> Result<DataFrame, Error> {
        let spec = self.spec;
        let schema = join::extended(&generation.schema, &spec.joins);
        let version = VersionColumns {
            schema: &schema,
            spec,
            is_frozen: self.is_frozen,
            missing: self.missing.clone(),
            signs: number_format::of(&spec.config),
        };
        let rows = landed_scan::read(self.session, self.source, generation)?;
        let rows = join::beside(self.session, rows, &generation.schema, &spec.joins)?;
        let rows = version.prepared(rows)?;
        let mut columns = version.columns(self.index)?;
        if let Some(newest) = newest {
            columns.extend(newest.columns(&generation.schema)?);
        }
        if self.source.records.is_some() {
            columns.push(parent().alias(latest_version::RECORD));
        }
        Ok(rows.select(columns)?)
    }
}
