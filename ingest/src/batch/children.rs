//! The child tables of a batch: items of lists, decided together with their record.
//!
//! A record lands with all of its items or not at all. Items are admitted one after another, each
//! by the contract of its table after the items before it, and the record last. If the record does
//! not land, the changes of its items are undone.

mod decided_tables;
mod open_table;
mod setup;

use std::collections::BTreeMap;

use feedline_readers::value::{Value, shorten};
use feedline_schemas::{
    commit::{Decisions, ItemKind, note},
    config::TypeContract,
    ids::Hash128,
};

use self::open_table::{Growing, Parent, SHOWN, key_of, known};
pub(super) use self::{decided_tables::DecidedChildren, setup::Setup};
use crate::{
    children::{place, take},
    contract::{Rejection, Verdict},
    error::Error,
};

/// Child tables while the records of a batch are decided.
pub(super) struct Children<'a> {
    setup: &'a Setup,
    tables: Vec<Growing<'a>>,
    /// Dropped lists of the current record: path, and a sample.
    left_out: Vec<(String, String)>,
    /// Counts of dropped lists, by path.
    nulled: BTreeMap<String, u64>,
    decisions: Decisions,
}

impl<'a> Children<'a> {
    /// Begins a batch.
    ///
    /// # Errors
    /// Like [`Contract::new`].
    pub(super) fn new(setup: &'a Setup) -> Result<Self, Error> {
        let before = setup.before.iter().zip(&setup.items);
        let tables = setup.tables.iter().zip(before);
        let tables =
            tables.map(|(table, (before, items))| Growing::begin(table, before.as_ref(), *items));
        Ok(Self {
            setup,
            tables: tables.collect::<Result<_, Error>>()?,
            left_out: Vec::new(),
            nulled: BTreeMap::new(),
            decisions: Decisions::new(),
        })
    }

    /// Returns true if records have no child tables.
    pub(super) fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Admits the items of a record and returns the rest of it. Always call [`Self::end`] after it.
    ///
    /// # Errors
    /// The verdict on the record if one of its items rejects or stops it.
    pub(super) fn begin(
        &mut self,
        row: u32,
        hash: Hash128,
        mut entries: Vec<(String, Value)>,
    ) -> Result<Vec<(String, Value)>, Verdict> {
        if self.is_empty() {
            return Ok(entries);
        }
        let parent = Parent {
            row,
            hash,
            copies: self
                .tables
                .iter()
                .map(|growing| growing.copies(&entries))
                .collect(),
        };
        let mut lists = Vec::new();
        for (index, growing) in self.tables.iter().enumerate() {
            if growing.table.of.is_none()
                && let Some(list) = take(&mut entries, &growing.table.keys)
            {
                lists.push((index, list));
            }
        }
        for (index, list) in lists {
            self.list(index, list, &mut Vec::new(), &parent)?;
        }
        Ok(entries)
    }

    /// Completes [`Self::begin`]: the items land with their record, or are removed.
    pub(super) fn end(&mut self, has_landed: bool) {
        self.tables
            .iter_mut()
            .for_each(|growing| growing.end(has_landed));
        for (path, sample) in self.left_out.drain(..) {
            if has_landed {
                note(&mut self.decisions, "nulled", &path, 1, || sample);
                *self.nulled.entry(path).or_default() += 1;
            }
        }
    }

    fn list(
        &mut self,
        index: usize,
        value: Value,
        at: &mut Vec<u32>,
        parent: &Parent,
    ) -> Result<(), Verdict> {
        let items = match value {
            Value::Null => return Ok(()),
            Value::List(items) => items,
            other => return self.no_list(index, &other, at),
        };
        for (i, item) in (0..).zip(items) {
            at.push(i);
            self.item(index, item, at, parent)?;
            at.pop();
        }
        Ok(())
    }

    /// Verdict on a record with a value of another kind where a list is expected.
    fn no_list(&mut self, index: usize, value: &Value, at: &[u32]) -> Result<(), Verdict> {
        let table = self.tables[index].table;
        let sample = format!("`{}`", shorten(&value.canonical(), SHOWN));
        let outer = &table.lists[..at.len()];
        let list = table.lists.last().map(String::as_str).unwrap_or_default();
        let path = place(outer, &known(at), list);
        let rejection = Rejection {
            reason: "not_a_list",
            detail: format!(
                "table `{}` comes from the list `{path}`, the value is {} {sample}",
                table.name,
                value.kind()
            ),
            path,
        };
        match table.contract.types {
            TypeContract::NullValue => {
                let path = place(outer, &vec![None; at.len()], list);
                self.left_out.push((path, sample));
                Ok(())
            }
            TypeContract::Freeze => Err(Verdict::Stop(key_of(table, "types", ""), rejection)),
            TypeContract::QuarantineRow | TypeContract::Widen => Err(Verdict::Reject(rejection)),
        }
    }

    fn item(
        &mut self,
        index: usize,
        item: Value,
        at: &mut Vec<u32>,
        parent: &Parent,
    ) -> Result<(), Verdict> {
        self.tables[index].save();
        let mut entries = self.tables[index].entries(item, at)?;
        let mut nested = Vec::new();
        if self.tables[index].items() == Some(ItemKind::Objects) {
            for (inner, growing) in self.tables.iter().enumerate() {
                if growing.table.of == Some(index)
                    && let Some(list) = take(&mut entries, &growing.table.keys)
                {
                    nested.push((inner, list));
                }
            }
        }
        self.tables[index].admit(entries, at, parent, &parent.copies[index])?;
        for (inner, list) in nested {
            self.list(inner, list, at, parent)?;
        }
        Ok(())
    }

    /// Ends the batch of `source`.
    ///
    /// # Errors
    /// [`Error::Frozen`] if a contract stops the run, [`Error::Config`] for a table of too many
    /// rows.
    pub(super) fn close(self, source: &str) -> Result<DecidedChildren, Error> {
        let mut tables = Vec::with_capacity(self.tables.len());
        for growing in self.tables {
            tables.push(growing.close(source)?);
        }
        Ok(DecidedChildren {
            tables,
            unused: self.setup.unused.clone(),
            nulled: self.nulled,
            decisions: self.decisions,
        })
    }
}

#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod tests;
