//! Contents of an entry that is about to be appended.

use std::collections::BTreeMap;

use feedline_schemas::{
    amendment::{SettingsRecord, Withdrawn},
    commit::{
        BatchCounts, ChildTable, CommitEntry, Compacted, DataFile, FilePart, Replaced, SourceState,
    },
    ids::{Name, Sequence},
    record::RecordSchema,
};

/// Contents of the log entry of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Commit {
    pub(crate) schema: RecordSchema,
    pub(crate) files: Vec<DataFile>,
    pub(crate) rejects: Vec<DataFile>,
    pub(crate) frontier: Vec<DataFile>,
    pub(crate) validators: Vec<DataFile>,
    pub(crate) raw: Vec<DataFile>,
    pub(crate) children: BTreeMap<Name, ChildTable>,
    pub(crate) parts: Vec<FilePart>,
    pub(crate) replaced: Vec<Replaced>,
    pub(crate) compacted: Vec<Compacted>,
    pub(crate) marks: Vec<DataFile>,
    pub(crate) counts: BatchCounts,
    pub(crate) settings: Option<SettingsRecord>,
    pub(crate) withdrawn: Vec<Withdrawn>,
    pub(crate) reset_to: Option<String>,
    pub(crate) rewound_to: Option<Sequence>,
    pub(crate) expired: Vec<String>,
    pub(crate) state: SourceState,
}

impl Commit {
    /// An amendment that lands nothing and leaves the state that `last` left.
    pub(crate) fn amending(last: &CommitEntry) -> Self {
        let mut children = last.children.clone();
        children
            .values_mut()
            .for_each(|table| table.files = Vec::new());
        Self {
            children,
            ..Self::of_columns(last.schema.clone(), last.state.clone())
        }
    }

    /// An entry that lands no record, with the columns of `schema`.
    pub(crate) fn of_columns(schema: RecordSchema, state: SourceState) -> Self {
        Self {
            schema,
            files: Vec::new(),
            rejects: Vec::new(),
            frontier: Vec::new(),
            validators: Vec::new(),
            raw: Vec::new(),
            children: BTreeMap::new(),
            parts: Vec::new(),
            replaced: Vec::new(),
            compacted: Vec::new(),
            marks: Vec::new(),
            counts: BatchCounts::default(),
            settings: None,
            withdrawn: Vec::new(),
            reset_to: None,
            rewound_to: None,
            expired: Vec::new(),
            state,
        }
    }
}
