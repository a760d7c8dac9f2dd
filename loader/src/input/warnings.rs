//! Decisions of an input that its user should know of.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Warnings about a dataset, in the order they came up. Each is logged once, when it is added.
#[derive(Debug)]
pub(crate) struct Warnings {
    url: String,
    added: Mutex<AddedWarnings>,
}

#[derive(Debug, Default)]
struct AddedWarnings {
    sentences: Vec<String>,
    /// Those of blocks: one is added for the first block that gives a reason for it.
    of_blocks: BTreeSet<BlockWarning>,
}

/// A warning that several blocks may give a reason for.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum BlockWarning {
    /// Integers of this feature are rounded.
    RoundedFeature(String),
    /// Integers of this target are rounded.
    RoundedTarget(String),
    /// Documents are truncated.
    Truncated,
}

impl Warnings {
    /// None yet, about the dataset at `url`.
    pub(super) fn new(url: String) -> Self {
        Self {
            url,
            added: Mutex::default(),
        }
    }

    /// Adds a sentence about the dataset, which says what was decided and which setting changes it.
    pub(super) fn add(&self, text: &str) {
        self.push(&mut self.lock(), text);
    }

    /// Adds a sentence, unless there is one of that kind.
    fn add_once(&self, kind: BlockWarning, text: &str) {
        let mut added = self.lock();
        if added.of_blocks.insert(kind) {
            self.push(&mut added, text);
        }
    }

    fn push(&self, added: &mut AddedWarnings, text: &str) {
        tracing::warn!(dataset = self.url, "{text}");
        let sentence = format!("dataset `{}`: {text}", self.url);
        added.sentences.push(sentence);
    }

    /// Adds that integers of a column are rounded, once for each column.
    pub(super) fn add_rounded(&self, column: &str, count: u64) {
        if count > 0 {
            let text = format!(
                "integers of column `{column}` are rounded: `x` is float32, which holds every integer only up to 2^24; `{count}` \
                 in the first block that has such; leave the column out with `columns.x`, or use it as the key with \
                 `columns.key`"
            );
            self.add_once(BlockWarning::RoundedFeature(column.to_owned()), &text);
        }
    }

    /// Adds that integers of the target are rounded, once for each target.
    pub(super) fn add_rounded_target(&self, target: &str, count: u64) {
        if count > 0 {
            let text = format!(
                "integers of the target `{target}` are rounded: `y` is float32, which holds every integer only up to 2^24; \
                 `{count}` in the first block that has such; write the target in a larger unit, or name another one in \
                 `columns.y`"
            );
            self.add_once(BlockWarning::RoundedTarget(target.to_owned()), &text);
        }
    }

    /// Adds that documents are truncated to rows of `length` ids, once.
    pub(super) fn add_truncated(&self, length: u32, count: u64) {
        if count > 0 {
            let text = format!(
                "documents are truncated to `tokens.length`, which is `{length}`: `{count}` in the first block that has such; \
                 raise it, or use the layout `packed`, which leaves no ids out; `truncated_documents` of the metrics counts \
                 those handed out"
            );
            self.add_once(BlockWarning::Truncated, &text);
        }
    }

    /// All of them so far.
    pub(crate) fn list(&self) -> Vec<String> {
        self.lock().sentences.clone()
    }

    /// Number of warnings.
    pub(crate) fn count(&self) -> usize {
        self.lock().sentences.len()
    }

    fn lock(&self) -> MutexGuard<'_, AddedWarnings> {
        self.added.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_of_blocks_is_added_once_for_each_column() {
        let warnings = Warnings::new("memory:///d".to_owned());
        for (column, count) in [("id", 0), ("id", 3), ("id", 4), ("id2", 1)] {
            warnings.add_rounded(column, count);
        }
        warnings.add_rounded_target("id", 2);
        warnings.add_rounded_target("id", 2);
        let found = warnings.list();
        assert_eq!((found.len(), warnings.count()), (3, 3));
        assert!(found[0].contains("column `id` are rounded") && found[0].contains("`3` in"));
        assert!(found[1].contains("column `id2` are rounded"), "{found:?}");
        assert!(found[2].contains("target `id` are rounded"), "{found:?}");
    }

    /// A sentence of its own that begins as one of them is no reason to leave that one out.
    #[test]
    fn other_sentences_are_always_added() {
        let warnings = Warnings::new("memory:///d".to_owned());
        warnings.add("documents are truncated to `tokens.length`");
        warnings.add("documents are truncated to `tokens.length`");
        warnings.add_truncated(8, 1);
        warnings.add_truncated(9, 1);
        assert_eq!(warnings.count(), 3);
    }
}
