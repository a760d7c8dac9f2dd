//! The dataset as one frame of typed rows with content hash, origin and split, duplicates dropped.

use std::{
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use datafusion::{
    common::ScalarValue,
    execution::{
        disk_manager::{DiskManagerBuilder, DiskManagerMode},
        object_store::ObjectStoreUrl,
        runtime_env::RuntimeEnvBuilder,
    },
    functions_window::expr_fn::row_number,
    logical_expr::{Expr, ExprFunctionExt, Partitioning, cast, ident, lit, when},
    prelude::{DataFrame, SessionConfig, SessionContext},
};
use feedline_schemas::{
    config::{DedupMode, DocumentConfig, Fraction, MissingKey, SplitConfig, Task},
    ids::Hash128,
    manifest::{ConflictCounts, NearDupCounts, Split},
    record::{self, ColumnType, DECIMAL_PRECISION, DECIMAL_SCALE, RecordSchema},
    transform::{InputKind, NumberSigns},
};

use crate::{
    Context, Error,
    columns::{DatasetSpec, system},
    conflicts,
    content::{Cells, ContentHash, HASH_BYTES},
    document::{self, Quality},
    engine::Engine,
    functions,
    images::Images,
    join, kept,
    landing::{Generation, Landed},
    near_dup::{self, NearDup},
    newest::{self, Newest},
    payload::{Image, Part, Payload, PayloadKind, Text},
    plain::{self, Plain},
    pool::BoundedPool,
    range::{Borders, ByPlace, Embargo},
    scalar::RowFunction,
    scan::{ParquetFiles, ScanFile},
    series::{self, Series},
    shared, signs,
    sparse::Sparse,
    split::{
        self, ByName, Rule, Splitter, TimeRule, code,
        missing::{self, HasKey, KeyGroup, MISSING_KEY},
    },
    stage::{Pieces, Staged},
    superseded::WithSuperseded,
    typing::{Category, Judge, Judged, Missing, NanSeen, Numeric},
};

/// Memory each partition of a sort keeps for merging, at most; the engine's own default.
const SORT_RESERVE: usize = 10 << 20;

/// Rows of a batch: the engine's own default, fewer under a tight memory limit.
const BATCH_ROWS: RangeInclusive<usize> = 64..=8192;

/// Bytes of a batch of images or documents, about.
const PAYLOAD_BATCH: u64 = 32 << 20;

/// Rough size of a row's system columns and of another cell, in bytes, to choose the size of batches by.
const SYSTEM_BYTES: usize = 64;
const CELL_BYTES: usize = 16;

/// Rows of the training split: the only input that statistics can be fitted on, and made only from
/// the splitter's output. Nothing else makes one:
///
/// ```compile_fail,E0451
/// fn leaks(frame: datafusion::prelude::DataFrame) -> feedline_preprocess::TrainSplit {
///     feedline_preprocess::TrainSplit { frame, rows: 1, folder: "".into(), pieces: None }
/// }
/// ```
#[derive(Clone, Debug)]
pub struct TrainSplit {
    frame: DataFrame,
    rows: u64,
    folder: PathBuf,
    pieces: Option<(Arc<Pieces>, usize)>,
}

impl TrainSplit {
    pub(crate) fn of(staged: &Staged) -> Result<Self, Error> {
        Ok(Self {
            frame: staged.frame(Split::Train)?,
            rows: staged.rows(Split::Train),
            folder: staged.folder().to_owned(),
            pieces: staged.pieces(),
        })
    }

    /// A training split of a test's own making.
    #[cfg(test)]
    pub(crate) fn from_frame(frame: DataFrame, rows: u64) -> Self {
        Self {
            frame,
            rows,
            folder: PathBuf::new(),
            pieces: None,
        }
    }

    /// The same, with `folder` for rewritten rows.
    #[cfg(test)]
    pub(crate) fn in_folder(self, folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            ..self
        }
    }

    /// Folder for rows that steps have changed.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Numeric inputs as `Float64` (null = missing, infinities kept), categories as `Utf8` (null = missing), the target
    /// (`Float64` or `Utf8`, never null), `_origin`, `_hash`, `_split`.
    pub(crate) fn frame(&self) -> DataFrame {
        self.frame.clone()
    }

    /// The rows themselves, and on how many threads to look at them, where that can be done without the engine.
    pub(crate) fn pieces(&self) -> Option<(Arc<Pieces>, usize)> {
        self.pieces.clone()
    }

    /// Rows of the split.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }
}

