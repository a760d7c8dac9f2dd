//! The list of values as a landing folder keeps it, and its changes between runs.
//!
//! A ledger has the number of its values and a hash. The list itself is the file `values/HASH.txt`:
//! a value to a line, as JSON. A value that has left the list keeps its line, with `~` before it,
//! so the numbers of the others stay the same. It is not requested any more. If it returns to the
//! list, it gets another line at the end, and is read from its beginning.
//!
//! The file is written before the first batch of a pass with its values. Without it, a list can only
//! have values added at its end.

use std::{cmp::Reverse, collections::HashMap};

use bytes::Bytes;
use feedline_readers::value::Value;
use feedline_schemas::{
    commit::{Ledger, Position},
    config::SourceConfig,
    count::counted,
    ids::Hash128,
    report::Warning,
};
use feedline_storage::Store;
use serde_json::Value as Json;

use super::{
    Plan,
    values::{Values, text},
};
use crate::error::Error;

/// Folder of the files.
const FOLDER: &str = "values";
/// Before the line of a value that has left the list.
pub(super) const REMOVED: char = '~';
/// Number of the newest files that are kept: a rewind may go back to one of them.
const KEPT: usize = 16;
/// Number of values that a warning names.
const NAMED: usize = 5;

/// A line of a saved list.
#[derive(Debug)]
pub(super) struct SavedValue {
    value: Value,
    is_removed: bool,
}

impl SavedValue {
    fn parse(line: &str) -> Option<Self> {
        let rest = line.strip_prefix(REMOVED);
        let value = match serde_json::from_str(rest.unwrap_or(line)).ok()? {
            Json::String(text) => Value::Text(text),
            Json::Number(number) => Value::Int(number.as_i64()?),
            _ => return None,
        };
        Some(Self {
            value,
            is_removed: rest.is_some(),
        })
    }
}

fn path(hash: Hash128) -> String {
    format!("{FOLDER}/{hash}.txt")
}

/// Reads the list with this hash; `None` if its file is missing or damaged.
async fn read(landing: &Store, hash: Hash128) -> Result<Option<Vec<SavedValue>>, Error> {
    let Some(bytes) = landing.get_opt(&path(hash)).await? else {
        return Ok(None);
    };
    let text = std::str::from_utf8(&bytes).ok();
    let text = text.filter(|_| Hash128::of(&bytes) == hash);
    Ok(text.and_then(|text| text.lines().map(SavedValue::parse).collect()))
}

/// Writes the list `text`, whose hash is `hash`, unless it is there. Removes old lists.
async fn write(landing: &Store, hash: Hash128, text: String) -> Result<(), Error> {
    match landing.size(&path(hash)).await {
        Ok(_) => return Ok(()),
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error.into()),
    }
    landing.put(&path(hash), Bytes::from(text)).await?;
    let mut old = landing.list(FOLDER).await?;
    old.sort_by_key(|file| Reverse(file.modified));
    for file in old.iter().skip(KEPT).filter(|file| file.path != path(hash)) {
        landing.delete(&file.path).await?;
    }
    Ok(())
}

impl Plan {
    /// Continues the list that `ledger` has counted. Values that have left it are not requested, new
    /// ones follow at its end.
    ///
    /// # Errors
    /// [`Error::Config`] if the list has changed and the earlier one is not known,
    /// [`Error::Storage`].
    pub(crate) async fn continue_list(
        &mut self,
        landing: &Store,
        ledger: &Ledger,
    ) -> Result<(), Error> {
        let Some(values) = &mut self.values else {
            return Ok(());
        };
        self.counted = Some(ledger.values);
        if values.continues(ledger) {
            return Ok(());
        }
        let saved = match ledger.values_hash {
            Some(hash) => read(landing, hash).await?,
            None => None,
        };
        let Some(saved) = saved.filter(|saved| saved.len() as u64 == ledger.values) else {
            return Err(values.refuse(ledger));
        };
        self.left_list = values.merge(saved);
        self.continued = ledger.values_hash;
        Ok(())
    }

