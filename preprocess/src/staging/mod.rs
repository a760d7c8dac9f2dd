//! One pass over the plan: good rows go to scratch files by split, bad rows to the rejects.
//!
//! Everything after this reads the files of one split. The training split's statistics cannot see another split's
//! rows, because those are not in the files it reads.

mod exact_dedup;
mod hash_partitioned;
mod image_duplicates;
mod matrix;
mod ordered_batches;
pub(crate) mod rejects;
mod spill;
mod split_groups;
mod staged;
mod unusable_images;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use arrow::{
    array::{Array, AsArray, BooleanArray, RecordBatch},
    compute::{filter_record_batch, is_null},
    datatypes::{Schema, SchemaRef, UInt8Type, UInt64Type},
    error::ArrowError,
};
use datafusion::{
    execution::SendableRecordBatchStream,
    prelude::{DataFrame, SessionContext},
};
use feedline_schemas::{manifest::Split, transform::InputKind};
use futures::TryStreamExt;
use tokio::task::JoinSet;
use xxhash_rust::xxh3::xxh3_64;

use staged::Distinct;

use crate::{
    Error,
    engine::scratch::{Scratch, ScratchFile},
    operators::{
        dedup::conflicts::LabelConflicts,
        images::{Converter, Fault, Images, TransparentImages},
        split::code,
    },
    pass_progress::PassProgress,
    schema::{
        dataset_spec::DatasetSpec,
        reject_reason::{self, Reason},
        system_columns::{self, column},
    },
    source::parquet_scan::ScanFile,
    staging::rejects::{RejectWriter, Rejects},
};

pub(crate) use exact_dedup::Repeated;
pub(crate) use hash_partitioned::HashPartitioning;
pub(crate) use matrix::Matrix;
pub(crate) use ordered_batches::Ordered;
pub(crate) use spill::{Asked, SpilledRows};
pub(crate) use split_groups::Groups;
pub(crate) use staged::{Staged, order};
pub(crate) use unusable_images::UnusableImages;

/// Runs the plan once.
pub(crate) async fn stage(
    session: &SessionContext,
    frame: DataFrame,
    spec: &DatasetSpec,
    scratch: &Scratch,
    meter: Arc<PassProgress>,
) -> Result<(Staged, Rejects), Error> {
    let images = spec.images();
    let (kept, schema) = staged_columns(frame.schema().as_arrow(), images)?;
    let counted = counted_columns(spec);
    let mut tasks = JoinSet::new();
    let streams = frame.execute_stream_partitioned().await?;
    for (partition, stream) in streams.into_iter().enumerate() {
        let path = |name: &str| scratch.path(&format!("{name}-{partition}.parquet"));
        let mut worker = Worker::new(&schema, &kept, &counted, path, Arc::clone(&meter));
        worker.converter = images.map(|images| Converter::new(images, &schema));
        worker.has_frozen = spec.config.split.frozen().is_some();
        tasks.spawn(worker.run(stream));
    }
    let distinct = counted.into_iter();
    let staged = Staged {
        session: session.clone(),
        folder: scratch.path(""),
        schema,
        splits: Default::default(),
        pieces: None,
        repeated: None,
        distinct: distinct.map(|name| (name, Distinct::default())).collect(),
        near_images: None,
        conflicts: LabelConflicts::default(),
        unusable: UnusableImages::default(),
        transparent: TransparentImages::default(),
    };
    let (mut staged, mut rejects, lengths) = gather(tasks, staged).await?;
    if let Some(images) = images.filter(|images| images.how.hashes) {
        let (settled, odd) =
            image_duplicates::settle(staged, spec, images, &lengths, scratch).await?;
        staged = settled;
        rejects.merge(odd);
    }
    Ok((staged, rejects))
}

/// Places of the columns of the plan that are staged, and their schema there.
fn staged_columns(
    plan: &Schema,
    images: Option<&Images>,
) -> Result<(Vec<usize>, SchemaRef), ArrowError> {
    let kept: Vec<usize> = (0..plan.fields().len())
        .filter(|i| plan.field(*i).name() != system_columns::REJECT)
        .collect();
    let schema = plan.project(&kept)?;
    let schema = match images {
        Some(images) => images.staged(&schema),
        None => schema,
    };
    Ok((kept, Arc::new(schema)))
}

/// Text columns whose distinct values are counted: those that are features by default.
fn counted_columns(spec: &DatasetSpec) -> Vec<String> {
    let inputs = spec.inputs.iter();
    let counted = inputs.filter(|i| i.by_default && i.column.kind == InputKind::Categorical);
    counted.map(|i| i.column.name.clone()).collect()
}

/// Adds the results of all workers to `staged`. Returns it, the rejected rows, and the embeddings by their length.
async fn gather(
    mut tasks: JoinSet<Result<Done, Error>>,
    mut staged: Staged,
) -> Result<(Staged, Rejects, BTreeMap<usize, u64>), Error> {
    let mut lengths = BTreeMap::new();
    let mut rejects = Rejects::default();
    while let Some(done) = tasks.join_next().await {
        let done = done??;
        for (part, (file, rows)) in staged.splits.iter_mut().zip(done.files) {
            part.files.extend(file);
            part.rows += rows;
        }
        for (all, (_, some)) in staged.distinct.values_mut().zip(done.distinct) {
            some.0.into_iter().for_each(|hash| all.add(hash));
        }
        for (length, count) in done.lengths {
            *lengths.entry(length).or_default() += count;
        }
        staged.unusable.merge(done.unusable);
        staged.transparent.merge(done.transparent);
        rejects.merge(done.rejects);
    }
    Ok((staged, rejects, lengths))
}