/// An engine session that spills to `spill` and reads the landing zone; its frames have about `columns` columns, and a
/// payload of `payload_bytes`. What is joined on has `joined_bytes`.
pub(crate) fn session(
    context: &Context,
    spill: &Path,
    columns: usize,
    payload_bytes: Option<u64>,
    joined_bytes: u64,
) -> Result<SessionContext, Error> {
    // A hash join holds one side in memory, one that sorts neither; with one partition the engine only knows the first.
    let sorts = context
        .memory_bytes
        .is_some_and(|bytes| joined_bytes >= bytes / 8);
    let sorts = sorts || !context.engine.is_local();
    let partitions = context.partitions.max(if sorts { 2 } else { 1 });
    let config = SessionConfig::new()
        .with_target_partitions(partitions)
        .with_collect_statistics(false);
    let mut config = split::names_as_written(config);
    let disk = DiskManagerBuilder::default()
        .with_mode(DiskManagerMode::Directories(vec![spill.to_owned()]))
        .with_max_temp_directory_size(u64::MAX);
    if let Some(bytes) = payload_bytes {
        let rows = PAYLOAD_BATCH / bytes.max(1);
        config = config.with_batch_size(clamped(rows));
    }
    config.options_mut().optimizer.prefer_hash_join = !sorts;
    let mut runtime = RuntimeEnvBuilder::new().with_disk_manager_builder(disk);
    if let Some(bytes) = context.memory_bytes {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        // The reserves of all partitions together must leave room for the rows, and every merge holds a batch of
        // each of its inputs.
        let reserve = SORT_RESERVE.min(bytes / (16 * partitions));
        config.options_mut().execution.sort_spill_reservation_bytes = reserve;
        let payload = usize::try_from(payload_bytes.unwrap_or(0)).unwrap_or(usize::MAX);
        let row_bytes = (SYSTEM_BYTES + CELL_BYTES * columns).saturating_add(payload);
        let batch_rows = bytes / row_bytes.saturating_mul(64 * partitions);
        config = config.with_batch_size(clamped(batch_rows as u64));
        runtime = runtime.with_memory_pool(Arc::new(BoundedPool::new(bytes, reserve)));
    }
    let runtime = runtime.build_arc()?;
    let session = match &context.engine {
        Engine::Local => SessionContext::new_with_config_rt(config, runtime),
        #[cfg(feature = "cluster")]
        Engine::Cluster(cluster) => cluster.session(config, runtime, &context.root)?,
    };
    functions::register(&session);
    let (_, store, _) = context.root.object_store();
    let store = Arc::new(WithSuperseded(store));
    session.register_object_store(shared::url_of(&context.root)?.as_ref(), store);
    Ok(session)
}

/// Rows of a batch when so many would suit.
fn clamped(rows: u64) -> usize {
    let rows = usize::try_from(rows).unwrap_or(usize::MAX);
    rows.clamp(*BATCH_ROWS.start(), *BATCH_ROWS.end())
}

/// The rows of a dataset.
pub(crate) struct Frame {
    /// As [`frame`] says.
    pub(crate) rows: DataFrame,
    /// The documents that are kept, each whole, in the column of the payload.
    pub(crate) documents: Option<DataFrame>,
    /// Counts of the search for near-duplicates.
    pub(crate) near_dup: Option<NearDupCounts>,
    /// Hash and origin of all rows, duplicates included, if duplicates are dropped.
    pub(crate) copied: Option<DataFrame>,
    /// Rows that are equal but for their target, where one of them is chosen.
    pub(crate) conflicts: Option<ConflictCounts>,
    /// Note of a NaN that was read as a number, once the rows are read on this machine.
    pub(crate) nan: NanSeen,
    /// All images with their content hashes and targets, where copies are dropped whatever their targets are.
    pub(crate) labelled: Option<DataFrame>,
}

