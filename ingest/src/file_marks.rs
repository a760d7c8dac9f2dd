//! Marks of files that were read, beyond those that a position lists.
//!
//! A position lists at most [`MOST_LISTED`] read files when a batch begins. The others are in files of
//! marks that log entries name ([`SourceState::marks`]), so that an entry stays small however many
//! files a source has:
//!
//! | column | type | |
//! |---|---|---|
//! | `url` | text | URL of the file; rows are sorted by it |
//! | `bytes` | u64 | size when it was read |
//! | `hash` | text | xxh3-128 of its bytes, as hexadecimal digits |
//! | `modified_unix_ms` | u64 | when it was written, or null |
//! | `etag` | text | mark of its content that its store has, or null |
//!
//! A file that is at most twice as large as the new marks is merged with them. So the sizes of the
//! files at least double from the newest to the oldest, and a mark is written again a number of times
//! that grows with the logarithm of their number. In memory a known file takes about 110 bytes.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch, StringArray, UInt64Array},
    datatypes::UInt64Type,
};
use feedline_http::without_user_info;
use feedline_schemas::{
    commit::{DataFile, FileMark, Position, SourceState},
    ids::{Hash128, Sequence},
};
use feedline_storage::Store;

use crate::{
    batch::{Encoded, encode_again},
    error::Error,
    landed_file,
};

/// Most files that a position lists when a batch begins.
pub(crate) const MOST_LISTED: usize = 128;
/// Folder of the files.
const FOLDER: &str = "marks";
const COLUMNS: [&str; 5] = ["url", "bytes", "hash", "modified_unix_ms", "etag"];

/// Marks by file, without the text of URLs.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    files: HashMap<u128, ReadFile>,
    /// The newest file of each content.
    contents: HashMap<u128, u128>,
}

#[derive(Debug)]
struct ReadFile {
    bytes: u64,
    hash: Hash128,
    modified_unix_ms: Option<u64>,
    etag: Option<Box<str>>,
}

impl Marks {
    /// Reads the marks that `state` names.
    ///
    /// # Errors
    /// [`Error::Landed`] for a damaged or absent file, [`Error::Storage`].
    pub(crate) async fn restore(landing: &Store, state: &SourceState) -> Result<Self, Error> {
        let mut marks = Self::default();
        for file in &state.marks {
            marks.add(&read(landing, file).await?);
        }
        Ok(marks)
    }

    /// Adds marks; of a file the latest counts.
    pub(crate) fn add(&mut self, marks: &[FileMark]) {
        for mark in marks {
            let own = ReadFile {
                bytes: mark.bytes,
                hash: mark.hash,
                modified_unix_ms: mark.modified_unix_ms,
                etag: mark.etag.as_deref().map(Into::into),
            };
            let key = key(&mark.url);
            self.contents.insert(mark.hash.get(), key);
            self.files.insert(key, own);
        }
    }

    /// Returns the mark of the file at `url`.
    pub(crate) fn of(&self, url: &str) -> Option<FileMark> {
        let mark = self.files.get(&key(url))?;
        Some(FileMark {
            url: url.to_owned(),
            bytes: mark.bytes,
            hash: mark.hash,
            modified_unix_ms: mark.modified_unix_ms,
            etag: mark.etag.as_deref().map(str::to_owned),
        })
    }

    /// Returns true if no file is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns true if a file of another name has the content of `mark`.
    pub(crate) fn has_content(&self, mark: &FileMark) -> bool {
        let hash = mark.hash;
        let other = self.contents.get(&hash.get());
        other.is_some_and(|other| {
            let is_same = |file: &ReadFile| file.hash == hash && file.bytes == mark.bytes;
            *other != key(&mark.url) && self.files.get(other).is_some_and(is_same)
        })
    }
}

fn key(url: &str) -> u128 {
    Hash128::of(without_user_info(url).as_bytes()).get()
}

/// The read files that a position lists; `None` for a position without such a list.
pub(crate) fn listed(position: &mut Position) -> Option<&mut Vec<FileMark>> {
    match position {
        Position::File { done, .. } => Some(done),
        Position::Done { files, .. } => Some(files),
        Position::Start | Position::Page { .. } => None,
    }
}

/// The position of `state` with all read files in its list.
///
/// # Errors
/// [`Error::Landed`] for a damaged or absent file, [`Error::Storage`].
pub(crate) async fn expand(landing: &Store, state: &SourceState) -> Result<Position, Error> {
    let mut position = state.position.clone();
    if state.marks.is_empty() {
        return Ok(position);
    }
    let mut all = BTreeMap::new();
    for file in &state.marks {
        let marks = read(landing, file).await?;
        all.extend(marks.into_iter().map(|mark| (mark.url.clone(), mark)));
    }
    if let Some(listed) = listed(&mut position) {
        for mark in std::mem::take(listed) {
            all.insert(mark.url.clone(), mark);
        }
        listed.extend(all.into_values());
    }
    Ok(position)
}

/// Files of marks of an entry.
#[derive(Clone, Debug, Default)]
pub(crate) struct Folded {
    /// File to be written.
    pub(crate) encoded: Option<Encoded>,
    /// All files that count, from the oldest to the newest.
    pub(crate) all: Vec<DataFile>,
}

