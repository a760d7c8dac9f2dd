//! The newest cursor of each value of a list, with `incremental`.
//!
//! A pass requests each value from its own newest cursor on. The cursors are a file of the landing
//! folder, `cursors/HASH.txt`: a line for each value, its text as JSON, a tab and the cursor. The file is
//! written before the entry of the log whose ledger has its hash. A value that leaves the list keeps
//! its cursor, and continues from it if it returns.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BTreeMap, HashSet},
};

use bytes::Bytes;
use feedline_schemas::{
    commit::{CommitEntry, CursorAhead, PageRun, Position},
    config::SourceConfig,
    ids::Hash128,
    report::{Damage, ValueCursor, ValueCursorsReport, Warning},
};
use feedline_storage::Store;

use super::listed_values::ListedValues;
use crate::{
    error::Error,
    watermark::{MOST_AHEAD, Mark, ahead_warning, choose_bound_cursor},
};

/// Folder of the files.
pub(super) const FOLDER: &str = "cursors";
/// Consequence of a missing file.
const LOST: &str = "the next run requests all values from `incremental.start` on, and drops landed records as duplicates";
/// Number of the newest files that are kept after a pass: a rewind may go back to one of them.
const KEPT: usize = 16;

/// The text of a file of cursors.
#[derive(Debug)]
pub(crate) struct CursorLines {
    pub(crate) text: String,
    /// True if the log names a file that is missing or damaged.
    pub(crate) is_lost: bool,
}

/// The newest cursor of each value.
#[derive(Clone, Debug, Default)]
pub(crate) struct ValueCursors {
    newest: BTreeMap<String, String>,
    /// Records of this process whose cursor was ahead of the time when they came.
    ahead: Vec<CursorAhead>,
}

impl ValueCursors {
    /// Reads the cursors with this hash; `None` if their file is missing or damaged.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(crate) async fn read(landing: &Store, hash: Hash128) -> Result<Option<Self>, Error> {
        let Some(bytes) = landing.get_opt(&path(hash)).await? else {
            return Ok(None);
        };
        let text = std::str::from_utf8(&bytes).ok();
        let text = text.filter(|_| Hash128::of(&bytes) == hash);
        let newest = text.and_then(|text| text.lines().map(parse).collect());
        Ok(newest.map(|newest| Self {
            newest,
            ahead: Vec::new(),
        }))
    }

    /// The newest cursor of a value; `None` for one that has had no record with a cursor.
    pub(crate) fn newest(&self, value: &str) -> Option<&str> {
        self.newest.get(value).map(String::as_str)
    }

    /// Notes the newest cursor of a value whose page run has ended.
    pub(crate) fn note(&mut self, value: String, run: &PageRun) {
        if let Some(newest) = choose_bound_cursor(run.high.as_deref(), run.interrupted.as_ref()) {
            self.newest.insert(value, newest.to_owned());
        }
        for ahead in &run.ahead {
            let is_full = self.ahead.len() >= MOST_AHEAD;
            match self.ahead.last_mut() {
                // One without a hash is for several records.
                Some(last) if is_full => last.hash = None,
                _ => self.ahead.push(ahead.clone()),
            }
        }
    }

    /// The text of their file; `None` for no cursors.
    pub(crate) fn lines(&self) -> Option<String> {
        let lines = self.newest.iter().map(|(value, cursor)| {
            let value = serde_json::Value::from(value.as_str());
            format!("{value}\t{cursor}\n")
        });
        (!self.newest.is_empty()).then(|| lines.collect())
    }

    /// The smallest and the greatest cursor of the values that are `listed`, or of all values, without
    /// their lag; `None` if none has one.
    fn report(&self, listed: Option<&ListedValues>) -> Option<ValueCursorsReport> {
        let listed: Option<HashSet<&str>> = listed.map(|listed| listed.texts().collect());
        let is_listed = |value: &str| listed.as_ref().is_none_or(|all| all.contains(value));
        let newest = self.newest.iter().filter(|(value, _)| is_listed(value));
        let marks = newest.filter_map(|(value, cursor)| Some((value, Mark::parse(cursor).ok()?)));
        let marks: Vec<(&String, Mark)> = marks.collect();
        // Those of different kinds have no order: the first one stays.
        let is_less = |(_, one): &(&String, Mark), (_, other): &(&String, Mark)| {
            one.compare(other) == Ok(Ordering::Less)
        };
        let mut ends = (marks.first()?, marks.first()?);
        for mark in &marks {
            if is_less(mark, ends.0) {
                ends.0 = mark;
            }
            if is_less(ends.1, mark) {
                ends.1 = mark;
            }
        }
        let show = |(value, mark): &(&String, Mark)| ValueCursor {
            value: (*value).clone(),
            cursor: mark.text().to_owned(),
            lag_s: None,
        };
        Some(ValueCursorsReport {
            values: marks.len() as u64,
            smallest: show(ends.0),
            greatest: show(ends.1),
        })
    }

    /// Warns of records whose cursor was ahead of the time when they came.
    pub(crate) fn warn_of_ahead(&self) -> Option<Warning> {
        let end = "the bound of their values, so later runs request them again";
        ahead_warning(&self.ahead, end)
    }
}