/// All rows: `_origin`, `_hash`, `_split`, `_reject`, `_group` where the split has a key, then payload, inputs and target.
/// `with_copies` leaves duplicates among them, for a pass that finds them itself.
pub(crate) async fn frame(
    session: &SessionContext,
    sources: &[Landed],
    spec: &DatasetSpec,
    near_dup: Option<&near_dup::Pass<'_>>,
    with_copies: bool,
) -> Result<Frame, Error> {
    let (mut all, mut frozen): (Option<DataFrame>, Option<DataFrame>) = (None, None);
    let nan = NanSeen::default();
    let missing = Missing::new(&spec.config.null_values, &spec.config.missing_values).noting(&nan);
    for (index, source) in sources.iter().enumerate() {
        let is_frozen = spec.config.split.frozen() == Some(&source.reference.name);
        let newest = Newest::of(source)?;
        let mut own: Option<DataFrame> = None;
        for generation in &source.generations {
            let schema = join::extended(&generation.schema, &spec.joins);
            let reading = Reading {
                schema: &schema,
                spec,
                is_frozen,
                missing: missing.clone(),
                signs: signs::of(&spec.config),
            };
            let rows = read(session, source, generation)?;
            let rows = join::beside(session, rows, &generation.schema, &spec.joins)?;
            let rows = reading.prepared(rows)?;
            let mut columns = reading.columns(index as u64)?;
            if let Some(newest) = &newest {
                columns.extend(newest.columns(&generation.schema)?);
            }
            if source.records.is_some() {
                columns.push(parent().alias(newest::RECORD));
            }
            let rows = rows.select(columns)?;
            own = Some(match own {
                Some(above) => above.union(rows)?,
                None => rows,
            });
        }
        let Some(own) = own else { continue };
        let own = match newest {
            Some(newest) => newest.keep(own)?,
            None => own,
        };
        let own = match &source.records {
            Some(records) => newest::of_newest(session, own, records)?,
            None => own,
        };
        let part = if is_frozen { &mut frozen } else { &mut all };
        *part = Some(match part.take() {
            Some(above) => above.union(own)?,
            None => own,
        });
    }
    let all = all.expect("a landed source has at least one row, so at least one file");
    let copied = (spec.config.dedup == DedupMode::Exact)
        .then(|| {
            all.clone()
                .select(vec![ident(system::HASH), ident(system::ORIGIN)])
        })
        .transpose()?;
    let conflicts = match spec.conflicts() {
        Some((target, _)) => Some(
            Box::pin(conflicts::count(all.clone(), target))
                .await?
                .counts,
        ),
        None => None,
    };
    let labelled = match (&spec.payload, &spec.target, spec.config.dedup) {
        (Some(_), Some(target), DedupMode::Exact) => Some(all.clone().select(vec![
            ident(system::HASH),
            ident(system::ORIGIN),
            ident(system::REJECT),
            ident(&target.column),
        ])?),
        _ => None,
    };
    let one_of_each = |rows: DataFrame| match spec.conflicts() {
        Some((target, how)) => conflicts::settled(rows, target, how),
        None => first_of_each_content(rows),
    };
    let rows = match spec.config.dedup {
        DedupMode::Exact if !with_copies => one_of_each(all)?,
        DedupMode::Exact | DedupMode::None => {
            let partitions = session.state().config().target_partitions();
            all.repartition(Partitioning::RoundRobinBatch(partitions))?
        }
    };
    let rows = match frozen {
        Some(frozen) => {
            let frozen = match spec.config.dedup {
                DedupMode::Exact => one_of_each(frozen)?,
                DedupMode::None => frozen,
            };
            split::apart(rows, frozen, !spec.config.split.key.is_empty())?
        }
        None => rows,
    };
    let (rows, near_dup) = match near_dup {
        Some(pass) => {
            let (rows, found) = pass.run(session, rows).await?;
            (rows, Some(found))
        }
        None => (rows, None),
    };
    // Features of series neither add nor drop a row, and are not worth making to count them.
    let text = spec.payload.as_ref();
    let text = text.filter(|payload| payload.kind == PayloadKind::Text);
    let count = match (&spec.rule, text) {
        (Rule::Range, None) => rows.clone().count().await? as u64,
        _ => 0,
    };
    let rows = match &spec.series {
        Some(series) => expected_of_made(series.onto(session, rows)?, spec, series)?,
        None => rows,
    };
    let Some(text) = text else {
        return Ok(Frame {
            rows: match &spec.rule {
                Rule::Hash | Rule::Named(_) => rows,
                Rule::Range => in_order(rows, &spec.config.split, count)?,
                Rule::Time(time) => time.split(rows).await?,
            },
            documents: None,
            near_dup,
            copied,
            conflicts,
            nan,
            labelled,
        });
    };
    let rows = match &spec.rule {
        Rule::Time(time) => time.split(rows).await?,
        Rule::Hash | Rule::Named(_) | Rule::Range => rows,
    };
    let documents = rows.clone().filter(ident(system::REJECT).is_null())?;
    let documents = documents.select(vec![ident(&text.column)])?;
    Ok(Frame {
        rows: match &spec.rule {
            Rule::Range => parts(&rows, spec, text)?,
            Rule::Hash | Rule::Named(_) | Rule::Time(_) => rows,
        },
        documents: Some(documents),
        near_dup,
        copied,
        conflicts,
        nan,
        labelled,
    })
}

