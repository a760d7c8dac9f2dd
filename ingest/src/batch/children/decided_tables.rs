//! Child tables after all decisions: their counts, their files, and their log entries.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{ArrayRef, UInt32Array},
    error::ArrowError,
};
use feedline_schemas::{
    commit::{BatchCounts, ChildTable, Decisions, ItemKind, Presence, note},
    ids::{Name, Sequence},
    record::{RecordSchema, system},
};

use super::super::{
    cells::Cells,
    columns::{self, Coerced},
    file::{Encoded, Named, encode, encode_error},
};
use crate::{children::Table, contract::Reading, error::Error};

/// The child tables of a batch after all decisions.
#[derive(Clone, Debug, Default)]
pub(crate) struct DecidedChildren {
    pub(super) tables: Vec<DecidedTable>,
    /// Tables that the configuration does not have any more, as they have landed.
    pub(super) unused: BTreeMap<Name, ChildTable>,
    pub(super) nulled: BTreeMap<String, u64>,
    pub(super) decisions: Decisions,
}

#[derive(Clone, Debug)]
pub(super) struct DecidedTable {
    pub(super) table: Table,
    pub(super) items: Option<ItemKind>,
    pub(super) schema: RecordSchema,
    pub(super) presence: Presence,
    /// Decisions by the name of the column in the record.
    pub(super) decisions: Decisions,
    pub(super) nulled: BTreeMap<String, u64>,
    pub(super) reading: Reading,
    /// The items, under the row and the hash of their record.
    pub(super) cells: Cells,
    /// Their indices in each list, from the outermost.
    pub(super) places: Vec<Vec<u32>>,
}

impl DecidedChildren {
    /// Adds the counts of the items.
    pub(crate) fn count(&self, counts: &mut BatchCounts) {
        let tables = || self.tables.iter();
        let rows = tables().map(|table| (table.table.name.to_string(), table.places.len() as u64));
        counts.children = rows.collect();
        for nulled in tables().map(|table| &table.nulled).chain([&self.nulled]) {
            for (path, count) in nulled {
                *counts.nulled.entry(path.clone()).or_default() += count;
            }
        }
        let decisions = tables().map(|table| &table.decisions);
        for (kind, paths) in decisions.chain([&self.decisions]).flatten() {
            for (path, noted) in paths {
                let sample = || noted.sample.clone();
                note(&mut counts.decisions, kind, path, noted.count, sample);
            }
        }
        tables().for_each(|table| table.count_coerced(counts));
    }

    /// Schema of each table, and the number of rows that have landed in it with the batch.
    pub(crate) fn columns(&self) -> impl Iterator<Item = (&str, (&RecordSchema, u64))> {
        let tables = self.tables.iter();
        tables.map(|table| {
            let columns = (&table.schema, table.presence.rows);
            (table.table.name.as_str(), columns)
        })
    }

    /// Log entry of each table, and its file if it has any rows in this batch.
    ///
    /// # Errors
    /// [`Error::Encode`].
    pub(crate) fn files(
        &self,
        sequence: Sequence,
    ) -> Result<BTreeMap<Name, (ChildTable, Option<Encoded>)>, Error> {
        let unused = self.unused.iter();
        let unused = unused.map(|(name, table)| Ok((name.clone(), (table.clone(), None))));
        let own = self.tables.iter().map(|decided| {
            let encoded = decided.encoded(sequence)?;
            let table = ChildTable {
                lists: decided.table.lists.clone(),
                items: decided.items,
                schema: decided.schema.clone(),
                files: encoded.iter().map(|encoded| encoded.file.clone()).collect(),
                presence: decided.presence.clone(),
            };
            Ok((decided.table.name.clone(), (table, encoded)))
        });
        unused.chain(own).collect()
    }
}

impl DecidedTable {
    fn count_coerced(&self, counts: &mut BatchCounts) {
        for Coerced {
            column,
            count,
            sample,
        } in columns::coerced(&self.schema, &self.cells)
        {
            let path = self.table.label(column);
            note(&mut counts.decisions, "coerced", &path, count, || sample);
            *counts.coerced.entry(path).or_default() += count;
        }
    }

    fn encoded(&self, sequence: Sequence) -> Result<Option<Encoded>, Error> {
        let folder = format!("children/{}", self.table.name);
        let failed = |cause: ArrowError| encode_error(&folder, cause.into());
        let numbers = |numbers: Vec<u32>| -> ArrayRef { Arc::new(UInt32Array::from(numbers)) };
        let levels: Vec<String> = (0..self.table.lists.len()).map(system::index).collect();
        let mut columns = vec![
            Named::new(system::HASH, self.cells.hashes().map_err(failed)?),
            Named::new(system::PARENT, numbers(self.cells.rows.clone())),
        ];
        for (level, name) in levels.iter().enumerate() {
            let places = self.places.iter().map(|at| at[level]);
            columns.push(Named::new(name, numbers(places.collect())));
        }
        let arrays = columns::arrays(&self.schema, &self.cells, &self.reading).map_err(failed)?;
        let own = self.schema.columns.iter().zip(arrays);
        columns.extend(own.map(|(c, array)| Named::of_source(&c.name, c.field_id, array)));
        let rows = (0..).take(self.places.len()).collect::<Vec<u32>>();
        encode(&folder, sequence, rows.into_iter(), columns)
    }
}
