//! The list of values of a source at the time of each of its batches, for a re-read.
//!
//! A value keeps its index for as long as its log is continued. A pass does not request values that
//! have left the list, though the intervals of its batches seem to include them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use feedline_schemas::{commit::Ledger, config::SourceConfig, ids::Hash128};
use feedline_storage::Store;

use super::{
    saved_list::{read, saved_lists},
    values::Values,
};
use crate::{context::Context, error::Error};

/// Values of a list, and the earlier lists that the landing folder has. Empty for a source without a
/// list.
#[derive(Debug, Default)]
pub(crate) struct ListHistory {
    /// Values that are not requested any more, by index.
    left: BTreeMap<u64, String>,
    /// Indices of the values that had left each saved list.
    removed: HashMap<Hash128, BTreeSet<u64>>,
}

impl ListHistory {
    /// Reads the list that `ledger` has counted, as a run continues it, and the earlier ones.
    ///
    /// # Errors
    /// [`Error::Config`] for a list that a run refuses, and those of [`crate::landed`].
    pub(crate) async fn load(
        config: &SourceConfig,
        context: &Context,
        landing: &Store,
        ledger: &Ledger,
    ) -> Result<Self, Error> {
        let Some(each) = &config.for_each else {
            return Ok(Self::default());
        };
        let mut values = Values::new(config, each, context).await?;
        if !values.continues(ledger) {
            values.continue_saved(landing, ledger).await?;
        }
        Self::of(&values, landing, ledger.values).await
    }

    /// The history of a list whose first `count` values a ledger has counted.
    pub(super) async fn of(values: &Values, landing: &Store, count: u64) -> Result<Self, Error> {
        let mut removed = HashMap::new();
        for hash in saved_lists(landing).await? {
            let Some(saved) = read(landing, hash).await? else {
                continue;
            };
            let lines = (0..).zip(&saved).filter(|(_, line)| line.is_removed);
            removed.insert(hash, lines.map(|(index, _)| index).collect());
        }
        Ok(Self {
            left: values.left(count),
            removed,
        })
    }

    /// Values that are not requested any more, each once.
    pub(crate) fn left_values(&self) -> Vec<String> {
        let texts: BTreeSet<&String> = self.left.values().collect();
        texts.into_iter().cloned().collect()
    }

    /// Returns true for a value that is not requested any more.
    pub(super) fn is_left(&self, value: u64) -> bool {
        self.left.contains_key(&value)
    }

    /// Values that are not requested any more, from the index `first` to before `end`.
    pub(super) fn left_between(
        &self,
        first: u64,
        end: u64,
    ) -> impl Iterator<Item = (u64, &String)> + '_ {
        // A range whose end is before its start would panic.
        let between = self.left.range(first..end.max(first));
        between.map(|(value, text)| (*value, text))
    }

    /// Returns true if a value had left the list with the hash `list`. Of a list that is not saved
    /// any more nothing is known, so its values may all have been requested.
    pub(super) fn was_removed(&self, list: Option<Hash128>, value: u64) -> bool {
        let removed = list.and_then(|list| self.removed.get(&list));
        removed.is_some_and(|removed| removed.contains(&value))
    }
}
