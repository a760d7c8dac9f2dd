//! Local files that stay open between reads.

use std::{
    collections::HashMap,
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use crate::Error;

/// Maximum number of open files; opening another one closes the least recently used one.
const MOST_OPEN: usize = 128;

/// Files of a local folder, read at any position by any number of threads.
///
/// An open file stays the same file when another one replaces it under its name.
///
/// ```
/// use feedline_storage::{Store, StoreOptions};
///
/// # let folder = tempfile::tempdir()?;
/// # let url = folder.path().to_str().ok_or("not UTF-8")?;
/// # std::fs::write(folder.path().join("shard.bin"), "0123456789")?;
/// let store = Store::open(url, &StoreOptions::default())?;
/// let files = store.local_files().ok_or("the store is no local disk")?;
/// let mut bytes = [0; 4];
/// files.read("shard.bin", 3, &mut bytes)?;
/// assert_eq!(&bytes, b"3456");
/// assert_eq!(files.size("shard.bin")?, 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LocalFiles {
    root: PathBuf,
    open: Mutex<OpenFiles>,
}

#[derive(Debug, Default)]
struct OpenFiles {
    files: HashMap<String, (Arc<File>, u64)>,
    uses: u64,
}

impl LocalFiles {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self {
            root,
            open: Mutex::default(),
        }
    }

    /// Fills `into` with the bytes from `offset` on. Blocks the thread.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Short`] if the file ends before, or the error of the disk.
    pub fn read(&self, path: &str, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let read = self.file(path).and_then(|file| fill(&file, offset, into));
        let got = read.map_err(|e| {
            self.forget(path);
            Error::io("read", self.url_of(path), e)
        })?;
        if got < into.len() {
            return Err(Error::Short {
                url: self.url_of(path),
                wanted: into.len() as u64,
                got: got as u64,
            });
        }
        Ok(())
    }

    /// Returns the size of a file in bytes.
    ///
    /// # Errors
    /// [`Error::NotFound`], or the error of the disk.
    pub fn size(&self, path: &str) -> Result<u64, Error> {
        let size = self.file(path).and_then(|file| file.metadata());
        size.map(|m| m.len())
            .map_err(|e| Error::io("look up", self.url_of(path), e))
    }

    /// Closes a file, so that the next read reopens it by its name.
    pub fn forget(&self, path: &str) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.files.remove(path);
    }

    fn url_of(&self, path: &str) -> String {
        self.root.join(path).display().to_string()
    }

    fn file(&self, path: &str) -> io::Result<Arc<File>> {
        if let Some(file) = self.reuse(path) {
            return Ok(file);
        }
        let file = Arc::new(File::open(self.root.join(path))?);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.files.len() >= MOST_OPEN {
            let oldest = open.files.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                open.files.remove(&oldest);
            }
        }
        open.uses += 1;
        let uses = open.uses;
        // Two threads may both have opened it: both continue with the first one.
        let (file, _) = open.files.entry(path.to_owned()).or_insert((file, uses));
        Ok(Arc::clone(file))
    }

    fn reuse(&self, path: &str) -> Option<Arc<File>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.uses += 1;
        let uses = open.uses;
        let (file, used) = open.files.get_mut(path)?;
        *used = uses;
        Some(Arc::clone(file))
    }
}

/// Reads until `into` is full or the file ends; returns the number of bytes.
fn fill(file: &File, offset: u64, into: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < into.len() {
        match file.read_at(&mut into[got..], offset + got as u64) {
            Ok(0) => break,
            Ok(bytes) => got += bytes,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(got)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_at_positions_and_stay_open_when_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let files = LocalFiles::new(folder.path().to_path_buf());
        let mut bytes = [0; 4];
        assert!(files.read("x", 0, &mut bytes).unwrap_err().is_not_found());
        std::fs::write(folder.path().join("x"), "0123456789").unwrap();
        files.read("x", 3, &mut bytes).unwrap();
        assert_eq!(&bytes, b"3456");
        assert!(matches!(
            files.read("x", 8, &mut bytes),
            Err(Error::Short {
                wanted: 4,
                got: 2,
                ..
            })
        ));
        std::fs::write(folder.path().join("y"), "abcdefghij").unwrap();
        std::fs::rename(folder.path().join("y"), folder.path().join("x")).unwrap();
        files.read("x", 0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"0123");
        files.forget("x");
        files.read("x", 0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"abcd");
        assert_eq!(files.size("x").unwrap(), 10);
    }

    #[test]
    fn only_so_many_files_stay_open() {
        let folder = tempfile::tempdir().unwrap();
        let files = LocalFiles::new(folder.path().to_path_buf());
        for number in 0..MOST_OPEN + 9 {
            std::fs::write(folder.path().join(number.to_string()), [7]).unwrap();
            files.read(&number.to_string(), 0, &mut [0]).unwrap();
            files.read("0", 0, &mut [0]).unwrap();
        }
        let open = files.open.lock().unwrap();
        assert_eq!(open.files.len(), MOST_OPEN);
        assert!(open.files.contains_key("0"), "the one in use is kept");
    }
}
