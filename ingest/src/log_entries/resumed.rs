//! Results of reading the entries of a log.

use feedline_schemas::{
    commit::{CommitEntry, DataFile},
    ids::Sequence,
};

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
            self.holder = entry.merged_into;
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
