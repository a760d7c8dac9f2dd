//! Local folder for temporary data: spilled sorts and the typed rows of each split.
//!
//! Its parent is often a folder where every user of the machine may create folders, and its content
//! becomes the dataset. So the folder is closed to others, and a folder that may belong to another
//! user is refused.

use std::{
    fs::{self, File, TryLockError},
    path::{Path, PathBuf},
};

use arrow::{
    array::RecordBatch,
    datatypes::{DataType, SchemaRef},
};
use datafusion::parquet::{
    arrow::ArrowWriter,
    errors::ParquetError,
    file::properties::{EnabledStatistics, WriterProperties},
};
use feedline_storage::private;

use crate::{Error, source::parquet_scan::ScanFile};

/// Builds that may share one scratch folder at a time.
const SLOTS: usize = 256;

/// Encoded bytes a file may hold in memory before they are written out.
const BUFFERED: usize = 8 << 20;

/// A folder for one process, emptied when it is claimed and again when dropped.
///
/// A lock beside it, which the system releases when the process dies, marks it as in use: the next
/// build removes the files of a killed one.
#[derive(Debug)]
pub(crate) struct Scratch {
    folder: PathBuf,
    _lock: File,
}

impl Scratch {
    pub(crate) fn claim(base: &Path) -> Result<Self, Error> {
        let failed = |e: std::io::Error| Error::scratch(base, e);
        let base = &std::path::absolute(base).map_err(failed)?;
        private::claim_folder(base).map_err(|e| Error::scratch_base(base, e))?;
        for slot in 0..SLOTS {
            let lock = base.join(format!("build-{slot}.lock"));
            let lock = private::private_file()
                .create(true)
                .truncate(false)
                .write(true)
                .open(lock)
                .map_err(failed)?;
            match lock.try_lock() {
                Ok(()) => {
                    let folder = base.join(format!("build-{slot}"));
                    remove(&folder)
                        .and_then(|()| private::create_folder(&folder))
                        .map_err(failed)?;
                    return Ok(Self {
                        folder,
                        _lock: lock,
                    });
                }
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(e)) => return Err(failed(e)),
            }
        }
        Err(failed(std::io::Error::other(format!(
            "{SLOTS} builds are using it"
        ))))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.folder) {
            tracing::warn!(folder = %self.folder.display(), %error, "scratch folder was left behind");
        }
    }
}

/// Creates a private file of this user, for writing and reading.
pub(crate) fn create_file(path: &Path) -> Result<File, Error> {
    let mut options = private::private_file();
    options.read(true).write(true).create(true).truncate(true);
    options.open(path).map_err(|e| Error::scratch(path, e))
}

fn remove(folder: &Path) -> std::io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// A Parquet file in the scratch folder, made with its first row.
#[derive(Debug)]
pub(crate) struct ScratchFile {
    path: PathBuf,
    schema: SchemaRef,
    writer: Option<ArrowWriter<File>>,
}

impl ScratchFile {
    pub(crate) fn new(path: PathBuf, schema: SchemaRef) -> Self {
        Self {
            path,
            schema,
            writer: None,
        }
    }

    pub(crate) fn write(&mut self, rows: &RecordBatch) -> Result<(), Error> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let mut writer = match self.writer.take() {
            Some(writer) => writer,
            None => self.open()?,
        };
        writer.write(rows).map_err(|e| self.failed(e))?;
        if writer.memory_size() > BUFFERED {
            writer.flush().map_err(|e| self.failed(e))?;
        }
        self.writer = Some(writer);
        Ok(())
    }

    /// Completes the file; `None` when no row was written.
    pub(crate) fn finish(mut self) -> Result<Option<ScanFile>, Error> {
        let Some(writer) = self.writer.take() else {
            return Ok(None);
        };
        writer.close().map_err(|e| self.failed(e))?;
        let bytes = fs::metadata(&self.path)
            .map_err(|e| Error::scratch(&self.path, e))?
            .len();
        let path = object_store::path::Path::from_absolute_path(&self.path)
            .map_err(|e| Error::scratch(&self.path, e))?;
        Ok(Some(ScanFile { path, bytes }))
    }

    fn open(&self) -> Result<ArrowWriter<File>, Error> {
        let file = create_file(&self.path)?;
        let mut properties = WriterProperties::builder()
            .set_statistics_enabled(EnabledStatistics::None)
            .set_dictionary_enabled(false);
        for field in self
            .schema
            .fields()
            .iter()
            .filter(|f| *f.data_type() == DataType::Utf8)
        {
            properties =
                properties.set_column_dictionary_enabled(vec![field.name().clone()].into(), true);
        }
        ArrowWriter::try_new(
            file,
            SchemaRef::clone(&self.schema),
            Some(properties.build()),
        )
        .map_err(|e| self.failed(e))
    }

    fn failed(&self, error: ParquetError) -> Error {
        Error::scratch(&self.path, error)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::Permissions,
        os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    };

    use super::*;

    fn refused(base: &Path, part: &str) {
        let message = Scratch::claim(base).unwrap_err().to_string();
        let begin = format!("cannot use scratch folder `{}`: ", base.display());
        assert!(message.starts_with(&begin), "{message}");
        assert!(message.contains(part), "{message}");
        assert!(!message.contains("free space"), "{message}");
    }

    #[test]
    fn a_folder_that_another_made_beforehand_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let base = parent.path().join("feedline-0");
        fs::create_dir(&base).unwrap();
        fs::set_permissions(&base, Permissions::from_mode(0o777)).unwrap();
        refused(&base, "(mode 777)");
        assert_eq!(fs::read_dir(&base).unwrap().count(), 0);
        let link = parent.path().join("feedline-1");
        symlink(parent.path(), &link).unwrap();
        refused(&link, "it is a link");
    }

    #[test]
    fn what_is_kept_is_closed_to_others_in_a_folder_that_they_may_look_into() {
        let parent = tempfile::tempdir().unwrap();
        let base = parent.path().join("feedline-0");
        // Created as earlier versions did.
        fs::create_dir(&base).unwrap();
        fs::set_permissions(&base, Permissions::from_mode(0o755)).unwrap();
        let scratch = Scratch::claim(&base).unwrap();
        let file = scratch.path("rows");
        create_file(&file).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(&base.join("build-0")), 0o700);
        assert_eq!(mode(&base.join("build-0.lock")), 0o600);
        assert_eq!(mode(&file), 0o600);
    }

    #[test]
    fn a_lock_that_is_a_link_is_not_followed() {
        let parent = tempfile::tempdir().unwrap();
        let base = parent.path().join("feedline-0");
        drop(Scratch::claim(&base).unwrap());
        let (target, lock) = (parent.path().join("made"), base.join("build-0.lock"));
        fs::remove_file(&lock).unwrap();
        symlink(&target, &lock).unwrap();
        assert!(Scratch::claim(&base).is_err());
        assert!(!target.exists());
    }
}
