//! One pass over the plan: good rows go to scratch files by split, bad rows to the rejects.
//!
//! Everything after this reads the files of one split. The training split's statistics cannot see another split's
//! rows, because those are not in the files it reads.

mod copies;
mod direct;
mod matrix;
mod pieces;
mod tuples;

use std::{
    collections::{BTreeMap, HashSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, RecordBatch},
    compute::{filter_record_batch, is_null},
    datatypes::{Int64Type, SchemaRef, UInt8Type, UInt64Type},
    util::display::array_value_to_string,
};
use datafusion::{
    error::DataFusionError,
    execution::{SendableRecordBatchStream, object_store::ObjectStoreUrl},
    functions_aggregate::{
        count::count_all,
        expr_fn::{max, min},
    },
    logical_expr::{SortExpr, ident},
    prelude::{DataFrame, SessionContext},
};
use feedline_schemas::{
    manifest::{NearImageCounts, Split},
    transform::InputKind,
};
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use tokio::task::JoinSet;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    Error,
    columns::{DatasetSpec, system},
    conflicts::LabelConflicts,
    content::key_of,
    images::{Converter, Fault},
    meter::Meter,
    rejects::{RejectWriter, Rejects},
    scalar::RowFunction,
    scan::{ParquetFiles, ScanFile},
    scratch::{Scratch, ScratchFile},
    split::{ShuffleKey, code},
    typing::Reason,
};

pub(crate) use direct::Direct;
pub(crate) use matrix::Matrix;
pub(crate) use pieces::{Asked, Pieces};
pub(crate) use tuples::Repeated;

/// A text column with more distinct values than this names rows rather than sorting them.
const MANY_VALUES: usize = 1000;

/// A text column with fewer distinct values than this is a category even in a tiny dataset.
const FEW_VALUES: usize = 16;

/// The typed rows of each split, in scratch.
pub(crate) struct Staged {
    session: SessionContext,
    /// The scratch folder.
    folder: PathBuf,
    schema: SchemaRef,
    splits: [Part; 3],
    /// The rows, where they are not in files of the splits, and how many buckets of them are put in order at a time.
    pieces: Option<(Arc<Pieces>, usize)>,
    /// Distinct training values of the text columns that are features by default.
    distinct: BTreeMap<String, Distinct>,
    /// Images whose embeddings are near, where they are looked for.
    pub(crate) near_images: Option<NearImageCounts>,
    /// Content of the most rows, with split and bucket of the first of them, where staging found copies by their hashes.
    repeated: Option<(Repeated, Option<(Split, usize)>)>,
    /// Images of equal pixels and different targets.
    pub(crate) conflicts: LabelConflicts,
}

/// Groups of the split's key among staged rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    /// Groups of each split, by the first one that they have rows in.
    pub(crate) splits: [u64; 3],
    /// Rows of the largest group.
    pub(crate) largest: u64,
    /// Groups with rows in more than one split.
    pub(crate) leaked: u64,
    /// Hashes of the keys of some of these.
    pub(crate) samples: Vec<u64>,
}

impl Groups {
    /// Counts `count` groups with rows in the splits of these two codes; the largest has `rows`.
    fn add(&mut self, [first, last]: [u8; 2], count: u64, rows: u64) {
        self.splits[usize::from(first)] += count;
        self.largest = self.largest.max(rows);
        self.leaked += if first == last { 0 } else { count };
    }

    /// Name of a group in messages.
    pub(crate) fn named(key: u64) -> String {
        format!("rows of the split key with hash `{key:016x}`")
    }
}

/// Rows in the order they are written.
#[derive(Clone, Debug)]
pub(crate) struct Ordered {
    pub(crate) rows: RecordBatch,
    /// Their numeric columns that `rows` lacks.
    pub(crate) numbers: Matrix,
}

#[derive(Clone, Debug, Default)]
struct Part {
    files: Vec<ScanFile>,
    rows: u64,
}

