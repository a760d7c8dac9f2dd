//! Decisions of the contract about records that do not land.

use std::collections::BTreeMap;

use feedline_readers::{record::Record, value::Value};
use feedline_schemas::{
    commit::FilePart, config::SourceConfig, csv_cell::CellFormat, record::ColumnType,
    report::Warning,
};

use super::landed_columns::LandedColumns;
use crate::{
    batch::{Batch, Decided},
    column_warnings::warn_of_columns,
    dedup::Window,
    error::Error,
    infer::{Inferred, Types, of_first},
    source::Page,
};

/// Decisions about the records of some pages.
#[derive(Debug, Default)]
pub(super) struct DryRun {
    /// Number of records that are objects.
    pub(super) decided: u64,
    /// Number of records among them that would be rejected.
    pub(super) rejected: u64,
    /// One of them.
    pub(super) sample: Option<String>,
    /// Rows of each child table.
    pub(super) children: BTreeMap<String, u64>,
    /// Types of the columns as the records land: those of rejected records do not count.
    pub(super) types: Types,
    pub(super) warnings: Vec<Warning>,
    /// Error that the contract would end a run with.
    pub(super) stop: Option<String>,
}

/// Decides about records as a run would: after the `landed` columns, or before any, with types inferred
/// from a sample. With `is_landed`, the records may be among the landed ones, and are not counted again.
pub(super) fn dry_run(
    config: &SourceConfig,
    page: Page,
    sample: &Inferred,
    landed: Option<&LandedColumns>,
    is_landed: bool,
) -> DryRun {
    let mut found = DryRun::default();
    let is_object: Vec<bool> = page.records.iter().map(is_object).collect();
    found.decided = is_object.iter().filter(|is_object| **is_object).count() as u64;
    match decide(config, page, sample, landed) {
        Ok(decided) => {
            let rejects = decided.rejects().iter();
            let by_contract = rejects.filter(|reject| {
                let row = usize::try_from(reject.row).unwrap_or(usize::MAX);
                is_object.get(row).copied().unwrap_or_default()
            });
            let mut by_contract = by_contract.peekable();
            found.sample = by_contract.peek().map(|reject| reject.sample());
            found.rejected = by_contract.count() as u64;
            found.children = decided.counts().children;
            let typed = decided.schema.columns.iter();
            let typed = typed.filter(|column| column.r#type != ColumnType::Null);
            let typed = typed.map(|column| (column.name.clone(), column.r#type));
            found.types = typed.collect();
            let mut columns = match landed.filter(|_| is_landed) {
                Some(landed) => landed.record_columns(),
                None => decided.record_columns(),
            };
            let sampled = sample.columns.iter();
            columns.others = sampled.map(|column| column.name.as_str()).collect();
            let of_columns = warn_of_columns(config, &columns);
            found.warnings = decided.warnings;
            found.warnings.extend(of_columns);
        }
        Err(error) => found.stop = Some(error.to_string()),
    }
    found
}

fn is_object(record: &Record) -> bool {
    record
        .value()
        .is_some_and(|value| matches!(*value, Value::Object(_)))
}

fn decide(
    config: &SourceConfig,
    page: Page,
    sample: &Inferred,
    landed: Option<&LandedColumns>,
) -> Result<Decided, Error> {
    let parts = page.parts.iter().map(|part| part.part.clone());
    let parts: Vec<FilePart> = parts.collect();
    let mut batch = Batch::default();
    batch.push(page)?;
    batch.set_files(&config.url, &parts);
    let types = match landed {
        None => of_first(batch.records(), batch.places(), config, Some(sample)).types,
        Some(landed) => {
            batch.follow(landed.children.clone());
            landed.plan_types(&batch, config)
        }
    };
    batch.plan(types, CellFormat::new(&config.csv));
    let mut window = Window::default();
    let before = landed.map(|landed| &landed.before);
    batch.decide(config.name.as_str(), &config.contract, before, &mut window)
}
