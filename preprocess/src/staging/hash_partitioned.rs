//! Staging of rows of numbers and categories: duplicates are found by their hashes alone, and rows
//! are written once, uncompressed, near their position in the shards.
//!
//! The result equals that of the engine's sorts, at a fraction of their work: complete rows are
//! neither sorted to find duplicates nor sorted to be shuffled. It takes 40 bytes of memory a row;
//! where the limit leaves less, the engine sorts, which needs disk only.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use arrow::{
    array::{Array, AsArray, BooleanArray, RecordBatch, StringArray, UInt64Array},
    compute::{filter_record_batch, is_null},
    datatypes::{SchemaRef, UInt8Type, UInt64Type},
};
use datafusion::{
    execution::{SendableRecordBatchStream, object_store::ObjectStoreUrl},
    prelude::{DataFrame, SessionContext},
};
use feedline_schemas::{config::DedupMode, manifest::Split, transform::InputKind};
use futures::TryStreamExt;
use tokio::task::JoinSet;
use xxhash_rust::xxh3::xxh3_64;

use super::{
    exact_dedup::{self, DedupTuples, DuplicateOrigins, Repeated, copies},
    spill::{Form, Sizes, SpillWriter, SpilledRows, Written},
    staged::{Distinct, Staged},
    unusable_images::UnusableImages,
};
use crate::{
    Context, Error,
    engine::scratch::{Scratch, ScratchFile},
    operators::{
        dedup::conflicts::LabelConflicts,
        images::TransparentImages,
        passthrough_columns,
        split::{Rule, ShuffleKey, code},
    },
    pass_progress::PassProgress,
    schema::{
        dataset_spec::{DatasetSpec, Input},
        system_columns::{self, column},
    },
    source::{
        landing_zone::{Landed, unpacked},
        parquet_scan::{ParquetFiles, ScanFile},
    },
    staging::rejects::{self, RejectWriter, Rejects},
};

/// Bytes of rows that a worker gathers, and that a bucket has, where memory allows.
const GATHERED: u64 = 16 << 20;

/// The most, where so many buckets as there may be would not hold all rows otherwise.
const GATHERED_MOST: u64 = 32 << 20;

/// With many rows there are many buckets, and a worker gathers more than its share, so that pieces
/// stay large: this fraction of the bytes of all rows, up to a limit.
const GATHERED_SHARE: u64 = 64;
const GATHERED_OF_MANY: u64 = 64 << 20;

/// The fewest; with less the pieces are too small to be worth their heads.
const GATHERED_LEAST: u64 = 2 << 20;

/// Most buckets, as a power of two.
const MOST_BITS: u32 = 8;

/// Bytes of a row beside its columns, and of a column.
const SYSTEM_BYTES: u64 = 48;
const CELL_BYTES: u64 = 9;
/// Bytes of a 32-bit cell in a row.
const SHORT_BYTES: u64 = 4;

/// Settings of such a pass.
#[derive(Clone, Debug)]
pub(crate) struct HashPartitioning {
    /// Columns of floats that 32 bits hold.
    short: BTreeSet<String>,
    sizes: Sizes,
    dedup: DedupMode,
    threads: usize,
}

impl HashPartitioning {
    /// For the rows of `sources`; `None` where rows are no such rows, or memory is short.
    pub(crate) fn of(spec: &DatasetSpec, sources: &[Landed], context: &Context) -> Option<Self> {
        let rows: u64 = sources.iter().map(Landed::rows).sum();
        let threads = context.partitions.max(1);
        let memory = context.memory_bytes.unwrap_or(u64::MAX);
        // A worker holds what it gathers, in lists that may have as much room left over; buckets are read by as many.
        let room = memory / 12 / threads as u64;
        let fits = rows.saturating_mul(exact_dedup::ROW_BYTES) <= memory / 3;
        if !is_plain(spec, context) || !fits || room < GATHERED_LEAST {
            return None;
        }
        let short = match sources {
            [
                Landed {
                    in_place: Some(files),
                    ..
                },
            ] => files.short.clone(),
            _ => BTreeSet::new(),
        };
        Some(Self {
            sizes: sizes(bytes_of(spec, sources, &short), room)?,
            short,
            dedup: spec.config.dedup,
            threads,
        })
    }

