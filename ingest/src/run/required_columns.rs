//! Warnings about records that landed without a value in a required column: in a run, and in all.

use std::collections::BTreeMap;

use feedline_schemas::{
    commit::{Decisions, Noted},
    config::{ContractConfig, SourceConfig},
    count::first_of,
    ids::Name,
    report::Warning,
};

use crate::{children::tables, contract};

/// Code of the warning.
const REQUIRED_MISSING: &str = "required_missing";

/// Most columns that the warning names.
const NAMED: usize = 5;

/// Records that landed without a value in a required column: their number by column, and the sample
/// of the first batch.
#[derive(Debug, Default)]
pub(crate) struct MissingRequired(BTreeMap<String, Noted>);

impl MissingRequired {
    /// Those of all landed records of the source, from the decisions in its totals.
    pub(crate) fn landed(config: &SourceConfig, totals: &Decisions) -> Self {
        let mut missing = Self::default();
        missing.add(config, totals);
        missing
    }

    /// The warning about all landed records of `source`, if it has such records.
    pub(crate) fn warning_of_landed(&self, source: &Name) -> Option<Warning> {
        let columns = self.columns()?;
        let message = format!(
            "records have landed without a value in columns of `contract.required`: {columns}. Such records land while `contract.nulls` is `warn`, its default: set `contract.nulls = \"quarantine_row\"` to reject them, or `contract.column.<name>.nulls = \"warn\"` where a column may be null, which ends this warning. The counts are of all records that have landed, superseded ones included, until `feedline ingest reset PIPELINE.toml {source}`, which re-reads everything"
        );
        Some(Warning::new(REQUIRED_MISSING, message).with_key("contract.nulls"))
    }

    /// Adds those of a batch of the source, or of its totals, from the `decisions`.
    pub(super) fn add(&mut self, config: &SourceConfig, decisions: &Decisions) {
        for kind in [
            contract::TURNED_NULL,
            contract::VANISHED,
            contract::REQUIRED_ABSENT,
        ] {
            for (column, noted) in decisions.get(kind).into_iter().flatten() {
                if !is_required(&config.contract, column) {
                    continue;
                }
                match self.0.get_mut(column) {
                    Some(known) => known.count += noted.count,
                    None => {
                        self.0.insert(column.clone(), noted.clone());
                    }
                }
            }
        }
    }

    /// The warning about those of a run, if there are any.
    pub(super) fn warning(&self) -> Option<Warning> {
        let columns = self.columns()?;
        let message = format!(
            "records of this run landed without a value in columns of `contract.required`: {columns}. `contract.nulls` is `warn`, its default, so they land: set `contract.nulls = \"quarantine_row\"` to reject such records, or `contract.column.<name>.nulls = \"warn\"` where a column may be null"
        );
        Some(Warning::new(REQUIRED_MISSING, message).with_key("contract.nulls"))
    }

    /// The columns with their numbers, for a message; `None` if there are none.
    fn columns(&self) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let named = self.0.iter();
        let named = named.map(|(column, Noted { count, sample })| {
            format!("`{column}` in {count} (first batch: {sample})")
        });
        let named: Vec<String> = named.collect();
        Some(first_of(&named, NAMED))
    }
}

/// Returns true if `column` of the records or of a child table is required. A column with `nulls` of
/// its own is meant to have them.
fn is_required(contract: &ContractConfig, column: &str) -> bool {
    let is_open = |contract: &ContractConfig, name: &str| {
        let own = contract.column.get(name);
        own.is_none_or(|own| own.nulls.is_none())
    };
    let is_own = contract.required.iter().any(|name| name == column);
    if is_own {
        return is_open(contract, column);
    }
    let tables = tables(contract).unwrap_or_default();
    tables.iter().any(|table| {
        let mut required = table.contract.required.iter();
        required.any(|name| table.label(name) == column && is_open(&table.contract, name))
    })
}
