//! Typed rows in scratch, as Arrow batches that need no decoding, dealt out by where they come in the shuffled order.
//!
//! The order is by a keyed hash, so its first bits say which of a number of buckets a row is in, before any other row is
//! known. A worker gathers rows until they fill some memory, deals them out, and writes a piece for each split and
//! bucket that has any. A bucket of all workers fits into memory, and is put in order when it is read: no row is moved
//! twice, and nothing sorts whole rows. Copies are found when all rows have been seen; a piece then has a mask.

use std::{
    collections::{BTreeSet, HashMap, hash_map::Entry},
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, UInt32Array},
    buffer::BooleanBuffer,
    compute::{cast, concat_batches, filter_record_batch, take_record_batch},
    datatypes::{
        DataType, Field, Float32Type, Float64Type, Schema, SchemaRef, UInt8Type, UInt64Type,
    },
    error::ArrowError,
    ipc::{reader::FileReader, writer::FileWriter},
};
use datafusion::{
    catalog::streaming::StreamingTable,
    common::exec_err,
    error::DataFusionError,
    execution::{SendableRecordBatchStream, TaskContext},
    physical_plan::{stream::RecordBatchStreamAdapter, streaming::PartitionStream},
    prelude::{DataFrame, SessionContext},
};
use feedline_schemas::manifest::Split;
use futures::{StreamExt, TryStreamExt, stream};
use tokio::task::JoinSet;

use super::{Groups, column, tuples::Copies};
use crate::{
    Error,
    columns::system,
    content::key_of,
    functions::MergingState,
    split::{ShuffleKey, code},
    transform::CellOp,
};

/// Rows of a batch that is handed on in order.
const BATCH_ROWS: usize = 8192;

/// How much is held in memory at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Bytes of rows that a worker gathers.
    pub(super) gathered: usize,
    /// Buckets are two to the power of this.
    pub(super) bits: u32,
}

/// The rows of all splits.
#[derive(Debug)]
pub(crate) struct Pieces {
    /// Of the rows as they are handed on.
    schema: SchemaRef,
    /// Of the rows in the files.
    stored: SchemaRef,
    order: ShuffleKey,
    bits: u32,
    splits: [Vec<Piece>; 3],
}

/// Rows of one split and bucket.
#[derive(Clone, Debug)]
struct Piece {
    file: Arc<Path>,
    /// Batch in the file.
    index: usize,
    bucket: usize,
    origins: Vec<u64>,
    /// Rows that are no copies; absent for all.
    kept: Option<BooleanBuffer>,
}

impl Pieces {
    /// What the workers left.
    pub(super) fn new(
        schema: SchemaRef,
        stored: SchemaRef,
        order: ShuffleKey,
        sizes: Sizes,
    ) -> Self {
        Self {
            schema,
            stored,
            order,
            bits: sizes.bits,
            splits: Default::default(),
        }
    }

    /// Takes what a worker wrote.
    pub(super) fn add(&mut self, written: Written) {
        for (all, some) in self.splits.iter_mut().zip(written.0) {
            all.extend(some);
        }
    }

    /// Leaves out the rows that are copies; returns how many rows are left of each split.
    pub(super) fn without(&mut self, copies: &Copies) -> [u64; 3] {
        let mut rows = [0; 3];
        for (rows, pieces) in rows.iter_mut().zip(&mut self.splits) {
            for piece in pieces {
                let origins = std::mem::take(&mut piece.origins);
                let mask = BooleanBuffer::collect_bool(origins.len(), |row| {
                    !copies.contains(origins[row])
                });
                let kept = mask.count_set_bits();
                *rows += kept as u64;
                piece.kept = (kept < origins.len()).then_some(mask);
            }
        }
        rows
    }

