//! Entries of a folder that a source would read, and cannot.

use std::collections::BTreeSet;

use feedline_readers::{glob, value::shorten};
use feedline_schemas::count::{counted, first_of};
use feedline_storage::{SkipReason, SkippedEntry};

/// Most entries that a message names.
const NAMED: usize = 5;

/// Entries that match the pattern of a source, or may be folders with files that match it.
#[derive(Debug)]
pub(super) struct UnreadEntries(Vec<SkippedEntry>);

impl UnreadEntries {
    /// The ones among `skipped` that `pattern` asks for.
    pub(super) fn matching(pattern: &str, mut skipped: Vec<SkippedEntry>) -> Self {
        skipped.retain(|entry| may_match(pattern, entry));
        Self(skipped)
    }

    /// Names the entries of `folder` with the remedies; `None` if there are none.
    pub(super) fn message(&self, folder: &str) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let named = self.0.iter().map(|entry| {
            let (path, what) = (shorten(&entry.path, 100), describe(entry.reason));
            format!("`{path}` ({what})")
        });
        let named: Vec<String> = named.collect();
        let remedies: BTreeSet<&str> = self.0.iter().map(|entry| remedy(entry.reason)).collect();
        let remedies: Vec<&str> = remedies.into_iter().collect();
        let verb = if self.0.len() == 1 { "is" } else { "are" };
        let entries = counted(self.0.len() as u64, "entry");
        let folder = if folder.is_empty() { "." } else { folder };
        Some(format!(
            "{entries} of `{folder}` {verb} not read: {}; {}, or narrow `url`",
            first_of(&named, NAMED),
            remedies.join(", ")
        ))
    }
}

/// Returns true if `pattern` matches the entry, or may match files below it.
fn may_match(pattern: &str, entry: &SkippedEntry) -> bool {
    let may_be_folder = match entry.reason {
        SkipReason::DeadLink | SkipReason::FolderLoop => true,
        SkipReason::NotUtf8 | SkipReason::NotAFile => false,
    };
    glob::matches(pattern, &entry.path)
        || (may_be_folder && glob::may_match_below(pattern, &entry.path))
}

const fn describe(reason: SkipReason) -> &'static str {
    match reason {
        SkipReason::NotUtf8 => "its path is not UTF-8",
        SkipReason::DeadLink => "a link to nothing",
        SkipReason::FolderLoop => "a link leads back to this folder",
        SkipReason::NotAFile => "a pipe, socket or device",
    }
}

const fn remedy(reason: SkipReason) -> &'static str {
    match reason {
        SkipReason::NotUtf8 => "rename it in UTF-8",
        SkipReason::DeadLink => "remove the link or restore its target",
        SkipReason::FolderLoop => "remove the link in its path",
        SkipReason::NotAFile => "write the data to a file",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, reason: SkipReason) -> SkippedEntry {
        SkippedEntry {
            path: path.to_owned(),
            reason,
        }
    }

    #[test]
    fn a_link_to_nothing_may_be_a_folder_of_matching_files() {
        for (pattern, path, reason, expected) in [
            ("*.csv", "a.csv", SkipReason::DeadLink, true),
            ("*.csv", "old", SkipReason::DeadLink, false),
            ("**/*.csv", "old", SkipReason::DeadLink, true),
            ("**/*.csv", ".old", SkipReason::DeadLink, false),
            ("*/b/*.csv", "a", SkipReason::FolderLoop, true),
            ("*/b/*.csv", "a/c", SkipReason::FolderLoop, false),
            ("**/*.csv", "old", SkipReason::NotUtf8, false),
            ("**", "d/\u{fffd}", SkipReason::NotUtf8, true),
            ("*.csv", "p.csv", SkipReason::NotAFile, true),
            ("*.csv", "p.sock", SkipReason::NotAFile, false),
        ] {
            let found = may_match(pattern, &entry(path, reason));
            assert_eq!(found, expected, "{pattern} {path} {reason:?}");
        }
    }

    #[test]
    fn the_message_names_the_first_entries_with_their_remedies() {
        let message = |count: usize| {
            let entries = (0..count).map(|i| match i % 2 {
                0 => entry(&format!("{i}\u{fffd}.csv"), SkipReason::NotUtf8),
                _ => entry(&format!("{i}.csv"), SkipReason::DeadLink),
            });
            UnreadEntries::matching("*.csv", entries.collect()).message("in/")
        };
        assert_eq!(message(0), None);
        assert_eq!(
            message(1).as_deref(),
            Some(
                "1 entry of `in/` is not read: `0\u{fffd}.csv` (its path is not UTF-8); rename it in UTF-8, or narrow `url`"
            )
        );
        let many = message(7).unwrap();
        assert!(
            many.starts_with("7 entries of `in/` are not read: `0\u{fffd}.csv` ("),
            "{many}"
        );
        let end = "`4\u{fffd}.csv` (its path is not UTF-8) and 2 more; remove the link or restore its target, rename it in UTF-8, or narrow `url`";
        assert!(many.ends_with(end), "{many}");
    }
}
