//! A local folder for data on its way: spilled sorts and the typed rows of each split.

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

use crate::{Error, scan::ScanFile};

/// Builds that may share one scratch folder at a time.
const SLOTS: usize = 256;

/// Encoded bytes a file may hold in memory before they are written out.
const BUFFERED: usize = 8 << 20;

/// A folder nobody else uses, emptied when it is claimed and again when dropped.
///
/// A lock beside it, which the system releases when the process dies, says that it is in use: what a killed build left
/// is removed by the next one.
#[derive(Debug)]
pub(crate) struct Scratch {
    folder: PathBuf,
    _lock: File,
}

impl Scratch {
    pub(crate) fn claim(base: &Path) -> Result<Self, Error> {
        let failed = |e: std::io::Error| Error::scratch(base, e);
        let base = &std::path::absolute(base).map_err(failed)?;
        fs::create_dir_all(base).map_err(failed)?;
        for slot in 0..SLOTS {
            let lock = base.join(format!("build-{slot}.lock"));
            let lock = File::options()
                .create(true)
                .truncate(false)
                .write(true)
                .open(lock)
                .map_err(failed)?;
            match lock.try_lock() {
                Ok(()) => {
                    let folder = base.join(format!("build-{slot}"));
                    remove(&folder)
                        .and_then(|()| fs::create_dir(&folder))
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
        let file = File::create(&self.path).map_err(|e| Error::scratch(&self.path, e))?;
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
