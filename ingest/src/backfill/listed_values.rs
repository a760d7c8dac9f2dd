//! The values of a list that are still requested, for reports.

use std::{collections::HashSet, ops::Range};

use feedline_schemas::{commit::Position, config::SourceConfig};
use feedline_storage::Store;

use super::{saved_list::read, values::text};

/// Values that the newest entry of a log has counted, and the number of those that no pass has
/// counted yet.
#[derive(Debug)]
pub(crate) struct ListedValues {
    /// By index; `None` for one that is not in the list any more.
    counted: Vec<Option<String>>,
    /// Values of the list of a pipeline file that no pass has counted.
    pub(super) uncounted: u64,
}

impl ListedValues {
    /// Reads the list that `position` has counted; `None` for a source without a list, and if the
    /// saved list cannot be read.
    pub(crate) async fn read(
        config: &SourceConfig,
        landing: &Store,
        position: Option<&Position>,
    ) -> Option<Self> {
        let each = config.for_each.as_ref()?;
        let ledger = position?.ledger()?;
        // A report is worth having without it.
        let saved = read(landing, ledger.values_hash?).await.ok().flatten()?;
        if saved.len() as u64 != ledger.values {
            return None;
        }
        let is_written = each.source.is_none();
        let mut left: HashSet<&str> = each.values.iter().map(String::as_str).collect();
        let counted = saved.iter().map(|saved| {
            let text = text(&saved.value);
            let is_listed = !saved.is_removed && (!is_written || left.remove(text.as_str()));
            is_listed.then_some(text)
        });
        let counted: Vec<Option<String>> = counted.collect();
        Some(Self {
            counted,
            uncounted: left.len() as u64,
        })
    }

    /// Number of the values in a range of indices that are still in the list.
    pub(super) fn count(&self, values: Range<u64>) -> u64 {
        let index = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        let end = index(values.end).min(self.counted.len());
        let found = self.counted.get(index(values.start)..end);
        found.map_or(0, |found| found.iter().flatten().count() as u64)
    }

    /// The values that are still in the list.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> + '_ {
        self.counted.iter().flatten().map(String::as_str)
    }

    /// A value that is still in the list.
    pub(super) fn text(&self, value: u64) -> Option<&str> {
        let index = usize::try_from(value).ok()?;
        self.counted.get(index)?.as_deref()
    }
}
