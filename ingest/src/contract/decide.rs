//! Decision about a record whose leaves have their columns.

use std::mem;

use feedline_readers::value::{Value, shorten};
use feedline_schemas::{
    commit::{Decisions, note},
    config::{NullContract, TypeContract},
    number::{self, MAX_EXACT},
    record::ColumnType,
};

use super::{
    Contract, DIGITS_CUT, DIGITS_ROUNDED, KEPT_WHOLE, NEW, PERCENT_READ, Rejection, Rule, SHOWN,
    Verdict,
    dates::iso_format,
    decimal, decimals, declared,
    fit::{self, Fit, infer},
    float, integer,
    missing_values::Met,
    noun, shown,
};
use crate::flatten::Leaf;

impl Contract<'_> {
    /// Decides about a record, and applies its changes to the schema if it lands.
    pub(super) fn decide(&mut self, mut leaves: Vec<Leaf>, places: &[usize]) -> Verdict {
        let unreadable = self.translate(&mut leaves, places);
        let mut changes = Vec::new();
        let mut nulled = Vec::new();
        for (i, (leaf, place)) in leaves.iter().zip(places).enumerate() {
            let (fit, types) = match self.rules.get(*place) {
                Some(rule) => (self.resolve(*place, *rule, &leaf.value), rule.types),
                None => self.newcomer(leaf),
            };
            let fit = match unreadable.contains(&i) {
                true => Fit::Conflict,
                false => fit,
            };
            match fit {
                Fit::Fits => {}
                Fit::Becomes(r#type) => changes.push((*place, r#type, i)),
                Fit::Conflict => {
                    let rejection = self.conflict(leaf, *place);
                    match types {
                        TypeContract::NullValue => nulled.push(i),
                        TypeContract::Freeze => {
                            return Verdict::Stop("types".to_owned(), rejection);
                        }
                        TypeContract::QuarantineRow | TypeContract::Widen => {
                            return Verdict::Reject(rejection);
                        }
                    }
                }
            }
        }
        if let Some(verdict) = self.empty(&leaves, places, &nulled) {
            return verdict;
        }
        for (column, r#type, leaf) in changes {
            let have = mem::replace(&mut self.columns[column].r#type, r#type);
            if have != ColumnType::Null {
                if have == ColumnType::Float64 && matches!(leaves[leaf].value, Value::Cell(_)) {
                    // Cells are written by the last type of the batch, so none is rounded.
                    forget(&mut self.decisions, DIGITS_ROUNDED, &leaves[leaf].name);
                }
                let value = shown(&leaves[leaf].value);
                let sample = format!("{} to {} for `{value}`", noun(have), noun(r#type));
                self.pending
                    .push(("widened", leaves[leaf].name.clone(), sample));
            }
        }
        self.land(leaves, places, &nulled)
    }

    /// Returns the verdict if a column that must not be null is null.
    fn empty(&self, leaves: &[Leaf], places: &[usize], nulled: &[usize]) -> Option<Verdict> {
        // Warnings are counted at the end of the batch.
        let wanted = self.strict + self.strict_unmade().count();
        if wanted == 0 {
            return None;
        }
        let is_wanted = |leaf: &Leaf, place: usize| match self.rules.get(place) {
            Some(rule) => rule.is_strict(),
            None => self.strict_unmade().any(|name| name == leaf.name),
        };
        let there = leaves.iter().zip(places).enumerate();
        let there = there.filter(|(i, (leaf, place))| {
            is_wanted(leaf, **place) && leaf.value != Value::Null && !nulled.contains(i)
        });
        if there.clone().count() == wanted {
            return None;
        }
        let columns = self.columns.iter().zip(&self.rules);
        let made = columns.filter(|(_, rule)| rule.is_strict());
        let names = made
            .map(|(column, _)| column.name.as_str())
            .chain(self.strict_unmade());
        let missing = names.filter(|name| there.clone().all(|(_, (leaf, _))| leaf.name != *name));
        // A null that stops the run has priority over one that rejects the record.
        let path = missing.min_by_key(|name| self.nulls(name) != NullContract::Freeze)?;
        let is_null = leaves.iter().any(|leaf| leaf.name == path);
        let what = if is_null { "null" } else { "absent" };
        let rejection = Rejection {
            reason: "missing_value",
            path: path.to_owned(),
            detail: format!("column `{path}` is {what}, every record should have it"),
        };
        Some(match self.nulls(path) {
            NullContract::Freeze => Verdict::Stop("nulls".to_owned(), rejection),
            NullContract::Warn | NullContract::QuarantineRow => Verdict::Reject(rejection),
        })
    }

    fn land(&mut self, leaves: Vec<Leaf>, places: &[usize], nulled_leaves: &[usize]) -> Verdict {
        let mut cells = Vec::with_capacity(leaves.len());
        let mut nulled = Vec::new();
        self.rows += 1;
        for (i, (leaf, place)) in leaves.into_iter().zip(places).enumerate() {
            let column = match *place {
                NEW => self.column(leaf.name, &leaf.value),
                column => column,
            };
            let met = &mut self.met[column];
            if nulled_leaves.contains(&i) {
                nulled.push(column);
                met.null += 1;
                let sample = || format!("`{}`", shown(&leaf.value));
                note(
                    &mut self.decisions,
                    "nulled",
                    &self.columns[column].name,
                    1,
                    sample,
                );
            } else if leaf.value == Value::Null {
                met.null += 1;
            } else {
                let name = &self.columns[column].name;
                let r#type = self.columns[column].r#type;
                if self.reading.cuts(r#type, &leaf.value) {
                    let text = || fit::text(&leaf.value).unwrap_or_default();
                    let sample = || format!("`{}`", text());
                    note(&mut self.decisions, DIGITS_CUT, name, 1, sample);
                }
                if fit::is_rounded(r#type, &leaf.value) {
                    let sample = || match &leaf.value {
                        Value::Cell(text) => format!("`{}`", shorten(text.trim(), SHOWN)),
                        value => format!("`{}`", shown(value)),
                    };
                    note(&mut self.decisions, DIGITS_ROUNDED, name, 1, sample);
                }
                met.present += 1;
                let value = landed(r#type, leaf.value);
                met.look(r#type, self.rules[column].types, &value);
                if self.format.reads_percents() && r#type.is_number() {
                    met.zeros += u64::from(is_zero_cell(&value));
                }
                cells.push((column, value));
            }
        }
        for (kind, path, sample) in self.pending.drain(..) {
            if kind == PERCENT_READ {
                if let Some(column) = self.by_name.get(&path).copied()
                    && let Some(met) = self.met.get_mut(column)
                {
                    met.percents += 1;
                }
                continue;
            }
            if kind == KEPT_WHOLE
                && let Some(column) = self.by_name.get(&path)
            {
                self.columns[*column].whole = true;
                self.whole.insert(path.clone());
            }
            note(&mut self.decisions, kind, &path, 1, || sample);
        }
        Verdict::Land { cells, nulled }
    }

    /// Returns the effect of `value` on `column` under the contract's mode.
    fn resolve(&self, column: usize, rule: Rule, value: &Value) -> Fit {
        let have = self.columns[column].r#type;
        let is_open = matches!(have, ColumnType::Null | ColumnType::List);
        if have == ColumnType::Null && *value != Value::Null {
            return match self.begin(&self.columns[column].name, rule.types, value) {
                Fit::Fits => Fit::Becomes(self.first_type(&self.columns[column].name, value)),
                fit => fit,
            };
        }
        match (self.reading.fit(have, value), rule.types) {
            (Fit::Fits, _) => Fit::Fits,
            (_, _) if rule.is_declared => Fit::Conflict,
            (Fit::Becomes(_), TypeContract::Freeze) if !is_open => Fit::Conflict,
            (Fit::Becomes(ColumnType::Float64), types)
                if have == ColumnType::Int64 && self.met[column].is_big =>
            {
                match types {
                    TypeContract::Widen => self.wider(column, value),
                    _ => Fit::Conflict,
                }
            }
            (Fit::Conflict, TypeContract::Widen) => self.wider(column, value),
            (Fit::Becomes(ColumnType::ListFloat64), _) if self.met[column].is_big => {
                Fit::Becomes(ColumnType::Json)
            }
            (fit, _) => fit,
        }
    }

    /// Resolves a conflict under `widen`: the narrowest type that holds the scalars of `column` and
    /// `value`.
    fn wider(&self, column: usize, value: &Value) -> Fit {
        let (have, met) = (self.columns[column].r#type, &self.met[column]);
        let is_decimal = have.is_number() && !met.is_beyond_decimal;
        match have {
            ColumnType::Int64 if fit::is_code(value) => Fit::Becomes(ColumnType::Utf8),
            ColumnType::Int64 if !met.is_big && float(value).is_some() => {
                Fit::Becomes(ColumnType::Float64)
            }
            ColumnType::Json | ColumnType::Binary => Fit::Conflict,
            list if list.is_list() => Fit::Conflict,
            _ if fit::is_whole(value) => Fit::Conflict,
            _ if is_decimal && decimal(value).is_some() => Fit::Becomes(ColumnType::Decimal),
            _ => Fit::Becomes(ColumnType::Utf8),
        }
    }

    fn conflict(&self, leaf: &Leaf, place: usize) -> Rejection {
        let name = &leaf.name;
        let have = self.columns.get(place).map(|column| column.r#type);
        let have = have
            .filter(|have| *have != ColumnType::Null)
            .or(declared(self.config, name))
            .or(self.planned.get(name).copied())
            .unwrap_or(ColumnType::Null);
        let is_big = self.met.get(place).is_some_and(|met| met.is_big);
        let integer = integer(&leaf.value);
        let is_long_integer = integer.is_some_and(|value| value.unsigned_abs() > MAX_EXACT);
        let limits = match have {
            ColumnType::Int64 if is_big && infer(&leaf.value) == ColumnType::Float64 => {
                " and holds integers beyond 2^53, which a column of floats would round (`decimal` or `text` holds both)"
            }
            ColumnType::Decimal if has_too_many_digits(&leaf.value) => {
                ", which keeps 20 digits before the point and 18 behind it (`text` keeps all)"
            }
            ColumnType::Utf8 if matches!(leaf.value, Value::Bytes(_)) => {
                ", which takes no bytes other than UTF-8 (`bytes` takes all)"
            }
            ColumnType::Int64 if has_exponent(&leaf.value) => {
                ", which takes no cell with an exponent (`float` or `text` does)"
            }
            ColumnType::Float64 if is_long_integer => {
                ", which holds no integer beyond 2^53 exactly (`decimal` or `text` does)"
            }
            _ => "",
        };
        let kind = match have {
            ColumnType::Float64 if is_long_integer => "an integer",
            _ => leaf.value.kind(),
        };
        let remedy = match (have, &leaf.value) {
            (ColumnType::Timestamp, Value::Text(text)) => self.missing_format(text),
            _ => None,
        };
        let remedy =
            remedy.map(|format| format!("; to read it, add `{format}` to `contract.dates`"));
        Rejection {
            reason: "type_conflict",
            path: name.clone(),
            detail: format!(
                "column `{name}` is {}{limits}, the value is {} `{}`{}",
                noun(have),
                kind,
                shown(&leaf.value),
                remedy.unwrap_or_default()
            ),
        }
    }

    /// Format that reads a date or time of ISO 8601, if `contract.dates` has others only.
    fn missing_format(&self, text: &str) -> Option<&'static str> {
        let formats = &self.config.dates;
        let format = iso_format(text).filter(|_| !formats.is_empty())?;
        (!formats.iter().any(|known| known == format)).then_some(format)
    }
}

/// Returns true for a number other than 0 that a decimal column does not hold exactly.
fn has_too_many_digits(value: &Value) -> bool {
    let text = fit::text(value).unwrap_or_default();
    let text = text.trim();
    number::is_number(text) && number::count_digits(text) > 0 && number::decimal(text).is_none()
}

/// Returns true for a cell that is a number with an exponent.
fn has_exponent(value: &Value) -> bool {
    let is_one = |text: &str| text.contains(['e', 'E']) && number::is_number(text.trim());
    matches!(value, Value::Cell(text) if is_one(text))
}

/// Removes the decisions of this kind about the column `path`.
fn forget(decisions: &mut Decisions, kind: &str, path: &str) {
    let Some(paths) = decisions.get_mut(kind) else {
        return;
    };
    paths.remove(path);
    if paths.is_empty() {
        decisions.remove(kind);
    }
}

/// The value that a column of the type `column` keeps: a float column keeps no text of a number.
fn landed(column: ColumnType, value: Value) -> Value {
    match value {
        Value::Written(number) if column == ColumnType::Float64 => Value::Float(number.value()),
        value => value,
    }
}

/// Returns true for a cell that is 0, which is the same with a percent sign.
fn is_zero_cell(value: &Value) -> bool {
    matches!(value, Value::Cell(_)) && float(value) == Some(0.0)
}

impl Met {
    /// Records a landed value that a wider type may not hold.
    fn look(&mut self, column: ColumnType, types: TypeContract, value: &Value) {
        let is_big = |value: &Value| integer(value).is_some_and(|v| v.unsigned_abs() > MAX_EXACT);
        match (column, value) {
            (ColumnType::Int64, value) => self.is_big |= is_big(value),
            (ColumnType::Float64, Value::Float(value)) if types == TypeContract::Widen => {
                let is_exact =
                    decimals::is_surely_exact(*value) || decimals::of_float(*value).is_some();
                self.is_beyond_decimal |= !is_exact;
            }
            (ColumnType::Float64, value) if types == TypeContract::Widen => {
                self.is_beyond_decimal |= decimal(value).is_none();
            }
            (ColumnType::ListInt64, Value::List(items)) => self.is_big |= items.iter().any(is_big),
            _ => {}
        }
    }
}
