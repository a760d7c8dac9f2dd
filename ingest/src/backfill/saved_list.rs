//! The list of values as a landing folder keeps it, and its changes between runs.
//!
//! A ledger has the number of its values and a hash. The list itself is the file `values/HASH.txt`:
//! a value to a line, as JSON. A value that has left the list keeps its line, with `~` before it,
//! so the numbers of the others stay the same. It is not requested any more. If it returns to the
//! list, it gets another line at the end, and is read from its beginning, or with `incremental` from its
//! newest cursor on.
//!
//! The file is written before the first batch of a pass with its values. Without it, a list can only
//! have values added at its end.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap, HashSet},
};

use bytes::Bytes;
use feedline_readers::value::Value;
use feedline_schemas::{
    commit::{Ledger, Position},
    config::SourceConfig,
    count::{counted, first_of},
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
    pub(super) value: Value,
    pub(super) is_removed: bool,
}

/// Changes of a list since the last run.
#[derive(Clone, Debug, Default)]
pub(super) struct ListChange {
    /// Values that have left it.
    left: Vec<String>,
    /// Values that had left it before and are in it now.
    returned: Vec<String>,
    /// Values that its source, which has not been read to its end, does not have yet.
    missing: Vec<String>,
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

pub(super) fn path(hash: Hash128) -> String {
    format!("{FOLDER}/{hash}.txt")
}

/// Hashes of the lists that a landing folder has, by the names of their files.
///
/// # Errors
/// [`Error::Storage`].
pub(super) async fn saved_lists(landing: &Store) -> Result<BTreeSet<Hash128>, Error> {
    let files = landing.list(FOLDER).await?;
    let hashes = files.iter().filter_map(|file| {
        let name = file.path.strip_prefix(FOLDER)?.strip_prefix('/')?;
        let hash = u128::from_str_radix(name.strip_suffix(".txt")?, 16).ok()?;
        Some(Hash128::new(hash))
    });
    Ok(hashes.collect())
}

/// Reads the list with this hash; `None` if its file is missing or damaged.
///
/// # Errors
/// [`Error::Storage`].
pub(super) async fn read(landing: &Store, hash: Hash128) -> Result<Option<Vec<SavedValue>>, Error> {
    let Some(bytes) = landing.get_opt(&path(hash)).await? else {
        return Ok(None);
    };
    let text = std::str::from_utf8(&bytes).ok();
    let text = text.filter(|_| Hash128::of(&bytes) == hash);
    Ok(text.and_then(|text| text.lines().map(SavedValue::parse).collect()))
}

/// Writes the list `text`, whose hash is `hash`, unless its file exists undamaged. Removes old lists
/// that are not `used`.
async fn write(
    landing: &Store,
    (hash, text): (Hash128, String),
    used: &[Hash128],
) -> Result<(), Error> {
    let saved = landing.get_opt(&path(hash)).await?;
    if saved.is_some_and(|bytes| Hash128::of(&bytes) == hash) {
        return Ok(());
    }
    landing.put(&path(hash), Bytes::from(text)).await?;
    let mut old = landing.list(FOLDER).await?;
    old.sort_by_key(|file| Reverse(file.modified));
    let used: Vec<String> = used.iter().map(|hash| path(*hash)).collect();
    for file in old
        .iter()
        .skip(KEPT)
        .filter(|file| !used.contains(&file.path))
    {
        landing.delete(&file.path).await?;
    }
    Ok(())
}

/// The first of the values, for a message.
pub(crate) fn show_values(values: &[String]) -> String {
    let names = values.iter();
    let names: Vec<String> = names
        .map(|text| format!("`{}`", text.escape_debug()))
        .collect();
    first_of(&names, NAMED)
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
        self.change = values.continue_saved(landing, ledger).await?;
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
        for warning in self.list_warnings() {
            tracing::warn!(source = %values.name, code = warning.code.as_str(), "{}", warning.message);
        }
        // A pass in progress has counted fewer values.
        let counts = [Some(values.len()), self.counted].into_iter().flatten();
        let lists: Vec<(Hash128, String)> = counts
            .map(|count| (values.hash(count), values.lines(count)))
            .collect();
        // Until this run commits, the log has the hash of the earlier list.
        let used = lists.iter().map(|(hash, _)| *hash).chain(self.continued);
        let used: Vec<Hash128> = used.collect();
        for list in lists {
            write(landing, list, &used).await?;
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
        for absent in [&mut ledger.absent, &mut ledger.gone] {
            absent.retain(|(value, _)| !values.is_removed(*value));
        }
        ledger.failed.retain(|value| !values.is_removed(*value));
        if ledger.slice.is_some() && values.is_removed(ledger.value) {
            ledger.slice = None;
            ledger.ends.clear();
            self.seek(&mut ledger);
            ledger = self.close(ledger);
        }
        (ledger != *before).then_some(ledger)
    }

    /// Sets the number of rows that had landed before this run.
    pub(crate) fn note_landed(&mut self, rows: u64) {
        self.landed_rows = rows;
    }

    /// Warnings about values that have left the list or returned to it since the last run, and about
    /// those that cannot be requested.
    pub(crate) fn list_warnings(&self) -> Vec<Warning> {
        let removed = self.warn_of_removed().into_iter();
        let removed = removed.chain(self.warn_of_returned());
        let removed = removed.chain(self.warn_of_missing());
        removed.chain(self.warn_of_unusable()).collect()
    }

    /// Warns of values that an incomplete list does not have.
    fn warn_of_missing(&self) -> Option<Warning> {
        let (values, missing) = (self.values.as_ref()?, &self.change.missing);
        if missing.is_empty() {
            return None;
        }
        let message = format!(
            "the source of the list, `{}`, has not been read to its end, as after a reset or a failure: {} that it does not have now are still requested ({})",
            values.source.as_deref().unwrap_or_default(),
            counted(missing.len() as u64, "value"),
            show_values(missing),
        );
        Some(Warning::new("list_incomplete", message).with_key("for_each.source"))
    }

    /// Warns of landed values that would change the path of the URL.
    fn warn_of_unusable(&self) -> Option<Warning> {
        let unusable = &self.values.as_ref()?.unusable;
        if unusable.is_empty() {
            return None;
        }
        let message = format!(
            "{} cannot be requested, as `.`, `..` and empty parts would change the path of the URL: {}",
            counted(unusable.len() as u64, "landed value"),
            show_values(unusable),
        );
        Some(Warning::new("values_unusable", message).with_key("for_each.column"))
    }

    fn warn_of_removed(&self) -> Option<Warning> {
        let left = &self.change.left;
        let (are, they, their) = match left.len() {
            0 => return None,
            1 => ("is", "it", "its"),
            _ => ("are", "they", "their"),
        };
        let message = format!(
            "{} {are} no longer in the list ({}): {they} {are} not requested any more, and {their} landed rows stay; one that returns to the list is requested again",
            counted(left.len() as u64, "value"),
            show_values(left),
        );
        Some(Warning::new("values_removed", message).with_key("for_each"))
    }

    /// Warns of values that have returned, if not all landed rows are compared with their records.
    fn warn_of_returned(&self) -> Option<Warning> {
        let compared = self.compared_rows?;
        let returned = &self.change.returned;
        if returned.is_empty() || compared >= self.landed_rows {
            return None;
        }
        let (have, are, their) = match returned.len() {
            1 => ("has", "it is", "its"),
            _ => ("have", "they are", "their"),
        };
        let which = match compared {
            0 => "land again, as `batch.dedup_window` is 0".to_owned(),
            _ => format!(
                "land again, except those among the newest {compared} of the source, as `batch.dedup_window` says"
            ),
        };
        let message = format!(
            "{} {have} returned to the list ({}): {are} read from {their} beginning, and {their} landed rows {which}; with a `key`, a dataset reads the latest version of each",
            counted(returned.len() as u64, "value"),
            show_values(returned),
        );
        Some(Warning::new("values_returned", message).with_key("batch.dedup_window"))
    }
}

impl Values {
    /// Continues the saved list that `ledger` has counted.
    ///
    /// # Errors
    /// [`Error::Config`] if that list is not known, [`Error::Storage`].
    pub(super) async fn continue_saved(
        &mut self,
        landing: &Store,
        ledger: &Ledger,
    ) -> Result<ListChange, Error> {
        let saved = match ledger.values_hash {
            Some(hash) => read(landing, hash).await?,
            None => None,
        };
        match saved.filter(|saved| saved.len() as u64 == ledger.values) {
            Some(saved) => Ok(self.merge(saved)),
            None => Err(self.refuse(ledger)),
        }
    }

    /// Puts the values into the order of `saved`, the list of the last run: first those of it, with
    /// those that have left, then the new ones. None leaves an incomplete list.
    fn merge(&mut self, saved: Vec<SavedValue>) -> ListChange {
        let current = std::mem::take(&mut self.values);
        let mut left: HashMap<String, Value> = current
            .iter()
            .map(|value| (text(value), value.clone()))
            .collect();
        let mut change = ListChange::default();
        let mut known = HashSet::new();
        for SavedValue { value, is_removed } in saved {
            let current = (!is_removed).then(|| left.remove(&text(&value))).flatten();
            if current.is_none() && !is_removed && !self.is_complete {
                change.missing.push(text(&value));
            } else if current.is_none() {
                self.removed.insert(self.values.len() as u64);
                known.insert(text(&value));
                if !is_removed {
                    change.left.push(text(&value));
                }
            }
            self.values.push(current.unwrap_or(value));
        }
        for value in current {
            let name = text(&value);
            if !left.contains_key(&name) {
                continue;
            }
            if known.contains(&name) {
                change.returned.push(name);
            }
            self.values.push(value);
        }
        change
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
