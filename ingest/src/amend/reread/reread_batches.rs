//! Batches that no longer count after a re-read.

use std::collections::BTreeSet;

use feedline_schemas::{
    amendment::WithdrawnReason,
    commit::{CommitEntry, Position},
    log_effect::holder,
};

/// Effect of a re-read.
pub(super) struct RereadPlan {
    /// Position to resume from.
    pub(super) position: Position,
    /// Indices of the batches that no longer count.
    pub(super) batches: BTreeSet<usize>,
}

/// Batches that depend on `batches`: their retried rejects have landed in a later batch, together
/// with those of others, or a compaction has merged their rows with those of others.
pub(super) fn retried_with(entries: &[CommitEntry], batches: &BTreeSet<usize>) -> BTreeSet<usize> {
    let mut all = batches.clone();
    for (index, entry) in entries.iter().enumerate() {
        let retried = entry.withdrawn.iter();
        let retried = retried.filter(|withdrawn| withdrawn.reason == WithdrawnReason::Retried);
        let of: BTreeSet<usize> = retried
            .filter_map(|withdrawn| usize::try_from(withdrawn.sequence.get()).ok())
            .collect();
        if !of.is_empty() && (all.contains(&index) || !of.is_disjoint(&all)) {
            all.insert(index);
            all.extend(of);
        }
    }
    let holders: BTreeSet<usize> = all.iter().map(|index| holder(entries, *index)).collect();
    let merged = (0..entries.len()).filter(|index| holders.contains(&holder(entries, *index)));
    all.extend(merged);
    all
}