/// Stages one partition.
struct Worker {
    kept: Vec<usize>,
    files: [ScratchFile; 3],
    rows: [u64; 3],
    rejects: RejectWriter,
    distinct: BTreeMap<String, Distinct>,
    meter: Arc<PassProgress>,
    /// Decodes images.
    converter: Option<Converter>,
    unusable: UnusableImages,
    /// True if the test split is a frozen source, whose rows have no duplicates in others.
    has_frozen: bool,
}

struct Done {
    files: [(Option<ScanFile>, u64); 3],
    rejects: Rejects,
    distinct: BTreeMap<String, Distinct>,
    /// Embeddings by their length.
    lengths: BTreeMap<usize, u64>,
    transparent: TransparentImages,
    unusable: UnusableImages,
}

impl Worker {
    fn new(
        schema: &SchemaRef,
        kept: &[usize],
        counted: &[String],
        path: impl Fn(&str) -> PathBuf,
        meter: Arc<PassProgress>,
    ) -> Self {
        Self {
            kept: kept.to_vec(),
            files: Split::ALL
                .map(|split| ScratchFile::new(path(split.as_str()), Arc::clone(schema))),
            rows: [0; 3],
            rejects: RejectWriter::new(path("rejects")),
            distinct: counted
                .iter()
                .map(|name| (name.clone(), Distinct::default()))
                .collect(),
            meter,
            converter: None,
            unusable: UnusableImages::default(),
            has_frozen: false,
        }
    }

    async fn run(mut self, mut stream: SendableRecordBatchStream) -> Result<Done, Error> {
        while let Some(batch) = stream.try_next().await? {
            let rows = batch.num_rows() as u64;
            self = if self.converter.is_some() {
                // Decoding keeps a processor busy for long.
                let work = move || self.take(&batch).map(|()| self);
                let joined = tokio::task::spawn_blocking(work).await;
                joined??
            } else {
                self.take(&batch)?;
                self
            };
            self.meter.add(rows);
        }
        let rows = self.rows;
        let mut files = Vec::with_capacity(3);
        for (file, rows) in self.files.into_iter().zip(rows) {
            files.push((file.finish()?, rows));
        }
        let files = files
            .try_into()
            .unwrap_or_else(|_| unreachable!("one file per split"));
        let converter = self.converter.map(Converter::into_counts);
        let (lengths, transparent) = converter.unwrap_or_default();
        Ok(Done {
            files,
            rejects: self.rejects.finish()?,
            distinct: self.distinct,
            lengths,
            transparent,
            unusable: self.unusable,
        })
    }

    fn take(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        let reasons = column(batch, system_columns::REJECT).as_string::<i32>();
        let origins = column(batch, system_columns::ORIGIN).as_primitive::<UInt64Type>();
        let bad = (0..batch.num_rows()).filter(|row| reasons.is_valid(*row));
        self.rejects.push(
            bad.map(|row| (origins.value(row), reasons.value(row).to_owned()))
                .collect(),
        )?;
        let good = filter_record_batch(batch, &is_null(reasons)?)?;
        let rows = good.project(&self.kept)?;
        let Some(mut converter) = self.converter.take() else {
            return self.keep(&rows);
        };
        let faults = converter.convert(&rows, |rows| self.keep(&rows))?;
        self.reject_images(&rows, faults, converter.column())?;
        self.converter = Some(converter);
        Ok(())
    }

    /// Rejects the rows of images that cannot be used; `of_column` holds the images.
    fn reject_images(
        &mut self,
        rows: &RecordBatch,
        faults: Vec<Fault>,
        of_column: &str,
    ) -> Result<(), Error> {
        let origins = column(rows, system_columns::ORIGIN).as_primitive::<UInt64Type>();
        let hashes = column(rows, system_columns::HASH).as_fixed_size_binary();
        let codes = column(rows, system_columns::SPLIT).as_primitive::<UInt8Type>();
        let mut rejects = Vec::with_capacity(faults.len());
        for (row, reason, value) in faults {
            // Boxes and embeddings are beside the image, and may differ between rows of one image.
            let is_image = !reject_reason::BESIDE_IMAGE.contains(&reason.as_str());
            let column = of_column.to_owned();
            let reason = Reason {
                reason,
                column,
                value,
            };
            let (origin, reason) = (origins.value(row), reason.to_json());
            let is_frozen = self.has_frozen && codes.value(row) == code(Split::Test);
            if is_image && !is_frozen {
                self.unusable.add(hashes.value(row), origin, reason.clone());
            }
            rejects.push((origin, reason));
        }
        self.rejects.push(rejects)
    }

    /// Writes good rows to the file of their split.
    fn keep(&mut self, rows: &RecordBatch) -> Result<(), Error> {
        let codes = column(rows, system_columns::SPLIT).as_primitive::<UInt8Type>();
        for split in Split::ALL {
            let at = usize::from(code(split));
            let mask: BooleanArray = codes
                .values()
                .iter()
                .map(|c| Some(*c == code(split)))
                .collect();
            let part = filter_record_batch(rows, &mask)?;
            if split == Split::Train {
                self.count_distinct(&part);
            }
            self.files[at].write(&part)?;
            self.rows[at] += part.num_rows() as u64;
        }
        Ok(())
    }

    fn count_distinct(&mut self, rows: &RecordBatch) {
        for (name, distinct) in &mut self.distinct {
            let values = column(rows, name).as_string::<i32>();
            values
                .iter()
                .flatten()
                .for_each(|value| distinct.add(xxh3_64(value.as_bytes())));
        }
    }
}
