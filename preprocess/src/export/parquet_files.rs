//! Parquet files.

use ::parquet::{
    arrow::ArrowWriter,
    basic::{Compression, ZstdLevel},
    file::{
        metadata::KeyValue,
        properties::{EnabledStatistics, WriterProperties},
    },
};
use arrow::{
    array::RecordBatch,
    datatypes::{Schema, SchemaRef},
};
use feedline_schemas::manifest::Split;

use super::{
    files::{FileLimits, PartFiles, PartWriter},
    out::{OutFile, OutFolder, StoredFile, WriteFailure},
};
use crate::Error;

/// Bytes of rows that are in memory before they are written as a row group, about.
const GROUP_BYTES: usize = 64 << 20;
const LEVEL: i32 = 3;

/// Files of a part, and their settings.
pub(super) struct ParquetParts {
    settings: ParquetSettings,
    split: Option<Split>,
    naming: Naming,
    open: Option<OpenParquet>,
    files: Vec<StoredFile>,
}

/// Settings of all files.
#[derive(Clone)]
pub(super) struct ParquetSettings {
    pub(super) out: OutFolder,
    pub(super) schema: SchemaRef,
    pub(super) properties: WriterProperties,
    pub(super) limits: FileLimits,
}

impl ParquetSettings {
    /// Settings of files with these columns and key-value metadata.
    pub(super) fn new(
        out: OutFolder,
        schema: &Schema,
        facts: &[(String, String)],
        compresses: bool,
        limits: FileLimits,
    ) -> Result<Self, Error> {
        let failed = |e: ::parquet::errors::ParquetError| Error::Arrow(e.into());
        let compression = match compresses {
            true => Compression::ZSTD(ZstdLevel::try_new(LEVEL).map_err(failed)?),
            false => Compression::UNCOMPRESSED,
        };
        let facts = facts.iter();
        let pairs = facts
            .clone()
            .map(|(k, v)| KeyValue::new(k.clone(), v.clone()));
        let properties = WriterProperties::builder()
            .set_created_by("feedline".to_owned())
            .set_compression(compression)
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_key_value_metadata(Some(pairs.collect()))
            .build();
        let schema = schema.clone().with_metadata(facts.cloned().collect());
        Ok(Self {
            out,
            schema: schema.into(),
            properties,
            limits,
        })
    }
}

/// Names of the files of a part.
#[derive(Clone, Debug)]
pub(super) enum Naming {
    /// `part-00000.parquet` in the folder.
    Parts(String),
    /// `data/train-00000-of-00005.parquet`: the count is known at the end.
    Counted(&'static str),
}

impl Naming {
    fn folder(&self) -> &str {
        match self {
            Self::Parts(folder) => folder,
            Self::Counted(_) => "data",
        }
    }

    /// Path of a file, as far as it is known before the end.
    fn path(&self, index: usize) -> String {
        match self {
            Self::Parts(folder) if folder.is_empty() => format!("part-{index:05}.parquet"),
            Self::Parts(folder) => format!("{folder}/part-{index:05}.parquet"),
            Self::Counted(name) => format!("data/{name}-{index:05}.parquet"),
        }
    }

    /// Path of a file of `count`, if it differs.
    fn counted_path(&self, index: usize, count: usize) -> Option<String> {
        match self {
            Self::Parts(_) => None,
            Self::Counted(name) => Some(format!("data/{name}-{index:05}-of-{count:05}.parquet")),
        }
    }
}

struct OpenParquet {
    writer: ArrowWriter<OutFile>,
    failure: WriteFailure,
    rows: u64,
}

impl ParquetParts {
    pub(super) fn new(settings: ParquetSettings, split: Option<Split>, naming: Naming) -> Self {
        Self {
            settings,
            split,
            naming,
            open: None,
            files: Vec::new(),
        }
    }

    fn begin(&self) -> Result<OpenParquet, Error> {
        let ParquetSettings {
            out,
            schema,
            properties,
            ..
        } = &self.settings;
        let file = out.create(self.naming.folder())?;
        let failure = file.failure();
        let writer = ArrowWriter::try_new(file, SchemaRef::clone(schema), Some(properties.clone()));
        Ok(OpenParquet {
            writer: writer.map_err(|e| failure.error(e))?,
            failure,
            rows: 0,
        })
    }

    fn end(&mut self, open: OpenParquet) -> Result<(), Error> {
        let OpenParquet {
            writer,
            failure,
            rows,
        } = open;
        let file = writer.into_inner().map_err(|e| failure.error(e))?;
        let path = self.naming.path(self.files.len());
        self.files.push(file.store_as(path, (self.split, rows))?);
        Ok(())
    }
}

impl PartWriter for ParquetParts {
    fn write(&mut self, rows: &RecordBatch) -> Result<(), Error> {
        let limits = self.settings.limits;
        let mut at = 0;
        while at < rows.num_rows() {
            let mut open = match self.open.take() {
                Some(open) => open,
                None => self.begin()?,
            };
            let some = limits.next_rows(open.rows, rows, at);
            open.put(&rows.slice(at, some))?;
            at += some;
            if open.rows >= limits.rows || open.bytes() >= limits.bytes {
                self.end(open)?;
            } else {
                self.open = Some(open);
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<PartFiles, Error> {
        if let Some(open) = self.open.take() {
            self.end(open)?;
        }
        let count = self.files.len();
        for (index, stored) in self.files.iter_mut().enumerate() {
            if let Some(path) = self.naming.counted_path(index, count) {
                stored.file.path = path;
            }
        }
        Ok(PartFiles {
            files: self.files,
            ..PartFiles::default()
        })
    }
}

impl OpenParquet {
    fn put(&mut self, rows: &RecordBatch) -> Result<(), Error> {
        let Self {
            writer, failure, ..
        } = self;
        writer.write(rows).map_err(|e| failure.error(e))?;
        if writer.memory_size() >= GROUP_BYTES {
            writer.flush().map_err(|e| failure.error(e))?;
        }
        self.rows += rows.num_rows() as u64;
        Ok(())
    }

    /// Bytes of the file so far, about.
    fn bytes(&self) -> u64 {
        (self.writer.bytes_written() + self.writer.in_progress_size()) as u64
    }
}
