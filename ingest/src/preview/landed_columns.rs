//! Columns that a source has landed: its next run continues them.

use std::collections::{BTreeMap, HashSet};

use feedline_schemas::{
    commit::{ChildTable, Position},
    config::SourceConfig,
    ids::Name,
    record::ColumnType,
    report::Warning,
};
use feedline_storage::Store;

use crate::{
    batch::Batch,
    column_warnings::RecordColumns,
    context::Context,
    contract::Before,
    error::Error,
    infer::{LandedTypes, Types, of_new_columns},
    landing_folder::landing,
    log_entries::{ComparedColumns, Kept, LogEntries, Resumed},
    run::open,
    settings::config_hash,
    source::Source,
};

/// Code of the warning about landed data that cannot be read.
const LANDED_NOT_READ: &str = "landed_not_read";

/// Landed state of a source that has columns.
pub(super) struct LandedColumns {
    /// Schema and presence of the newest entry.
    pub(super) before: Before,
    /// Child tables of that entry.
    pub(super) children: BTreeMap<Name, ChildTable>,
    /// Number of records that have landed or are rejected.
    pub(super) records: u64,
    /// Planned types of columns without a value so far.
    planned: Types,
    position: Position,
    landing: Store,
    resumed: Resumed,
}

/// Reads the landed columns of a source; none before the first of them. If they cannot be read, returns
/// none and a warning.
///
/// # Errors
/// [`Error::Cancelled`].
pub(super) async fn read_landed(
    config: &SourceConfig,
    context: &Context,
) -> Result<(Option<LandedColumns>, Option<Warning>), Error> {
    match LandedColumns::read(config, context).await {
        Ok(landed) => Ok((landed, None)),
        Err(Error::Cancelled) => Err(Error::Cancelled),
        Err(error) => {
            let message = format!(
                "the landed columns of the source cannot be read, so its types are inferred as if nothing had landed: {error}"
            );
            let warning = Warning::new(LANDED_NOT_READ, message).with_key("pipeline.root");
            Ok((None, Some(warning)))
        }
    }
}

impl LandedColumns {
    async fn read(config: &SourceConfig, context: &Context) -> Result<Option<Self>, Error> {
        let landing = landing(&context.root, &config.name);
        let mut entries = LogEntries::open(&landing, &config.name, Kept::Newest).await?;
        let resumed = entries.resumed().await?;
        // An entry without columns landed nothing: the first columns make the first version.
        let last = resumed.last.as_ref();
        let Some(last) = last.filter(|last| !last.schema.columns.is_empty()) else {
            return Ok(None);
        };
        let totals = &last.state.totals;
        let mut landed = Self {
            before: Before {
                schema: last.schema.clone(),
                presence: last.state.presence.clone(),
            },
            children: last.children.clone(),
            records: totals.rows + totals.rejected,
            planned: last.state.planned.clone(),
            position: last.state.position.clone(),
            landing,
            resumed,
        };
        let hash = landed.resumed.last.as_ref().map(|last| last.config_hash);
        if hash != Some(config_hash(config)) {
            // The run that records the change may read other names.
            landed.resumed.compared = ComparedColumns::None;
        }
        Ok(Some(landed))
    }

    /// Restores `source`, which reads its files from the beginning. A file of a web server is compared
    /// with the landed columns. Other files are not: the next run does not re-read those that have
    /// landed, and they may have been read with other settings.
    ///
    /// # Errors
    /// Like those of a run.
    pub(super) async fn restore_columns(
        &self,
        source: &mut dyn Source,
        config: &SourceConfig,
    ) -> Result<(), Error> {
        let mut resumed = self.resumed.clone();
        if !config.is_web() {
            resumed.compared = ComparedColumns::None;
        }
        if let Some(last) = &mut resumed.last {
            last.state.marks.clear();
        }
        source.restore(&self.landing, &resumed).await
    }

    /// Types of the columns that have any, and columns with integers beyond 2^53.
    pub(super) fn types(&self) -> LandedTypes {
        let columns = self.before.schema.columns.iter();
        let typed = columns.filter(|column| column.r#type != ColumnType::Null);
        let mut types = self.planned.clone();
        types.extend(typed.map(|column| (column.name.clone(), column.r#type)));
        LandedTypes {
            types,
            large_integers: self.before.presence.large_integers.clone(),
        }
    }

    /// Columns of the landed records.
    pub(super) fn record_columns(&self) -> RecordColumns<'_> {
        let tables = self.children.iter();
        let tables = tables.map(|(name, table)| {
            let rows = table.presence.rows;
            (name.as_str(), (&table.schema, rows))
        });
        RecordColumns {
            schema: &self.before.schema,
            presence: &self.before.presence,
            tables: tables.collect(),
            others: Vec::new(),
        }
    }

    /// Planned types of the columns of a batch that have not landed.
    pub(super) fn plan_types(&self, batch: &Batch, config: &SourceConfig) -> Types {
        let columns = self.before.schema.columns.iter();
        let columns = columns.map(|column| column.name.as_str());
        let known: HashSet<&str> = columns
            .chain(self.planned.keys().map(String::as_str))
            .collect();
        let found = of_new_columns(batch.records(), batch.places(), config, &known);
        let mut types = self.planned.clone();
        types.extend(found.types);
        types
    }

    /// Opens the source as its next run does, with the position of the first page.
    ///
    /// # Errors
    /// Like those of a run.
    pub(super) async fn resume(
        &self,
        config: &SourceConfig,
        context: &Context,
    ) -> Result<(Box<dyn Source>, &Position), Error> {
        let mut source = open(config, context).await?;
        source.restore(&self.landing, &self.resumed).await?;
        Ok((source, &self.position))
    }
}
