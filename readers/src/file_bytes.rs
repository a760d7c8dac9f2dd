//! The bytes of a file in any store, for parsers that read synchronously.
//!
//! A file of up to 64 MiB is fetched once and kept. A larger one is read in chunks, once to hash it
//! and once to parse it, so memory does not grow with its size. Parsers run on the blocking pool,
//! where waiting for a chunk is allowed.

use std::{
    fmt,
    io::{self, Read},
};

use bytes::Bytes;
use feedline_schemas::{commit::FileMark, ids::Hash128};
use feedline_storage::{Error, Listed, Store};
use parquet::{
    errors::ParquetError,
    file::reader::{ChunkReader, Length},
};
use tokio::runtime::Handle;
use xxhash_rust::xxh3::Xxh3;

use crate::line_ends::LineEnds;

/// Files up to this size are held in memory.
const WHOLE: u64 = 64 << 20;
/// Files up to this size are read completely for a preview.
const PEEKED: u64 = 4 << 20;
/// Message about a file that changed between reads of its parts.
const CHANGED: &str = "it changed while it was read; wait until it is complete, then rerun";
/// Bytes of one read of a larger file.
const CHUNK: u64 = 8 << 20;

/// Position in a file where a read resumes after an earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Begin {
    /// Offset in bytes.
    pub byte: u64,
    /// Line ends before that byte.
    pub lines: LineEnds,
}

/// The beginning of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// XXH3 of its bytes.
    pub hash: Hash128,
    /// Line ends in it.
    pub lines: LineEnds,
}

/// An opened file. Its methods block, and must not be called on a thread that drives async tasks.
#[derive(Clone, Debug)]
pub struct FileBytes {
    store: Store,
    path: String,
    /// URL, size and hash as they were when it was opened.
    pub mark: FileMark,
    /// Beginning of the file at that time, if it was requested and exists.
    pub start: Option<Start>,
    whole: Option<Bytes>,
    /// Version of a file that is read in chunks, as its store showed it before it was hashed.
    version: Option<Listed>,
    /// True if a reader compares the bytes that it reads with the hash.
    is_checked: bool,
    runtime: Handle,
}

impl FileBytes {
    /// Opens and hashes the file, and its first `start` bytes.
    ///
    /// # Errors
    /// The error of the store, such as for a file that does not exist.
    pub async fn open(
        store: &Store,
        path: &str,
        url: &str,
        start: Option<u64>,
    ) -> Result<Self, Error> {
        Self::open_with(store, path, url, start, WHOLE).await
    }

