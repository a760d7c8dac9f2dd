//! Folders of a landing zone, and the names of the files in them.

use feedline_schemas::ids::Hash128;

/// Folders of a source's landing zone with files that log entries name.
pub(super) const FOLDERS: [&str; 7] = [
    "data",
    "rejects",
    "frontier",
    "validators",
    "raw",
    "marks",
    CHILDREN,
];
/// The one of them that has a folder for each table.
pub(super) const CHILDREN: &str = "children";
/// Folder for files that no entry names.
pub(crate) const ORPHANS: &str = "orphans";
/// Folder for files and entries that a repair removes from the log.
pub(crate) const DAMAGED: &str = "damaged";

/// The number of the entry that a batch's file was written for; none of a file that no batch wrote.
pub(crate) fn sequence_of(path: &str) -> Option<u64> {
    let (folder, name) = path.rsplit_once('/')?;
    let top = folder.split('/').next().unwrap_or_default();
    let stem = name.strip_suffix(".parquet")?;
    let (number, hash) = stem.split_once('-')?;
    let is_ours = FOLDERS.contains(&top)
        && number.len() == 20
        && hash.len() == Hash128::of(b"").short().len()
        && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_ours.then(|| number.parse().ok()).flatten()
}

/// Returns true if the bytes of an entry, of any version, name a file.
pub(crate) fn names(entry: &[u8], path: &str) -> bool {
    let quoted = format!("\"{path}\"");
    entry
        .windows(quoted.len())
        .any(|window| window == quoted.as_bytes())
}