impl Staged {
    pub(crate) fn rows(&self, split: Split) -> u64 {
        self.splits[usize::from(code(split))].rows
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The rows, and on how many threads they are looked at, where they can be without the engine.
    pub(crate) fn pieces(&self) -> Option<(Arc<Pieces>, usize)> {
        self.pieces.clone()
    }

    pub(crate) fn total(&self) -> u64 {
        self.splits.iter().map(|part| part.rows).sum()
    }

    /// The rows of `split`, in no particular order.
    pub(crate) fn frame(&self, split: Split) -> Result<DataFrame, Error> {
        if let Some((pieces, _)) = &self.pieces {
            return pieces.frame(&self.session, split);
        }
        let table = ParquetFiles {
            store: ObjectStoreUrl::local_filesystem(),
            schema: Arc::clone(&self.schema),
            files: self.splits[usize::from(code(split))].files.clone(),
        };
        Ok(self.session.read_table(Arc::new(table))?)
    }

    /// The rows of `split` in the order they are written: shuffled by key, or as they landed. The order is total. Where it is
    /// the `last` time that they are read, what has been read may not be there any longer.
    pub(crate) async fn ordered(
        &self,
        split: Split,
        shuffle: Option<ShuffleKey>,
        last: bool,
    ) -> Result<BoxStream<'static, Result<Ordered, DataFusionError>>, Error> {
        if let Some((pieces, ahead)) = &self.pieces {
            return Ok(pieces.ordered(split, *ahead, last));
        }
        let rows = self.frame(split)?.sort(order(shuffle))?;
        let rows = rows.execute_stream().await?;
        let numbers = Matrix::default();
        let ordered = move |rows| Ordered {
            rows,
            numbers: numbers.clone(),
        };
        Ok(rows.map_ok(ordered).boxed())
    }

    /// At most `most` training rows, which follow from their content alone, with the columns `names` at least.
    pub(crate) async fn some_train(
        &self,
        names: &[&str],
        most: usize,
    ) -> Result<Vec<Ordered>, Error> {
        let mut found: Vec<Ordered> = Vec::new();
        let mut left = most;
        if let Some((pieces, _)) = &self.pieces {
            // The first rows as they are shuffled, of as few buckets as have them.
            let mut rows = pieces.ordered(Split::Train, 1, false);
            while left > 0
                && let Some(Ordered { rows, numbers }) = rows.try_next().await?
            {
                let count = rows.num_rows().min(left);
                left -= count;
                found.push(Ordered {
                    rows: rows.slice(0, count),
                    numbers: numbers.slice(0..count),
                });
            }
            return Ok(found);
        }
        let system = [system::HASH, system::ORIGIN];
        let columns = names.iter().copied().chain(system).map(ident);
        let rows = self
            .frame(Split::Train)?
            .select(columns.collect::<Vec<_>>())?;
        let rows = rows.sort(order(Some(ShuffleKey::of_reference())))?;
        for rows in Box::pin(rows.limit(0, Some(most))?.collect()).await? {
            let numbers = Matrix::default();
            found.push(Ordered { rows, numbers });
        }
        Ok(found)
    }

    /// Content of the most rows, where copies were found by their hashes.
    pub(crate) fn repeated(&self) -> Option<Repeated> {
        self.repeated.map(|(repeated, _)| repeated)
    }

    /// Cells of the columns `names` in the first row of [`Self::repeated`], if it was staged: `None` for a missing cell.
    pub(crate) async fn repeated_cells(
        &self,
        names: &[&str],
    ) -> Result<Option<Vec<Option<String>>>, Error> {
        let Some((repeated, Some((split, bucket)))) = self.repeated else {
            return Ok(None);
        };
        let Some((pieces, _)) = &self.pieces else {
            return Ok(None);
        };
        let pieces = Arc::clone(pieces);
        let work = move || pieces.bucket(split, bucket, false);
        let read = tokio::task::spawn_blocking(work).await;
        let Ordered { rows, numbers } =
            read.map_err(|e| Error::Engine(DataFusionError::ExecutionJoin(Box::new(e))))??;
        let origins = rows.column_by_name(system::ORIGIN);
        let origins = origins.and_then(|column| column.as_primitive_opt::<UInt64Type>());
        let mut origins = origins
            .into_iter()
            .flat_map(|column| column.values().iter());
        let Some(row) = origins.position(|origin| *origin == repeated.first) else {
            return Ok(None);
        };
        let mut cells = Vec::with_capacity(names.len());
        for name in names {
            let mut numbers_of_row = Vec::new();
            let column: ArrayRef = match (numbers.place(name), rows.column_by_name(name)) {
                (Some(place), _) => {
                    numbers.fill(place, row..row + 1, &mut numbers_of_row);
                    let cells = numbers_of_row.iter().map(|x| (!x.is_nan()).then_some(*x));
                    Arc::new(cells.collect::<Float64Array>())
                }
                (None, Some(column)) => column.slice(row, 1),
                (None, None) => return Ok(None),
            };
            let text = column
                .is_valid(0)
                .then(|| array_value_to_string(&column, 0));
            cells.push(text.transpose()?);
        }
        Ok(Some(cells))
    }

