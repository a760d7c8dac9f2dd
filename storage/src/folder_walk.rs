//! Listing of a local folder with all folders below it.
//!
//! Links are followed. A folder that a link leads back to is listed once, where it is reached
//! first.

use std::{fs, io, os::unix::fs::MetadataExt as _, path::Path};

use crate::{
    Listed,
    local::{TEMPORARY, listed},
};

/// Entry of a local folder that is not listed, since it cannot be read as a file by its path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SkippedEntry {
    /// Path relative to the store's folder, with U+FFFD in place of bytes that are not UTF-8.
    pub path: String,
    /// Reason why it is not listed.
    pub reason: SkipReason,
}

/// Reason why an entry of a folder is not listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SkipReason {
    /// Its name, or that of a folder around it, is not UTF-8.
    NotUtf8,
    /// A link to something that does not exist.
    DeadLink,
    /// A folder that contains itself, through a link.
    FolderLoop,
    /// A named pipe, a socket or a device.
    NotAFile,
}

/// The objects below a folder, and the entries that are not among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FolderListing {
    /// Objects that can be read.
    pub objects: Vec<Listed>,
    /// Entries of a local folder that cannot; always empty for other stores.
    pub skipped: Vec<SkippedEntry>,
}

impl From<Vec<Listed>> for FolderListing {
    fn from(objects: Vec<Listed>) -> Self {
        let skipped = Vec::new();
        Self { objects, skipped }
    }
}

/// Lists the files below `folder`, sorted by path; their paths begin with `prefix`.
pub(crate) fn walk(folder: &Path, prefix: &str) -> io::Result<FolderListing> {
    let mut walk = FolderWalk {
        found: FolderListing::default(),
        around: vec![identity(&fs::metadata(folder)?)],
    };
    let steps = Steps {
        is_utf8: true,
        has_link: false,
    };
    walk.visit(folder, prefix, steps)?;
    walk.found.objects.sort();
    walk.found.skipped.sort();
    Ok(walk.found)
}

/// Properties of the path from the first folder to an entry.
#[derive(Clone, Copy)]
struct Steps {
    /// True if all names are UTF-8.
    is_utf8: bool,
    /// True if a folder in it is a link.
    has_link: bool,
}

struct FolderWalk {
    found: FolderListing,
    /// Identities of the folders around the current entry.
    around: Vec<(u64, u64)>,
}

impl FolderWalk {
    fn visit(&mut self, folder: &Path, prefix: &str, steps: Steps) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let (own, name) = (entry.path(), entry.file_name());
            let is_utf8 = steps.is_utf8 && name.to_str().is_some();
            let name = name.to_string_lossy();
            if name.starts_with(TEMPORARY) {
                continue;
            }
            let path = match prefix {
                "" => name.into_owned(),
                prefix => format!("{prefix}/{name}"),
            };
            let metadata = match fs::metadata(&own) {
                Ok(metadata) => metadata,
                Err(e) => {
                    if is_link(&own) {
                        self.skip_dead_link(path, &e)?;
                    } else if e.kind() != io::ErrorKind::NotFound {
                        return Err(e);
                    }
                    // An entry that is no link was removed meanwhile.
                    continue;
                }
            };
            if metadata.is_dir() {
                let has_link = steps.has_link || is_link(&own);
                let steps = Steps { is_utf8, has_link };
                self.enter(&own, path, &metadata, steps)?;
            } else if !metadata.is_file() {
                self.skip(path, SkipReason::NotAFile);
            } else if !is_utf8 {
                self.skip(path, SkipReason::NotUtf8);
            } else {
                self.found.objects.push(listed(path, &metadata));
            }
        }
        Ok(())
    }

    fn enter(
        &mut self,
        folder: &Path,
        path: String,
        metadata: &fs::Metadata,
        steps: Steps,
    ) -> io::Result<()> {
        let identity = identity(metadata);
        // Without a link no folder contains itself, and some file systems number folders alike.
        if steps.has_link && self.around.contains(&identity) {
            self.skip(path, SkipReason::FolderLoop);
            return Ok(());
        }
        self.around.push(identity);
        let visited = self.visit(folder, &path, steps);
        self.around.pop();
        match visited {
            // It was removed meanwhile; the others still exist.
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            visited => visited,
        }
    }

    /// Skips a link that cannot be followed if its target does not exist.
    fn skip_dead_link(&mut self, path: String, error: &io::Error) -> io::Result<()> {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                self.skip(path, SkipReason::DeadLink);
                Ok(())
            }
            // It may lead to a file.
            kind => Err(io::Error::new(
                kind,
                format!("the link `{path}` cannot be followed: {error}; mend or remove it"),
            )),
        }
    }

    fn skip(&mut self, path: String, reason: SkipReason) {
        self.found.skipped.push(SkippedEntry { path, reason });
    }
}