    /// Opens the file for a preview. A file that is read in chunks is neither hashed nor verified.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn peek(store: &Store, path: &str, url: &str) -> Result<Self, Error> {
        let bytes = store.size(path).await?;
        if bytes <= PEEKED {
            return Self::open(store, path, url, None).await;
        }
        let mark = FileMark {
            url: url.to_owned(),
            bytes,
            hash: Hash128::new(0),
            modified_unix_ms: None,
            etag: None,
        };
        Ok(Self {
            store: store.clone(),
            path: path.to_owned(),
            mark,
            start: None,
            whole: None,
            version: None,
            is_checked: false,
            runtime: Handle::current(),
        })
    }

    /// Its path below the folder of its store.
    pub fn path(&self) -> &str {
        &self.path
    }

    async fn open_with(
        store: &Store,
        path: &str,
        url: &str,
        start: Option<u64>,
        most: u64,
    ) -> Result<Self, Error> {
        let listed = store.look_up(path).await?;
        let mut bytes = listed.bytes;
        let mut hashing = Hashing::new(start);
        let whole = if bytes <= most {
            let whole = store.get(path).await?;
            bytes = whole.len() as u64;
            hashing.update(&whole);
            Some(whole)
        } else {
            let mut at = 0;
            while at < bytes {
                let end = bytes.min(at + CHUNK);
                hashing.update(&store.get_range(path, at..end).await?);
                at = end;
            }
            None
        };
        let mark = FileMark {
            url: url.to_owned(),
            bytes,
            hash: Hash128::new(hashing.hasher.digest128()),
            modified_unix_ms: None,
            etag: None,
        };
        Ok(Self {
            store: store.clone(),
            path: path.to_owned(),
            mark,
            start: hashing.start,
            version: whole.is_none().then_some(listed),
            whole,
            is_checked: true,
            runtime: Handle::current(),
        })
    }

    /// Reads the bytes `start..end`; both are inside the file.
    ///
    /// # Errors
    /// The error of the store.
    pub fn range(&self, start: u64, end: u64) -> io::Result<Bytes> {
        let index = |at: u64| usize::try_from(at).map_err(io::Error::other);
        match &self.whole {
            Some(whole) => Ok(whole.slice(index(start)?..index(end)?)),
            None => self
                .runtime
                .block_on(self.store.get_range(&self.path, start..end))
                .map_err(io::Error::other),
        }
    }

    /// Checks that the store still has the version of the file that was opened, for a file whose parts
    /// were read in any order, so that no reader compared their hash.
    ///
    /// # Errors
    /// A message if the file has changed, and the error of the store.
    pub fn check_version(&self) -> io::Result<()> {
        let Some(before) = &self.version else {
            return Ok(());
        };
        let now = self.runtime.block_on(self.store.look_up(&self.path));
        let now = now.map_err(io::Error::other)?;
        let is_same = match (&before.etag, &now.etag) {
            (Some(before), Some(now)) => before == now,
            _ => before.modified == now.modified,
        };
        match is_same && before.bytes == now.bytes {
            true => Ok(()),
            false => Err(io::Error::other(CHANGED)),
        }
    }

    /// Returns the position at `byte`, and counts the line ends before it.
    ///
    /// # Errors
    /// The error of the store.
    pub fn begin(&self, byte: u64) -> io::Result<Begin> {
        let (mut at, mut lines) = (0, LineEnds::default());
        while at < byte {
            let end = byte.min(at + CHUNK);
            let chunk = self.range(at, end)?;
            lines.add(&chunk);
            at = end;
        }
        Ok(Begin { byte, lines })
    }

    /// Reads from `start` to the end. Read from the beginning, it ends in an error if the file has
    /// changed since it was opened.
    pub fn reader(&self, start: u64) -> FileReader {
        let hasher = (start == 0 && self.is_checked).then(|| Box::new(Xxh3::new()));
        FileReader {
            file: self.clone(),
            at: start,
            chunk: Bytes::new(),
            hasher,
        }
    }
}

/// Hashes a file, and its beginning on the way.
struct Hashing {
    hasher: Xxh3,
    /// Bytes of the beginning left.
    left: Option<u64>,
    lines: LineEnds,
    start: Option<Start>,
}

impl Hashing {
    fn new(start: Option<u64>) -> Self {
        let mut hashing = Self {
            hasher: Xxh3::new(),
            left: start,
            lines: LineEnds::default(),
            start: None,
        };
        hashing.update(&[]);
        hashing
    }

    fn update(&mut self, bytes: &[u8]) {
        let Some(left) = self.left else {
            return self.hasher.update(bytes);
        };
        let cut = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        let (first, rest) = bytes.split_at(cut);
        self.hasher.update(first);
        self.lines.add(first);
        self.left = Some(left - cut as u64).filter(|left| *left > 0);
        if self.left.is_none() {
            self.start = Some(Start {
                hash: Hash128::new(self.hasher.digest128()),
                lines: self.lines,
            });
        }
        self.hasher.update(rest);
    }
}

/// Reads a file from an offset to its end.
pub struct FileReader {
    file: FileBytes,
    /// Offset of the next chunk.
    at: u64,
    chunk: Bytes,
    hasher: Option<Box<Xxh3>>,
}

impl fmt::Debug for FileReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileReader")
            .field("file", &self.file)
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