    /// The rows of `split`, in no particular order.
    pub(super) fn frame(
        self: &Arc<Self>,
        session: &SessionContext,
        split: Split,
    ) -> Result<DataFrame, Error> {
        let parts = session.state().config().target_partitions().max(1);
        let part = |part| -> Arc<dyn PartitionStream> {
            Arc::new(Share {
                pieces: Arc::clone(self),
                split,
                part,
                parts,
            })
        };
        let parts = (0..parts).map(part).collect();
        let table = StreamingTable::try_new(Arc::clone(&self.schema), parts)?;
        Ok(session.read_table(Arc::new(table))?)
    }

    /// Shows the cells of the training rows to each of `asked`; the work is shared by `threads` threads.
    ///
    /// What comes of it is what the engine comes to: states merge by adding integers.
    pub(crate) async fn look<S: MergingState + Clone>(
        self: &Arc<Self>,
        asked: Vec<Asked<S>>,
        threads: usize,
    ) -> Result<Vec<S>, Error> {
        let mut tasks = JoinSet::new();
        for part in 0..threads.max(1) {
            let (pieces, mut asked) = (Arc::clone(self), asked.clone());
            tasks.spawn_blocking(move || {
                let looked = pieces.look_at(part, threads.max(1), &mut asked);
                looked.map(|()| asked)
            });
        }
        let mut all: Vec<S> = asked.into_iter().map(|asked| asked.state).collect();
        while let Some(done) = tasks.join_next().await {
            let done =
                done.map_err(|e| Error::Engine(DataFusionError::ExecutionJoin(Box::new(e))))??;
            for (all, own) in all.iter_mut().zip(done) {
                let merged = all.merge_bytes(&own.state.to_bytes());
                merged.expect("a state reads what a state of its kind wrote");
            }
        }
        Ok(all)
    }

    /// Shows every `parts`-th piece, from `part`, to each of `asked`.
    fn look_at<S: MergingState>(
        &self,
        part: usize,
        parts: usize,
        asked: &mut [Asked<S>],
    ) -> Result<(), DataFusionError> {
        let train = &self.splits[usize::from(code(Split::Train))];
        let mut reader = Reader::default();
        let mut cells = Vec::new();
        for piece in train.iter().skip(part).step_by(parts) {
            let rows = reader.whole(piece)?;
            for asked in &mut *asked {
                fill(&mut cells, column(&rows, &asked.column))?;
                if let Some(kept) = &piece.kept {
                    retain(&mut cells, kept);
                }
                asked.ops.iter().for_each(|op| op.apply(&mut cells));
                asked.state.add_all(&cells)?;
            }
        }
        Ok(())
    }

    /// The groups of the split's key, and `samples` of those that stand in several splits. Takes 24 bytes of memory a row.
    pub(super) fn groups(&self, samples: usize) -> Result<Groups, DataFusionError> {
        let at = self.stored.index_of(system::GROUP)?;
        let mut reader = Reader {
            columns: Some(vec![at]),
            ..Reader::default()
        };
        let mut rows: Vec<([u64; 2], u8)> = Vec::new();
        for (split, pieces) in (0..).zip(&self.splits) {
            for piece in pieces {
                let batch = reader.read(piece)?;
                let keys = batch.column(0).as_fixed_size_binary();
                rows.extend((0..keys.len()).map(|row| (halves(keys.value(row)), split)));
            }
        }
        rows.sort_unstable();
        let mut groups = Groups::default();
        for same in rows.chunk_by(|a, b| a.0 == b.0) {
            let ((key, first), (_, last)) = (same[0], same[same.len() - 1]);
            groups.add([first, last], 1, same.len() as u64);
            if first != last && groups.samples.len() < samples {
                groups.samples.push(Groups::named(key[0]));
            }
        }
        Ok(groups)
    }

