//! Totals of a source: the counts of its batches, added and taken back.

use std::collections::BTreeMap;

use feedline_schemas::commit::{BatchCounts, CommitEntry, DataFile, note};

/// Adds the counts of a batch to the totals.
pub(crate) fn sum(mut totals: BatchCounts, batch: &BatchCounts) -> BatchCounts {
    totals.rows = (totals.rows + batch.rows).saturating_sub(batch.superseded);
    totals.superseded += batch.superseded;
    totals.duplicates += batch.duplicates;
    totals.rejected += batch.rejected;
    totals.pages += batch.pages;
    let maps = [
        (&mut totals.rejected_by_reason, &batch.rejected_by_reason),
        (&mut totals.coerced, &batch.coerced),
        (&mut totals.nulled, &batch.nulled),
        (&mut totals.skipped, &batch.skipped),
        (&mut totals.children, &batch.children),
    ];
    for (total, batch) in maps {
        batch
            .iter()
            .for_each(|(name, count)| *total.entry(name.clone()).or_default() += count);
    }
    for (kind, paths) in &batch.decisions {
        for (path, noted) in paths {
            let sample = || noted.sample.clone();
            note(&mut totals.decisions, kind, path, noted.count, sample);
        }
    }
    totals
}

/// Subtracts a deleted batch from the totals. Its pages still count as read.
pub(crate) fn without(totals: &mut BatchCounts, entry: &CommitEntry) {
    let sum = |files: &[DataFile]| files.iter().map(|file| file.rows).sum::<u64>();
    let counts = &entry.counts;
    totals.rows = totals.rows.saturating_sub(sum(&entry.files));
    totals.duplicates = totals.duplicates.saturating_sub(counts.duplicates);
    // Rejected records that were retried count where they landed.
    if !entry.rejects.is_empty() {
        totals.rejected = totals.rejected.saturating_sub(counts.rejected);
        subtract(&mut totals.rejected_by_reason, &counts.rejected_by_reason);
    }
    subtract(&mut totals.coerced, &counts.coerced);
    subtract(&mut totals.nulled, &counts.nulled);
    subtract(&mut totals.children, &counts.children);
    for (kind, paths) in &counts.decisions {
        let Some(total) = totals.decisions.get_mut(kind) else {
            continue;
        };
        for (path, noted) in paths {
            if let Some(sum) = total.get_mut(path) {
                sum.count = sum.count.saturating_sub(noted.count);
            }
        }
        total.retain(|_, noted| noted.count > 0);
    }
    totals.decisions.retain(|_, paths| !paths.is_empty());
}

/// Subtracts counts by name and removes those that become zero.
pub(crate) fn subtract(totals: &mut BTreeMap<String, u64>, counts: &BTreeMap<String, u64>) {
    for (name, count) in counts {
        if let Some(total) = totals.get_mut(name) {
            *total = total.saturating_sub(*count);
        }
    }
    totals.retain(|_, total| *total > 0);
}
