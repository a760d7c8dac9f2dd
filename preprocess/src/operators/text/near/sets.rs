//! Sets of all documents, one after another: the latest in memory, those before them in a file of
//! little-endian 64-bit integers.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use crate::{Error, engine::scratch::create_file};

/// Bytes of a member.
const MEMBER: u64 = 8;

/// Sets by document, added in order.
#[derive(Debug)]
pub(super) struct Sets {
    path: PathBuf,
    file: Option<File>,
    /// Members in the file.
    spilled: u64,
    /// Members after those in the file.
    tail: Vec<u64>,
    /// Members held in memory, at most.
    limit: usize,
    /// End of each document's set, in members.
    ends: Vec<u64>,
    bytes: Vec<u8>,
}

impl Sets {
    /// Keeps `memory` bytes of sets before they go to a file in `folder`.
    pub(super) fn new(folder: &Path, memory: u64) -> Self {
        Self {
            path: folder.join("sets"),
            file: None,
            spilled: 0,
            tail: Vec::new(),
            limit: usize::try_from(memory / MEMBER).unwrap_or(usize::MAX),
            ends: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// Documents added.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn push(&mut self, set: &[u64]) -> Result<(), Error> {
        if self.tail.len() + set.len() > self.limit {
            self.spill()?;
        }
        self.tail.extend_from_slice(set);
        self.ends.push(self.spilled + self.tail.len() as u64);
        Ok(())
    }

    /// Members of a document's set.
    pub(super) fn size(&self, document: u32) -> u64 {
        let (start, end) = self.range(document);
        end - start
    }

    /// Puts the set of a document into `set`.
    pub(super) fn read(&mut self, document: u32, set: &mut Vec<u64>) -> Result<(), Error> {
        set.clear();
        let (start, end) = self.range(document);
        if start >= self.spilled {
            let place = |member: u64| {
                usize::try_from(member - self.spilled).expect("the tail is in memory")
            };
            set.extend_from_slice(&self.tail[place(start)..place(end)]);
            return Ok(());
        }
        let (path, file) = (&self.path, self.file.as_mut());
        let file = file.expect("sets were spilled, so there is a file");
        let length = usize::try_from((end - start) * MEMBER).expect("the set was in memory before");
        self.bytes.resize(length, 0);
        file.seek(SeekFrom::Start(start * MEMBER))
            .and_then(|_| file.read_exact(&mut self.bytes))
            .map_err(|e| Error::scratch(path, e))?;
        set.extend(
            self.bytes
                .as_chunks::<8>()
                .0
                .iter()
                .map(|bytes| u64::from_le_bytes(*bytes)),
        );
        Ok(())
    }

    fn range(&self, document: u32) -> (u64, u64) {
        let at = document as usize;
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        (start, self.ends[at])
    }

    fn spill(&mut self) -> Result<(), Error> {
        const CHUNK: usize = 8192;
        let (path, file) = (&self.path, &mut self.file);
        let failed = |e: io::Error| Error::scratch(path, e);
        let file = match file {
            Some(file) => file,
            None => file.insert(create_file(path)?),
        };
        for members in self.tail.chunks(CHUNK) {
            self.bytes.clear();
            self.bytes
                .extend(members.iter().flat_map(|member| member.to_le_bytes()));
            file.write_all(&self.bytes).map_err(failed)?;
        }
        self.spilled += self.tail.len() as u64;
        self.tail.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_come_back_from_file_and_memory() {
        let folder = tempfile::tempdir().unwrap();
        for memory in [0, 100, 4000, 1 << 20] {
            let mut sets = Sets::new(folder.path(), memory);
            let set = |i: u64| (0..i % 7 * 3).map(|m| i * 100 + m).collect::<Vec<u64>>();
            (0..200).for_each(|i| sets.push(&set(i)).unwrap());
            assert_eq!(sets.len(), 200);
            assert_eq!(sets.file.is_some(), memory < 1 << 20);
            let mut found = Vec::new();
            for i in (0..200_u32).rev().chain(0..200) {
                sets.read(i, &mut found).unwrap();
                assert_eq!(found, set(u64::from(i)));
                assert_eq!(sets.size(i), found.len() as u64);
            }
        }
    }
}