    /// Runs the plan once. Its rows may be copies.
    pub(crate) async fn stage(
        self,
        session: &SessionContext,
        frame: DataFrame,
        spec: &DatasetSpec,
        scratch: &Scratch,
        meter: Arc<PassProgress>,
    ) -> Result<(Staged, Rejects), Error> {
        let kept: Vec<usize> = (0..frame.schema().fields().len())
            .filter(|i| frame.schema().field(*i).name() != system_columns::REJECT)
            .collect();
        let schema: SchemaRef = Arc::new(frame.schema().as_arrow().project(&kept)?);
        let threads = self.threads;
        let pass = DirectPass::new(self, kept, &schema, spec, scratch, meter);
        let gathered = pass.run(frame).await?;
        let (bad, distinct) = (gathered.bad, gathered.distinct);
        let kept = drop_copies(gathered.pieces, gathered.tuples, threads).await?;
        let rejects = RejectWriter::new(scratch.path("rejects.parquet"));
        let rejects = reject_originals(session, bad, &kept.copies, rejects).await?;
        let mut staged = Staged {
            session: session.clone(),
            folder: scratch.path(""),
            schema,
            splits: Default::default(),
            pieces: Some((Arc::new(kept.pieces), threads)),
            distinct,
            near_images: None,
            repeated: kept.repeated,
            conflicts: LabelConflicts::default(),
            unusable: UnusableImages::default(),
            transparent: TransparentImages::default(),
        };
        for (part, rows) in staged.splits.iter_mut().zip(kept.rows) {
            part.rows = rows;
        }
        Ok((staged, rejects))
    }
}

/// Returns true if the rows can be staged in this way.
fn is_plain(spec: &DatasetSpec, context: &Context) -> bool {
    let config = &spec.config;
    let differs = !config.dedup_ignore.is_empty() || config.split.column().is_some();
    spec.payloads().next().is_none()
        && spec.near_dup.is_none()
        && config.text.is_none()
        && matches!(spec.rule, Rule::Hash | Rule::Named(_))
        && config.split.frozen().is_none()
        && config.conflicts.is_none()
        && spec.series.is_none()
        // All copies of a row would come together in one bucket.
        && config.dedup == DedupMode::Exact
        && config.shards.shuffle
        // Copies may have other texts there, and which of them stays is known too late to count them.
        && !(differs && spec.inputs.iter().any(is_counted))
        // Workers find copies where their rows are; here it would take the memory of this machine.
        && context.engine.is_local()
}

/// Bytes of all rows in scratch, about. Columns in `short` have 32 bits a cell.
fn bytes_of(spec: &DatasetSpec, sources: &[Landed], short: &BTreeSet<String>) -> u64 {
    let rows: u64 = sources.iter().map(Landed::rows).sum();
    let inputs = spec.inputs.iter().map(|input| &input.column);
    let cells = inputs.clone().map(|input| match input.kind {
        InputKind::Numeric if short.contains(&input.name) => SHORT_BYTES,
        _ => CELL_BYTES,
    });
    let beside = CELL_BYTES * (spec.kept.len() as u64 + 1);
    let bytes = rows.saturating_mul(SYSTEM_BYTES + cells.sum::<u64>() + beside);
    let is_text = inputs
        .clone()
        .any(|input| input.kind == InputKind::Categorical);
    if !is_text && spec.kept.iter().all(passthrough_columns::is_number) {
        return bytes;
    }
    // Texts are as long as they are.
    let joined = spec.joins.iter().map(|join| {
        let source = std::slice::from_ref(&join.source);
        unpacked(source).div_ceil(join.source.rows().max(1))
    });
    bytes
        .saturating_add(unpacked(sources))
        .saturating_add(rows.saturating_mul(joined.sum()))
}

/// Sizes of the pieces of `bytes` bytes, where a worker has `room`; `None` where these are too many buckets.
fn sizes(bytes: u64, room: u64) -> Option<Sizes> {
    let bucket = bytes.div_ceil(1 << MOST_BITS);
    let bucket = bucket.clamp(GATHERED, GATHERED_MOST).min(room);
    let gathered = bytes / GATHERED_SHARE;
    let gathered = gathered.clamp(bucket, GATHERED_OF_MANY).min(room);
    // Hashes fill buckets unevenly, by a little.
    let buckets = bytes.div_ceil(bucket).next_power_of_two();
    let bits = buckets.trailing_zeros();
    (bits <= MOST_BITS).then_some(Sizes {
        gathered: usize::try_from(gathered).unwrap_or(usize::MAX),
        bits,
    })
}

