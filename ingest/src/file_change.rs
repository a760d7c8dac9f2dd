//! Changes of a file since it was read, and their consequences.
//!
//! A plain CSV or NDJSON file has grown if its old bytes are an intact beginning of the new ones.
//! Reading resumes after them. If the last line had no end and is longer now, a truncated row has
//! landed, so the file is re-read. Any other change supersedes the landed rows, or ends the run,
//! depending on `files.changed`.

use std::io;

use feedline_readers::{
    csv_dialect,
    file_bytes::{Begin, FileBytes},
    file_format::{Kind, Packing},
    rows::Layout,
};
use feedline_schemas::{
    commit::{FileMark, FileProgress},
    config::{FilesChanged, SourceConfig},
    ids::Hash128,
};

/// State of a file at an earlier reading.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    hash: Hash128,
    /// Size; `None` for a partially read file of earlier versions.
    bytes: Option<u64>,
    /// True if it was read to its end.
    pub(crate) is_read: bool,
    /// Position where the reading began.
    pub(crate) begin: Begin,
    /// Records read from there.
    pub(crate) records: u64,
}

impl Known {
    /// Returns the recorded state of a file that was read to its end.
    pub(crate) fn read(mark: &FileMark) -> Self {
        Self {
            hash: mark.hash,
            bytes: Some(mark.bytes),
            is_read: true,
            begin: Begin::default(),
            records: 0,
        }
    }

    /// Returns the recorded state of a file that was begun.
    pub(crate) fn begun(progress: FileProgress) -> Self {
        Self {
            hash: progress.hash,
            bytes: progress.bytes,
            is_read: false,
            begin: Begin {
                byte: progress.from,
                ..Begin::default()
            },
            records: progress.records,
        }
    }

    pub(crate) const fn bytes(&self) -> Option<u64> {
        self.bytes
    }
}

/// Policy for changed files, from `files.changed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    changed: FilesChanged,
    /// True if rows fetch files from elsewhere: their landed data is not superseded.
    has_fetch: bool,
    /// True if the keys of records of NDJSON are compared with the landed columns.
    pub(crate) compares_keys: bool,
}

impl Policy {
    pub(crate) fn of(config: &SourceConfig) -> Self {
        Self {
            changed: config.files.changed,
            has_fetch: config.fetch.is_some(),
            compares_keys: false,
        }
    }

    /// The policy that compares keys as well, if `compares` and the records themselves land.
    pub(crate) const fn comparing(self, compares: bool) -> Self {
        Self {
            compares_keys: compares && !self.has_fetch,
            ..self
        }
    }
}

/// Change of a file since it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// No change.
    None,
    /// It has grown since it was read to its end: the new rows begin here.
    Grown(Begin),
    /// It has grown since it was read partially: reading resumes.
    GrownWhile,
    /// Its current content supersedes its landed rows.
    Other,
}

impl Change {
    /// Compares the `known` state of a file with its current state, `file` with the hash `hash`.
    ///
    /// # Errors
    /// A message with the reason why the change is refused, and a remedy.
    pub(crate) fn of(
        known: &Known,
        file: &FileBytes,
        hash: Hash128,
        layout: &Layout,
        policy: Policy,
    ) -> Result<Self, String> {
        if known.hash == hash {
            return Ok(Self::None);
        }
        let bytes = known.bytes.unwrap_or(u64::MAX);
        let start = file.start.filter(|start| start.hash == known.hash);
        let has_grown = start.is_some() && file.mark.bytes > bytes;
        let can_go_on = can_go_on(file, layout).map_err(|e| e.to_string())?;
        let refused = policy.changed == FilesChanged::Refuse;
        if let Some(start) = start
            && has_grown
            && can_go_on
            && !refused
        {
            let begin = Begin {
                byte: bytes,
                lines: start.lines,
            };
            return match known.is_read {
                false => Ok(Self::GrownWhile),
                true if is_between_lines(file, bytes).map_err(|e| e.to_string())? => {
                    Ok(Self::Grown(begin))
                }
                // The row that was cut has landed.
                true if !policy.has_fetch => Ok(Self::Other),
                true => Err("its last line was truncated when it was read and is longer now, and the files of its rows (`fetch`) are not fetched again; use another source name".into()),
            };
        }
        match policy.changed {
            FilesChanged::Replace if !policy.has_fetch => Ok(Self::Other),
            // Only its end differs.
            FilesChanged::Append if has_grown => Ok(Self::Other),
            FilesChanged::Append => Err(format!(
                "it is not the landed content with more appended: its first {bytes} bytes differ now; restore the old content, or set `files.changed = \"replace\"` to replace the landed rows by the new content"
            )),
            FilesChanged::Refuse => Err("it has changed since its records landed, and `files.changed` is `refuse`; restore the old content and give new data a new file name, or set `files.changed` to `append` (reads the appended part) or `replace` (the new content replaces the old rows)".into()),
            FilesChanged::Replace => Err("it has changed since its records landed, and a source with `fetch` only takes files that grow; restore the old content and give new data a new file name, or use another source name to re-read everything".into()),
        }
    }
}

/// Returns true if a file of this format can be read from the middle.
fn can_go_on(file: &FileBytes, layout: &Layout) -> io::Result<bool> {
    let first = file.range(0, file.mark.bytes.min(4))?;
    Ok(layout.packing == Packing::Plain
        && match layout.kind {
            Kind::Csv { .. } => csv_dialect::can_be_continued(&layout.csv, &first),
            Kind::Ndjson => true,
            _ => false,
        })
}

/// Returns true if a line end is right before or right at `byte`, which is inside the file.
fn is_between_lines(file: &FileBytes, byte: u64) -> io::Result<bool> {
    let around = file.range(byte.saturating_sub(1), byte + 1)?;
    Ok(byte == 0 || around.iter().any(|byte| matches!(byte, b'\n' | b'\r')))
}

/// Returns true for a file of lines whose last line has no end.
pub(crate) fn ends_in_a_line(file: &FileBytes, layout: &Layout) -> io::Result<bool> {
    let bytes = file.mark.bytes;
    if bytes == 0 || !can_go_on(file, layout)? {
        return Ok(false);
    }
    let last = file.range(bytes - 1, bytes)?;
    Ok(!matches!(last[..], [b'\n' | b'\r']))
}