/// Device and number of a file or folder.
fn identity(metadata: &fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink())
}

#[cfg(test)]
mod tests {
    use std::os::unix::{fs::symlink, net::UnixListener};

    use super::*;

    fn paths(found: &FolderListing) -> Vec<&str> {
        found.objects.iter().map(|file| &*file.path).collect()
    }

    fn skipped(found: &FolderListing) -> Vec<(&str, SkipReason)> {
        let skipped = found.skipped.iter();
        skipped.map(|entry| (&*entry.path, entry.reason)).collect()
    }

    #[test]
    fn links_to_nothing_and_entries_that_are_no_files_are_skipped_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("d")).unwrap();
        fs::write(at("d/a"), "1").unwrap();
        symlink(at("d/a"), at("b")).unwrap();
        symlink(at("gone"), at("d/c")).unwrap();
        symlink(at("d/a/x"), at("e")).unwrap();
        let _socket = UnixListener::bind(at("s")).unwrap();
        let found = walk(folder.path(), "p").unwrap();
        assert_eq!(paths(&found), ["p/b", "p/d/a"]);
        let expected = [
            ("p/d/c", SkipReason::DeadLink),
            ("p/e", SkipReason::DeadLink),
            ("p/s", SkipReason::NotAFile),
        ];
        assert_eq!(skipped(&found), expected);
    }

    // Other systems refuse such names.
    #[cfg(target_os = "linux")]
    #[test]
    fn files_whose_paths_are_not_utf8_are_skipped_by_name() {
        use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};

        let folder = tempfile::tempdir().unwrap();
        let odd = folder.path().join(OsStr::from_bytes(b"M\xfcnchen"));
        fs::create_dir(&odd).unwrap();
        fs::write(odd.join("a"), "1").unwrap();
        fs::write(folder.path().join(OsStr::from_bytes(b"\xff.csv")), "1").unwrap();
        fs::write(folder.path().join("b"), "1").unwrap();
        let found = walk(folder.path(), "").unwrap();
        assert_eq!(paths(&found), ["b"]);
        let expected = [
            ("M\u{fffd}nchen/a", SkipReason::NotUtf8),
            ("\u{fffd}.csv", SkipReason::NotUtf8),
        ];
        assert_eq!(skipped(&found), expected);
    }

    #[test]
    fn a_folder_that_contains_itself_through_links_is_listed_once() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("d/e")).unwrap();
        fs::create_dir(at("f")).unwrap();
        fs::write(at("d/e/a"), "1").unwrap();
        symlink(at("d"), at("d/e/up")).unwrap();
        // Not a loop: the same folder under another name.
        symlink(at("d/e"), at("f/again")).unwrap();
        let found = walk(folder.path(), "").unwrap();
        assert_eq!(paths(&found), ["d/e/a", "f/again/a"]);
        let expected = [
            ("d/e/up", SkipReason::FolderLoop),
            ("f/again/up/e", SkipReason::FolderLoop),
        ];
        assert_eq!(skipped(&found), expected);
    }

    #[test]
    fn a_link_to_itself_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        symlink(folder.path().join("a"), folder.path().join("a")).unwrap();
        let error = walk(folder.path(), "").unwrap_err().to_string();
        assert!(error.starts_with("the link `a` cannot be followed: "));
    }
}
