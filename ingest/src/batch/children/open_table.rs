//! One child table while the records of a batch are decided.

use std::{collections::BTreeMap, mem};

use feedline_readers::value::{Value, shorten};
use feedline_schemas::{
    commit::{Decisions, ItemKind, OTHER_PATHS, note},
    config::TypeContract,
    ids::Hash128,
};

use super::{
    super::{cells::Cells, file::MAX_RECORDS},
    decided_tables::DecidedTable,
};
use crate::{
    batch::rejects::{frozen, own_key},
    children::{Table, VALUE, find, place},
    contract::{Before, Contract, Rejection, Verdict},
    error::Error,
};

/// Characters of a value in a sample.
pub(super) const SHOWN: usize = 100;

/// A child table that grows.
pub(super) struct Growing<'a> {
    pub(super) table: &'a Table,
    state: State<'a>,
    /// Items that land, under the row and the hash of their record.
    cells: Cells,
    /// Their indices in each list, from the outermost.
    places: Vec<Vec<u32>>,
    /// Number of rows before the current record, if there is one.
    saved: Option<usize>,
    /// State before the current record, or an older clone to reuse.
    before: Option<State<'a>>,
}

/// State of a table that a record changes besides its rows.
#[derive(Clone)]
struct State<'a> {
    contract: Contract<'a>,
    items: Option<ItemKind>,
    nulled: BTreeMap<usize, u64>,
    /// Items of another kind that landed without values.
    mixed: Decisions,
}

/// Record whose items are being decided.
pub(super) struct Parent {
    pub(super) row: u32,
    pub(super) hash: Hash128,
    /// Parent values that each table's rows copy from the record.
    pub(super) copies: Vec<Vec<(String, Value)>>,
}

impl State<'_> {
    /// Makes `copy`, an earlier clone, equal to this one.
    fn copy_to(&self, copy: &mut Self) {
        self.contract.copy_to(&mut copy.contract);
        copy.items = self.items;
        copy.nulled.clone_from(&self.nulled);
        copy.mixed.clone_from(&self.mixed);
    }
}

impl<'a> Growing<'a> {
    /// Begins a batch.
    ///
    /// # Errors
    /// Like [`Contract::new`].
    pub(super) fn begin(
        table: &'a Table,
        before: Option<&'a Before>,
        items: Option<ItemKind>,
    ) -> Result<Self, Error> {
        let under = |error| match error {
            Error::Config { key, reason } => {
                let column = key.strip_prefix("contract.").unwrap_or(&key);
                Error::config(format!("contract.children.{}.{column}", table.name), reason)
            }
            other => other,
        };
        Ok(Self {
            table,
            state: State {
                contract: Contract::new(&table.contract, before).map_err(under)?,
                items,
                nulled: BTreeMap::new(),
                mixed: Decisions::new(),
            },
            cells: Cells::default(),
            places: Vec::new(),
            saved: None,
            before: None,
        })
    }

    /// Returns the values that the rows copy from their record.
    pub(super) fn copies(&self, record: &[(String, Value)]) -> Vec<(String, Value)> {
        let copies = self.table.parent.iter();
        let copies =
            copies.filter_map(|(name, keys)| Some((name.clone(), find(record, keys)?.clone())));
        copies.collect()
    }

    /// Undoes the changes of a record that does not land.
    pub(super) fn end(&mut self, has_landed: bool) {
        if let (Some(rows), Some(before), false) = (self.saved.take(), &mut self.before, has_landed)
        {
            mem::swap(&mut self.state, before);
            self.cells.truncate(rows);
            self.places.truncate(rows);
        }
    }

    /// Kind of the items, if known.
    pub(super) fn items(&self) -> Option<ItemKind> {
        self.state.items
    }

    /// Saves the state before the current record.
    pub(super) fn save(&mut self) {
        if self.saved.is_none() {
            self.saved = Some(self.places.len());
            match &mut self.before {
                Some(before) => self.state.copy_to(before),
                None => self.before = Some(self.state.clone()),
            }
        }
    }

    /// Entries of an item. Those of its own list are still in it.
    pub(super) fn entries(
        &mut self,
        item: Value,
        at: &[u32],
    ) -> Result<Vec<(String, Value)>, Verdict> {
        let kind = match &item {
            Value::Null => return Ok(Vec::new()),
            Value::Object(_) => ItemKind::Objects,
            _ => ItemKind::Values,
        };
        if *self.state.items.get_or_insert(kind) != kind {
            return self.mixed(&item, at);
        }
        Ok(match item {
            Value::Object(entries) => entries,
            value => vec![(VALUE.to_owned(), value)],
        })
    }