/// `rows`, with those rejected whose generated features violate expectations.
fn expected_of_made(
    rows: DataFrame,
    spec: &DatasetSpec,
    series: &Series,
) -> Result<DataFrame, Error> {
    let expect = spec.expect.as_ref();
    let Some((judge, judged)) = expect.and_then(|expect| expect.rows(|name| series.makes(name)))
    else {
        return Ok(rows);
    };
    let cells = judged.iter().map(|column| ident(&column.name));
    let arguments: Vec<Expr> = std::iter::once(ident(system::REJECT))
        .chain(cells)
        .collect();
    let reject = judge.over(arguments).alias(system::REJECT);
    let columns = rows.schema().fields().iter();
    let columns = columns.map(|field| match field.name().as_str() {
        system::REJECT => reject.clone(),
        name => ident(name),
    });
    let columns: Vec<Expr> = columns.collect();
    Ok(rows.select(columns)?)
}

/// The rows with the split that their place among all of them gives, in the order they landed.
fn in_order(rows: DataFrame, split: &SplitConfig, count: u64) -> Result<DataFrame, Error> {
    const PLACE: &str = "_place";
    let borders = Borders::new(split, count);
    let columns: Vec<Expr> = rows
        .schema()
        .fields()
        .iter()
        .map(|field| match field.name().as_str() {
            system::SPLIT => ByPlace(borders)
                .over(vec![ident(PLACE)])
                .alias(system::SPLIT),
            system::REJECT => Embargo(borders)
                .over(vec![ident(system::REJECT), ident(PLACE)])
                .alias(system::REJECT),
            name => ident(name),
        })
        .collect();
    let place = row_number()
        .order_by(vec![ident(system::ORIGIN).sort(true, false)])
        .build()?
        .alias(PLACE);
    Ok(rows.window(vec![place])?.select(columns)?)
}

/// Every document as a row per part, with the content hash of that part. A rejected document is one
/// row.
fn parts(rows: &DataFrame, spec: &DatasetSpec, text: &Payload) -> Result<DataFrame, Error> {
    let mut all: Option<DataFrame> = None;
    for split in Split::ALL {
        let part = Part::new(&spec.config.split, split).over(vec![ident(&text.column)]);
        let is_there = ident(&text.column).is_not_null();
        let bad = ident(system::REJECT).is_not_null();
        let kept = match split {
            Split::Train => is_there.or(bad),
            _ => is_there.and(bad.is_false()),
        };
        let hash = content_hash(std::iter::once(text.column.as_str()), Cells::Typed);
        let mut there = vec![
            ident(system::ORIGIN),
            ident(system::REJECT),
            part.alias(&text.column),
        ];
        let mut columns = vec![
            ident(system::ORIGIN),
            hash.alias(system::HASH),
            lit(code(split)).alias(system::SPLIT),
            ident(system::REJECT),
            ident(&text.column),
        ];
        if spec.config.text.is_some() {
            // A document counts once, with the part that each has.
            let count = match split {
                Split::Train => ident(system::REDACTED),
                _ => lit(0_u64),
            };
            there.push(count.alias(system::REDACTED));
            columns.push(ident(system::REDACTED));
        }
        let part = rows.clone().select(there)?.filter(kept)?.select(columns)?;
        all = Some(match all {
            Some(above) => above.union(part)?,
            None => part,
        });
    }
    Ok(all.expect("there are three splits"))
}

/// Of the rows with one content keeps the one with the smallest origin that can be used, else that with the smallest
/// origin: columns beside the content may set one aside and not the other. The engine sorts by hash, then by these,
/// spilling where it must, so the choice depends neither on memory nor on partitions.
fn first_of_each_content(rows: DataFrame) -> Result<DataFrame, Error> {
    const COPY: &str = "_copy";
    let names: Vec<Expr> = rows
        .schema()
        .fields()
        .iter()
        .map(|f| ident(f.name()))
        .collect();
    let rank = row_number()
        .partition_by(vec![ident(system::HASH)])
        .order_by(vec![
            ident(system::REJECT).is_not_null().sort(true, false),
            ident(system::ORIGIN).sort(true, false),
        ])
        .build()?
        .alias(COPY);
    Ok(rows
        .window(vec![rank])?
        .filter(ident(COPY).eq(lit(1u64)))?
        .select(names)?)
}