/// A pass over the plan, with one worker per partition.
struct DirectPass<'a> {
    direct: HashPartitioning,
    /// Columns that are staged.
    kept: Vec<usize>,
    form: Form,
    order: ShuffleKey,
    /// Values of the columns whose values are counted: none yet.
    distinct: BTreeMap<String, Distinct>,
    scratch: &'a Scratch,
    meter: Arc<PassProgress>,
}

/// Results of all workers.
struct DirectResults {
    pieces: SpilledRows,
    tuples: Vec<DedupTuples>,
    bad: Vec<ScanFile>,
    distinct: BTreeMap<String, Distinct>,
}

impl<'a> DirectPass<'a> {
    fn new(
        direct: HashPartitioning,
        kept: Vec<usize>,
        schema: &SchemaRef,
        spec: &DatasetSpec,
        scratch: &'a Scratch,
        meter: Arc<PassProgress>,
    ) -> Self {
        let inputs = spec.inputs.iter().map(|input| input.column.name.as_str());
        let counted = spec.inputs.iter().filter(|input| is_counted(input));
        let distinct = counted.map(|i| (i.column.name.clone(), Distinct::default()));
        Self {
            form: Form::new(schema, &direct.short, &inputs.collect()),
            order: ShuffleKey::new(spec.config.shards.seed),
            distinct: distinct.collect(),
            direct,
            kept,
            scratch,
            meter,
        }
    }

    /// Stages all partitions at once.
    async fn run(self, frame: DataFrame) -> Result<DirectResults, Error> {
        let mut tasks = JoinSet::new();
        let streams = frame.execute_stream_partitioned().await?;
        for (partition, stream) in streams.into_iter().enumerate() {
            tasks.spawn(self.worker(partition).run(stream));
        }
        let mut gathered = DirectResults {
            pieces: SpilledRows::new(self.form, self.order, self.direct.sizes),
            tuples: Vec::new(),
            bad: Vec::new(),
            distinct: self.distinct,
        };
        while let Some(done) = tasks.join_next().await {
            let done = done??;
            gathered.pieces.add(done.written);
            gathered.tuples.push(done.tuples);
            gathered.bad.extend(done.bad);
            for (name, found) in done.distinct {
                let all = gathered.distinct.entry(name).or_default();
                found.0.into_iter().for_each(|hash| all.add(hash));
            }
        }
        Ok(gathered)
    }

    fn worker(&self, partition: usize) -> Worker {
        let path = |name: String| self.scratch.path(&name);
        let paths = Split::ALL.map(|split| path(format!("{split}-{partition}.arrow")));
        let bad = path(format!("bad-{partition}.parquet"));
        let (form, order) = (self.form.clone(), self.order.clone());
        Worker {
            kept: self.kept.clone(),
            pieces: SpillWriter::new(form, order, self.direct.sizes, paths),
            tuples: DedupTuples::default(),
            dedup: self.direct.dedup,
            bad: ScratchFile::new(bad, rejects::schema()),
            distinct: self.distinct.clone(),
            meter: Arc::clone(&self.meter),
        }
    }
}

/// Pieces without duplicates.
struct DistinctRows {
    pieces: SpilledRows,
    /// Rows of each split.
    rows: [u64; 3],
    copies: DuplicateOrigins,
    /// The row that occurs most often, and where it is stored.
    repeated: Option<(Repeated, Option<(Split, usize)>)>,
}

/// Finds the copies among `tuples`, and takes them out of the pieces.
async fn drop_copies(
    mut pieces: SpilledRows,
    tuples: Vec<DedupTuples>,
    threads: usize,
) -> Result<DistinctRows, Error> {
    let work = move || {
        let copies = copies(tuples, threads);
        let repeated = copies.repeated.map(|most| (most, pieces.find(most.first)));
        let rows = pieces.without(&copies);
        DistinctRows {
            pieces,
            rows,
            copies,
            repeated,
        }
    };
    let found = tokio::task::spawn_blocking(work).await?;
    tracing::debug!(copies = found.copies.len(), "copies were found");
    Ok(found)
}

