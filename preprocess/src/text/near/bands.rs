//! Bands of all documents in the order of their hashes: an external sort.
//!
//! A run is a file of records in order, 20 bytes each, little endian: `band u64 | key u64 | document u32`. The last run
//! stays in memory, so that a small index never touches the disk.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    fs::{self, File},
    io::{self, BufRead, BufReader, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use crate::Error;

/// Bytes of a record in a file.
const RECORD: usize = 20;

/// Runs merged at a time, so that open files have a bound.
const FAN_IN: usize = 64;

/// Bytes read from a run at a time.
const READ: usize = 64 << 10;

/// A band of a document. Records of one band are in the order of the documents' keys, whatever order they came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Band {
    pub(super) hash: u64,
    /// Key of the document.
    pub(super) key: u64,
    pub(super) document: u32,
}

impl Band {
    fn to_bytes(self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        bytes[..8].copy_from_slice(&self.hash.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.key.to_le_bytes());
        bytes[16..].copy_from_slice(&self.document.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; RECORD]) -> Self {
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        Self {
            hash: long(0),
            key: long(8),
            document: u32::from_le_bytes(std::array::from_fn(|i| bytes[16 + i])),
        }
    }
}

/// Takes bands in any order.
#[derive(Debug)]
pub(super) struct Bands {
    folder: PathBuf,
    /// Records held in memory, at most.
    limit: usize,
    buffer: Vec<Band>,
    runs: Vec<PathBuf>,
    /// Runs written so far, to name the next.
    written: usize,
}

impl Bands {
    /// Keeps `memory` bytes of records before it writes a run into `folder`.
    pub(super) fn new(folder: &Path, memory: u64) -> Self {
        let records = memory / size_of::<Band>() as u64;
        Self {
            folder: folder.to_owned(),
            limit: usize::try_from(records).unwrap_or(usize::MAX).max(1),
            buffer: Vec::new(),
            runs: Vec::new(),
            written: 0,
        }
    }

    pub(super) fn push(&mut self, band: Band) -> Result<(), Error> {
        self.buffer.push(band);
        if self.buffer.len() < self.limit {
            return Ok(());
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.sort_unstable();
        self.write(buffer.iter().copied().map(Ok))?;
        buffer.clear();
        self.buffer = buffer;
        Ok(())
    }

    /// Sorts what is left and merges runs until few enough are left to be read together.
    pub(super) fn sort(mut self) -> Result<Sorted, Error> {
        self.buffer.sort_unstable();
        while self.runs.len() > FAN_IN {
            let merged: Vec<PathBuf> = self.runs.drain(..FAN_IN).collect();
            self.write(Merge::new(&merged, &[])?)?;
            for run in merged {
                fs::remove_file(&run).map_err(|e| Error::scratch(&run, e))?;
            }
        }
        Ok(Sorted {
            runs: self.runs,
            last: self.buffer,
        })
    }

    fn write(&mut self, bands: impl Iterator<Item = Result<Band, Error>>) -> Result<(), Error> {
        let path = self.folder.join(format!("bands-{}", self.written));
        let failed = |e: io::Error| Error::scratch(&path, e);
        let mut file = BufWriter::new(File::create(&path).map_err(failed)?);
        for band in bands {
            file.write_all(&band?.to_bytes()).map_err(failed)?;
        }
        file.flush().map_err(failed)?;
        self.runs.push(path);
        self.written += 1;
        Ok(())
    }
}

/// All bands in order, as often as they are asked for.
#[derive(Debug)]
pub(super) struct Sorted {
    runs: Vec<PathBuf>,
    last: Vec<Band>,
}

impl Sorted {
    pub(super) fn iter(&self) -> Result<Merge<'_>, Error> {
        Merge::new(&self.runs, &self.last)
    }
}

/// The bands of several runs in order.
#[derive(Debug)]
pub(super) struct Merge<'a> {
    runs: Vec<Run<'a>>,
    next: BinaryHeap<Reverse<(Band, usize)>>,
}

#[derive(Debug)]
enum Run<'a> {
    Memory(std::slice::Iter<'a, Band>),
    File(&'a Path, BufReader<File>),
}

impl Run<'_> {
    fn next(&mut self) -> Result<Option<Band>, Error> {
        match self {
            Self::Memory(bands) => Ok(bands.next().copied()),
            Self::File(path, file) => {
                let mut bytes = [0; RECORD];
                let failed = |e| Error::scratch(path, e);
                // Only between records may a run end.
                if file.fill_buf().map_err(failed)?.is_empty() {
                    return Ok(None);
                }
                file.read_exact(&mut bytes).map_err(failed)?;
                Ok(Some(Band::from_bytes(&bytes)))
            }
        }
    }
}

impl<'a> Merge<'a> {
    fn new(files: &'a [PathBuf], memory: &'a [Band]) -> Result<Self, Error> {
        let mut merge = Self {
            runs: vec![Run::Memory(memory.iter())],
            next: BinaryHeap::new(),
        };
        for path in files {
            let file = File::open(path).map_err(|e| Error::scratch(path, e))?;
            merge
                .runs
                .push(Run::File(path, BufReader::with_capacity(READ, file)));
        }
        for run in 0..merge.runs.len() {
            merge.refill(run)?;
        }
        Ok(merge)
    }

    fn refill(&mut self, run: usize) -> Result<(), Error> {
        let band = self.runs[run].next()?;
        self.next.extend(band.map(|band| Reverse((band, run))));
        Ok(())
    }
}

impl Iterator for Merge<'_> {
    type Item = Result<Band, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let Reverse((band, run)) = self.next.pop()?;
        Some(self.refill(run).map(|()| band))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::near::shingles::mixed;

    #[test]
    fn a_run_that_is_cut_is_no_shorter_run() {
        let folder = tempfile::tempdir().unwrap();
        let mut bands = Bands::new(folder.path(), 240);
        for document in 0..100 {
            let hash = u64::from(document);
            let key = 0;
            bands
                .push(Band {
                    hash,
                    key,
                    document,
                })
                .unwrap();
        }
        let sorted = bands.sort().unwrap();
        let file = File::options().write(true).open(&sorted.runs[0]).unwrap();
        file.set_len(file.metadata().unwrap().len() - 1).unwrap();
        let read: Result<Vec<Band>, Error> = sorted.iter().unwrap().collect();
        assert!(matches!(read, Err(Error::Scratch { .. })), "{read:?}");
    }

    #[test]
    fn many_small_runs_are_the_sorted_whole() {
        let folder = tempfile::tempdir().unwrap();
        let band = |i: u32| Band {
            hash: mixed(u64::from(i)) % 50,
            key: mixed(u64::from(i) + 9),
            document: i,
        };
        let mut expected: Vec<Band> = (0..3000).map(band).collect();
        // 24 bytes a record: runs of 10 records, 300 of them, merged in two rounds; then all in memory.
        for (memory, files) in [(240, true), (1 << 20, false)] {
            let mut bands = Bands::new(folder.path(), memory);
            expected.iter().for_each(|band| bands.push(*band).unwrap());
            let sorted = bands.sort().unwrap();
            assert_eq!(!sorted.runs.is_empty(), files);
            assert!(sorted.runs.len() <= FAN_IN);
            expected.sort();
            for _ in 0..2 {
                let found: Vec<Band> = sorted.iter().unwrap().map(Result::unwrap).collect();
                assert_eq!(found, expected);
            }
            expected.reverse();
        }
    }
}