    /// The rows of `split` in the order they are written; `ahead` buckets are put in order at a time.
    pub(super) fn ordered(
        self: &Arc<Self>,
        split: Split,
        ahead: usize,
    ) -> SendableRecordBatchStream {
        let pieces = Arc::clone(self);
        let buckets = stream::iter(0..1_usize << self.bits).map(move |bucket| {
            let pieces = Arc::clone(&pieces);
            async move {
                let work = move || pieces.bucket(split, bucket);
                let joined = tokio::task::spawn_blocking(work).await;
                joined.map_err(|e| DataFusionError::ExecutionJoin(Box::new(e)))?
            }
        });
        let schema = Arc::clone(&self.schema);
        let batches = buckets.buffered(ahead.max(1)).map_ok(move |rows| {
            let schema = Arc::clone(&schema);
            let starts = (0..rows.num_rows()).step_by(BATCH_ROWS);
            stream::iter(starts.map(move |start| {
                let length = BATCH_ROWS.min(rows.num_rows() - start);
                long(&rows.slice(start, length), &schema)
            }))
        });
        Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            batches.try_flatten(),
        ))
    }

    /// A bucket in order.
    fn bucket(&self, split: Split, bucket: usize) -> Result<RecordBatch, DataFusionError> {
        let pieces = &self.splits[usize::from(code(split))];
        let mut reader = Reader::default();
        let mut batches = Vec::new();
        for piece in pieces.iter().filter(|piece| piece.bucket == bucket) {
            batches.push(reader.read(piece)?);
        }
        let rows = concat_batches(&self.stored, &batches)?;
        drop(batches);
        let hashes = column(&rows, system::HASH).as_fixed_size_binary();
        let origins = column(&rows, system::ORIGIN).as_primitive::<UInt64Type>();
        let mut order: Vec<(u64, u64, u32)> = (0_u32..)
            .zip(origins.values())
            .enumerate()
            .map(|(row, (place, origin))| (self.order.key(hashes.value(row)), *origin, place))
            .collect();
        order.sort_unstable();
        let places: UInt32Array = order.into_iter().map(|(_, _, place)| place).collect();
        Ok(take_record_batch(&rows, &places)?)
    }
}

/// One of several shares of the rows of a split.
#[derive(Debug)]
struct Share {
    pieces: Arc<Pieces>,
    split: Split,
    part: usize,
    parts: usize,
}

impl PartitionStream for Share {
    fn schema(&self) -> &SchemaRef {
        &self.pieces.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (pieces, split) = (Arc::clone(&self.pieces), usize::from(code(self.split)));
        let (schema, mut reader) = (Arc::clone(&pieces.schema), Reader::default());
        let own = (self.part..pieces.splits[split].len()).step_by(self.parts);
        let batches = own.map(move |at| {
            let rows = reader.read(&pieces.splits[split][at])?;
            long(&rows, &pieces.schema)
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, stream::iter(batches)))
    }
}

/// The schema that rows of `schema` are stored by: floats that are `short` have 32 bits.
pub(super) fn stored(schema: &SchemaRef, short: &BTreeSet<String>) -> SchemaRef {
    let field = |field: &Arc<Field>| {
        let is_short = *field.data_type() == DataType::Float64 && short.contains(field.name());
        let r#type = match is_short {
            true => DataType::Float32,
            false => field.data_type().clone(),
        };
        Field::new(field.name(), r#type, field.is_nullable())
    };
    Arc::new(Schema::new(
        schema.fields().iter().map(field).collect::<Vec<_>>(),
    ))
}

