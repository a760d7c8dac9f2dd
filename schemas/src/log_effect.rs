//! Effect of a log entry on the entries before it.
//!
//! Stored entries never change. A reader that has the entries of a log in memory applies each entry to those before it, so
//! that they name the files that count now. Every reader uses these functions, so all of them see the same rows. The entries
//! may be any part of a log, in order: an effect on an entry outside of the part is ignored.

use std::collections::BTreeSet;

use crate::{
    amendment::WithdrawnReason,
    commit::{
        BatchCounts, CommitEntry, Compacted, DataFile, FailedPages, Position, Presence, SourceState,
    },
    ids::Sequence,
};

/// Adds an entry to those before it and applies its effect to them. Returns the files that no longer count and that a
/// writer moves to `superseded/`.
pub fn push(entries: &mut Vec<CommitEntry>, entry: CommitEntry) -> Vec<DataFile> {
    let gone = apply(entries, &entry);
    entries.push(entry);
    gone
}

/// Applies the effect of `newest` to `before`, entries of the same log in order. Returns the files that no longer count and
/// that a writer moves to `superseded/`: those of withdrawn batches and of a reset are not among them.
pub fn apply(before: &mut [CommitEntry], newest: &CommitEntry) -> Vec<DataFile> {
    let mut gone = Vec::new();
    if newest.reset_to.is_some() {
        before.iter_mut().for_each(forget);
    }
    if let Some(to) = newest.rewound_to {
        for entry in before.iter_mut().filter(|entry| entry.sequence > to) {
            gone.extend(entry.named_files().cloned());
            forget(entry);
        }
    }
    for compacted in &newest.compacted {
        gone.extend(merge(before, compacted));
    }
    for replaced in &newest.replaced {
        if let Some(entry) = find_mut(before, replaced.sequence) {
            gone.extend(replaced.put_into(entry));
        }
    }
    for withdrawn in &newest.withdrawn {
        let Some(entry) = find_mut(before, withdrawn.sequence) else {
            continue;
        };
        let paths: BTreeSet<&str> = withdrawn.files.iter().map(String::as_str).collect();
        for files in files_mut(entry) {
            files.retain(|file| !paths.contains(file.path.as_str()));
        }
        // Merged batches are withdrawn together. Retried rejects are in no merged file.
        if withdrawn.reason != WithdrawnReason::Retried {
            entry.merged_into = None;
        }
    }
    let mut changes = newest.settings.iter().flat_map(|record| &record.changes);
    if changes.any(|change| change.key == "incremental.cursor") {
        // The progress of another cursor does not apply to this one.
        before.iter_mut().for_each(forget_cursor);
    }
    gone
}

/// Entries that an entry changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All entries before it.
    All,
    /// Those in these ranges, both ends included.
    Ranges(Vec<(Sequence, Sequence)>),
}

impl Reach {
    /// The reach of an entry.
    #[must_use]
    pub fn of(entry: &CommitEntry) -> Self {
        let mut changes = entry.settings.iter().flat_map(|record| &record.changes);
        if entry.reset_to.is_some() || changes.any(|change| change.key == "incremental.cursor") {
            return Self::All;
        }
        let one = |sequence: Sequence| (sequence, sequence);
        let replaced = entry.replaced.iter().map(|replaced| replaced.sequence);
        let withdrawn = entry.withdrawn.iter().map(|withdrawn| withdrawn.sequence);
        let merged = entry
            .compacted
            .iter()
            .map(|merged| (merged.first, merged.last));
        let rewound = entry.rewound_to.map(|to| (to.next(), entry.sequence));
        Self::Ranges(
            replaced
                .chain(withdrawn)
                .map(one)
                .chain(merged)
                .chain(rewound)
                .collect(),
        )
    }

    /// The reach of an entry, but for what it merges: that moves rows to other files and changes none.
    #[must_use]
    pub fn on_rows(entry: &CommitEntry) -> Self {
        let mut entry = entry.clone();
        entry.compacted.clear();
        Self::of(&entry)
    }

    /// The lowest entry in reach; `None` if there is none.
    #[must_use]
    pub fn first(&self) -> Option<Sequence> {
        match self {
            Self::All => Some(Sequence::new(0)),
            Self::Ranges(ranges) => ranges.iter().map(|(first, _)| *first).min(),
        }
    }

