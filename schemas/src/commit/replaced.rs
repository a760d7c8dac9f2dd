//! Data files that take the place of those of earlier entries.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CommitEntry, DataFile};
use crate::ids::{Name, Sequence};

/// Replacement of the data files of an earlier entry, in effect from the entry that has it. The files that no longer
/// count are moved to `superseded/`, under the path that they had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Replaced {
    /// The earlier entry.
    pub sequence: Sequence,
    /// Rows of its data files that no longer count.
    pub rows: u64,
    /// The data files that count in place of those it names, with the schema that it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<DataFile>,
    /// The same of its child tables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub children: BTreeMap<Name, Vec<DataFile>>,
    /// The files of rejected records that count in place of those it names; absent where all of them count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejects: Option<Vec<DataFile>>,
}

impl Replaced {
    /// The replacement of an entry's files by others of the same rows.
    #[must_use]
    pub fn same_rows(sequence: Sequence, files: Vec<DataFile>) -> Self {
        Self {
            sequence,
            rows: 0,
            files,
            children: BTreeMap::new(),
            rejects: None,
        }
    }

    /// Puts the files that count into `entry`, and gives those that no longer do.
    pub fn put_into(&self, entry: &mut CommitEntry) -> Vec<DataFile> {
        let mut old = std::mem::replace(&mut entry.files, self.files.clone());
        let mut kept: Vec<&DataFile> = self.files.iter().collect();
        if let Some(rejects) = &self.rejects {
            old.extend(std::mem::replace(&mut entry.rejects, rejects.clone()));
            kept.extend(rejects);
        }
        for (name, files) in &self.children {
            if let Some(table) = entry.children.get_mut(name) {
                old.extend(std::mem::replace(&mut table.files, files.clone()));
                kept.extend(files);
            }
        }
        old.retain(|file| kept.iter().all(|kept| kept.path != file.path));
        old
    }
}

/// Data files of a range of entries that were merged: `files` have the rows of all of them, in the order of the entries
/// and of their files. Each row keeps its `_feedline_seq` and `_feedline_row`. The files count as those of the entry
/// `last`; the others of the range have none. The files that no longer count are moved to `superseded/`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Compacted {
    /// First entry of the range.
    pub first: Sequence,
    /// Last entry of the range, which the merged files count as those of.
    pub last: Sequence,
    /// The merged files.
    pub files: Vec<DataFile>,
    /// The same of the child tables that were merged; the files of others stay with their entries.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub children: BTreeMap<Name, Vec<DataFile>>,
}
