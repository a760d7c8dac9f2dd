//! The folder of the `files` source.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

use super::world::{DAY, START};
use crate::support::Random;

/// CSV files that grow, are replaced, and are new, with the keys of their rows.
pub(super) struct Inbox {
    folder: PathBuf,
    keys: BTreeMap<String, Vec<String>>,
    changes: u64,
}

impl Inbox {
    pub(super) fn new(folder: PathBuf) -> Self {
        fs::create_dir(&folder).unwrap();
        Self {
            folder,
            keys: BTreeMap::new(),
            changes: 0,
        }
    }

    /// Keys of the rows of all files.
    pub(super) fn keys(&self) -> impl Iterator<Item = String> {
        self.keys.values().flatten().cloned()
    }

    /// Lets one file grow, replaces one, or writes the file of the day, at the true time `now`.
    pub(super) fn change(&mut self, random: &mut Random, now: u64) {
        self.changes += 1;
        let name = match random.below(4) {
            0 | 1 => "grown".to_owned(),
            2 => "replaced".to_owned(),
            _ => format!("day-{}", (now - START) / DAY),
        };
        let numbers = 0..5 + random.below(60);
        let added: Vec<String> = numbers
            .map(|n| format!("files {name} {} {n}", self.changes))
            .collect();
        let lines: String = added.iter().map(|key| format!("{key},1\n")).collect();
        let path = self.folder.join(format!("{name}.csv"));
        if name == "grown" && path.exists() {
            let mut file = File::options().append(true).open(&path).unwrap();
            file.write_all(lines.as_bytes()).unwrap();
            set_modified(&path, now);
            self.keys.entry(name).or_default().extend(added);
        } else {
            let beside = self.folder.with_extension("next");
            fs::write(&beside, format!("key,value\n{lines}")).unwrap();
            set_modified(&beside, now);
            fs::rename(beside, path).unwrap();
            self.keys.insert(name, added);
        }
    }
}

/// Sets the modification time of a file.
pub(super) fn set_modified(path: &Path, unix_s: u64) {
    let file = File::options().append(true).open(path).unwrap();
    let at = UNIX_EPOCH + Duration::from_secs(unix_s);
    file.set_modified(at).unwrap();
}