impl Read for FileReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.chunk.is_empty() && self.at < self.file.mark.bytes {
            let end = self.file.mark.bytes.min(self.at + CHUNK);
            self.chunk = self.file.range(self.at, end)?;
            self.at = end;
            self.check()?;
        }
        let count = self.chunk.len().min(out.len());
        out[..count].copy_from_slice(&self.chunk.split_to(count));
        Ok(count)
    }
}

impl FileReader {
    /// Hashes the new chunk. The last one shows whether the file is unchanged since it was opened.
    fn check(&mut self) -> io::Result<()> {
        let Some(hasher) = &mut self.hasher else {
            return Ok(());
        };
        hasher.update(&self.chunk);
        if self.at == self.file.mark.bytes
            && Hash128::new(hasher.digest128()) != self.file.mark.hash
        {
            return Err(io::Error::other(CHANGED));
        }
        Ok(())
    }
}

impl Length for FileBytes {
    fn len(&self) -> u64 {
        self.mark.bytes
    }
}

impl ChunkReader for FileBytes {
    type T = FileReader;

    fn get_read(&self, start: u64) -> Result<FileReader, ParquetError> {
        // Parquet reads parts in any order, so they are not hashed.
        Ok(FileReader {
            hasher: None,
            ..self.reader(start)
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let end = start
            .checked_add(length as u64)
            .filter(|end| *end <= self.mark.bytes);
        let end =
            end.ok_or_else(|| ParquetError::EOF("a part is beyond the end of the file".into()))?;
        Ok(self.range(start, end)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(file: FileBytes) -> io::Result<Vec<u8>> {
        let read = move || {
            let mut bytes = Vec::new();
            file.reader(0).read_to_end(&mut bytes).map(|_| bytes)
        };
        tokio::task::spawn_blocking(read).await.unwrap()
    }

    fn content() -> Bytes {
        (0..20_000_000_u32)
            .map(|i| (i % 251) as u8)
            .collect::<Vec<u8>>()
            .into()
    }

    #[tokio::test]
    async fn a_large_file_reads_the_same_in_chunks() {
        let store = Store::memory();
        store.put("x", content()).await.unwrap();
        let whole = FileBytes::open_with(&store, "x", "x", Some(12_345), u64::MAX)
            .await
            .unwrap();
        let chunks = FileBytes::open_with(&store, "x", "x", Some(12_345), 1000)
            .await
            .unwrap();
        assert_eq!(whole.mark, chunks.mark);
        assert_eq!(whole.start, chunks.start);
        let start = Hash128::of(&content()[..12_345]);
        assert_eq!(whole.start.map(|start| start.hash), Some(start));
        assert!(read(whole).await.unwrap() == content());
        assert!(read(chunks).await.unwrap() == content());
    }

    #[tokio::test]
    async fn a_file_that_changes_under_the_reader_is_noticed() {
        let store = Store::memory();
        store.put("x", content()).await.unwrap();
        let file = FileBytes::open_with(&store, "x", "x", None, 1000)
            .await
            .unwrap();
        let mut other = content().to_vec();
        other[5] ^= 1;
        store.put("x", other.into()).await.unwrap();
        let error = read(file).await.unwrap_err();
        assert_eq!(error.to_string(), CHANGED);
    }

    #[tokio::test]
    async fn a_file_of_another_version_than_the_opened_one_is_noticed() {
        let store = Store::memory();
        store.put("x", content()).await.unwrap();
        let open = async |most| {
            FileBytes::open_with(&store, "x", "x", None, most)
                .await
                .unwrap()
        };
        let (chunks, whole) = (open(1000).await, open(u64::MAX).await);
        let check = async |file: &FileBytes| {
            let file = file.clone();
            let check = move || file.check_version().map_err(|e| e.to_string());
            tokio::task::spawn_blocking(check).await.unwrap()
        };
        assert_eq!(check(&chunks).await, Ok(()));
        store.put("x", content()).await.unwrap();
        assert_eq!(check(&chunks).await, Err(CHANGED.to_owned()));
        // The bytes in memory are of one version.
        assert_eq!(check(&whole).await, Ok(()));
    }
}
