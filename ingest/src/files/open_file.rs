//! A file that is being read.

use std::{io, time::Duration};

use feedline_http::UncertainEnds;
use feedline_readers::{
    file_bytes::{Begin, FileBytes},
    file_format::{Kind, Packing},
    notices::Notices,
    record::Record,
    rows::{self, Layout, PlaceUnit, RecordPlace, Rows},
};
use feedline_schemas::{
    commit::{FileMark, FilePart, FileProgress},
    count::counted,
    ids::Hash128,
};

use super::{first_names::FirstNames, page_builder::Gathered};
use crate::{
    blocking::blocking,
    error::Error,
    file_change::{Change, Known, Policy, ends_in_a_line},
    file_list::Found,
    record_places::has_end_place,
    source::PagePart,
    uncertain_end,
};

/// A file written less long ago may still be being written: its last line may be cut.
const FRESH: Duration = Duration::from_secs(5);

/// Code of the warning about a file without rows.
pub(super) const EMPTY_FILE: &str = "empty_file";

/// Reason for refusing an empty file that has been read in part.
const EMPTIED: &str = "some of its records have landed, and now it has no rows and no header; restore it, or run `feedline ingest reset PIPELINE.toml SOURCE`, which re-reads everything";

/// A file, once it is opened.
pub(super) enum Opened {
    /// It has not changed since it was read.
    Same(FileMark),
    /// It has rows that landed, and has lost its rows and its header since: the landed rows stay.
    Emptied,
    Open(Box<OpenFile>),
}

/// A file that is being read.
pub(super) struct OpenFile {
    /// URL, size and hash, including those of its labels.
    mark: FileMark,
    rows: Box<dyn Rows>,
    /// Bytes of a file whose parts are read in any order.
    parts: Option<FileBytes>,
    /// Position where the reading began.
    begin: Begin,
    /// Records handed out, from there.
    pub(super) read: u64,
    /// The record after them: without one, the file is over.
    ahead: Option<Record>,
    /// Its place.
    ahead_place: Option<RecordPlace>,
    /// True if the reader counts the end of the file as a place.
    has_end_place: bool,
    /// True if the records to be handed out supersede the landed ones of this file.
    supersedes: bool,
    /// Names in its first records, if it is read from its beginning.
    names: FirstNames,
}

impl OpenFile {
    pub(super) async fn open(
        file: &Found,
        known: Option<Known>,
        policy: Policy,
        now: Duration,
        uncertain_ends: &UncertainEnds,
    ) -> Result<Opened, Error> {
        let start = known.as_ref().and_then(Known::bytes);
        let bytes = file.open_bytes(start).await?;
        let mut mark = bytes.mark.clone();
        mark.modified_unix_ms = file.modified.map(unix_ms);
        mark.etag.clone_from(&file.etag);
        let labels = open_labels(file, &mut mark).await?;
        let layout = file.layout.clone();
        let end_state = EndState::of(file, now, uncertain_ends);
        blocking(move || {
            let unreadable = |reason| Error::File {
                url: mark.url.clone(),
                reason,
            };
            let is_read = known.as_ref().is_some_and(|known| known.is_read);
            let (begin, skip, supersedes) = match known {
                None => (Begin::default(), 0, false),
                Some(known) => {
                    let change = Change::of(&known, &bytes, mark.hash, &layout, policy);
                    match change.map_err(unreadable)? {
                        Change::None if known.is_read => return Ok(Opened::Same(mark)),
                        Change::None | Change::GrownWhile => (known.begin, known.records, false),
                        Change::Grown(begin) => (begin, 0, false),
                        Change::Other => (Begin::default(), 0, true),
                    }
                }
            };
            let begin = match begin.lines.count() {
                0 => bytes
                    .begin(begin.byte)
                    .map_err(|e| unreadable(e.to_string()))?,
                _ => begin,
            };
            let mut rows = rows::open::open(&bytes, labels.as_ref(), &layout, begin, skip)
                .map_err(unreadable)?;
            let ahead = rows.next().map_err(unreadable)?;
            let ahead_place = rows.numbered_place();
            let is_beginning = skip == 0 && begin == Begin::default();
            let names = match is_beginning {
                true => FirstNames::of(rows.as_mut(), &bytes, &layout, policy),
                false => Ok(FirstNames::Unknown),
            };
            let names = names.map_err(unreadable)?;
            if ahead.is_none() && is_beginning {
                let is_emptied = supersedes && names.are_missing();
                note_empty(&mark, &layout, &names, is_emptied);
                match is_emptied {
                    true if is_read => return Ok(Opened::Emptied),
                    true => return Err(unreadable(EMPTIED.to_owned())),
                    false => {}
                }
            }
            let noted = end_state.note(&bytes, &layout);
            noted.map_err(|e| unreadable(e.to_string()))?;
            let has_parts = matches!(layout.kind, Kind::Parquet | Kind::Zip);
            Ok(Opened::Open(Box::new(Self {
                mark,
                rows,
                parts: has_parts.then_some(bytes),
                begin,
                read: skip,
                ahead,
                ahead_place,
                has_end_place: has_end_place(layout.kind),
                supersedes,
                names,
            })))
        })
        .await
    }