    /// Returns true for an entry that changes no other.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Ranges(ranges) if ranges.is_empty())
    }

    /// Returns true if it has entries from `first` to `last`.
    #[must_use]
    pub fn touches(&self, first: Sequence, last: Sequence) -> bool {
        match self {
            Self::All => true,
            Self::Ranges(ranges) => ranges
                .iter()
                .any(|(from, to)| *from <= last && first <= *to),
        }
    }
}

/// Index of the entry `sequence` among `entries`, which are in order.
#[must_use]
pub fn index_of(entries: &[CommitEntry], sequence: Sequence) -> Option<usize> {
    entries
        .binary_search_by_key(&sequence, |entry| entry.sequence)
        .ok()
}

/// Index of the entry whose files have the rows of the one at `index`: itself, unless a compaction merged them.
#[must_use]
pub fn holder(entries: &[CommitEntry], index: usize) -> usize {
    let mut holder = index;
    // Earlier releases left an entry out of a second merge once its rejects were retried: it names the first holder, and
    // that one names the second.
    while let Some(next) = entries
        .get(holder)
        .and_then(|entry| entry.merged_into)
        .and_then(|merged| index_of(entries, merged))
        .filter(|next| *next > holder)
    {
        holder = next;
    }
    holder
}

fn find_mut(entries: &mut [CommitEntry], sequence: Sequence) -> Option<&mut CommitEntry> {
    let index = index_of(entries, sequence)?;
    entries.get_mut(index)
}

/// Puts the merged files of a range into its last entry. Returns the files that they replace.
fn merge(before: &mut [CommitEntry], merged: &Compacted) -> Vec<DataFile> {
    let mut gone = Vec::new();
    let Compacted {
        first,
        last,
        files,
        children,
    } = merged;
    for entry in before.iter_mut() {
        if entry.sequence < *first || entry.sequence > *last {
            continue;
        }
        let is_last = entry.sequence == *last;
        let own = |new: &[DataFile]| match is_last {
            true => new.to_vec(),
            false => Vec::new(),
        };
        gone.extend(std::mem::replace(&mut entry.files, own(files)));
        for (name, new) in children {
            if let Some(table) = entry.children.get_mut(name) {
                gone.extend(std::mem::replace(&mut table.files, own(new)));
            }
        }
        entry.merged_into = (!is_last).then_some(*last);
    }
    let new: BTreeSet<&str> = files
        .iter()
        .chain(children.values().flatten())
        .map(|file| file.path.as_str())
        .collect();
    gone.retain(|file| !new.contains(file.path.as_str()));
    gone
}

/// All lists of files that an entry names.
fn files_mut(entry: &mut CommitEntry) -> impl Iterator<Item = &mut Vec<DataFile>> {
    let children = entry.children.values_mut().map(|table| &mut table.files);
    [
        &mut entry.files,
        &mut entry.rejects,
        &mut entry.frontier,
        &mut entry.validators,
        &mut entry.raw,
        &mut entry.marks,
    ]
    .into_iter()
    .chain(children)
}

/// Clears an entry except for its existence.
fn forget(entry: &mut CommitEntry) {
    files_mut(entry).for_each(Vec::clear);
    entry.state = SourceState::default();
    entry.counts = BatchCounts::default();
    entry.settings = None;
    entry.parts = Vec::new();
    entry.merged_into = None;
}

fn forget_cursor(entry: &mut CommitEntry) {
    if let Position::Page { run, .. } | Position::Done { run, .. } = &mut entry.state.position {
        run.high = None;
    }
}

/// Clears the parts of an entry that only the newest entries of a log are needed for.
pub fn settle(entry: &mut CommitEntry) {
    entry.state.totals = BatchCounts::default();
    entry.state.presence = Presence::default();
    entry.state.warnings = Vec::new();
    entry.state.planned.clear();
    if let Position::Page { run, .. } | Position::Done { run, .. } = &mut entry.state.position {
        *run.failed_pages = FailedPages::default();
    }
    // Entries of version 1 do not record which file each record is of: their positions show it.
    if entry.version > 1
        && let Position::File { done: listed, .. } | Position::Done { files: listed, .. } =
            &mut entry.state.position
    {
        *listed = Vec::new();
    }
    for table in entry.children.values_mut() {
        table.presence = Presence::default();
    }
}