pub(crate) fn read(
    session: &SessionContext,
    source: &Landed,
    generation: &Generation,
) -> Result<DataFrame, Error> {
    if let Some(files) = &source.in_place {
        return files.frame(session);
    }
    let schema = Arc::new(landed_schema(&generation.schema, source.records.is_some()));
    if let Some(file) = &source.local {
        let table = ParquetFiles {
            store: ObjectStoreUrl::local_filesystem(),
            schema,
            files: vec![file.clone()],
        };
        return Ok(session.read_table(Arc::new(table))?);
    }
    let (_, _, folder) = source.store.object_store();
    let file = |f: &feedline_schemas::commit::DataFile| ScanFile {
        path: f
            .path
            .split('/')
            .fold(folder.clone(), |path, part| path.join(part)),
        bytes: f.bytes,
    };
    let table = ParquetFiles {
        store: shared::url_of(&source.store)?,
        schema,
        files: generation.files.iter().map(file).collect(),
    };
    Ok(session.read_table(Arc::new(table))?)
}

/// Columns of a landed file; of a child table, with the row of the record if that is asked for.
pub(crate) fn landed_schema(schema: &RecordSchema, with_parent: bool) -> Schema {
    let parent = with_parent.then_some((record::system::PARENT, DataType::UInt32));
    let system = [
        (record::system::SEQUENCE, DataType::UInt64),
        (record::system::ROW, DataType::UInt32),
    ];
    let system = system.into_iter().chain(parent);
    let system = system.map(|(name, r#type)| Field::new(name, r#type, true));
    let own = schema
        .columns
        .iter()
        .map(|c| Field::new(&c.name, landed_type(c.r#type), true));
    Schema::new(system.chain(own).collect::<Vec<_>>())
}

pub(crate) fn landed_type(column: ColumnType) -> DataType {
    match column {
        ColumnType::Bool => DataType::Boolean,
        ColumnType::Int64 => DataType::Int64,
        ColumnType::Float64 => DataType::Float64,
        ColumnType::Decimal => DataType::Decimal128(DECIMAL_PRECISION, DECIMAL_SCALE),
        ColumnType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        ColumnType::ListBool => list_of(DataType::Boolean),
        ColumnType::ListInt64 => list_of(DataType::Int64),
        ColumnType::ListFloat64 => list_of(DataType::Float64),
        ColumnType::List | ColumnType::ListUtf8 => list_of(DataType::Utf8),
        ColumnType::Binary => DataType::Binary,
        ColumnType::Null | ColumnType::Utf8 | ColumnType::Json => DataType::Utf8,
    }
}

fn list_of(items: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(items, true)))
}

/// Reads the columns of one schema version as the dataset wants them.
struct Reading<'a> {
    schema: &'a RecordSchema,
    spec: &'a DatasetSpec,
    missing: Missing,
    /// Number format of text columns.
    signs: Option<NumberSigns>,
    /// True if the rows are the test split.
    is_frozen: bool,
}

impl Reading<'_> {
    /// The landed rows, with documents as the rest of the plan sees them.
    fn prepared(&self, rows: DataFrame) -> Result<DataFrame, Error> {
        match (&self.spec.config.text, self.spec.document()) {
            (Some(text), Some(payload)) => document::prepared(rows, &payload.column, text),
            _ => Ok(rows),
        }
    }

    /// The frame's columns.
    fn columns(&self, source: u64) -> Result<Vec<Expr>, Error> {
        let payload = self.spec.payload.as_ref();
        // Rows that differ in the split that a column names are copies all the same.
        let named = self.spec.config.split.column();
        let named = named.filter(|name| self.spec.inputs.iter().all(|i| i.column.name != **name));
        let content = |name: &&str| match payload {
            Some(payload) => payload.column == *name,
            None => {
                let is_split = named.is_some_and(|split| split == name);
                !is_split && conflicts::is_content(&self.spec.config, name)
            }
        };
        let hash = content_hash(self.names().filter(content), Cells::Typed);
        let group = self.group(&hash);
        let judged = self.keyed(self.sparse(self.quality(self.judge())))?;
        let (split, reject) = self.split(group.clone().unwrap_or(hash.clone()), judged)?;
        let mut columns = vec![
            origin(source).alias(system::ORIGIN),
            hash.alias(system::HASH),
            split.alias(system::SPLIT),
            self.timed(self.expected(reject))?.alias(system::REJECT),
        ];
        columns.extend(group.map(|group| group.alias(system::GROUP)));
        if let Rule::Time(time) = &self.spec.rule {
            columns.push(self.split_time(time)?.alias(system::TIME));
        }
        for column in &self.spec.kept {
            let cell = join::typed(self.schema, &column.name, column.r#type)?;
            columns.push(cell.alias(kept::named(column)));
        }
        let payloads = self.spec.payloads();
        columns.extend(payloads.map(|payload| self.payload(payload)));
        let images = self.spec.images().into_iter();
        let beside = images.flat_map(Images::beside);
        columns.extend(beside.map(|(name, column)| self.written(name).alias(column)));
        let carried = self.spec.near_dup.as_ref().and_then(NearDup::carried);
        columns.extend(carried.map(|name| text(self.landed(name)).alias(system::TEXT)));
        columns.extend(
            self.spec
                .config
                .text
                .iter()
                .map(|_| ident(system::REDACTED)),
        );
        columns.extend(self.series()?);
        let inputs = self.spec.landed_inputs();
        columns.extend(inputs.map(|c| self.typed(&c.name, c.kind)));
        let targets = self.spec.apart_targets();
        columns.extend(targets.map(|t| match t.task {
            Task::Regression => self.typed(&t.column, InputKind::Numeric),
            Task::Classification => self.typed(&t.column, InputKind::Categorical),
        }));
        Ok(columns)
    }

    /// Split of a row, as far as the row alone decides it, and the reason for its rejection, if
    /// any.
    fn split(&self, group: Expr, reject: Expr) -> Result<(Expr, Expr), Error> {
        if self.is_frozen {
            return Ok((lit(code(Split::Test)), reject));
        }
        Ok(match &self.spec.rule {
            Rule::Hash | Rule::Range => {
                let splitter = Splitter::new(&self.spec.config.split);
                (splitter.over(vec![group]), reject)
            }
            Rule::Named(named) => {
                let name = named.over(self.schema)?;
                (ByName.over(vec![name.clone()]), named.judged(reject, name))
            }
            Rule::Time(time) => {
                let judged = time.judged(reject, self.split_time(time)?, self.schema)?;
                (lit(code(Split::Train)), judged)
            }
        })
    }

    /// The time that a row is split by: a text that is the time of series, too, is read as these read it.
    fn split_time(&self, time: &TimeRule) -> Result<Expr, Error> {
        match &self.spec.series {
            Some(series) if time.is_text_of(&series.time) => Ok(self.instant(series)),
            _ => time.instant(self.schema),
        }
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.schema.columns.iter().map(|c| c.name.as_str())
    }

    /// The columns among `names` that this version has.
    fn known<'b>(&'b self, names: &'b [String]) -> Vec<&'b str> {
        let known = self.names();
        known
            .filter(|known| names.iter().any(|name| name == known))
            .collect()
    }

    /// Hash of the split's key columns, of a row without a key that of its `content`; a column this version lacks counts as
    /// null.
    fn group(&self, content: &Expr) -> Option<Expr> {
        let split = &self.spec.config.split;
        let known = self.known(&split.key);
        let group = content_hash(known.iter().copied(), Cells::Text);
        Some(match (split.missing_key(), &known[..]) {
            _ if split.key.is_empty() => return None,
            (MissingKey::One, _) => group,
            (MissingKey::Own | MissingKey::Reject, []) => content.clone(),
            (MissingKey::Own | MissingKey::Reject, known) => {
                let arguments = [group, content.clone()].into_iter();
                let cells = known.iter().copied().map(ident);
                KeyGroup(self.missing.clone()).over(arguments.chain(cells).collect())
            }
        })
    }

    /// `judged`, and rows without a key, where such rows are rejected.
    fn keyed(&self, judged: Expr) -> Result<Expr, Error> {
        let split = &self.spec.config.split;
        if split.key.is_empty() || split.missing_key() != MissingKey::Reject {
            return Ok(judged);
        }
        let names = (&split.key[..], &self.known(&split.key)[..]);
        let missing = self.missing.clone();
        Ok(missing::reject(judged, names, missing, MISSING_KEY)?)
    }

    fn landed(&self, name: &str) -> Expr {
        landed(self.schema, name)
    }

    /// A column of lists, as text; what a schema version has there that is no text is written out, so that it is seen.
    fn written(&self, name: &str) -> Expr {
        let mut columns = self.schema.columns.iter();
        match columns.find(|column| column.name == name).map(|c| c.r#type) {
            Some(ColumnType::Bool | ColumnType::Int64 | ColumnType::Float64) => {
                cast(ident(name), DataType::Utf8)
            }
            _ => text(self.landed(name)),
        }
    }

    fn signs_of(&self, name: &str) -> Option<NumberSigns> {
        signs::of_column(self.signs, self.schema, name)
    }

    fn payload(&self, payload: &Payload) -> Expr {
        let cell = vec![self.landed(&payload.column)];
        let held = match payload.kind {
            PayloadKind::Image => Image.over(cell),
            PayloadKind::Text => Text.over(cell),
        };
        held.alias(&payload.column)
    }

    fn typed(&self, name: &str, kind: InputKind) -> Expr {
        let (cell, missing) = (vec![self.landed(name)], self.missing.clone());
        let typed = match kind {
            InputKind::Numeric => Numeric(missing, self.signs_of(name)).over(cell),
            InputKind::Categorical => Category(missing).over(cell),
        };
        typed.alias(name)
    }

    /// `judged`, and rows that are not as expected.
    fn expected(&self, judged: Expr) -> Expr {
        let series = self.spec.series.as_ref();
        let landed = |name: &str| !series.is_some_and(|series| series.makes(name));
        let expect = self.spec.expect.as_ref();
        let Some((rows, columns)) = expect.and_then(|expect| expect.rows(landed)) else {
            return judged;
        };
        let cells = columns.iter().map(|c| self.typed(&c.name, c.kind));
        rows.over(std::iter::once(judged).chain(cells).collect())
    }

    /// Columns that series need.
    fn series(&self) -> Result<Vec<Expr>, Error> {
        let Some(series) = &self.spec.series else {
            return Ok(Vec::new());
        };
        let entity = self.known(&series.entity);
        let mut instant = self.instant(series);
        if !series.entity.is_empty() {
            // A row of no entity is at no place in a series.
            let has_entity = HasKey(self.missing.clone()).of(&entity);
            instant = when(has_entity, instant).end()?;
        }
        let mut columns = vec![
            content_hash(entity.into_iter(), Cells::Text).alias(series::ENTITY),
            instant.alias(series::TIME),
        ];
        let of = series.of.iter().enumerate();
        columns.extend(of.map(|(place, name)| {
            let typed = Numeric(self.missing.clone(), self.signs_of(name));
            let numbers = typed.over(vec![self.landed(name)]);
            numbers.alias(Series::column_of(place))
        }));
        Ok(columns)
    }

    fn instant(&self, series: &Series) -> Expr {
        // A column that is already a timestamp must not be parsed as text.
        let cell = |name: &String| match self.names().any(|landed| landed == name) {
            true => ident(name),
            false => lit(ScalarValue::Utf8(None)),
        };
        let cells = std::iter::once(&series.time).chain(&series.clock);
        series.instant(cells.map(cell).collect())
    }

    /// `judged`, and rows of a series that have no entity or no time.
    fn timed(&self, judged: Expr) -> Result<Expr, Error> {
        let Some(series) = &self.spec.series else {
            return Ok(judged);
        };
        let judged = match &series.entity[..] {
            [] => judged,
            names => {
                let names = (names, &self.known(names)[..]);
                let missing = self.missing.clone();
                missing::reject(judged, names, missing, series::reason::MISSING_ENTITY)?
            }
        };
        Ok(series.timed(judged, self.instant(series), self.written(&series.time)))
    }

    /// `judged`, and rows that lack too many of their features.
    fn sparse(&self, judged: Expr) -> Expr {
        let Some(share) = self.spec.config.max_missing_fraction.map(Fraction::get) else {
            return judged;
        };
        let inputs = self.spec.landed_inputs();
        let cells = inputs.map(|c| self.typed(&c.name, c.kind));
        let arguments = std::iter::once(judged).chain(cells);
        Sparse::new(share).over(arguments.collect())
    }

    /// `judged`, and what the filters of documents say.
    fn quality(&self, judged: Expr) -> Expr {
        let limits = self
            .spec
            .config
            .text
            .as_ref()
            .and_then(|text| text.quality.as_ref());
        let Some((limits, payload)) = limits.zip(self.spec.document()) else {
            return judged;
        };
        let quality = Quality {
            column: payload.column.clone(),
            limits: limits.clone(),
        };
        quality.over(vec![judged, self.landed(&payload.column)])
    }

    fn judged_number(&self, name: &str) -> Judged {
        let mut columns = self.schema.columns.iter();
        match columns.find(|column| column.name == name) {
            Some(column) if column.r#type == ColumnType::Decimal => Judged::Decimal,
            _ => Judged::Number,
        }
    }

    fn judge(&self) -> Expr {
        let target = self.spec.targets();
        let target = target.filter(|_| self.spec.requires_target);
        let target = target.map(|t| match t.task {
            Task::Regression => (t.column.clone(), Judged::NumericTarget),
            Task::Classification => (t.column.clone(), Judged::ClassTarget),
        });
        let inputs = self.spec.landed_inputs();
        let numbers = inputs
            .filter(|c| c.kind == InputKind::Numeric)
            .map(|c| (c.name.clone(), self.judged_number(&c.name)));
        let payload = self.spec.payloads().map(|payload| {
            let judged = match payload.kind {
                PayloadKind::Image if payload.images.is_some() => Judged::DecodedImage,
                PayloadKind::Image => Judged::Image,
                PayloadKind::Text => Judged::Document,
            };
            (payload.column.clone(), judged)
        });
        let partners = self.spec.joins.iter().filter_map(join::Join::judged);
        let landed = payload.chain(target).chain(numbers);
        let landed = landed.map(|(name, judged)| {
            let cell = self.landed(&name);
            (name, judged, cell)
        });
        let (mut columns, mut arguments) = (Vec::new(), Vec::new());
        for (name, judged, cell) in partners.chain(landed) {
            columns.push((name, judged));
            arguments.push(cell);
        }
        if columns.is_empty() {
            return lit(ScalarValue::Utf8(None));
        }
        let target = self.spec.target.as_ref();
        // Columns that did not land as texts are read without signs, whatever these are.
        let mut targets = self.spec.targets();
        let signs = targets.find_map(|target| self.signs_of(&target.column));
        let missing = self.missing.clone();
        let mut classes = target.map_or_else(Vec::new, |target| target.classes.clone());
        classes.sort_unstable();
        let judge = Judge {
            columns,
            missing,
            signs,
            classes,
        };
        judge.over(arguments)
    }
}

/// A column of a schema version; nulls where that lacks it. Types that have no function of their own here are text.
pub(crate) fn landed(schema: &RecordSchema, name: &str) -> Expr {
    match schema.columns.iter().find(|column| column.name == name) {
        Some(column) if plain::is_needed(column.r#type) => Plain.over(vec![ident(name)]),
        Some(_) => ident(name),
        None => lit(ScalarValue::Utf8(None)),
    }
}

fn text(cell: Expr) -> Expr {
    Text.over(vec![cell])
}

/// The texts in column `name` of a source that is no part of the dataset, as `named`, `prepared` as documents are, with
/// origins as of source `index`.
pub(crate) fn texts(
    session: &SessionContext,
    source: &Landed,
    index: u64,
    (name, named): (&str, &str),
    prepared: Option<&DocumentConfig>,
) -> Result<DataFrame, Error> {
    let mut all: Option<DataFrame> = None;
    for generation in &source.generations {
        let columns = vec![
            origin(index).alias(system::ORIGIN),
            text(landed(&generation.schema, name)).alias(named),
        ];
        let rows = read(session, source, generation)?;
        let rows = match prepared {
            Some(text) => document::prepared(rows, name, text)?,
            None => rows,
        };
        let rows = rows.select(columns)?;
        all = Some(match all {
            Some(above) => above.union(rows)?,
            None => rows,
        });
    }
    Ok(all.expect("a landed source has at least one row, so at least one file"))
}

pub(crate) fn content_hash<'a>(names: impl Iterator<Item = &'a str>, cells: Cells) -> Expr {
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort();
    if names.is_empty() {
        return lit(ScalarValue::FixedSizeBinary(
            HASH_BYTES,
            Some(Hash128::of(&[]).get().to_be_bytes().to_vec()),
        ));
    }
    let arguments = names.iter().map(ident).collect();
    ContentHash { names, cells }.over(arguments)
}

/// [`feedline_schemas::ids::Origin`] from the landed columns; the log was checked to hold no part that does not fit.
pub(crate) fn origin(source: u64) -> Expr {
    packed(source, record::system::ROW)
}

/// The same of the record that a row of a child table is in.
pub(crate) fn parent() -> Expr {
    packed(0, record::system::PARENT)
}

fn packed(source: u64, row: &str) -> Expr {
    let row = cast(ident(row), DataType::UInt64);
    lit(source << 56) + ident(record::system::SEQUENCE) * lit(1u64 << 24) + row
}