/// Writes the rejected rows in `files` that are no copies to `rejects`. The rows of one file come in order, so that memory
/// holds one batch.
async fn reject_originals(
    session: &SessionContext,
    files: Vec<ScanFile>,
    copies: &DuplicateOrigins,
    mut rejects: RejectWriter,
) -> Result<Rejects, Error> {
    for file in files {
        let table = ParquetFiles {
            store: ObjectStoreUrl::local_filesystem(),
            schema: rejects::schema(),
            files: vec![file],
        };
        let mut batches = session
            .read_table(Arc::new(table))?
            .execute_stream()
            .await?;
        while let Some(batch) = batches.try_next().await? {
            let origins = batch.column(0).as_primitive::<UInt64Type>().values().iter();
            let reasons = batch.column(1).as_string::<i32>().iter().flatten();
            let rows = origins.copied().zip(reasons.map(str::to_owned));
            let rows = rows.filter(|(origin, _)| !copies.contains(*origin));
            rejects.push(rows.collect())?;
        }
    }
    rejects.finish()
}

/// Returns true if its values are counted, since they may turn out to identify rows.
fn is_counted(input: &Input) -> bool {
    input.by_default && input.column.kind == InputKind::Categorical
}

/// Stages one partition.
struct Worker {
    kept: Vec<usize>,
    pieces: SpillWriter,
    tuples: DedupTuples,
    dedup: DedupMode,
    /// Rows that cannot be used, copies among them.
    bad: ScratchFile,
    distinct: BTreeMap<String, Distinct>,
    meter: Arc<PassProgress>,
}

struct Done {
    written: Written,
    tuples: DedupTuples,
    bad: Option<ScanFile>,
    distinct: BTreeMap<String, Distinct>,
}

impl Worker {
    async fn run(mut self, mut stream: SendableRecordBatchStream) -> Result<Done, Error> {
        while let Some(batch) = stream.try_next().await? {
            self.take(&batch)?;
            self.meter.add(batch.num_rows() as u64);
        }
        Ok(Done {
            written: self.pieces.finish()?,
            tuples: self.tuples,
            bad: self.bad.finish()?,
            distinct: self.distinct,
        })
    }

    fn take(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        let reasons = column(batch, system_columns::REJECT).as_string::<i32>();
        let origins = column(batch, system_columns::ORIGIN).as_primitive::<UInt64Type>();
        if self.dedup == DedupMode::Exact {
            let hashes = column(batch, system_columns::HASH).as_fixed_size_binary();
            for (row, origin) in origins.values().iter().enumerate() {
                let hash = hashes.value(row).try_into().expect("a hash has 16 bytes");
                self.tuples.push(hash, *origin, reasons.is_null(row));
            }
        }
        if reasons.null_count() == reasons.len() {
            return self.keep(&batch.project(&self.kept)?);
        }
        let bad = (0..batch.num_rows()).filter(|row| reasons.is_valid(*row));
        let (at, why): (Vec<u64>, Vec<&str>) = bad
            .map(|row| (origins.value(row), reasons.value(row)))
            .unzip();
        self.bad.write(&RecordBatch::try_new(
            rejects::schema(),
            vec![
                Arc::new(UInt64Array::from(at)),
                Arc::new(StringArray::from(why)),
            ],
        )?)?;
        let good = filter_record_batch(batch, &is_null(reasons)?)?;
        self.keep(&good.project(&self.kept)?)
    }

    fn keep(&mut self, rows: &RecordBatch) -> Result<(), Error> {
        if !self.distinct.is_empty() {
            let splits = column(rows, system_columns::SPLIT).as_primitive::<UInt8Type>();
            let train = splits.values().iter();
            let train: BooleanArray = train.map(|s| Some(*s == code(Split::Train))).collect();
            let train = filter_record_batch(rows, &train)?;
            for (name, distinct) in &mut self.distinct {
                let values = column(&train, name).as_string::<i32>();
                let hashes = values
                    .iter()
                    .flatten()
                    .map(|value| xxh3_64(value.as_bytes()));
                hashes.for_each(|hash| distinct.add(hash));
            }
        }
        self.pieces.push(rows)
    }
}