    /// The groups of the split's key.
    pub(crate) async fn groups(&self) -> Result<Groups, Error> {
        const SAMPLES: usize = 5;
        const FIRST: &str = "first";
        const LAST: &str = "last";
        const ROWS: &str = "rows";
        if let Some((pieces, _)) = &self.pieces {
            let pieces = Arc::clone(pieces);
            let work = move || pieces.groups(SAMPLES);
            let joined = tokio::task::spawn_blocking(work).await;
            return Ok(joined
                .map_err(|e| Error::Engine(DataFusionError::ExecutionJoin(Box::new(e))))??);
        }
        let split = ident(system::SPLIT);
        let mut rows = self.frame(Split::Train)?;
        for other in [Split::Validation, Split::Test] {
            rows = rows.union(self.frame(other)?)?;
        }
        let each = rows.aggregate(
            vec![ident(system::GROUP)],
            vec![
                min(split.clone()).alias(FIRST),
                max(split).alias(LAST),
                count_all().alias(ROWS),
            ],
        )?;
        let by_splits = each.clone().aggregate(
            vec![ident(FIRST), ident(LAST)],
            vec![
                count_all().alias("groups"),
                max(ident(ROWS)).alias("largest"),
            ],
        )?;
        let mut groups = Groups::default();
        for batch in Box::pin(by_splits.collect()).await? {
            let code = |i: usize| batch.column(i).as_primitive::<UInt8Type>();
            let number = |i: usize| batch.column(i).as_primitive::<Int64Type>();
            for row in 0..batch.num_rows() {
                let [first, last] = [0, 1].map(|i| code(i).value(row));
                let [count, rows] = [2, 3].map(|i| number(i).value(row).unsigned_abs());
                groups.add([first, last], count, rows);
            }
        }
        if groups.leaked == 0 {
            return Ok(groups);
        }
        let leaks = each.filter(ident(FIRST).lt(ident(LAST)))?;
        for batch in Box::pin(leaks.limit(0, Some(SAMPLES))?.collect()).await? {
            let keys = column(&batch, system::GROUP).as_fixed_size_binary();
            let keys = (0..batch.num_rows()).map(|row| key_of(keys.value(row)));
            groups.samples.extend(keys);
        }
        Ok(groups)
    }

    /// Counts the rows that have no key, where their group is their content.
    pub(crate) async fn without_key(&self) -> Result<u64, Error> {
        let mut rows = 0;
        for split in Split::ALL {
            let found = self.frame(split)?;
            let found = found.filter(ident(system::GROUP).eq(ident(system::HASH)))?;
            rows += Box::pin(found.count()).await? as u64;
        }
        Ok(rows)
    }

    /// Text columns that are features only by default and hold (nearly) a value per row, such as
    /// names, ids and timestamps. They are dropped from the features, each with the reason.
    pub(crate) fn identifiers(&self) -> BTreeMap<String, &'static str> {
        let rows = usize::try_from(self.rows(Split::Train)).unwrap_or(usize::MAX);
        let why = |d: &Distinct| match d.0.len() {
            many if many > FEW_VALUES && many > rows / 2 => {
                Some("holds a text of its own in (nearly) each training row")
            }
            many if many > MANY_VALUES => Some("holds more than 1,000 different texts"),
            _ => None,
        };
        let found = self.distinct.iter();
        let found = found.filter_map(|(name, d)| Some((name.clone(), why(d)?)));
        found.collect()
    }
}

/// The order that rows are written in: shuffled by key, or as they landed. It is total.
pub(crate) fn order(shuffle: Option<ShuffleKey>) -> Vec<SortExpr> {
    let key = shuffle.map(|key| key.over(vec![ident(system::HASH)]));
    let columns = key.into_iter().chain([ident(system::ORIGIN)]);
    columns.map(|column| column.sort(true, false)).collect()
}

/// Hashes of distinct values, no more than needed to prove that there are many.
#[derive(Clone, Debug, Default)]
struct Distinct(HashSet<u64>);

impl Distinct {
    fn add(&mut self, hash: u64) {
        if self.0.len() <= MANY_VALUES {
            self.0.insert(hash);
        }
    }
}

