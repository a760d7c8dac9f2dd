//! Typed rows in scratch, partitioned by their position in the shuffled order. A piece has its
//! 32-bit numbers row by row, then row by row the cells of all other columns of fixed width, and in
//! a file of its own, as Arrow batches, the columns of variable width. Fixed-width parts need no
//! decoding, and each part can be read without the others.
//!
//! The order is by a keyed hash, so its first bits give the bucket of a row before any other row is
//! known. A worker gathers rows until they fill some memory, partitions them, and writes a piece
//! for each split and bucket that has any. A bucket of all workers fits into memory, and is sorted
//! when it is read: no row is copied twice, and no sort moves complete rows. Duplicates are found
//! when all rows have been seen; a piece then has a mask.

mod fixed;
mod form;
mod piece;
mod reader;
mod some;
mod writer;

use std::{collections::HashMap, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, UInt32Array},
    buffer::{BooleanBuffer, ScalarBuffer},
    compute::{concat_batches, take_record_batch},
    datatypes::{DataType, Float32Type, Float64Type, SchemaRef},
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
use futures::{StreamExt, TryStreamExt, stream, stream::BoxStream};
use tokio::task::JoinSet;

use super::{
    exact_dedup::DuplicateOrigins,
    matrix::{self, Cells, Matrix, Pool},
    ordered_batches::Ordered,
    split_groups::Groups,
};
use crate::{
    Error,
    operators::{
        dedup::content_hash::key_of,
        split::{ShuffleKey, code},
    },
    schema::system_columns::{self, column},
    statistics::aggregates::MergingState,
    transform::CellOp,
};

use form::long;
use piece::SpillPiece;
use reader::Reader;

pub(super) use form::Form;
pub(super) use writer::{SpillWriter, Written};

/// Rows of a batch that is handed on in order.
const BATCH_ROWS: usize = 8192;

/// State that a thread returns.
type Looked<S> = Result<S, DataFusionError>;

/// Limits of the memory in use at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Bytes of rows that a worker gathers.
    pub(super) gathered: usize,
    /// Buckets are two to the power of this.
    pub(super) bits: u32,
}

/// The rows of all splits.
#[derive(Debug)]
pub(crate) struct SpilledRows {
    form: Form,
    order: ShuffleKey,
    bits: u32,
    splits: [Vec<SpillPiece>; 3],
    /// Room for the numbers of buckets.
    room: Pool,
}

impl SpilledRows {
    /// Pieces without any rows yet.
    pub(super) fn new(form: Form, order: ShuffleKey, sizes: Sizes) -> Self {
        Self {
            form,
            order,
            bits: sizes.bits,
            splits: Default::default(),
            room: Pool::default(),
        }
    }

    /// Takes what a worker wrote.
    pub(super) fn add(&mut self, written: Written) {
        for (all, some) in self.splits.iter_mut().zip(written.0) {
            all.extend(some);
        }
    }

    /// Split and bucket of the row from `origin`, before copies are left out.
    pub(super) fn find(&self, origin: u64) -> Option<(Split, usize)> {
        let splits = Split::ALL.into_iter();
        splits.zip(&self.splits).find_map(|(split, pieces)| {
            let mut pieces = pieces.iter();
            let piece = pieces.find(|piece| piece.origins.contains(&origin))?;
            Some((split, piece.bucket))
        })
    }

    /// Leaves out the rows that are copies; returns how many rows are left of each split.
    pub(super) fn without(&mut self, copies: &DuplicateOrigins) -> [u64; 3] {
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

    /// Index of the numeric column `name` in the rows that [`Self::pass`] shows, if it is one of
    /// them.
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        let mut numbers = self.form.numbers.iter();
        numbers.position(|number| number == name)
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
        let table = StreamingTable::try_new(Arc::clone(&self.form.schema), parts)?;
        Ok(session.read_table(Arc::new(table))?)
    }