    /// Returns true if all its records were handed out.
    pub(super) fn is_over(&self) -> bool {
        self.ahead.is_none()
    }

    pub(super) fn mark(&self) -> &FileMark {
        &self.mark
    }

    /// Returns true if it supersedes landed records.
    pub(super) const fn supersedes(&self) -> bool {
        self.supersedes
    }

    /// Tables of an archive that were opened since the last call, with the names of their columns.
    pub(super) fn take_members(&mut self) -> Vec<(String, Vec<String>)> {
        self.rows.take_members()
    }

    /// Names in its first records, if it is read from its beginning.
    pub(super) const fn names(&self) -> &FirstNames {
        &self.names
    }

    /// Progress of the reading.
    pub(super) fn progress(&self) -> FileProgress {
        FileProgress {
            url: self.mark.url.clone(),
            records: self.read,
            hash: self.mark.hash,
            bytes: Some(self.mark.bytes),
            from: self.begin.byte,
        }
    }

    /// Adds records, at least one if there are any.
    pub(super) fn page(mut self, mut to: Gathered) -> Result<(Self, Gathered), Error> {
        let before = self.read;
        while !to.is_full()
            && let Some(record) = self.ahead.take()
        {
            to.bytes += record.size();
            to.records.push(record);
            to.room -= 1;
            self.read += 1;
            let next = self.rows.next();
            self.ahead = next.map_err(|reason| self.unreadable(reason))?;
        }
        if self.is_over()
            && let Some(file) = &self.parts
        {
            let checked = file.check_version();
            checked.map_err(|e| self.unreadable(e.to_string()))?;
        }
        let now = self.rows.numbered_place();
        let place = self.first_place(before, now);
        self.ahead_place = now;
        to.parts.push(PagePart {
            part: FilePart {
                url: self.mark.url.clone(),
                records: self.read - before,
            },
            supersedes: std::mem::take(&mut self.supersedes),
            place,
        });
        Ok((self, to))
    }

    fn unreadable(&self, reason: String) -> Error {
        Error::File {
            url: self.mark.url.clone(),
            reason,
        }
    }

    /// Place of the record with the number `before`, if those after it follow by one line each, and
    /// otherwise its number. The reader is at `now`: at the record ahead, or at the end of the file.
    fn first_place(&self, before: u64, now: Option<RecordPlace>) -> Option<RecordPlace> {
        let count = self.read - before;
        let steps = match self.is_over() && !self.has_end_place {
            true => count.checked_sub(1)?,
            false => count,
        };
        let is_from_begin = self.begin == Begin::default();
        let first = self.ahead_place.filter(|first| first.leads_to(now, steps));
        first.or_else(|| is_from_begin.then(|| RecordPlace::new(PlaceUnit::Record, before + 1)))
    }
}

