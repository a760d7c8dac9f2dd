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
}

/// First count of an entry, as it was written, that contradicts its files or the totals `before` it.
/// Entries that take rows of earlier ones back are not compared.
pub(crate) fn find_wrong_count(before: EntryTotals, entry: &CommitEntry) -> Option<String> {
    if entry.version != COMMIT.version || !is_plain(entry) {
        return None;
    }
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
    let totals = EntryTotals::of(entry);
    let sums = [
        ("rows", totals.rows, before.rows, counts.rows),
        (
            "duplicates",
            totals.duplicates,
            before.duplicates,
            counts.duplicates,
        ),
        (
            "rejected",
            totals.rejected,
            before.rejected,
            counts.rejected,
        ),
        ("pages", totals.pages, before.pages, counts.pages),
    ];
    for (name, total, before, count) in sums {
        if before.checked_add(count) != Some(total) {
            return Some(format!(
                "its `state.totals.{name}` is {total}, and not the sum of {before} before it and its own {count}"
            ));
        }
    }
    None
}

/// Returns true for an entry that changes no earlier one.
fn is_plain(entry: &CommitEntry) -> bool {
    entry.replaced.is_empty()
        && entry.compacted.is_empty()
        && entry.withdrawn.is_empty()
        && entry.expired.is_empty()
        && entry.reset_to.is_none()
        && entry.rewound_to.is_none()
        && !entry.is_amendment()
}

fn count_rows(files: &[DataFile]) -> u64 {
    let rows = files.iter().map(|file| file.rows);
    rows.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{decode, ids::Hash128};

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