/// Runs the plan once.
pub(crate) async fn stage(
    session: &SessionContext,
    frame: DataFrame,
    spec: &DatasetSpec,
    scratch: &Scratch,
    meter: Arc<Meter>,
) -> Result<(Staged, Rejects), Error> {
    let kept: Vec<usize> = (0..frame.schema().fields().len())
        .filter(|i| frame.schema().field(*i).name() != system::REJECT)
        .collect();
    let images = spec.images();
    let mut schema = frame.schema().as_arrow().project(&kept)?;
    if let Some(images) = images {
        schema = images.staged(&schema);
    }
    let schema: SchemaRef = Arc::new(schema);
    let counted = spec
        .inputs
        .iter()
        .filter(|i| i.by_default && i.column.kind == InputKind::Categorical);
    let counted: Vec<String> = counted.map(|i| i.column.name.clone()).collect();
    let mut tasks = JoinSet::new();
    for (partition, stream) in frame
        .execute_stream_partitioned()
        .await?
        .into_iter()
        .enumerate()
    {
        let path = |name: &str| scratch.path(&format!("{name}-{partition}.parquet"));
        let mut worker = Worker::new(&schema, &kept, &counted, path, Arc::clone(&meter));
        worker.converter = images.map(|images| Converter::new(images, &schema));
        tasks.spawn(worker.run(stream));
    }
    let mut staged = Staged {
        session: session.clone(),
        folder: scratch.path(""),
        schema,
        splits: Default::default(),
        pieces: None,
        repeated: None,
        distinct: counted
            .into_iter()
            .map(|name| (name, Distinct::default()))
            .collect(),
        near_images: None,
        conflicts: LabelConflicts::default(),
    };
    let mut lengths = BTreeMap::new();
    let mut rejects = Rejects::default();
    while let Some(done) = tasks.join_next().await {
        let done =
            done.map_err(|e| Error::Engine(DataFusionError::ExecutionJoin(Box::new(e))))??;
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
        rejects.merge(done.rejects);
    }
    if let Some(images) = images.filter(|images| images.how.hashes) {
        let (settled, odd) = copies::settle(staged, spec, images, &lengths, scratch).await?;
        staged = settled;
        rejects.merge(odd);
    }
    Ok((staged, rejects))
}

/// Stages one partition.
struct Worker {
    kept: Vec<usize>,
    files: [ScratchFile; 3],
    rows: [u64; 3],
    rejects: RejectWriter,
    distinct: BTreeMap<String, Distinct>,
    meter: Arc<Meter>,
    /// Decodes images.
    converter: Option<Converter>,
}

struct Done {
    files: [(Option<ScanFile>, u64); 3],
    rejects: Rejects,
    distinct: BTreeMap<String, Distinct>,
    /// Embeddings by their length.
    lengths: BTreeMap<usize, u64>,
}

impl Worker {
    fn new(
        schema: &SchemaRef,
        kept: &[usize],
        counted: &[String],
        path: impl Fn(&str) -> PathBuf,
        meter: Arc<Meter>,
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
        }
    }

    async fn run(mut self, mut stream: SendableRecordBatchStream) -> Result<Done, Error> {
        while let Some(batch) = stream.try_next().await? {
            let rows = batch.num_rows() as u64;
            self = if self.converter.is_some() {
                // Decoding keeps a processor busy for long.
                let work = move || self.take(&batch).map(|()| self);
                let joined = tokio::task::spawn_blocking(work).await;
                joined.map_err(|e| Error::Engine(DataFusionError::ExecutionJoin(Box::new(e))))??
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
        Ok(Done {
            files,
            rejects: self.rejects.finish()?,
            distinct: self.distinct,
            lengths: self
                .converter
                .map(Converter::into_lengths)
                .unwrap_or_default(),
        })
    }

    fn take(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        let reasons = column(batch, system::REJECT).as_string::<i32>();
        let origins = column(batch, system::ORIGIN).as_primitive::<UInt64Type>();
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
        let origins = column(&rows, system::ORIGIN).as_primitive::<UInt64Type>();
        let of_column = converter.column();
        let reject = |(row, reason, value): Fault| {
            let column = of_column.to_owned();
            let reason = Reason {
                reason,
                column,
                value,
            };
            (origins.value(row), reason.to_json())
        };
        self.rejects
            .push(faults.into_iter().map(reject).collect())?;
        self.converter = Some(converter);
        Ok(())
    }

    /// Writes good rows to the file of their split.
    fn keep(&mut self, rows: &RecordBatch) -> Result<(), Error> {
        let codes = column(rows, system::SPLIT).as_primitive::<UInt8Type>();
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

/// A column the plan made.
pub(crate) fn column<'a>(batch: &'a RecordBatch, name: &str) -> &'a ArrayRef {
    batch
        .column_by_name(name)
        .expect("the plan makes this column")
}