/// Reports the newest cursors of the values of a source as of `position`, without their lag; `None` if
/// there are none, or their file cannot be read.
pub(crate) async fn report_cursors(
    config: &SourceConfig,
    landing: &Store,
    position: Option<&Position>,
) -> Option<ValueCursorsReport> {
    config.incremental.as_ref()?;
    let hash = position?.ledger()?.cursors?;
    // A report is worth having without them.
    let cursors = ValueCursors::read(landing, hash).await.ok().flatten()?;
    let listed = ListedValues::read(config, landing, position).await;
    cursors.report(listed.as_ref())
}

/// Writes the text of cursors, and returns its hash. At the end of a pass, `is_done`, old files are
/// removed.
///
/// # Errors
/// [`Error::Storage`].
pub(crate) async fn write_cursors(
    landing: &Store,
    text: String,
    is_done: bool,
) -> Result<Hash128, Error> {
    let hash = Hash128::of(text.as_bytes());
    landing.put(&path(hash), Bytes::from(text)).await?;
    let mut old = match is_done {
        true => landing.list(FOLDER).await?,
        false => Vec::new(),
    };
    old.retain(|file| file.path != path(hash));
    old.sort_by_key(|file| Reverse(file.modified));
    for file in old.iter().skip(KEPT) {
        landing.delete(&file.path).await?;
    }
    Ok(hash)
}

/// Checks the file of cursors that the newest entry names.
///
/// # Errors
/// [`Error::Storage`].
pub(crate) async fn wrong_cursors(
    landing: &Store,
    entries: &[CommitEntry],
) -> Result<Option<Damage>, Error> {
    // After a rewind past the kept files, which notes it, nothing is damaged.
    let entry = entries.last().filter(|entry| entry.rewound_to.is_none());
    let Some(entry) = entry else {
        return Ok(None);
    };
    let Some(hash) = entry
        .state
        .position
        .ledger()
        .and_then(|ledger| ledger.cursors)
    else {
        return Ok(None);
    };
    if ValueCursors::read(landing, hash).await?.is_some() {
        return Ok(None);
    }
    Ok(Some(Damage {
        path: path(hash),
        entry: entry.sequence.get(),
        reason: format!(
            "it is missing or damaged: {LOST}; that run writes the cursors again, `feedline ingest repair` does not"
        ),
    }))
}

/// Note about a position whose cursors are not saved any more; `None` if they are, or there are none.
///
/// # Errors
/// [`Error::Storage`].
pub(crate) async fn note_lost_cursors(
    landing: &Store,
    position: &Position,
) -> Result<Option<String>, Error> {
    let Some(hash) = position.ledger().and_then(|ledger| ledger.cursors) else {
        return Ok(None);
    };
    let read = ValueCursors::read(landing, hash).await?;
    Ok(read
        .is_none()
        .then(|| format!("the cursors of that time are not saved (the newest {KEPT} are): {LOST}")))
}

fn path(hash: Hash128) -> String {
    format!("{FOLDER}/{hash}.txt")
}

fn parse(line: &str) -> Option<(String, String)> {
    let (value, cursor) = line.split_once('\t')?;
    Some((serde_json::from_str(value).ok()?, cursor.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn cursors_are_read_as_they_were_written_and_not_from_a_damaged_file() {
        let landing = Store::memory();
        let mut cursors = ValueCursors::default();
        assert_eq!(cursors.lines(), None);
        for (value, high) in [
            ("a\tb", "7"),
            ("\"ü\"\n", "2026-01-01T00:00:00Z"),
            ("1", "8"),
        ] {
            let high = Some(high.to_owned());
            let run = PageRun {
                high,
                ..PageRun::default()
            };
            cursors.note(value.into(), &run);
        }
        // A value without a new record keeps its cursor.
        cursors.note("1".into(), &PageRun::default());
        let hash = write_cursors(&landing, cursors.lines().unwrap(), true)
            .await
            .unwrap();
        let read = ValueCursors::read(&landing, hash).await.unwrap().unwrap();
        assert_eq!(read.newest, cursors.newest);
        assert_eq!(read.newest("1"), Some("8"));
        landing
            .put(&path(hash), Bytes::from_static(b"\"1\"\t9\n"))
            .await
            .unwrap();
        assert!(ValueCursors::read(&landing, hash).await.unwrap().is_none());
    }

    #[test]
    fn the_smallest_and_the_greatest_cursor_are_reported_by_their_order_and_not_by_their_text() {
        let of = |newest: &[(&str, &str)]| {
            let newest = newest.iter();
            let newest = newest.map(|(value, cursor)| ((*value).to_owned(), (*cursor).to_owned()));
            let cursors = ValueCursors {
                newest: newest.collect(),
                ahead: Vec::new(),
            };
            let report = cursors.report(None)?;
            let ends = [report.smallest, report.greatest];
            Some((report.values, ends.map(|end| (end.value, end.cursor))))
        };
        assert_eq!(of(&[]), None);
        let end = |value: &str, cursor: &str| (value.to_owned(), cursor.to_owned());
        assert_eq!(
            of(&[("a", "10"), ("b", "9"), ("c", "100")]),
            Some((3, [end("b", "9"), end("c", "100")]))
        );
        let only = end("a", "2026-01-01");
        assert_eq!(of(&[("a", "2026-01-01")]), Some((1, [only.clone(), only])));
    }
}
