//! External sort of any number of records.
//!
//! A run is a file of records in order. The last run stays in memory, so that few records never touch the disk.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    fs::{self, File},
    io::{self, BufRead, BufReader, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use crate::{Error, engine::scratch::create_file};

/// Runs merged at a time, so that open files have a bound.
const FAN_IN: usize = 64;

/// Bytes read from a run at a time.
const READ: usize = 64 << 10;

/// Record to sort.
pub(crate) trait Record: Copy + Ord {
    /// Its bytes in a file.
    type Bytes: AsRef<[u8]> + AsMut<[u8]> + Default;

    /// Name of its files.
    const NAME: &'static str;

    fn to_bytes(self) -> Self::Bytes;

    fn from_bytes(bytes: &Self::Bytes) -> Self;
}

/// Takes records in any order.
#[derive(Debug)]
pub(crate) struct ExternalSort<R> {
    folder: PathBuf,
    /// Records held in memory, at most.
    limit: usize,
    buffer: Vec<R>,
    runs: Vec<PathBuf>,
    /// Runs written so far, to name the next.
    written: usize,
}

impl<R: Record> ExternalSort<R> {
    /// Keeps `memory` bytes of records before it writes a run into `folder`.
    pub(crate) fn new(folder: &Path, memory: u64) -> Self {
        let records = memory / size_of::<R>() as u64;
        Self {
            folder: folder.to_owned(),
            limit: usize::try_from(records).unwrap_or(usize::MAX).max(1),
            buffer: Vec::new(),
            runs: Vec::new(),
            written: 0,
        }
    }

    pub(crate) fn push(&mut self, record: R) -> Result<(), Error> {
        self.buffer.push(record);
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
    pub(crate) fn sort(mut self) -> Result<Sorted<R>, Error> {
        self.buffer.sort_unstable();
        while self.runs.len() > FAN_IN {
            let merged: Vec<PathBuf> = self.runs.drain(..FAN_IN).collect();
            self.write(Merge::<R>::new(&merged, &[])?)?;
            for run in merged {
                fs::remove_file(&run).map_err(|e| Error::scratch(&run, e))?;
            }
        }
        Ok(Sorted {
            runs: self.runs,
            last: self.buffer,
        })
    }

    fn write(&mut self, records: impl Iterator<Item = Result<R, Error>>) -> Result<(), Error> {
        let path = self.folder.join(format!("{}-{}", R::NAME, self.written));
        let failed = |e: io::Error| Error::scratch(&path, e);
        let mut file = BufWriter::new(create_file(&path)?);
        for record in records {
            file.write_all(record?.to_bytes().as_ref())
                .map_err(failed)?;
        }
        file.flush().map_err(failed)?;
        self.runs.push(path);
        self.written += 1;
        Ok(())
    }
}

/// All records in order, as often as they are asked for.
#[derive(Debug)]
pub(crate) struct Sorted<R> {
    runs: Vec<PathBuf>,
    last: Vec<R>,
}

impl<R: Record> Sorted<R> {
    pub(crate) fn iter(&self) -> Result<Merge<'_, R>, Error> {
        Merge::new(&self.runs, &self.last)
    }
}

/// The records of several runs in order.
#[derive(Debug)]
pub(crate) struct Merge<'a, R> {
    runs: Vec<Run<'a, R>>,
    next: BinaryHeap<Reverse<(R, usize)>>,
}

#[derive(Debug)]
enum Run<'a, R> {
    Memory(std::slice::Iter<'a, R>),
    File(&'a Path, BufReader<File>),
}

impl<R: Record> Run<'_, R> {
    fn next(&mut self) -> Result<Option<R>, Error> {
        match self {
            Self::Memory(records) => Ok(records.next().copied()),
            Self::File(path, file) => {
                let mut bytes = R::Bytes::default();
                let failed = |e| Error::scratch(path, e);
                // Only between records may a run end.
                if file.fill_buf().map_err(failed)?.is_empty() {
                    return Ok(None);
                }
                file.read_exact(bytes.as_mut()).map_err(failed)?;
                Ok(Some(R::from_bytes(&bytes)))
            }
        }
    }
}

impl<'a, R: Record> Merge<'a, R> {
    fn new(files: &'a [PathBuf], memory: &'a [R]) -> Result<Self, Error> {
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
        let record = self.runs[run].next()?;
        self.next
            .extend(record.map(|record| Reverse((record, run))));
        Ok(())
    }
}

impl<R: Record> Iterator for Merge<'_, R> {
    type Item = Result<R, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let Reverse((record, run)) = self.next.pop()?;
        Some(self.refill(run).map(|()| record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Record for [u32; 2] {
        type Bytes = [u8; 8];

        const NAME: &'static str = "pairs";

        fn to_bytes(self) -> [u8; 8] {
            let [a, b] = self.map(u32::to_le_bytes);
            std::array::from_fn(|i| if i < 4 { a[i] } else { b[i - 4] })
        }

        fn from_bytes(bytes: &[u8; 8]) -> Self {
            [0, 4].map(|at| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i])))
        }
    }

    #[test]
    fn a_run_that_is_cut_is_no_shorter_run() {
        let folder = tempfile::tempdir().unwrap();
        let mut runs = ExternalSort::new(folder.path(), 80);
        (0..100).for_each(|i| runs.push([i, i]).unwrap());
        let sorted = runs.sort().unwrap();
        let file = File::options().write(true).open(&sorted.runs[0]).unwrap();
        file.set_len(file.metadata().unwrap().len() - 1).unwrap();
        let read: Result<Vec<[u32; 2]>, Error> = sorted.iter().unwrap().collect();
        assert!(matches!(read, Err(Error::Scratch { .. })), "{read:?}");
    }

    #[test]
    fn many_small_runs_are_the_sorted_whole() {
        let folder = tempfile::tempdir().unwrap();
        let record = |i: u32| [i.wrapping_mul(2_654_435_761) % 50, i];
        let mut expected: Vec<[u32; 2]> = (0..3000).map(record).collect();
        // 8 bytes a record: runs of 10 records, 300 of them, merged in two rounds; then all in memory.
        for (memory, files) in [(80, true), (1 << 20, false)] {
            let mut runs = ExternalSort::new(folder.path(), memory);
            expected
                .iter()
                .for_each(|record| runs.push(*record).unwrap());
            let sorted = runs.sort().unwrap();
            assert_eq!(!sorted.runs.is_empty(), files);
            assert!(sorted.runs.len() <= FAN_IN);
            expected.sort();
            for _ in 0..2 {
                let found: Vec<[u32; 2]> = sorted.iter().unwrap().map(Result::unwrap).collect();
                assert_eq!(found, expected);
            }
            expected.reverse();
        }
    }
}