/// Moves `marks`, newer than those in the files `older`, into a file that the entry `sequence` names.
///
/// # Errors
/// [`Error::Landed`] for a damaged or absent file, [`Error::Storage`], [`Error::Encode`].
pub(crate) async fn fold(
    landing: &Store,
    mut older: Vec<DataFile>,
    marks: Vec<FileMark>,
    sequence: Sequence,
) -> Result<Folded, Error> {
    let by_url = |mark: FileMark| (mark.url.clone(), mark);
    let mut all: BTreeMap<String, FileMark> = marks.into_iter().map(by_url).collect();
    while let Some(file) = older.last()
        && file.rows <= 2 * all.len() as u64
    {
        for mark in read(landing, file).await? {
            all.entry(mark.url.clone()).or_insert(mark);
        }
        older.pop();
    }
    let marks: Vec<FileMark> = all.into_values().collect();
    let encoded = encode(sequence, &marks)?;
    older.extend(encoded.iter().map(|encoded| encoded.file.clone()));
    Ok(Folded {
        encoded,
        all: older,
    })
}

/// Encodes a file of marks; `None` if there are none.
fn encode(sequence: Sequence, marks: &[FileMark]) -> Result<Option<Encoded>, Error> {
    let [url, bytes, hash, modified, etag] = COLUMNS;
    let urls = StringArray::from_iter_values(marks.iter().map(|mark| &mark.url));
    let sizes = UInt64Array::from_iter_values(marks.iter().map(|mark| mark.bytes));
    let hashes = StringArray::from_iter_values(marks.iter().map(|mark| mark.hash.to_string()));
    let times: UInt64Array = marks.iter().map(|mark| mark.modified_unix_ms).collect();
    let etags: StringArray = marks.iter().map(|mark| mark.etag.as_deref()).collect();
    let columns: [(&str, ArrayRef, bool); 5] = [
        (url, Arc::new(urls), false),
        (bytes, Arc::new(sizes), false),
        (hash, Arc::new(hashes), false),
        (modified, Arc::new(times), true),
        (etag, Arc::new(etags), true),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(columns);
    let batch = batch.map_err(|cause| Error::Encode {
        what: "a file of marks".into(),
        cause: cause.into(),
    })?;
    encode_again(FOLDER, sequence, &batch)
}

async fn read(landing: &Store, file: &DataFile) -> Result<Vec<FileMark>, Error> {
    let mut marks = Vec::new();
    for batch in landed_file::read(landing, file, &COLUMNS, None).await? {
        marks.extend(rows(&batch).ok_or_else(|| Error::Landed {
            url: landing.url_of(&file.path),
            reason: "its columns are not those of marks of files".into(),
        })?);
    }
    Ok(marks)
}

fn rows(batch: &RecordBatch) -> Option<Vec<FileMark>> {
    let [url, bytes, hash, modified, etag] = COLUMNS.map(|name| batch.column_by_name(name));
    let (url, hash) = (url?.as_string_opt::<i32>()?, hash?.as_string_opt::<i32>()?);
    let etag = etag?.as_string_opt::<i32>()?;
    let bytes = bytes?.as_primitive_opt::<UInt64Type>()?;
    let modified = modified?.as_primitive_opt::<UInt64Type>()?;
    let row = |i| {
        let hash = u128::from_str_radix(hash.value(i), 16).ok()?;
        Some(FileMark {
            url: url.value(i).to_owned(),
            bytes: bytes.value(i),
            hash: Hash128::new(hash),
            modified_unix_ms: modified.is_valid(i).then(|| modified.value(i)),
            etag: etag.is_valid(i).then(|| etag.value(i).to_owned()),
        })
    };
    (0..batch.num_rows()).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(number: u64, bytes: u64) -> FileMark {
        FileMark {
            url: format!("s3://bucket/{number:07}.csv"),
            bytes,
            hash: Hash128::of(&number.to_be_bytes()),
            modified_unix_ms: number.is_multiple_of(2).then_some(number),
            etag: number.is_multiple_of(3).then(|| format!("\"{number}\"")),
        }
    }

    #[tokio::test]
    async fn few_files_hold_many_marks_and_the_latest_mark_of_a_file_counts() {
        let landing = Store::memory();
        let mut state = SourceState::default();
        for batch in 0..50_u64 {
            // Every batch reads the first file again.
            let marks = (batch * 100..(batch + 1) * 100).map(|number| mark(number, 1));
            let marks = marks.chain([mark(0, batch)]).collect();
            let older = std::mem::take(&mut state.marks);
            let folded = fold(&landing, older, marks, Sequence::new(batch))
                .await
                .unwrap();
            let encoded = folded.encoded.unwrap();
            landing
                .put(&encoded.file.path, encoded.bytes)
                .await
                .unwrap();
            state.marks = folded.all;
            let sizes: Vec<u64> = state.marks.iter().map(|file| file.rows).collect();
            assert!(sizes.len() <= 7, "{sizes:?}");
            assert!(sizes.is_sorted_by(|a, b| a > b), "{sizes:?}");
        }
        let marks = Marks::restore(&landing, &state).await.unwrap();
        for number in 1..5_000 {
            let expected = mark(number, 1);
            assert_eq!(marks.of(&expected.url), Some(expected));
        }
        assert_eq!(marks.of(&mark(0, 49).url), Some(mark(0, 49)));
        assert_eq!(marks.of("s3://bucket/other.csv"), None);
        // The same file, in a URL with a user and a password.
        assert!(marks.of("s3://key:pw@bucket/0000001.csv").is_some());
        state.position = Position::File {
            done: vec![mark(7, 9)],
            current: None,
        };
        let mut position = expand(&landing, &state).await.unwrap();
        let all = listed(&mut position).unwrap();
        assert_eq!(all.len(), 5_000);
        assert_eq!(all[7], mark(7, 9));
    }
}