/// Stored rows as those of `schema`.
fn long(rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, DataFusionError> {
    Ok(RecordBatch::try_new(
        Arc::clone(schema),
        as_of(rows, schema)?,
    )?)
}

/// The columns as those of `schema`, which differ in the width of floats.
fn as_of(rows: &RecordBatch, schema: &SchemaRef) -> Result<Vec<ArrayRef>, ArrowError> {
    let columns = rows.columns().iter().zip(schema.fields());
    let columns = columns.map(
        |(column, field)| match column.data_type() == field.data_type() {
            true => Ok(Arc::clone(column)),
            false => cast(column, field.data_type()),
        },
    );
    columns.collect()
}

/// What is asked of the cells of a numeric column.
#[derive(Clone, Debug)]
pub(crate) struct Asked<S> {
    pub(crate) column: String,
    /// What the steps so far do to them.
    pub(crate) ops: Vec<CellOp>,
    /// What looks at them.
    pub(crate) state: S,
}

/// Puts the cells of a column of floats in place of `cells`: NaN where missing.
fn fill(cells: &mut Vec<f64>, column: &ArrayRef) -> Result<(), DataFusionError> {
    cells.clear();
    match column.data_type() {
        DataType::Float64 => cells.extend_from_slice(column.as_primitive::<Float64Type>().values()),
        DataType::Float32 => {
            let values = column.as_primitive::<Float32Type>().values();
            cells.extend(values.iter().map(|x| f64::from(*x)));
        }
        other => return exec_err!("a numeric column is of type {other}"),
    }
    if let Some(nulls) = column.nulls().filter(|nulls| nulls.null_count() > 0) {
        for (cell, is_valid) in cells.iter_mut().zip(nulls) {
            *cell = if is_valid { *cell } else { f64::NAN };
        }
    }
    Ok(())
}

/// Leaves the cells of `kept` rows.
fn retain(cells: &mut Vec<f64>, kept: &BooleanBuffer) {
    let mut end = 0;
    for (start, stop) in kept.set_slices() {
        cells.copy_within(start..stop, end);
        end += stop - start;
    }
    cells.truncate(end);
}

/// A hash as two numbers, the first of which is its key.
fn halves(hash: &[u8]) -> [u64; 2] {
    [key_of(hash), key_of(&hash[8..])]
}

/// Files that are open.
#[derive(Default)]
struct Reader {
    files: HashMap<Arc<Path>, FileReader<BufReader<File>>>,
    /// Columns to read; absent for all.
    columns: Option<Vec<usize>>,
}

impl Reader {
    /// The rows of a piece that are no copies.
    fn read(&mut self, piece: &Piece) -> Result<RecordBatch, DataFusionError> {
        let batch = self.whole(piece)?;
        Ok(match &piece.kept {
            Some(kept) => filter_record_batch(&batch, &BooleanArray::from(kept.clone()))?,
            None => batch,
        })
    }

    /// All rows of a piece.
    fn whole(&mut self, piece: &Piece) -> Result<RecordBatch, DataFusionError> {
        let reader = match self.files.entry(Arc::clone(&piece.file)) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(new) => {
                let file = File::open(&piece.file)?;
                new.insert(FileReader::try_new(
                    BufReader::new(file),
                    self.columns.clone(),
                )?)
            }
        };
        reader.set_index(piece.index)?;
        let cut = || ArrowError::IpcError(format!("`{}` was cut", piece.file.display()));
        Ok(reader.next().ok_or_else(cut)??)
    }
}

/// What one worker wrote.
#[derive(Debug, Default)]
pub(super) struct Written([Vec<Piece>; 3]);

/// Writes the pieces of one worker.
pub(super) struct PieceWriter {
    schema: SchemaRef,
    order: ShuffleKey,
    sizes: Sizes,
    paths: [PathBuf; 3],
    files: [Option<Open>; 3],
    waiting: Vec<RecordBatch>,
    waiting_bytes: usize,
    written: Written,
}

struct Open {
    path: Arc<Path>,
    file: FileWriter<File>,
    batches: usize,
}

impl PieceWriter {
    /// Writes rows as `schema` has them stored, those of each split to a file of its own.
    pub(super) fn new(
        schema: SchemaRef,
        order: ShuffleKey,
        sizes: Sizes,
        paths: [PathBuf; 3],
    ) -> Self {
        Self {
            schema,
            order,
            sizes,
            paths,
            files: [None, None, None],
            waiting: Vec::new(),
            waiting_bytes: 0,
            written: Written::default(),
        }
    }

