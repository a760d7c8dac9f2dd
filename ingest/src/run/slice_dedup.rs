//! Records that a batch of slices may return again.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use feedline_schemas::{commit::Position, ids::Sequence, log_effect::holder};

use super::source_run::Run;
use crate::{
    backfill::{neighbours, span},
    dedup::read_hashes_of,
    error::Error,
};

impl Run<'_> {
    /// Returns true if a pass over slices and values is in progress.
    pub(super) fn is_in_pass(&self) -> bool {
        let position = self.position();
        matches!(position, Position::Page { .. }) && position.ledger().is_some()
    }

    /// Loads the hashes of records that the batch from the committed position to `next` may return
    /// again: landed records of its slices and of the slices next to them. For values without
    /// slices, only a restarted value has any.
    ///
    /// # Errors
    /// [`Error::Landed`], [`Error::Storage`].
    pub(super) async fn recall(&mut self, next: &Position) -> Result<(), Error> {
        if next.ledger().is_none() || self.config.dedup_window() == 0 {
            return Ok(());
        }
        let before = self.position();
        let is_restarted = before.run().is_some_and(|run| run.restarted);
        if self.config.slices.is_none() && !is_restarted {
            self.window.know(HashSet::new());
            self.recalled.clear();
            return Ok(());
        }
        if let Some(interval) = span(&before, next) {
            self.log.load_near(interval).await?;
        }
        let entries = self.log.entries();
        let at = |index: usize| entries[index].sequence;
        let ends = entries.iter().map(|entry| &entry.state.position);
        let mut indices = neighbours(ends, next);
        if entries
            .first()
            .is_some_and(|first| first.sequence.get() > 0)
        {
            // What it has read is not known without the entry before, and is not near.
            indices.remove(&0);
        }
        let near: BTreeSet<Sequence> = indices.iter().map(|index| at(*index)).collect();
        if self.recalled.is_empty() || !self.recalled.is_subset(&near) {
            self.window.know(HashSet::new());
            self.recalled.clear();
        }
        let mut hashes = Vec::new();
        // Rows of several batches may be in the files of one.
        let mut batches: BTreeMap<usize, BTreeSet<u64>> = BTreeMap::new();
        for index in indices {
            if !self.recalled.contains(&at(index)) {
                let own = batches.entry(holder(entries, index)).or_default();
                own.insert(at(index).get());
            }
        }
        for (index, own) in batches {
            for file in &entries[index].files {
                let landing = self.log.landing();
                hashes.extend(read_hashes_of(landing, file, |batch| own.contains(&batch)).await?);
            }
        }
        self.window.know_more(hashes);
        self.recalled = near;
        // The window will also contain the records of this batch.
        self.recalled.insert(self.log.next_sequence());
        Ok(())
    }
}
