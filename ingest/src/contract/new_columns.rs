//! Keys that are no columns yet.

use feedline_readers::value::Value;
use feedline_schemas::{
    config::{ColumnsContract, TypeContract},
    count::counted,
    record::{Column, system},
};

use super::{
    Contract, KEPT_WHOLE, NEW, Rejection, Rule, Verdict, declared,
    fit::{self, Fit},
    map_columns,
    missing_values::Met,
    shown,
};
use crate::flatten::Leaf;

/// Reason of a record with more columns than the contract allows.
pub(crate) const TOO_MANY_COLUMNS: &str = "too_many_columns";

impl Contract<'_> {
    /// Decides about the leaves of a record that have no columns yet. Returns the leaves that stay
    /// and sets their `places`.
    pub(super) fn welcome(
        &mut self,
        leaves: Vec<Leaf>,
        places: &mut Vec<usize>,
    ) -> Result<Vec<Leaf>, Verdict> {
        let leaves = self.known(leaves, places)?;
        let leaves = self.narrow(leaves, places);
        let new = || {
            leaves
                .iter()
                .zip(places.iter())
                .filter(|(_, place)| **place == NEW)
        };
        if let Some((leaf, _)) = new().find(|(leaf, _)| leaf.name.starts_with(system::PREFIX)) {
            return Err(Verdict::Reject(Rejection {
                reason: "reserved_key",
                path: leaf.name.clone(),
                detail: format!(
                    "column names that begin with `{}` are feedline's own",
                    system::PREFIX
                ),
            }));
        }
        let most = self.config.max_columns.get() as usize;
        let over = new().nth(most.saturating_sub(self.columns.len()));
        let Some(path) = over.map(|(leaf, _)| leaf.name.clone()) else {
            return Ok(leaves);
        };
        Err(Verdict::Reject(Rejection {
            reason: TOO_MANY_COLUMNS,
            path,
            detail: format!(
                "with the {} of this record the source would have {} columns, `contract.max_columns` is {most}",
                counted(new().count() as u64, "new one"),
                self.columns.len() + new().count()
            ),
        }))
    }

    /// Applies `contract.columns`.
    fn known(
        &mut self,
        mut leaves: Vec<Leaf>,
        places: &mut Vec<usize>,
    ) -> Result<Vec<Leaf>, Verdict> {
        let mode = self.config.columns;
        if mode == ColumnsContract::Evolve || self.before.is_none() {
            return Ok(leaves);
        }
        let is_unknown = |leaf: &Leaf, place: usize| {
            let is_named = self.config.column.contains_key(&leaf.name)
                || self.config.required.contains(&leaf.name);
            place == NEW && !is_named
        };
        let unknown: Vec<bool> = leaves
            .iter()
            .zip(places.iter())
            .map(|(leaf, place)| is_unknown(leaf, *place))
            .collect();
        let mut found = leaves.iter().zip(&unknown).filter(|(_, unknown)| **unknown);
        let Some((leaf, _)) = found.next() else {
            return Ok(leaves);
        };
        let rejection = Rejection {
            reason: "unknown_column",
            path: leaf.name.clone(),
            detail: format!(
                "column `{}` is new, its value is {} `{}`",
                leaf.name,
                leaf.value.kind(),
                shown(&leaf.value)
            ),
        };
        match mode {
            ColumnsContract::Freeze => return Err(Verdict::Stop("columns".to_owned(), rejection)),
            ColumnsContract::QuarantineRow => return Err(Verdict::Reject(rejection)),
            ColumnsContract::NullValue | ColumnsContract::Evolve => {}
        }
        let mut dropped = unknown.iter();
        leaves.retain(|leaf| {
            let is_dropped = dropped.next() == Some(&true);
            if is_dropped {
                let sample = format!("`{}`", shown(&leaf.value));
                self.pending.push(("dropped", leaf.name.clone(), sample));
            }
            !is_dropped
        });
        self.place(&leaves, places);
        Ok(leaves)
    }

    /// Collapses objects of too many keys into one column.
    fn narrow(&mut self, mut leaves: Vec<Leaf>, places: &mut Vec<usize>) -> Vec<Leaf> {
        loop {
            let new = leaves.iter().zip(places.iter());
            let new = new.filter(|(leaf, place)| **place == NEW && leaf.name.contains('.'));
            let wide = self.width.too_wide(new.map(|(leaf, _)| leaf.name.as_str()));
            let Some(path) = wide.map(ToOwned::to_owned) else {
                return leaves;
            };
            leaves = map_columns::collapse(leaves, &path);
            let leaf = leaves.iter().find(|leaf| leaf.name == path);
            let sample = leaf.map(|leaf| shown(&leaf.value)).unwrap_or_default();
            let most = self.config.max_keys.get();
            let sample = format!("more than {most} keys, such as those of `{sample}`");
            self.pending.push((KEPT_WHOLE, path, sample));
            self.place(&leaves, places);
        }
    }

    /// Returns whether the first value of a column fits its declared type, and the action if it
    /// does not.
    pub(super) fn newcomer(&self, leaf: &Leaf) -> (Fit, TypeContract) {
        let rule = self.rule(&leaf.name);
        let fit = match declared(self.config, &leaf.name) {
            None => self.begin(&leaf.name, rule.types, &leaf.value),
            Some(declared) => match self.reading.fit(declared, &leaf.value) {
                Fit::Fits => Fit::Fits,
                Fit::Becomes(_) | Fit::Conflict => Fit::Conflict,
            },
        };
        (fit, rule.types)
    }

    /// Decides the fit of `value` in a column that has no type yet, but may have a planned one.
    pub(super) fn begin(&self, name: &str, types: TypeContract, value: &Value) -> Fit {
        let Some(planned) = self.planned.get(name).copied() else {
            return Fit::Fits;
        };
        match (self.reading.fit(planned, value), types) {
            (Fit::Fits, _) => Fit::Fits,
            // If no later value fits a column of the planned type, the first one does not either.
            (Fit::Conflict, TypeContract::Widen) if fit::is_whole(value) => Fit::Conflict,
            (Fit::Conflict, TypeContract::Widen) => Fit::Fits,
            (Fit::Becomes(_), TypeContract::Freeze) | (Fit::Conflict, _) => Fit::Conflict,
            (Fit::Becomes(_), _) => Fit::Fits,
        }
    }

    /// Index of the new column called `name`, made for `value`.
    pub(super) fn column(&mut self, name: String, value: &Value) -> usize {
        let index = self.columns.len();
        let ids = self.columns.iter().map(|column| column.field_id);
        let field_id = ids.max().unwrap_or_default() + 1;
        let r#type = declared(self.config, &name).unwrap_or_else(|| self.first_type(&name, value));
        let rule: Rule = self.rule(&name);
        self.unmade.retain(|unmade| *unmade != name);
        self.strict += usize::from(rule.is_strict());
        if name.contains('.') {
            self.width
                .push(&name, |path| self.by_name.contains_key(path));
        }
        if self.before.is_some() {
            let sample = format!("{} `{}`", value.kind(), shown(value));
            self.pending.push(("new_column", name.clone(), sample));
        }
        self.columns.push(Column {
            field_id,
            name: name.clone(),
            r#type,
            whole: false,
        });
        self.met.push(Met::default());
        self.rules.push(rule);
        self.by_name.insert(name, index);
        index
    }
}