/// Opens the labels of a file of images, and adds them to its mark.
async fn open_labels(
    file: &Found,
    mark: &mut FileMark,
) -> Result<Option<(FileBytes, Packing)>, Error> {
    let Some(found) = &file.labels else {
        return Ok(None);
    };
    let labels = FileBytes::open(&found.store, &found.path, &found.url, None).await?;
    mark.bytes += labels.mark.bytes;
    let both = [mark.hash, labels.mark.hash].map(|hash| hash.get().to_be_bytes());
    mark.hash = Hash128::of(both.as_flattened());
    Ok(Some((labels, found.packing)))
}

/// Notes a file without rows, with these first names. The rows of an emptied one stay.
fn note_empty(mark: &FileMark, layout: &Layout, names: &FirstNames, is_emptied: bool) {
    let how = match (mark.bytes, layout.kind) {
        (0, _) => "is empty (0 bytes)".to_owned(),
        (bytes, Kind::Text) => format!("has no text in its {}", counted(bytes, "byte")),
        (bytes, _) => format!("has no rows in its {}", counted(bytes, "byte")),
    };
    let has_no_line = match names {
        FirstNames::Header(names) => names.is_empty(),
        _ => matches!(layout.kind, Kind::Csv { .. }) && !layout.csv.header,
    };
    let skipped = layout.csv.skip_rows;
    let (key, lines) = match has_no_line && skipped > 0 && mark.bytes > 0 {
        true => (
            "csv.skip_rows",
            format!(
                " behind the {} that `csv.skip_rows` passes over; lower it",
                counted(skipped, "line")
            ),
        ),
        false => ("", String::new()),
    };
    let rows = match is_emptied.then_some(names) {
        Some(FirstNames::Header(_)) => {
            ", without a header: the rows that landed from it stay; write it with its header alone to drop them"
        }
        Some(_) => {
            ": the rows that landed from it stay; to drop them, remove it and run `feedline ingest reread PIPELINE.toml SOURCE --file NAME --missing-too`"
        }
        None => "",
    };
    let message = format!("`{}` {how}{lines}{rows}", mark.url);
    layout.notices.push_listed(EMPTY_FILE, key, message);
}

/// Reasons why the end of a file may not be its last one.
struct EndState {
    /// True if it was written a moment ago.
    is_fresh: bool,
    /// False if only the end of a connection shows it.
    is_certain: bool,
}

impl EndState {
    /// State of a file that was received.
    fn of(file: &Found, now: Duration, uncertain_ends: &UncertainEnds) -> Self {
        let is_young = |at| now.saturating_sub(at) < FRESH;
        Self {
            is_fresh: file.modified.is_some_and(is_young),
            is_certain: !uncertain_ends.contain(&file.url),
        }
    }

    /// Notes an end within a line that may be followed by more.
    fn note(&self, file: &FileBytes, layout: &Layout) -> io::Result<()> {
        if self.is_certain && !self.is_fresh || !ends_in_a_line(file, layout)? {
            return Ok(());
        }
        if self.is_fresh {
            note_unfinished(&file.mark, &layout.notices);
        }
        // A truncated line of NDJSON is no JSON.
        if !self.is_certain && matches!(layout.kind, Kind::Csv { .. }) {
            uncertain_end::note(&file.mark.url, &layout.notices);
        }
        Ok(())
    }
}

fn note_unfinished(mark: &FileMark, notices: &Notices) {
    let message = format!(
        "the last line of `{}` has no line end, and the file was written a moment ago: if it is still being written, that row is truncated; a later run reads the appended part, and such a row again",
        mark.url
    );
    notices.push("unfinished_file", "files.settle_s", message);
}

/// Milliseconds of a duration since the Unix epoch.
pub(super) fn unix_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