    /// Shows the cells of the training rows to each of `asked`; the work is shared by `threads` threads.
    ///
    /// The result equals the engine's: states merge by adding integers.
    pub(crate) async fn look<S: MergingState + Clone>(
        self: &Arc<Self>,
        asked: Vec<Asked<S>>,
        threads: usize,
    ) -> Result<Vec<S>, Error> {
        let states = asked.iter().map(|asked| asked.state.clone());
        let mut all: Vec<S> = states.collect();
        let look = |pieces: &Self, part: usize, parts: usize, mut asked: Vec<Asked<S>>| {
            let looked = pieces.look_at(part, parts, &mut asked);
            looked.map(|()| asked)
        };
        for done in self.shared(threads, asked, look).await? {
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
        let places: Vec<Option<usize>> = asked.iter().map(|a| self.place(&a.column)).collect();
        let numbers: Vec<usize> = places.iter().flatten().copied().collect();
        let width = self.form.numbers.len();
        let others = asked.iter().zip(&places);
        let others = others.filter(|(_, place)| place.is_none());
        let others = others.map(|(asked, _)| self.form.stored.index_of(&asked.column));
        let others: Vec<usize> = others.collect::<Result<_, _>>()?;
        let has_others = !others.is_empty();
        let mut reader = Reader::new(&self.form).of_columns(others);
        let (mut rows, mut columns, mut cells) = (Vec::new(), Vec::new(), Vec::new());
        for piece in self.train().skip(part).step_by(parts) {
            if !numbers.is_empty() {
                rows.clear();
                reader.numbers(piece, &mut rows)?;
                matrix::columns_of(&rows, width, &numbers, &mut columns);
            }
            let others = match has_others {
                true => Some(reader.read(piece)?),
                false => None,
            };
            let mut columns = columns.chunks_exact((rows.len() / width.max(1)).max(1));
            for (asked, place) in asked.iter_mut().zip(&places) {
                cells.clear();
                match (&others, place) {
                    (_, Some(_)) => cells.extend_from_slice(columns.next().unwrap_or_default()),
                    (Some(others), None) => fill(&mut cells, column(others, &asked.column))?,
                    (None, None) => {}
                }
                asked.add(&mut cells)?;
            }
        }
        Ok(())
    }

    /// Shows the numbers of the training rows to copies of `state`, and merges these; the work is shared by `threads` threads.
    /// `add` is given some rows, and how many numbers each has.
    pub(crate) async fn pass<S: Clone + Send + 'static>(
        self: &Arc<Self>,
        state: S,
        threads: usize,
        add: fn(&mut S, &[f32], usize),
        merge: fn(&mut S, &S),
    ) -> Result<S, Error> {
        let width = self.form.numbers.len();
        let look = move |pieces: &Self, part, parts, mut state| -> Looked<S> {
            let (mut reader, mut rows) = (Reader::new(&pieces.form), Vec::new());
            for piece in pieces.train().skip(part).step_by(parts) {
                rows.clear();
                reader.numbers(piece, &mut rows)?;
                add(&mut state, &rows, width);
            }
            Ok(state)
        };
        let states = self.shared(threads, state, look).await?;
        let mut states = states.into_iter();
        let mut all = states.next().expect("there is a thread");
        states.for_each(|state| merge(&mut all, &state));
        Ok(all)
    }

    /// Counts the training rows of each value of the text column `name`; `None` if it is not a text
    /// column, has more than `most` values, or too many bytes of them.
    pub(crate) async fn texts(
        self: &Arc<Self>,
        name: &str,
        most: usize,
        threads: usize,
    ) -> Result<Option<HashMap<String, u64>>, Error> {
        let is_text = self.form.stored.column_with_name(name);
        let Some((at, _)) = is_text.filter(|(_, field)| *field.data_type() == DataType::Utf8)
        else {
            return Ok(None);
        };
        let look = move |pieces: &Self, part, parts, mut counts: Texts| -> Looked<Texts> {
            let mut reader = Reader::new(&pieces.form).of_columns(vec![at]);
            for piece in pieces.train().skip(part).step_by(parts) {
                let rows = reader.read(piece)?;
                for text in rows.column(0).as_string::<i32>().iter().flatten() {
                    counts.add(text, 1);
                }
                if counts.counts.len() > most || counts.bytes > TEXT_BYTES {
                    break;
                }
            }
            Ok(counts)
        };
        let mut all = Texts::default();
        for some in self.shared(threads, Texts::default(), look).await? {
            for (text, rows) in some.counts {
                all.add(&text, rows);
            }
        }
        let is_small = all.counts.len() <= most && all.bytes <= TEXT_BYTES;
        Ok(is_small.then_some(all.counts))
    }

