//! Initial state of the child tables of a batch.

use std::collections::BTreeMap;

use feedline_schemas::{
    commit::{ChildTable, ItemKind},
    config::ContractConfig,
    ids::Name,
};

use crate::{
    children::{Table, place, tables},
    contract::Before,
    error::Error,
};

/// Initial state of the child tables of a batch.
pub(crate) struct Setup {
    pub(super) tables: Vec<Table>,
    /// State of each table before the batch.
    pub(super) before: Vec<Option<Before>>,
    pub(super) items: Vec<Option<ItemKind>>,
    /// Tables that have landed, and that the configuration does not have any more.
    pub(super) unused: BTreeMap<Name, ChildTable>,
}

impl Setup {
    /// Resolves the tables of `config`, given the tables that have `landed`.
    ///
    /// # Errors
    /// [`Error::Config`] if a landed table of the same name comes from another list.
    pub(crate) fn new(
        config: &ContractConfig,
        mut landed: BTreeMap<Name, ChildTable>,
    ) -> Result<Self, Error> {
        let tables = tables(config)?;
        let (mut before, mut items) = (Vec::new(), Vec::new());
        for table in &tables {
            let landed = landed.remove(&table.name).filter(has_landed);
            if let Some(landed) = landed.as_ref().filter(|l| l.lists != table.lists) {
                let path = |lists: &[String]| place(lists, &vec![None; lists.len()], "");
                let reason = format!(
                    "the table has landed with the items of `{}` already, and cannot continue with those of `{}`; give the new \
                     one another name",
                    path(&landed.lists),
                    path(&table.lists)
                );
                let key = format!("contract.children.{}.path", table.name);
                return Err(Error::config(key, reason));
            }
            items.push(landed.as_ref().and_then(|landed| landed.items));
            before.push(landed.map(|landed| Before {
                schema: landed.schema,
                presence: landed.presence,
            }));
        }
        for table in landed.values_mut() {
            table.files.clear();
        }
        Ok(Self {
            tables,
            before,
            items,
            unused: landed,
        })
    }
}

/// Returns true if a table has rows, even if none of them has a value.
fn has_landed(table: &ChildTable) -> bool {
    !table.schema.columns.is_empty() || table.presence.rows > 0
}