    /// Saves the list for later runs.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(crate) async fn save_list(&self, landing: &Store) -> Result<(), Error> {
        let Some(values) = &self.values else {
            return Ok(());
        };
        // A pass in progress has counted fewer values.
        for count in [Some(values.len()), self.counted].into_iter().flatten() {
            write(landing, values.hash(count), values.lines(count)).await?;
        }
        Ok(())
    }

    /// Returns the ledger `before` for a list that has changed since; `None` if it is the same. A
    /// value in work that has left the list is given up for the next one.
    pub(crate) fn with_list(&self, before: &Ledger) -> Option<Ledger> {
        let values = self.values.as_ref()?;
        if self.continued.is_none() || before.values_hash != self.continued {
            return None;
        }
        let mut ledger = Ledger {
            values_hash: Some(values.hash(before.values)),
            ..before.clone()
        };
        if ledger.slice.is_some() && values.is_removed(ledger.value) {
            ledger.slice = None;
            ledger.ends.clear();
            self.seek(&mut ledger);
            ledger = self.close(ledger);
        }
        (ledger != *before).then_some(ledger)
    }

    /// Warns of values that have left the list since the last run.
    pub(crate) fn warn_of_removed(&self) -> Option<Warning> {
        let names = self.left_list.iter().take(NAMED);
        let names: Vec<String> = names.map(|text| text.escape_debug().to_string()).collect();
        let more = match self.left_list.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (!names.is_empty()).then(|| {
            let (are, they, their) = match self.left_list.len() {
                1 => ("is", "it", "its"),
                _ => ("are", "they", "their"),
            };
            let message = format!(
                "{} {are} no longer in the list (`{}`{more}): {they} {are} not requested any more, and {their} landed rows stay; one that returns is read from its beginning",
                counted(self.left_list.len() as u64, "value"),
                names.join("`, `"),
            );
            Warning::new("values_removed", message).with_key("for_each")
        })
    }
}

impl Values {
    /// Puts the values into the order of `saved`, the list of the last run: first those of it, with
    /// those that have left, then the new ones. Returns the texts of those that have left since.
    fn merge(&mut self, saved: Vec<SavedValue>) -> Vec<String> {
        let current = std::mem::take(&mut self.values);
        let mut left: HashMap<String, Value> = current
            .iter()
            .map(|value| (text(value), value.clone()))
            .collect();
        let mut gone = Vec::new();
        for SavedValue { value, is_removed } in saved {
            let current = (!is_removed).then(|| left.remove(&text(&value))).flatten();
            if current.is_none() {
                self.removed.insert(self.values.len() as u64);
                if !is_removed {
                    gone.push(text(&value));
                }
            }
            self.values.push(current.unwrap_or(value));
        }
        let is_new = |value: &Value| left.contains_key(&text(value));
        self.values.extend(current.into_iter().filter(is_new));
        gone
    }
}

/// Returns true if the list of a pipeline file differs from that of the log. It always
/// does once a value was removed. A list of landed values is not known here.
pub(crate) fn has_other_list(config: &SourceConfig, position: &Position) -> bool {
    let each = config
        .for_each
        .as_ref()
        .filter(|each| each.source.is_none());
    let ledger = position.ledger();
    each.zip(ledger)
        .is_some_and(|(each, ledger)| !is_counted(&each.values, ledger))
}

/// Returns true if `names` is the list that `ledger` has counted.
pub(super) fn is_counted(names: &[String], ledger: &Ledger) -> bool {
    let lines = names
        .iter()
        .map(|name| Value::Text(name.clone()).canonical());
    let lines: Vec<String> = lines.collect();
    ledger.values == lines.len() as u64
        && ledger.values_hash == Some(Hash128::of(lines.join("\n").as_bytes()))
}