    /// Runs `look` on each of `threads` threads with its part, the number of parts and a copy of
    /// `state`.
    async fn shared<S: Clone + Send + 'static>(
        self: &Arc<Self>,
        threads: usize,
        state: S,
        look: impl Fn(&Self, usize, usize, S) -> Looked<S> + Clone + Send + 'static,
    ) -> Result<Vec<S>, Error> {
        let parts = threads.max(1);
        let mut tasks = JoinSet::new();
        for (part, state) in vec![state; parts].into_iter().enumerate() {
            let (pieces, look) = (Arc::clone(self), look.clone());
            tasks.spawn_blocking(move || look(&pieces, part, parts, state));
        }
        let mut states = Vec::with_capacity(parts);
        while let Some(done) = tasks.join_next().await {
            let done = done.map_err(Error::from);
            states.push(done??);
        }
        Ok(states)
    }

    fn train(&self) -> impl Iterator<Item = &SpillPiece> {
        self.splits[usize::from(code(Split::Train))].iter()
    }

    /// Groups of the split's key, and `samples` of those that appear in several splits. Takes 24
    /// bytes of memory a row.
    pub(super) fn groups(&self, samples: usize) -> Result<Groups, DataFusionError> {
        let at = self.form.stored.index_of(system_columns::GROUP)?;
        let mut reader = Reader::new(&self.form).of_columns(vec![at]);
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
                groups.samples.push(key[0]);
            }
        }
        Ok(groups)
    }

    /// The rows of `split` in the order they are written; `ahead` buckets are put in order at a time. Where it is the `last`
    /// time that the rows are read, scratch gives up what has been.
    pub(super) fn ordered(
        self: &Arc<Self>,
        split: Split,
        ahead: usize,
        last: bool,
    ) -> BoxStream<'static, Result<Ordered, DataFusionError>> {
        let pieces = Arc::clone(self);
        let buckets = stream::iter(0..1_usize << self.bits).map(move |bucket| {
            let pieces = Arc::clone(&pieces);
            async move {
                let work = move || pieces.bucket(split, bucket, last);
                let joined = tokio::task::spawn_blocking(work).await;
                joined.map_err(|e| DataFusionError::ExecutionJoin(Box::new(e)))?
            }
        });
        let batches = buckets.buffered(ahead.max(1)).map_ok(|bucket| {
            let rows = bucket.rows.num_rows();
            let starts = (0..rows).step_by(BATCH_ROWS);
            stream::iter(starts.map(move |start| {
                let end = rows.min(start + BATCH_ROWS);
                Ok(Ordered {
                    rows: bucket.rows.slice(start, end - start),
                    numbers: bucket.numbers.slice(start..end),
                })
            }))
        });
        batches.try_flatten().boxed()
    }

    /// Places of `count` rows in order, by their cells of `fixed` width.
    fn shuffled(&self, fixed: &[u8], count: usize) -> Vec<u32> {
        let form = &self.form;
        let row = |place: u32| &fixed[place as usize * form.fixed.row_bytes()..];
        let rows = 0..u32::try_from(count).expect("a bucket has fewer than 2^32 rows");
        let keys = rows.map(|place| (self.order.key(form.hash_of(row(place))), place));
        let mut order: Vec<(u64, u32)> = keys.collect();
        // Keys nearly always differ. Where they do not, rows come as they landed.
        order.sort_unstable_by_key(|(key, _)| *key);
        for same in order.chunk_by_mut(|a, b| a.0 == b.0) {
            same.sort_unstable_by_key(|(_, place)| (form.origin_of(row(*place)), *place));
        }
        order.into_iter().map(|(_, place)| place).collect()
    }

    /// A bucket in order.
    pub(super) fn bucket(
        &self,
        split: Split,
        bucket: usize,
        last: bool,
    ) -> Result<Ordered, DataFusionError> {
        let (form, width) = (&self.form, self.form.numbers.len());
        let pieces = &self.splits[usize::from(code(split))];
        let mut reader = Reader::new(form).given_up(last);
        let pieces = pieces.iter().filter(|piece| piece.bucket == bucket);
        // Copies of one row are all in one bucket, so that they may be more than memory holds.
        let count: usize = pieces.clone().map(SpillPiece::kept_rows).sum();
        let (mut fixed, mut varied) = (Vec::new(), Vec::new());
        let numbers = Cells::read(&self.room, count * width, |cells| {
            let mut rest = cells;
            for piece in pieces {
                let (own, behind) = rest.split_at_mut(piece.kept_rows() * width);
                reader.kept_numbers(piece, own)?;
                reader.fixed(piece, &mut fixed)?;
                varied.extend(reader.varied(piece)?);
                reader.give_up(piece);
                rest = behind;
            }
            Ok::<_, DataFusionError>(())
        })?;
        let places = ScalarBuffer::from(self.shuffled(&fixed, count));
        let varied = match form.varied.is_empty() {
            true => None,
            false => {
                let all = concat_batches(&form.varied_schema, &varied)?;
                let places = UInt32Array::new(places.clone(), None);
                Some(take_record_batch(&all, &places)?)
            }
        };
        let rows = form.rows(None, &fixed, &places, varied.as_ref())?;
        Ok(Ordered {
            rows: long(&rows, &form.others)?,
            numbers: Matrix::new(Arc::clone(&form.numbers), numbers, places),
        })
    }
}