    /// Takes rows.
    pub(super) fn push(&mut self, rows: &RecordBatch) -> Result<(), Error> {
        let columns = as_of(rows, &self.schema)?;
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        for column in rows.columns() {
            self.waiting_bytes += column.to_data().get_slice_memory_size()?;
        }
        self.waiting.push(rows);
        match self.waiting_bytes >= self.sizes.gathered {
            true => self.deal(),
            false => Ok(()),
        }
    }

    /// Completes the files.
    pub(super) fn finish(mut self) -> Result<Written, Error> {
        self.deal()?;
        for open in self.files.into_iter().flatten() {
            let Open { path, mut file, .. } = open;
            file.finish().map_err(|e| Error::scratch(&path, e))?;
        }
        Ok(self.written)
    }

    /// Writes what has been gathered, a piece for each split and bucket.
    fn deal(&mut self) -> Result<(), Error> {
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting_bytes = 0;
        let rows = concat_batches(&self.schema, &waiting)?;
        drop(waiting);
        let (places, ends) = self.dealt(&rows);
        let rows = take_record_batch(&rows, &places)?;
        let mut start = 0;
        for (pile, end) in ends.into_iter().enumerate() {
            if start < end {
                let (split, bucket) = (pile >> self.sizes.bits, pile & self.last_bucket());
                self.write(split, bucket, &rows.slice(start, end - start))?;
            }
            start = end;
        }
        Ok(())
    }

    fn last_bucket(&self) -> usize {
        (1 << self.sizes.bits) - 1
    }

    /// The places of the rows, those of one split and bucket beside one another, and where each such pile ends.
    fn dealt(&self, rows: &RecordBatch) -> (UInt32Array, Vec<usize>) {
        let hashes = column(rows, system::HASH).as_fixed_size_binary();
        let splits = column(rows, system::SPLIT).as_primitive::<UInt8Type>();
        let pile = |row: usize| {
            let key = self.order.key(hashes.value(row));
            let bucket = key.checked_shr(64 - self.sizes.bits).unwrap_or(0);
            let bucket = usize::try_from(bucket).expect("a few bits fit");
            usize::from(splits.value(row)) << self.sizes.bits | bucket
        };
        let piles: Vec<usize> = (0..rows.num_rows()).map(pile).collect();
        let mut ends = vec![0; 3 << self.sizes.bits];
        piles.iter().for_each(|pile| ends[*pile] += 1);
        let mut next = Vec::with_capacity(ends.len());
        let mut sum = 0;
        for end in &mut ends {
            next.push(sum);
            sum += *end;
            *end = sum;
        }
        let mut places = vec![0_u32; piles.len()];
        for (row, pile) in (0..).zip(piles) {
            places[next[pile]] = row;
            next[pile] += 1;
        }
        (places.into(), ends)
    }

    fn write(&mut self, split: usize, bucket: usize, rows: &RecordBatch) -> Result<(), Error> {
        let open = match &mut self.files[split] {
            Some(open) => open,
            closed => {
                let path: Arc<Path> = self.paths[split].as_path().into();
                let failed = |e: ArrowError| Error::scratch(&path, e);
                let file = File::create(&path).map_err(|e| Error::scratch(&path, e))?;
                let file = FileWriter::try_new(file, &self.schema).map_err(failed)?;
                closed.insert(Open {
                    path,
                    file,
                    batches: 0,
                })
            }
        };
        open.file
            .write(rows)
            .map_err(|e| Error::scratch(&open.path, e))?;
        let origins = column(rows, system::ORIGIN).as_primitive::<UInt64Type>();
        self.written.0[split].push(Piece {
            file: Arc::clone(&open.path),
            index: open.batches,
            bucket,
            origins: origins.values().to_vec(),
            kept: None,
        });
        open.batches += 1;
        Ok(())
    }
}
