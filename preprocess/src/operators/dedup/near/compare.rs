//! Inserts the texts of a frame into an index, with one task per partition.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::{
    array::{Array, AsArray, RecordBatch},
    datatypes::{SchemaRef, UInt8Type, UInt64Type},
};
use datafusion::{execution::SendableRecordBatchStream, prelude::DataFrame};
use feedline_schemas::manifest::Split;
use futures::TryStreamExt;
use tokio::task::JoinSet;
use xxhash_rust::xxh3::xxh3_64;

use super::compared_column::NearDup;
use crate::{
    Error,
    engine::scratch::{Scratch, ScratchFile},
    operators::{
        split::code,
        text::near::{Clusters, Entry, Index, Signer, Sketch},
    },
    pass_progress::PassProgress,
    schema::system_columns::{self, column},
    source::parquet_scan::ScanFile,
};

/// Role of a frame's rows in the index.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Frozen,
    /// With columns of split and reject.
    Row,
    Of(Split),
}

/// Storage for rows until clusters are known.
pub(super) struct Keep<'a> {
    pub(super) scratch: &'a Scratch,
    pub(super) schema: SchemaRef,
}

/// An index that several tasks fill.
pub(super) struct Comparison {
    column: String,
    signer: Arc<Signer>,
    index: Arc<Mutex<Index>>,
}

impl Comparison {
    pub(super) fn new(near: &NearDup, scratch: &Scratch, folder: &str) -> Result<Self, Error> {
        Ok(Self {
            column: near.column().to_owned(),
            signer: Arc::new(Signer::new(&near.config)),
            index: Arc::new(Mutex::new(Index::new(&near.config, &scratch.path(folder))?)),
        })
    }

    /// Adds the texts of `frame`, and keeps its rows if asked to. Returns how many texts were added, and the files.
    pub(super) async fn take(
        &self,
        frame: DataFrame,
        kind: Kind,
        keep: Option<&Keep<'_>>,
        meter: Option<&Arc<PassProgress>>,
    ) -> Result<(u64, Vec<ScanFile>), Error> {
        let mut tasks = JoinSet::new();
        let streams = frame.execute_stream_partitioned().await?;
        for (partition, stream) in streams.into_iter().enumerate() {
            let file = keep.map(|keep| {
                let path = keep.scratch.path(&format!("near-{partition}.parquet"));
                ScratchFile::new(path, Arc::clone(&keep.schema))
            });
            let worker = Worker {
                column: self.column.clone(),
                kind,
                signer: Arc::clone(&self.signer),
                index: Arc::clone(&self.index),
                file,
                meter: meter.cloned(),
            };
            tasks.spawn(worker.run(stream));
        }
        let (mut texts, mut files) = (0, Vec::new());
        while let Some(done) = tasks.join_next().await {
            let (added, file) = done??;
            texts += added;
            files.extend(file);
        }
        Ok((texts, files))
    }

    pub(super) async fn clusters(self) -> Result<Clusters, Error> {
        let index = Arc::into_inner(self.index).expect("every task that had a share has ended");
        let index = index.into_inner().unwrap_or_else(PoisonError::into_inner);
        let work = tokio::task::spawn_blocking(move || index.cluster());
        work.await?
    }
}

/// Takes one partition.
struct Worker {
    column: String,
    kind: Kind,
    signer: Arc<Signer>,
    index: Arc<Mutex<Index>>,
    file: Option<ScratchFile>,
    meter: Option<Arc<PassProgress>>,
}

impl Worker {
    async fn run(
        mut self,
        mut stream: SendableRecordBatchStream,
    ) -> Result<(u64, Option<ScanFile>), Error> {
        let mut added = 0;
        while let Some(batch) = stream.try_next().await? {
            let rows = batch.num_rows() as u64;
            let work = tokio::task::spawn_blocking(move || self.take(&batch).map(|n| (self, n)));
            let (back, texts) = work.await??;
            self = back;
            added += texts;
            if let Some(meter) = &self.meter {
                meter.add(rows);
            }
        }
        let file = self.file.take().map(ScratchFile::finish).transpose()?;
        Ok((added, file.flatten()))
    }

    /// Sketches the texts of a batch, then adds them all at once.
    fn take(&mut self, batch: &RecordBatch) -> Result<u64, Error> {
        if let Some(file) = &mut self.file {
            file.write(batch)?;
        }
        let sketches = self.sketches(batch);
        let mut index = locked(&self.index);
        for (entry, key, sketch) in &sketches {
            index.add(*entry, *key, sketch)?;
        }
        Ok(sketches.len() as u64)
    }

    fn sketches(&self, batch: &RecordBatch) -> Vec<(Entry, u64, Sketch)> {
        let origins = column(batch, system_columns::ORIGIN).as_primitive::<UInt64Type>();
        let texts = column(batch, &self.column).as_string::<i32>();
        let is_used = |row: usize| match self.kind {
            Kind::Row => column(batch, system_columns::REJECT).is_null(row),
            Kind::Frozen | Kind::Of(_) => true,
        };
        let group = |row: usize| match self.kind {
            Kind::Row => column(batch, system_columns::SPLIT)
                .as_primitive::<UInt8Type>()
                .value(row),
            Kind::Frozen => 0,
            Kind::Of(split) => code(split),
        };
        let used = (0..batch.num_rows()).filter(|row| texts.is_valid(*row) && is_used(*row));
        used.map(|row| {
            let entry = Entry {
                is_frozen: matches!(self.kind, Kind::Frozen),
                id: origins.value(row),
                group: group(row),
            };
            let text = texts.value(row);
            (entry, xxh3_64(text.as_bytes()), self.signer.sketch(text))
        })
        .collect()
    }
}

/// Locks the index. A task that panicked ends the build, so a poisoned index is never read.
fn locked(index: &Mutex<Index>) -> MutexGuard<'_, Index> {
    index.lock().unwrap_or_else(PoisonError::into_inner)
}
