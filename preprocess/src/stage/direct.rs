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
    error::DataFusionError,
    execution::{SendableRecordBatchStream, object_store::ObjectStoreUrl},
    prelude::{DataFrame, SessionContext},
};
use feedline_schemas::{config::DedupMode, manifest::Split, transform::InputKind};
use futures::TryStreamExt;
use tokio::task::JoinSet;
use xxhash_rust::xxh3::xxh3_64;

use super::{
    pieces::{Form, PieceWriter, Pieces, Sizes, Written},
    staged::{Distinct, Staged},
    tuples::{self, Tuples, copies},
};
use crate::{
    Context, Error,
    conflicts::LabelConflicts,
    dataset_spec::{DatasetSpec, Input},
    kept,
    landing::{Landed, unpacked},
    meter::Meter,
    rejects::{self, RejectWriter, Rejects},
    scan::{ParquetFiles, ScanFile},
    scratch::{Scratch, ScratchFile},
    split::{Rule, ShuffleKey, code},
    system_columns::{self, column},
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
pub(crate) struct Direct {
    /// Columns of floats that 32 bits hold.
    short: BTreeSet<String>,
    sizes: Sizes,
    dedup: DedupMode,
    threads: usize,
}

impl Direct {
    /// For the rows of `sources`; `None` where rows are no such rows, or memory is short.
    pub(crate) fn of(spec: &DatasetSpec, sources: &[Landed], context: &Context) -> Option<Self> {
        let config = &spec.config;
        let differs = !config.dedup_ignore.is_empty() || config.split.column().is_some();
        let is_plain = spec.payloads().next().is_none()
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
            && context.engine.is_local();
        let rows: u64 = sources.iter().map(Landed::rows).sum();
        let threads = context.partitions.max(1);
        let memory = context.memory_bytes.unwrap_or(u64::MAX);
        // A worker holds what it gathers, in lists that may have as much room left over; buckets are read by as many.
        let room = memory / 12 / threads as u64;
        let fits = rows.saturating_mul(tuples::ROW_BYTES) <= memory / 3;
        if !is_plain || !fits || room < GATHERED_LEAST {
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
        let inputs = spec.inputs.iter().map(|input| &input.column);
        let cells = inputs.clone().map(|input| match input.kind {
            InputKind::Numeric if short.contains(&input.name) => SHORT_BYTES,
            _ => CELL_BYTES,
        });
        let beside = CELL_BYTES * (spec.kept.len() as u64 + 1);
        let mut bytes = rows.saturating_mul(SYSTEM_BYTES + cells.sum::<u64>() + beside);
        let is_text = inputs
            .clone()
            .any(|input| input.kind == InputKind::Categorical);
        if is_text || !spec.kept.iter().all(kept::is_number) {
            // Texts are as long as they are.
            let joined = spec.joins.iter().map(|join| {
                let source = std::slice::from_ref(&join.source);
                unpacked(source).div_ceil(join.source.rows().max(1))
            });
            bytes = bytes.saturating_add(unpacked(sources));
            bytes = bytes.saturating_add(rows.saturating_mul(joined.sum()));
        }
        let bucket = bytes.div_ceil(1 << MOST_BITS);
        let bucket = bucket.clamp(GATHERED, GATHERED_MOST).min(room);
        let gathered = bytes / GATHERED_SHARE;
        let gathered = gathered.clamp(bucket, GATHERED_OF_MANY).min(room);
        // Hashes fill buckets unevenly, by a little.
        let buckets = bytes.div_ceil(bucket).next_power_of_two();
        let bits = buckets.trailing_zeros();
        (bits <= MOST_BITS).then_some(Self {
            short,
            sizes: Sizes {
                gathered: usize::try_from(gathered).unwrap_or(usize::MAX),
                bits,
            },
            dedup: config.dedup,
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
        meter: Arc<Meter>,
    ) -> Result<(Staged, Rejects), Error> {
        let kept: Vec<usize> = (0..frame.schema().fields().len())
            .filter(|i| frame.schema().field(*i).name() != system_columns::REJECT)
            .collect();
        let schema: SchemaRef = Arc::new(frame.schema().as_arrow().project(&kept)?);
        let inputs = spec.inputs.iter().map(|input| input.column.name.as_str());
        let form = Form::new(&schema, &self.short, &inputs.collect());
        let order = ShuffleKey::new(spec.config.shards.seed);
        let counted = spec.inputs.iter().filter(|input| is_counted(input));
        let distinct: BTreeMap<String, Distinct> = counted
            .map(|i| (i.column.name.clone(), Distinct::default()))
            .collect();
        let mut tasks = JoinSet::new();
        let streams = frame.execute_stream_partitioned().await?;
        for (i, stream) in streams.into_iter().enumerate() {
            let paths = Split::ALL.map(|split| scratch.path(&format!("{split}-{i}.arrow")));
            let worker = Worker {
                kept: kept.clone(),
                pieces: PieceWriter::new(form.clone(), order.clone(), self.sizes, paths),
                tuples: Tuples::default(),
                dedup: self.dedup,
                bad: ScratchFile::new(scratch.path(&format!("bad-{i}.parquet")), rejects::schema()),
                distinct: distinct.clone(),
                meter: Arc::clone(&meter),
            };
            tasks.spawn(worker.run(stream));
        }
        let mut pieces = Pieces::new(form, order, self.sizes);
        let (mut all, mut bad, mut counts) = (Vec::new(), Vec::new(), distinct);
        while let Some(done) = tasks.join_next().await {
            let done = done.map_err(joined)??;
            pieces.add(done.written);
            all.push(done.tuples);
            bad.extend(done.bad);
            for (name, found) in done.distinct {
                let all = counts.entry(name).or_default();
                found.0.into_iter().for_each(|hash| all.add(hash));
            }
        }
        let threads = self.threads;
        let work = move || {
            let copies = copies(all, threads);
            let repeated = copies.repeated.map(|most| (most, pieces.find(most.first)));
            let rows = pieces.without(&copies);
            (copies, repeated, pieces, rows)
        };
        let (copies, repeated, pieces, rows) =
            tokio::task::spawn_blocking(work).await.map_err(joined)?;
        tracing::debug!(copies = copies.len(), "copies were found");
        let mut rejects = RejectWriter::new(scratch.path("rejects.parquet"));
        for file in bad {
            // The rows in the order of one file, so that what is held is one batch.
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
                rejects.push(
                    rows.filter(|(origin, _)| !copies.contains(*origin))
                        .collect(),
                )?;
            }
        }
        let mut staged = Staged {
            session: session.clone(),
            folder: scratch.path(""),
            schema,
            splits: Default::default(),
            pieces: Some((Arc::new(pieces), threads)),
            distinct: counts,
            near_images: None,
            repeated,
            conflicts: LabelConflicts::default(),
        };
        for (part, rows) in staged.splits.iter_mut().zip(rows) {
            part.rows = rows;
        }
        Ok((staged, rejects.finish()?))
    }
}

/// Returns true if its values are counted, since they may turn out to identify rows.
fn is_counted(input: &Input) -> bool {
    input.by_default && input.column.kind == InputKind::Categorical
}

fn joined(error: tokio::task::JoinError) -> Error {
    Error::Engine(DataFusionError::ExecutionJoin(Box::new(error)))
}

/// Stages one partition.
struct Worker {
    kept: Vec<usize>,
    pieces: PieceWriter,
    tuples: Tuples,
    dedup: DedupMode,
    /// Rows that cannot be used, copies among them.
    bad: ScratchFile,
    distinct: BTreeMap<String, Distinct>,
    meter: Arc<Meter>,
}

struct Done {
    written: Written,
    tuples: Tuples,
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
