//! Results of reading the entries of a log.

use feedline_schemas::{
    amendment::SettingChange,
    commit::{CommitEntry, DataFile},
    ids::Sequence,
};

/// Settings that decide the names of columns of CSV.
const NAMING: [&str; 9] = [
    "format",
    "csv.delimiter",
    "csv.header",
    "csv.columns",
    "csv.encoding",
    "csv.quote",
    "csv.escape",
    "csv.comment",
    "csv.skip_rows",
];

/// Columns that the header of a CSV file is compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ComparedColumns {
    /// Those that have landed.
    #[default]
    Landed,
    /// None: any header passes, as after a change of settings that name columns.
    None,
}

impl ComparedColumns {
    /// Decides by `entries`, the newest ones of a log; `older` are the newest changes before them.
    pub(super) fn after(entries: &[CommitEntry], older: &[SettingChange]) -> Self {
        let is_naming = |change: &SettingChange| NAMING.contains(&change.key.as_str());
        for entry in entries.iter().rev() {
            let mut changes = entry.settings.iter().flat_map(|record| &record.changes);
            if changes.any(is_naming) {
                return Self::None;
            }
            // Retried rejects were read before.
            let is_of_files = entry.counts.pages > 0 && entry.withdrawn.is_empty();
            if is_of_files && entry.counts.rows > 0 {
                return Self::Landed;
            }
        }
        match older.iter().any(is_naming) {
            true => Self::None,
            false => Self::Landed,
        }
    }
}

/// Landed state that a source resumes from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resumed {
    /// The newest entry.
    pub(crate) last: Option<CommitEntry>,
    /// Highest cursors of the log in their order: all newer ones, and some of the older ones.
    pub(crate) highs: Vec<String>,
    /// Ends of the passes over slices in their order: all newer ones, and some of the older ones.
    pub(crate) ends: Vec<i64>,
    /// Files of the frontier, in the order of the discoveries.
    pub(crate) frontier: Vec<DataFile>,
    /// Files of validators, from the oldest to the newest.
    pub(crate) validators: Vec<DataFile>,
    /// `files`: columns that the headers of CSV are compared with.
    pub(crate) compared: ComparedColumns,
}

/// Data files of a log, and which of them have rows of its first entries.
#[derive(Clone, Debug, Default)]
pub(crate) struct FilesBefore {
    /// All data files in the order of the log, each with the entry that has it.
    pub(crate) all: Vec<(Sequence, DataFile)>,
    /// The first entry that is not one of the first.
    pub(crate) ends: Sequence,
    /// A later entry whose files have rows of the first ones, after a compaction.
    pub(crate) holder: Option<Sequence>,
    /// True behind the first ones.
    is_over: bool,
}

impl FilesBefore {
    pub(super) fn add(&mut self, entry: &CommitEntry, is_first: impl Fn(&CommitEntry) -> bool) {
        self.is_over = self.is_over || !is_first(entry);
        if !self.is_over {
            self.ends = entry.sequence.next();
        }
        // A holder may have been merged again.
        if !self.is_over || self.holder == Some(entry.sequence) {
            // An entry without rows names no holder once it is deleted.
            self.holder = entry.merged_into.or(self.holder);
        }
        let files = entry.files.iter().cloned();
        self.all.extend(files.map(|file| (entry.sequence, file)));
    }

    /// The files that have rows of the first entries.
    pub(crate) fn first(&self) -> impl Iterator<Item = &DataFile> {
        let (ends, holder) = (self.ends, self.holder);
        let files = self.all.iter();
        let files = files.filter(move |(of, _)| *of < ends || holder == Some(*of));
        files.map(|(_, file)| file)
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{
        amendment::{SettingsRecord, Withdrawn, WithdrawnReason},
        decode,
    };

    use super::*;

    const SAMPLE: &str = include_str!("../../../schemas/samples/commit-2.json");

    fn changed(key: &str) -> SettingChange {
        SettingChange {
            key: key.to_owned(),
            ..SettingChange::default()
        }
    }

    #[test]
    fn landed_columns_are_not_compared_from_a_change_that_names_columns_to_the_next_rows() {
        let sample: CommitEntry = decode("sample", SAMPLE.as_bytes()).unwrap();
        let entry = |rows: u64, key: Option<&str>| {
            let mut entry = sample.clone();
            (entry.counts.pages, entry.counts.rows) = (1, rows);
            entry.withdrawn = Vec::new();
            entry.settings = key.map(|key| SettingsRecord {
                changes: vec![changed(key)],
                ..SettingsRecord::default()
            });
            entry
        };
        let (batch, nothing) = (entry(2, None), entry(0, None));
        let named = entry(0, Some("csv.delimiter"));
        let other = entry(0, Some("csv.null_values"));
        let mut retried = batch.clone();
        retried.withdrawn = vec![Withdrawn {
            sequence: Sequence::new(0),
            reason: WithdrawnReason::Retried,
            files: Vec::new(),
        }];
        let check = |entries: &[&CommitEntry], older: &str, expected: ComparedColumns| {
            let entries: Vec<CommitEntry> = entries.iter().copied().cloned().collect();
            let found = ComparedColumns::after(&entries, &[changed(older)]);
            assert_eq!(found, expected, "{older}");
        };
        let (landed, none) = (ComparedColumns::Landed, ComparedColumns::None);
        check(&[&batch, &other, &nothing], "csv.delimiter", landed);
        check(&[&batch, &named, &other, &retried, &nothing], "url", none);
        check(&[&batch, &named, &batch, &nothing], "url", landed);
        // Older entries are in a snapshot.
        check(&[&nothing], "csv.columns", none);
        check(&[&nothing], "url", landed);
    }

    /// Number of files with rows of the entries before `first`. Each entry is given by its holder, and
    /// the last one has a file.
    fn count_files_before(first: u64, holders: &[Option<u64>]) -> usize {
        let sample: CommitEntry = decode("sample", SAMPLE.as_bytes()).unwrap();
        let mut found = FilesBefore::default();
        for (number, holder) in (0..).zip(holders) {
            let mut entry = sample.clone();
            entry.sequence = Sequence::new(number);
            entry.merged_into = holder.map(Sequence::new);
            let is_last = number + 1 == holders.len() as u64;
            entry.files.truncate(usize::from(is_last));
            found.add(&entry, |entry| entry.sequence.get() < first);
        }
        found.first().count()
    }

    #[test]
    fn a_deleted_entry_hides_no_merged_file_of_those_before_it() {
        let holders = [Some(3), Some(3), None, None];
        assert_eq!(count_files_before(3, &holders), 1);
    }

    #[test]
    fn a_holder_that_was_merged_again_leads_to_the_file() {
        let holders = [Some(2), Some(3), Some(3), None];
        assert_eq!(count_files_before(1, &holders), 1);
        assert_eq!(count_files_before(1, &[None, Some(3), Some(3), None]), 0);
    }
}