/// Clears a settled entry further, except for its files, position, pages, rows and rejects: runs need no more of older
/// entries.
pub fn lighten(entry: &mut CommitEntry) {
    settle(entry);
    entry.schema.columns = Vec::new();
    // These three say whether an entry is a batch.
    entry.counts = BatchCounts {
        pages: entry.counts.pages,
        rows: entry.counts.rows,
        rejected: entry.counts.rejected,
        ..BatchCounts::default()
    };
    for table in entry.children.values_mut() {
        table.schema.columns = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        amendment::Withdrawn,
        commit::{FileMark, PageRun, Replaced},
        decode,
        format::COMMIT,
        ids::Hash128,
    };

    const SAMPLE: &str = include_str!("../samples/commit-2.json");

    fn file(name: &str) -> DataFile {
        DataFile {
            path: format!("data/{name}"),
            rows: 1,
            bytes: 12,
            hash: Hash128::of(name.as_bytes()),
        }
    }

    fn entry(sequence: u64) -> CommitEntry {
        let mut entry: CommitEntry = decode("sample", SAMPLE.as_bytes()).unwrap();
        entry.sequence = Sequence::new(sequence);
        entry.files = vec![file(&sequence.to_string())];
        entry
    }

    fn amendment(sequence: u64) -> CommitEntry {
        let mut amendment = entry(sequence);
        forget(&mut amendment);
        amendment
    }

    fn paths(entries: &[CommitEntry]) -> Vec<Vec<&str>> {
        entries
            .iter()
            .map(|entry| entry.files.iter().map(|file| file.path.as_str()).collect())
            .collect()
    }

    #[test]
    fn merged_files_count_as_those_of_the_last_entry_of_their_range() {
        let mut entries: Vec<CommitEntry> = (0..4).map(entry).collect();
        let mut newest = amendment(4);
        newest.compacted = vec![Compacted {
            first: Sequence::new(1),
            last: Sequence::new(2),
            files: vec![file("merged")],
            children: Default::default(),
        }];
        let gone = push(&mut entries, newest);
        assert_eq!(gone, [file("1"), file("2")]);
        let expected = [
            vec!["data/0"],
            vec![],
            vec!["data/merged"],
            vec!["data/3"],
            vec![],
        ];
        assert_eq!(paths(&entries), expected);
        let holders: Vec<usize> = (0..5).map(|index| holder(&entries, index)).collect();
        assert_eq!(holders, [0, 2, 2, 3, 4]);
    }

    #[test]
    fn the_holder_of_a_batch_that_a_second_merge_left_out_is_that_of_its_first_holder() {
        let mut entries: Vec<CommitEntry> = (0..4).map(entry).collect();
        for (sequence, first, last) in [(4, 0, 2), (5, 1, 3)] {
            let mut newest = amendment(sequence);
            newest.compacted = vec![Compacted {
                first: Sequence::new(first),
                last: Sequence::new(last),
                files: vec![file(&format!("merged-{sequence}"))],
                children: Default::default(),
            }];
            push(&mut entries, newest);
        }
        let holders: Vec<usize> = (0..4).map(|index| holder(&entries, index)).collect();
        assert_eq!(holders, [3, 3, 3, 3]);
        assert_eq!(holder(&entries[..2], 0), 0);
    }

    #[test]
    fn retried_rejects_leave_the_rows_of_their_batch_in_the_merged_file() {
        let withdraw = |reason: WithdrawnReason| {
            let mut entries: Vec<CommitEntry> = (0..3).map(entry).collect();
            let mut newest = amendment(3);
            newest.compacted = vec![Compacted {
                first: Sequence::new(0),
                last: Sequence::new(2),
                files: vec![file("merged")],
                children: Default::default(),
            }];
            push(&mut entries, newest);
            let mut newest = amendment(4);
            newest.withdrawn = vec![Withdrawn {
                sequence: Sequence::new(0),
                reason,
                files: vec!["rejects/0".into()],
            }];
            push(&mut entries, newest);
            holder(&entries, 0)
        };
        assert_eq!(withdraw(WithdrawnReason::Retried), 2);
        assert_eq!(withdraw(WithdrawnReason::Deleted), 0);
    }

    #[test]
    fn a_rewind_forgets_later_entries_and_a_reset_all() {
        let mut entries: Vec<CommitEntry> = (0..4).map(entry).collect();
        let mut newest = amendment(4);
        newest.rewound_to = Some(Sequence::new(1));
        let gone = push(&mut entries, newest);
        assert!(gone.contains(&file("2")) && gone.contains(&file("3")) && gone.len() > 2);
        let expected = [vec!["data/0"], vec!["data/1"], vec![], vec![], vec![]];
        assert_eq!(paths(&entries), expected);
        let mut newest = amendment(5);
        newest.reset_to = Some("s.1".into());
        assert!(push(&mut entries, newest).is_empty());
        assert!(entries.iter().all(|entry| entry.named_files().count() == 0));
    }

    #[test]
    fn merging_moves_rows_and_changes_none() {
        let mut newest = amendment(9);
        newest.compacted = vec![Compacted {
            first: Sequence::new(1),
            last: Sequence::new(2),
            files: vec![file("merged")],
            children: Default::default(),
        }];
        assert!(!Reach::of(&newest).is_empty() && Reach::on_rows(&newest).is_empty());
        assert_eq!(Reach::of(&newest).first(), Some(Sequence::new(1)));
        newest.rewound_to = Some(Sequence::new(4));
        let reach = Reach::on_rows(&newest);
        assert_eq!(reach.first(), Some(Sequence::new(5)));
        assert!(!reach.touches(Sequence::new(0), Sequence::new(4)));
    }

    #[test]
    fn a_settled_entry_keeps_no_list_of_read_files() {
        let mut of_files = entry(1);
        let mark = |number: u64| FileMark {
            url: format!("s3://b/{number}"),
            bytes: number,
            hash: Hash128::of(b""),
            modified_unix_ms: None,
            etag: None,
        };
        of_files.state.position = Position::File {
            done: (0..9).map(mark).collect(),
            current: None,
        };
        let mut old = of_files.clone();
        old.version = 1;
        settle(&mut of_files);
        settle(&mut old);
        let listed = |entry: &CommitEntry| match &entry.state.position {
            Position::File { done, .. } => done.len(),
            _ => 0,
        };
        assert_eq!((listed(&of_files), listed(&old)), (0, 9));
    }

    #[test]
    fn a_settled_entry_keeps_no_list_of_failed_pages() {
        let mut of_crawl = entry(1);
        let mut run = PageRun::default();
        run.failed_pages.numbers = vec![3, 5];
        of_crawl.state.position = Position::Page {
            page: 9,
            cursor: None,
            run,
        };
        assert!(of_crawl.state.position.has_failures());
        assert_eq!(of_crawl.oldest_reader(), COMMIT.version);
        settle(&mut of_crawl);
        assert!(!of_crawl.state.position.has_failures());
    }

    #[test]
    fn a_light_entry_is_a_batch_if_it_was_one() {
        let mut retried = entry(3);
        retried.counts = BatchCounts {
            rows: 4,
            ..BatchCounts::default()
        };
        retried.withdrawn = vec![Withdrawn {
            sequence: Sequence::new(1),
            reason: WithdrawnReason::Retried,
            files: Vec::new(),
        }];
        lighten(&mut retried);
        assert!(retried.is_batch() && !amendment(4).is_batch());
    }

    #[test]
    fn a_part_of_a_log_takes_the_effects_that_it_has_entries_for() {
        let mut newest = amendment(9);
        newest.replaced = vec![
            Replaced::same_rows(Sequence::new(1), vec![file("a")]),
            Replaced::same_rows(Sequence::new(5), vec![file("b")]),
        ];
        let mut entries: Vec<CommitEntry> = (4..7).map(entry).collect();
        assert_eq!(apply(&mut entries, &newest), [file("5")]);
        let expected = [vec!["data/4"], vec!["data/b"], vec!["data/6"]];
        assert_eq!(paths(&entries), expected);
        let reach = Reach::of(&newest);
        let touches = |first, last| reach.touches(Sequence::new(first), Sequence::new(last));
        assert!(touches(0, 1) && touches(5, 6) && !touches(2, 4) && !touches(6, 9));
    }
}
