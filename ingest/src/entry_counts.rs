//! Counts of a log entry, compared with its files and with the totals before it.

use feedline_schemas::{
    commit::{CommitEntry, DataFile},
    count::counted,
    format::COMMIT,
};

/// Totals of an entry that every batch adds to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EntryTotals {
    rows: u64,
    duplicates: u64,
    rejected: u64,
    pages: u64,
}

impl EntryTotals {
    /// The totals of the source after `entry`.
    pub(crate) const fn of(entry: &CommitEntry) -> Self {
        let totals = &entry.state.totals;
        Self {
            rows: totals.rows,
            duplicates: totals.duplicates,
            rejected: totals.rejected,
            pages: totals.pages,
        }
    }

    /// The totals with their names.
    const fn list(self) -> [(&'static str, u64); 4] {
        [
            ("rows", self.rows),
            ("duplicates", self.duplicates),
            ("rejected", self.rejected),
            ("pages", self.pages),
        ]
    }
}

/// First count of an entry, as it was written, that contradicts its files, the rows that it supersedes, or the
/// totals `before` it. Entries that take earlier ones back are not compared.
pub(crate) fn find_wrong_count(before: EntryTotals, entry: &CommitEntry) -> Option<String> {
    if entry.version != COMMIT.version || takes_back(entry) {
        return None;
    }
    if !entry.is_amendment() {
        return find_wrong_batch(before, entry);
    }
    let moves_files = !entry.compacted.is_empty() || !entry.expired.is_empty();
    let totals = EntryTotals::of(entry).list().into_iter();
    let mut sums = totals.zip(before.list()).filter(|_| moves_files);
    let ((name, total), (_, before)) = sums.find(|((_, total), (_, before))| total != before)?;
    Some(format!(
        "its `state.totals.{name}` is {total}, and not the {before} before it: files that are merged or expire leave it as it is"
    ))
}

/// First wrong count of an entry that lands a batch.
fn find_wrong_batch(before: EntryTotals, entry: &CommitEntry) -> Option<String> {
    let counts = &entry.counts;
    let files = [
        ("rows", counts.rows, &entry.files, "data files"),
        ("rejected", counts.rejected, &entry.rejects, "reject files"),
    ];
    for (name, count, files, kind) in files {
        let rows = count_rows(files);
        if count != rows {
            return Some(format!(
                "its `counts.{name}` is {count}, and its {kind} have {}",
                counted(rows, "row")
            ));
        }
    }
    let superseded = entry.replaced.iter().map(|replaced| replaced.rows);
    let superseded = superseded.fold(0, u64::saturating_add);
    if counts.superseded != superseded {
        return Some(format!(
            "its `counts.superseded` is {}, and the files that it replaces lose {}",
            counts.superseded,
            counted(superseded, "row")
        ));
    }
    let added = [
        counts.rows,
        counts.duplicates,
        counts.rejected,
        counts.pages,
    ];
    let totals = EntryTotals::of(entry).list().into_iter();
    for (((name, total), (_, before)), count) in totals.zip(before.list()).zip(added) {
        // Superseded rejects are in no count of the entry.
        if name == "rejected" && !entry.replaced.is_empty() {
            continue;
        }
        let superseded = if name == "rows" { superseded } else { 0 };
        let sum = before.checked_add(count);
        if sum.map(|sum| sum.saturating_sub(superseded)) != Some(total) {
            let less = match superseded {
                0 => String::new(),
                _ => format!(", less {superseded} superseded"),
            };
            return Some(format!(
                "its `state.totals.{name}` is {total}, and not the sum of {before} before it and its own {count}{less}"
            ));
        }
    }
    None
}

/// Returns true for an entry after which earlier ones no longer count as they did.
fn takes_back(entry: &CommitEntry) -> bool {
    !entry.withdrawn.is_empty() || entry.reset_to.is_some() || entry.rewound_to.is_some()
}

fn count_rows(files: &[DataFile]) -> u64 {
    let rows = files.iter().map(|file| file.rows);
    rows.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{
        commit::{BatchCounts, Replaced},
        decode,
        ids::{Hash128, Sequence},
    };

    use super::*;

    const SAMPLE: &str = include_str!("../../schemas/samples/commit-2.json");

    /// An entry of three rows and one reject after seven rows.
    fn entry() -> CommitEntry {
        let mut entry: CommitEntry = decode("sample", SAMPLE.as_bytes()).unwrap();
        let file = |rows: u64| DataFile {
            path: String::new(),
            rows,
            bytes: 1,
            hash: Hash128::of(b""),
        };
        entry.version = COMMIT.version;
        (entry.files, entry.rejects) = (vec![file(2), file(1)], vec![file(1)]);
        entry.replaced.clear();
        entry.withdrawn.clear();
        entry.compacted.clear();
        entry.expired.clear();
        (entry.reset_to, entry.rewound_to) = (None, None);
        entry.counts.rows = 3;
        (entry.counts.duplicates, entry.counts.rejected) = (4, 1);
        entry.counts.pages = 1;
        let totals = &mut entry.state.totals;
        (totals.rows, totals.duplicates) = (10, 4);
        (totals.rejected, totals.pages) = (1, 3);
        entry
    }

    fn check(change: impl FnOnce(&mut CommitEntry), expected: Option<&str>) {
        let before = EntryTotals {
            rows: 7,
            pages: 2,
            ..EntryTotals::default()
        };
        let mut entry = entry();
        change(&mut entry);
        let found = find_wrong_count(before, &entry);
        assert_eq!(found.as_deref(), expected);
    }

    #[test]
    fn superseded_rows_are_taken_from_the_total_of_a_batch() {
        // The batch supersedes five rows of an earlier one.
        let supersede = |entry: &mut CommitEntry, total: u64| {
            let replaced = Replaced {
                rows: 5,
                ..Replaced::same_rows(Sequence::new(0), Vec::new())
            };
            entry.replaced = vec![replaced];
            entry.counts.superseded = 5;
            entry.state.totals.rows = total;
        };
        check(|entry| supersede(entry, 5), None);
        // A reject of the earlier batch no longer counts.
        let without_reject = |entry: &mut CommitEntry| {
            supersede(entry, 5);
            entry.state.totals.rejected = 0;
        };
        check(without_reject, None);
        let message = "its `state.totals.rows` is 10, and not the sum of 7 before it and its own 3, less 5 superseded";
        check(|entry| supersede(entry, 10), Some(message));
        let other_count = |entry: &mut CommitEntry| {
            supersede(entry, 5);
            entry.counts.superseded = 4;
        };
        let message = "its `counts.superseded` is 4, and the files that it replaces lose 5 rows";
        check(other_count, Some(message));
        let other_file = |entry: &mut CommitEntry| {
            supersede(entry, 5);
            entry.files[0].rows = 9;
        };
        let message = "its `counts.rows` is 3, and its data files have 10 rows";
        check(other_file, Some(message));
    }

    #[test]
    fn files_that_expire_leave_the_totals_as_they_are() {
        let expire = |entry: &mut CommitEntry, rows: u64| {
            entry.expired = vec!["superseded/a".to_owned()];
            (entry.files, entry.rejects) = (Vec::new(), Vec::new());
            entry.counts = BatchCounts::default();
            let totals = &mut entry.state.totals;
            (totals.rows, totals.duplicates) = (rows, 0);
            (totals.rejected, totals.pages) = (0, 2);
        };
        check(|entry| expire(entry, 7), None);
        let message = "its `state.totals.rows` is 8, and not the 7 before it: files that are merged or expire leave it as it is";
        check(|entry| expire(entry, 8), Some(message));
    }

    #[test]
    fn a_count_that_contradicts_files_or_totals_is_named_with_both_numbers() {
        check(|_| (), None);
        check(
            |entry| entry.files[0].rows = 9,
            Some("its `counts.rows` is 3, and its data files have 10 rows"),
        );
        check(
            |entry| entry.counts.rejected = 0,
            Some("its `counts.rejected` is 0, and its reject files have 1 row"),
        );
        check(
            |entry| entry.state.totals.rows = 5_400,
            Some("its `state.totals.rows` is 5400, and not the sum of 7 before it and its own 3"),
        );
        // The rule of other versions, and of entries that take rows back, is another one.
        check(
            |entry| (entry.version, entry.counts.rows) = (COMMIT.version - 1, 9),
            None,
        );
        check(
            |entry| (entry.rewound_to, entry.counts.rows) = (Some(entry.sequence), 9),
            None,
        );
    }
}
