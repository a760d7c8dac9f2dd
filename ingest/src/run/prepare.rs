//! Deciding and encoding a batch, before anything of it is written.

use std::{
    collections::{BTreeMap, HashSet},
    mem,
    sync::Arc,
};

use feedline_schemas::{
    commit::ChildTable,
    config::SourceConfig,
    csv_cell::CellFormat,
    ids::{Name, Sequence},
    record::ColumnType,
};

use super::source_run::Run;
use crate::{
    batch::{Batch, Decided, Encoded},
    blocking::computing,
    contract::Before,
    dedup::Window,
    error::Error,
    infer::{self, Inferred, Types},
    raw::{self, Exchange},
};

/// A batch ready to be written.
pub(super) struct Prepared {
    pub(super) decided: Decided,
    /// Planned types of columns without a value so far.
    pub(super) planned: Types,
    pub(super) data: Option<Encoded>,
    pub(super) rejects: Option<Encoded>,
    pub(super) frontier: Option<Encoded>,
    pub(super) validators: Option<Encoded>,
    pub(super) raw: Option<Encoded>,
    pub(super) children: BTreeMap<Name, (ChildTable, Option<Encoded>)>,
}

/// A batch to be decided, with what is known of its source.
struct BatchDecision {
    config: SourceConfig,
    sequence: Sequence,
    batch: Batch,
    /// Responses to be archived.
    answers: Vec<Exchange>,
    /// Schema before the batch, if any columns have landed.
    before: Option<Before>,
    /// Planned types of columns without a value so far.
    planned: Types,
    sample: Option<Arc<Inferred>>,
    window: Window,
}

impl Run<'_> {
    /// Decides and encodes a batch. After an error the window is void: the run is over.
    pub(super) async fn prepare(
        &mut self,
        mut batch: Batch,
        answers: Vec<Exchange>,
        sequence: Sequence,
    ) -> Result<Prepared, Error> {
        let last = self.log.last();
        // An entry without columns landed nothing: the first columns make the first version.
        let before = last.map(|entry| Before {
            schema: entry.schema.clone(),
            presence: entry.state.presence.clone(),
        });
        let before = before.filter(|before| !before.schema.columns.is_empty());
        let children = last.map(|entry| entry.children.clone());
        batch.follow(children.unwrap_or_default());
        let planned = last.map(|entry| entry.state.planned.clone());
        let decision = BatchDecision {
            config: self.config.clone(),
            sequence,
            batch,
            answers,
            before,
            planned: planned.unwrap_or_default(),
            sample: self.sample.clone(),
            window: mem::take(&mut self.window),
        };
        let (window, prepared) = computing(move || decision.decide_and_encode()).await?;
        self.window = window;
        Ok(prepared)
    }
}

impl BatchDecision {
    fn decide_and_encode(mut self) -> Result<(Window, Prepared), Error> {
        self.plan_columns();
        let (name, contract) = (&self.config.name, &self.config.contract);
        let decided = self.batch.decide(
            name.as_str(),
            contract,
            self.before.as_ref(),
            &mut self.window,
        )?;
        let mut planned = self.planned;
        keep_open(&mut planned, &decided);
        let sequence = self.sequence;
        let data = decided.data_file(sequence)?;
        let settled = self.window.settle(data.as_ref().map(|data| &data.bytes));
        settled.map_err(|reason| Error::Landed {
            url: format!("the data file of batch {sequence}"),
            reason,
        })?;
        let prepared = Prepared {
            planned,
            data,
            rejects: decided.rejects_file(sequence)?,
            frontier: decided.frontier_file(sequence)?,
            validators: decided.validators_file(sequence)?,
            raw: raw::file(&self.answers, sequence)?,
            children: decided.child_files(sequence)?,
            decided,
        };
        Ok((self.window, prepared))
    }

    /// Plans the types of new columns, by inference.
    fn plan_columns(&mut self) {
        let (batch, config) = (&mut self.batch, &self.config);
        let found = match &self.before {
            None => {
                let found = infer::of_first(
                    batch.records(),
                    batch.places(),
                    config,
                    self.sample.as_deref(),
                );
                self.planned = found.types;
                found.warnings
            }
            Some(before) => {
                let columns = before.schema.columns.iter();
                let columns = columns.map(|column| column.name.as_str());
                let known: HashSet<&str> = columns
                    .chain(self.planned.keys().map(String::as_str))
                    .collect();
                let found = infer::of_new_columns(batch.records(), batch.places(), config, &known);
                self.planned.extend(found.types);
                found.warnings
            }
        };
        batch.warn(found);
        batch.plan(self.planned.clone(), CellFormat::new(&config.csv));
    }
}

/// Removes the columns from `planned` that have a type by now.
fn keep_open(planned: &mut Types, decided: &Decided) {
    let made = &decided.schema.columns;
    let is_open = |name: &String| {
        let found = made.iter().find(|column| column.name == *name);
        found.is_none_or(|column| column.r#type == ColumnType::Null)
    };
    planned.retain(|name, _| is_open(name));
}