    /// Verdict on a record with an item of another kind than all before.
    fn mixed(&mut self, item: &Value, at: &[u32]) -> Result<Vec<(String, Value)>, Verdict> {
        let should = match self.state.items {
            Some(ItemKind::Objects) => "objects",
            Some(ItemKind::Values) | None => "values that are no objects",
        };
        let sample = format!("`{}`", shorten(&item.canonical(), SHOWN));
        let rejection = Rejection {
            reason: "mixed_items",
            path: place(&self.table.lists, &known(at), ""),
            detail: format!(
                "the items of table `{}` are {should}, this one is {} {sample}",
                self.table.name,
                item.kind()
            ),
        };
        match self.table.contract.types {
            TypeContract::NullValue => {
                note(&mut self.state.mixed, "nulled", "", 1, || sample);
                Ok(Vec::new())
            }
            TypeContract::Freeze => Err(Verdict::Stop(key_of(self.table, "types", ""), rejection)),
            TypeContract::QuarantineRow | TypeContract::Widen => Err(Verdict::Reject(rejection)),
        }
    }

    pub(super) fn admit(
        &mut self,
        mut entries: Vec<(String, Value)>,
        at: &[u32],
        parent: &Parent,
        copies: &[(String, Value)],
    ) -> Result<(), Verdict> {
        let placed = |rejection: Rejection| {
            let path = place(&self.table.lists, &known(at), "");
            Rejection {
                reason: rejection.reason,
                detail: format!("in `{path}`: {}", rejection.detail),
                path: place(&self.table.lists, &known(at), &rejection.path),
            }
        };
        let is_there = |name: &str| entries.iter().any(|(key, _)| key == name);
        if let Some((name, _)) = copies.iter().find(|(name, _)| is_there(name)) {
            let rejection = Rejection {
                reason: "reserved_key",
                path: name.clone(),
                detail: format!(
                    "column `{name}` comes from the record, and the item has a key of this name too; call it otherwise in \
                     `contract.children.{}.parent`",
                    self.table.name
                ),
            };
            return Err(Verdict::Reject(placed(rejection)));
        }
        entries.splice(0..0, copies.iter().cloned());
        match self.state.contract.admit(entries) {
            Verdict::Land { cells, nulled } => {
                for column in nulled {
                    *self.state.nulled.entry(column).or_default() += 1;
                }
                self.cells.land(parent.row, parent.hash, cells);
                self.places.push(at.to_vec());
                Ok(())
            }
            Verdict::Reject(rejection) => Err(Verdict::Reject(placed(rejection))),
            Verdict::Stop(key, rejection) => {
                let key = key_of(self.table, &key, &rejection.path);
                Err(Verdict::Stop(key, placed(rejection)))
            }
        }
    }

    pub(super) fn close(self, source: &str) -> Result<DecidedTable, Error> {
        let Self {
            table,
            state,
            cells,
            places,
            ..
        } = self;
        if places.len() > MAX_RECORDS {
            let reason = format!(
                "the batch has {} items of table `{}`, more than {MAX_RECORDS}; use a smaller number",
                places.len(),
                table.name
            );
            return Err(Error::config("batch.rows", reason));
        }
        let reading = state.contract.reading().clone();
        let closed = state.contract.close().map_err(|(key, rejection)| {
            let detail = format!("table `{}`: {}", table.name, rejection.detail);
            let key = key_of(table, key, &rejection.path);
            let rejection = Rejection {
                detail,
                ..rejection
            };
            frozen(source, &key, rejection, "none alone, but the whole batch")
        })?;
        let mut decisions = Decisions::new();
        for (kind, paths) in state.mixed.iter().chain(&closed.decisions) {
            for (path, noted) in paths {
                let label = match path.as_str() {
                    OTHER_PATHS => path.clone(),
                    path => table.label(path),
                };
                let sample = || noted.sample.clone();
                note(&mut decisions, kind, &label, noted.count, sample);
            }
        }
        let columns = &closed.schema.columns;
        let mut nulled: BTreeMap<String, u64> = BTreeMap::new();
        for (column, count) in state.nulled {
            nulled.insert(table.label(&columns[column].name), count);
        }
        for noted in state.mixed.values().flat_map(BTreeMap::values) {
            nulled.insert(table.label(""), noted.count);
        }
        Ok(DecidedTable {
            table: table.clone(),
            items: state.items,
            schema: closed.schema,
            presence: closed.presence,
            decisions,
            nulled,
            reading,
            cells,
            places,
        })
    }
}

/// Key below `contract` that decides about `column` of a child table: that of the column, of the
/// table or of the source.
pub(super) fn key_of(table: &Table, key: &str, column: &str) -> String {
    let own = own_key(&table.contract, key, column);
    match own != key || table.modes.contains(&key) {
        true => format!("children.{}.{own}", table.name),
        false => own,
    }
}

/// Converts indices to parts of a path.
pub(super) fn known(at: &[u32]) -> Vec<Option<u32>> {
    at.iter().copied().map(Some).collect()
}