/// One of several shares of the rows of a split.
#[derive(Debug)]
struct Share {
    pieces: Arc<SpilledRows>,
    split: Split,
    part: usize,
    parts: usize,
}

impl PartitionStream for Share {
    fn schema(&self) -> &SchemaRef {
        &self.pieces.form.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (pieces, split) = (Arc::clone(&self.pieces), usize::from(code(self.split)));
        let schema = Arc::clone(&pieces.form.schema);
        let mut reader = Reader::new(&pieces.form);
        let own = (self.part..pieces.splits[split].len()).step_by(self.parts);
        let batches = own.map(move |at| {
            let piece = &pieces.splits[split][at];
            let rows = reader.read(piece)?;
            let mut numbers = Vec::new();
            reader.numbers(piece, &mut numbers)?;
            pieces.form.whole(&rows, &numbers)
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, stream::iter(batches)))
    }
}

/// Bytes of texts that are counted at most.
const TEXT_BYTES: usize = 64 << 20;

/// Rows by text.
#[derive(Clone, Debug, Default)]
struct Texts {
    counts: HashMap<String, u64>,
    bytes: usize,
}

impl Texts {
    fn add(&mut self, text: &str, rows: u64) {
        match self.counts.get_mut(text) {
            Some(count) => *count += rows,
            None => {
                self.bytes += text.len();
                self.counts.insert(text.to_owned(), rows);
            }
        }
    }
}

/// Request to look at the cells of a numeric column.
#[derive(Clone, Debug)]
pub(crate) struct Asked<S> {
    pub(crate) column: String,
    /// Operations of the steps so far.
    pub(crate) ops: Vec<CellOp>,
    /// State that collects the cells.
    pub(crate) state: S,
}

impl<S: MergingState> Asked<S> {
    /// Adds landed cells after the steps so far, which change them in place.
    fn add(&mut self, cells: &mut [f64]) -> Result<(), DataFusionError> {
        self.ops.iter().for_each(|op| op.apply(cells));
        self.state.add_all(cells)
    }
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

/// Splits a hash into two numbers; the first is its key.
fn halves(hash: &[u8]) -> [u64; 2] {
    [key_of(hash), key_of(&hash[8..])]
}
