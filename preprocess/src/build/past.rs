//! Rows of a series with the past of their entities, as the build of the dataset sees them, for
//! inference.
//!
//! Landed rows, or a history in their place, and new rows pass the plan of the build: duplicates
//! are dropped, features are made of earlier rows, windows of consecutive rows. No row is split,
//! and none needs a target. So the numbers equal those that a build makes of the same rows, bit for
//! bit.
//!
//! Rows come by entity and time. Memory holds a batch, one row and, with windows at the end of each
//! entity, `horizon` windows; the sort spills.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch},
    compute::cast,
    datatypes::{DataType, Float64Type, Int64Type, UInt64Type},
};
use datafusion::{
    execution::SendableRecordBatchStream,
    logical_expr::ident,
    prelude::{DataFrame, SessionContext},
};
use feedline_schemas::{
    config::{DatasetConfig, PipelineConfig, SourceConfig, SplitConfig, Task},
    ids::Origin,
    manifest::{KeptColumn, Manifest},
    record::ColumnType,
};
use feedline_storage::Store;
use futures::TryStreamExt;

use super::prepared::Build;
use crate::{
    Context, Error, Fault, Transform, column_roles,
    dataset_spec::DatasetSpec,
    expect::Expect,
    join, kept,
    landed_columns::{self, MergedColumn, find},
    landing::Landed,
    plan,
    reject_reason::Reason,
    scratch::Scratch,
    series::{self, KnownTargets, NaiveLags, Sequence, Windows},
    session, shared,
    superseded::WithSuperseded,
    system_columns::{self, column},
};

/// Bytes of features that are given at a time, unless one row has more.
const BATCH_BYTES: usize = 32 << 20;

/// Rows that are given at a time, at most.
const BATCH_ROWS: usize = 4096;

/// Reasons for a row without a prediction, besides those of the build.
mod reason {
    /// Too few rows of its entity follow one another up to it.
    pub(super) const INCOMPLETE_WINDOW: &str = "incomplete_window";
    /// The build would reject it.
    pub(super) const ROW_REJECTED: &str = "row_rejected";
}

/// Rows in a separate landing zone.
#[derive(Clone, Debug)]
pub struct LandedRows {
    /// Its root.
    pub root: Store,
    /// Source that they landed as.
    pub source: SourceConfig,
}

/// Rows of a series to predict.
#[derive(Clone, Debug, Default)]
pub struct SeriesRequest {
    /// New rows to predict. Without any, the windows end with the last rows of each entity: as many
    /// as the horizon has, so that each row of the next horizon gets one forecast.
    pub rows: Option<LandedRows>,
    /// Past of the entities, in place of the landed rows.
    pub history: Option<LandedRows>,
    /// Passthrough columns, as text.
    pub keep: Vec<String>,
}

/// A batch of rows to predict.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeriesBatch {
    /// Rows, the bad ones included.
    pub rows: usize,
    /// `[rows, numbers]`, row-major, where `numbers` is [`SeriesRows::numbers`]; those of bad rows are 0.
    pub x: Vec<f32>,
    /// Rows that cannot be predicted, by index from 0.
    pub bad: BTreeMap<usize, Fault>,
    /// Cells of [`SeriesRows::kept`], a list for each column.
    pub kept: Vec<Vec<Option<String>>>,
    /// Time of the target row, if the rows of the window are equally spaced; for windows only.
    pub target_times: Vec<Option<String>>,
    /// Last value of the target before it, in its own units; for numbers only.
    pub last: Vec<Option<f64>>,
    /// Latest known value of the target whole seasons before.
    pub season: Vec<Option<f64>>,
}

/// Rows of a series with their past, one batch after another.
pub struct SeriesRows {
    rows: SendableRecordBatchStream,
    transform: Arc<Transform>,
    asked: Asked,
    windows: Option<(Windows, Sequence)>,
    /// Column of the target.
    target: Option<String>,
    /// Targets that are no features: a row that is to be predicted has none.
    unknown: Vec<String>,
    /// The targets before, where they are numbers.
    known: Option<KnownTargets>,
    columns: Vec<KeptColumn>,
    /// Columns of entity and time.
    order: Vec<String>,
    /// The batch at hand, and the row to look at next.
    open: Option<(RowsAtHand, usize)>,
    pace: Pace,
    /// Rows that may be the last ones of the entity.
    last: VecDeque<Answerable>,
    ready: VecDeque<Answerable>,
    ready_bytes: usize,
    /// New rows that have landed, and that have come by.
    new_rows: (u64, u64),
    rejected_before: u64,
    _scratch: Scratch,
}

impl std::fmt::Debug for SeriesRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SeriesRows")
            .field("asked", &self.asked)
            .finish_non_exhaustive()
    }
}

/// Rows that get a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// Those of a source.
    Source(u64),
    /// The last ones of each entity.
    Last(usize),
}

/// A row that is given, or may be.
#[derive(Debug, Default)]
struct Answerable {
    x: Vec<f32>,
    fault: Option<Fault>,
    kept: Vec<Option<String>>,
    target_time: Option<String>,
    naive: [Option<f64>; 2],
}

/// A batch of the plan, and what the transform makes of it.
struct RowsAtHand {
    batch: RecordBatch,
    x: Vec<f32>,
    bad: BTreeMap<usize, Fault>,
    kept: Vec<ArrayRef>,
    targets: Option<ArrayRef>,
}

/// Time between the rows of an entity.
#[derive(Debug, Default)]
struct Pace {
    entity: Vec<u8>,
    time: i64,
    step: i64,
    /// Rows, the last one included, that are equally far apart.
    rows: u64,
}

/// Opens the rows of `request` for the dataset of `manifest`, with the past of their entities.
///
/// # Errors
/// [`Error::Config`] for a pipeline whose dataset is no series, or is not the one that `manifest` was built by; [`Error::Input`]
/// for new rows whose columns are of other types than those that landed; failures of the store, the scratch folder and the
/// engine.
pub async fn series_rows(
    config: &PipelineConfig,
    manifest: &Manifest,
    transform: Arc<Transform>,
    request: SeriesRequest,
    context: &Context,
) -> Result<SeriesRows, Error> {
    // Boxed, as what it awaits: the futures of plans are large.
    Box::pin(open_rows(config, manifest, transform, request, context)).await
}

async fn open_rows(
    config: &PipelineConfig,
    manifest: &Manifest,
    transform: Arc<Transform>,
    request: SeriesRequest,
    context: &Context,
) -> Result<SeriesRows, Error> {
    let mut build = Build::prepared(config, context).await?;
    if build.spec.series.is_none() {
        let reason =
            "new rows have a past in series only; add the section, or predict without `--history`";
        return Err(Error::config("dataset.series", reason));
    }
    if !build.is_built_as(manifest).await? {
        let reason = "it is not the configuration of the dataset, so features could differ from those of the model; \
                      rebuild the dataset (`feedline shards build`), or use the configuration that it was built with";
        return Err(Error::config("dataset", reason));
    }
    let scratch = Scratch::claim(&context.scratch)?;
    let mut roots = Vec::new();
    if let Some(history) = request.history {
        build.replace_history(&history).await?;
        roots.push(history.root);
    }
    let new = match &request.rows {
        Some(rows) => {
            let landed = Landed::read(&rows.root, &rows.source, None).await?;
            check_types(&build.columns, &landed)?;
            roots.push(rows.root.clone());
            Some(landed)
        }
        None => None,
    };
    Box::pin(build.rows_of(new, transform, &request.keep, (scratch, roots))).await
}

impl Build<'_> {
    /// Puts rows of `history` in the place of those that have landed.
    async fn replace_history(&mut self, history: &LandedRows) -> Result<(), Error> {
        if self.query.is_some() || self.dataset.files.is_some() {
            let reason =
                "the past of such rows comes from the query or the files; leave out `--history`";
            return Err(Error::config("dataset", reason));
        }
        let landed = Landed::read(&history.root, &history.source, None).await?;
        check_types(&self.columns, &landed)?;
        self.rows = landed.rows();
        self.sources = vec![landed];
        Ok(())
    }

    async fn rows_of(
        mut self,
        new: Option<Landed>,
        transform: Arc<Transform>,
        keep: &[String],
        (scratch, roots): (Scratch, Vec<Store>),
    ) -> Result<SeriesRows, Error> {
        let sequence = self.sequence();
        if new.is_some() && self.query.is_some() {
            let reason = "rows of a query come from landed rows; land the new rows (`feedline ingest`), and predict \
                          without a file";
            return Err(Error::config("dataset.sql", reason));
        }
        if let Some(query) = &self.query {
            let made = query.run(&self.sources, self.context, &scratch).await?;
            self.made = vec![made];
        }
        let new_columns = new.iter().flat_map(|new| &new.generations);
        let new_columns = landed_columns::merge(new_columns.map(|generation| &generation.schema));
        let kept = self.kept_of(keep, &new_columns)?;
        let mut spec = self.spec_of_past(kept.clone()).await?;
        let mut tables = self.tables().to_vec();
        let new_rows = new.as_ref().map_or(0, Landed::rows);
        let asked = match new {
            Some(new) => {
                let place = tables.len() as u64;
                tables.push(new);
                Asked::Source(place)
            }
            None => match sequence {
                Some(sequence) => Asked::Last(sequence.horizon.max(1) as usize),
                None => {
                    let reason = "a row is predicted by its own columns, too: give a file of the rows to predict";
                    return Err(Error::config("dataset.sequence", reason));
                }
            },
        };
        if let Some(series) = &mut spec.series {
            let names = tables.iter().map(|table| table.reference.name.to_string());
            Arc::make_mut(series).sources = names.collect();
        }
        let session = session::session(
            self.context,
            &scratch.path("spill"),
            spec.inputs.len() + 1,
            None,
            self.joined_bytes(),
        )?;
        for root in roots {
            let (_, store, _) = root.object_store();
            let store = Arc::new(WithSuperseded(store));
            session.register_object_store(shared::url_of(&root)?.as_ref(), store);
        }
        let series = self.spec.series.iter();
        let order = series.flat_map(|series| series.entity.iter().chain([&series.time]));
        let order = order.cloned().collect();
        let rows = in_order_of_time(&session, &tables, &spec).await?;
        let target = spec.target.as_ref();
        // Naive forecasts are of one target.
        let is_number = spec.other_targets.is_empty()
            && target.is_some_and(|target| target.task == Task::Regression);
        let lags = NaiveLags::new(sequence);
        Ok(SeriesRows {
            rows: rows.execute_stream().await?,
            windows: sequence.map(|sequence| {
                let windows = Windows::new(sequence.of_ends(), transform.features());
                (windows, sequence)
            }),
            transform,
            asked,
            target: target.map(|target| target.column.clone()),
            unknown: spec.apart_targets().map(|t| t.column.clone()).collect(),
            known: is_number.then(|| KnownTargets::new(lags)),
            columns: kept,
            order,
            open: None,
            pace: Pace::default(),
            last: VecDeque::new(),
            ready: VecDeque::new(),
            ready_bytes: 0,
            new_rows: (new_rows, 0),
            rejected_before: 0,
            _scratch: scratch,
        })
    }

    /// Columns that are carried along: those of `keep`, the entity's, and the time.
    fn kept_of(&self, keep: &[String], new: &[MergedColumn]) -> Result<Vec<KeptColumn>, Error> {
        let mut all = self.columns.clone();
        let is_known = |name: &str, all: &[MergedColumn]| all.iter().any(|c| c.name == name);
        for column in new {
            if !is_known(&column.name, &all) {
                all.push(column.clone());
            }
        }
        let series = self.spec.series.iter();
        let own = series.flat_map(|series| {
            let time = std::iter::once(&series.time).chain(&series.clock);
            series.entity.iter().chain(time)
        });
        let mut kept: Vec<KeptColumn> = Vec::new();
        for name in keep.iter().chain(own) {
            let found = find("--keep", name, &all)?;
            if kept.iter().all(|column| column.name != *name) {
                kept.push(KeptColumn {
                    name: name.clone(),
                    r#type: found.r#type,
                });
            }
        }
        Ok(kept)
    }

    /// The dataset as it is resolved, without splits, for rows without a target.
    async fn spec_of_past(&self, kept: Vec<KeptColumn>) -> Result<DatasetSpec, Error> {
        let mut config: DatasetConfig = self.dataset.clone();
        if let Some(frozen) = config.split.frozen().cloned()
            && !config.sources.is_empty()
        {
            config.sources.push(frozen);
        }
        config.split = SplitConfig {
            train: 1.0,
            validation: 0.0,
            test: 0.0,
            ..SplitConfig::default()
        };
        config.passthrough = Vec::new();
        let mut merged = match &self.query {
            Some(query) => landed_columns::merge([&query.schema]),
            None => self.columns.clone(),
        };
        let joins = join::resolve(&config, &mut merged, &self.joined)?;
        let mut spec = DatasetSpec {
            joins,
            kept,
            requires_target: false,
            ..column_roles::resolve(&config, &merged)?
        };
        if let Some(expect) = &config.expect {
            spec.expect = Some(Expect::read(expect, &spec, self.context).await?);
        }
        Ok(spec)
    }
}

/// The rows of the plan by entity and time, those that are rejected among them.
async fn in_order_of_time(
    session: &SessionContext,
    tables: &[Landed],
    spec: &DatasetSpec,
) -> Result<DataFrame, Error> {
    let rows = plan::frame(session, tables, spec, None, false).await?.rows;
    let by_time = [series::ENTITY, series::TIME, system_columns::ORIGIN];
    let by_time = by_time.map(|name| ident(name).sort(true, false));
    Ok(rows.sort(Vec::from(by_time))?)
}

/// New rows have columns of the types that landed: a text in place of a number or a time would be read in another way.
fn check_types(known: &[MergedColumn], new: &Landed) -> Result<(), Error> {
    let schemas = new.generations.iter();
    let new = landed_columns::merge(schemas.map(|generation| &generation.schema));
    for column in &new {
        let Some(landed) = known.iter().find(|known| known.name == column.name) else {
            continue;
        };
        let (landed, found) = (landed.r#type, column.r#type);
        let is_one = landed == found
            || [landed, found].contains(&ColumnType::Null)
            || (landed.is_number() && found.is_number());
        if !is_one {
            return Err(Error::input(
                "the rows to predict",
                format!(
                    "column `{}` holds {} here, and {} where it landed",
                    column.name,
                    in_words(found),
                    in_words(landed)
                ),
                "write its values as those that have landed",
            ));
        }
    }
    Ok(())
}

fn in_words(column: ColumnType) -> &'static str {
    match column {
        ColumnType::Null => "nothing",
        ColumnType::Bool => "true and false",
        ColumnType::Int64 | ColumnType::Float64 | ColumnType::Decimal => "numbers",
        ColumnType::Timestamp => "timestamps",
        ColumnType::Utf8 => "text",
        ColumnType::Json => "JSON",
        ColumnType::Binary => "bytes",
        ColumnType::List
        | ColumnType::ListBool
        | ColumnType::ListInt64
        | ColumnType::ListFloat64
        | ColumnType::ListUtf8 => "lists",
    }
}

impl SeriesRows {
    /// Number of values of a row as the model reads it: features, or for a window those of each of
    /// its rows, oldest first.
    #[must_use]
    pub fn numbers(&self) -> usize {
        let rows = self.windows.as_ref().map_or(1, |(_, s)| s.length as usize);
        self.transform.features() * rows
    }

    /// Names of the passthrough columns: the requested ones, the entity's, and the time.
    #[must_use]
    pub fn kept(&self) -> Vec<String> {
        self.columns
            .iter()
            .map(|column| column.name.clone())
            .collect()
    }

    /// Columns that the rows are ordered by: those of the entity, then the time.
    #[must_use]
    pub fn order(&self) -> &[String] {
        &self.order
    }

    /// Rows of a window, and rows from its last one to that of its target; `None` without windows.
    #[must_use]
    pub fn window(&self) -> Option<(u32, u32)> {
        let windows = self.windows.as_ref();
        windows.map(|(_, sequence)| (sequence.length, sequence.horizon))
    }

    /// Returns whether there are naive forecasts from the last value, and from a season.
    #[must_use]
    pub fn naive(&self) -> [bool; 2] {
        let season = self.windows.as_ref().and_then(|(_, s)| s.season);
        [
            self.known.is_some(),
            self.known.is_some() && season.is_some(),
        ]
    }

    /// New rows without a prediction of their own, since they are duplicates of others; final after
    /// the last batch.
    #[must_use]
    pub const fn copies(&self) -> u64 {
        self.new_rows.0.saturating_sub(self.new_rows.1)
    }

    /// Rejected rows of the past; final after the last batch.
    #[must_use]
    pub const fn rejected_before(&self) -> u64 {
        self.rejected_before
    }

    /// The next rows, at least one; `None` at the end.
    ///
    /// # Errors
    /// Failures of the engine and of storage; [`Error::Input`] for rows that cannot be ordered, as
    /// in a build.
    pub async fn next(&mut self) -> Result<Option<SeriesBatch>, Error> {
        loop {
            while let Some((rows, row)) = self.open.take() {
                if row == rows.batch.num_rows() {
                    break;
                }
                self.look_at(&rows, row);
                self.open = Some((rows, row + 1));
                if self.is_full() {
                    return Ok(Some(self.batch()));
                }
            }
            let Some(batch) = self.rows.try_next().await? else {
                self.end_entity();
                return Ok((!self.ready.is_empty()).then(|| self.batch()));
            };
            let rows = self.at_hand(batch)?;
            self.open = Some((rows, 0));
        }
    }

    fn is_full(&self) -> bool {
        self.ready.len() >= BATCH_ROWS || self.ready_bytes >= BATCH_BYTES
    }

    fn at_hand(&self, batch: RecordBatch) -> Result<RowsAtHand, Error> {
        // A row whose target is a feature has to have it, as in a build.
        let inputs = without(&batch, &self.unknown)?;
        let applied = self.transform.apply(&inputs)?;
        let bad = applied.bad.into_iter();
        let bad = bad.map(|(row, reason, detail)| (row, Fault { reason, detail }));
        let kept = self.columns.iter().map(|kept| {
            let cells = column(&batch, &kept::named(kept));
            Ok(cast(cells, &DataType::Utf8)?)
        });
        let target = self.target.as_ref().filter(|_| self.known.is_some());
        let targets = target.map(|target| Arc::clone(column(&batch, target)));
        Ok(RowsAtHand {
            x: applied.x,
            bad: bad.collect(),
            kept: kept.collect::<Result<_, Error>>()?,
            targets,
            batch,
        })
    }

    fn look_at(&mut self, rows: &RowsAtHand, row: usize) {
        let batch = &rows.batch;
        let entity = column(batch, series::ENTITY).as_fixed_size_binary();
        let entity = entity.value(row);
        let cell = |name| {
            let cells = column(batch, name).as_primitive::<Int64Type>();
            cells.is_valid(row).then(|| cells.value(row))
        };
        let (time, place) = (cell(series::TIME), cell(series::PLACE));
        let origin = column(batch, system_columns::ORIGIN).as_primitive::<UInt64Type>();
        let origin = Origin::from_packed(origin.value(row));
        let rejects = column(batch, system_columns::REJECT).as_string::<i32>();
        let rejected = rejects.is_valid(row).then(|| rejected(rejects.value(row)));
        if self.pace.entity != entity {
            self.end_entity();
        }
        let fault = rejected.or_else(|| rows.bad.get(&row).cloned());
        let mut given = self.answerable(rows, row, (entity, time, place), fault);
        let is_asked = match self.asked {
            Asked::Source(place) => origin.source() == place,
            Asked::Last(_) => place.is_some(),
        };
        if !is_asked {
            self.rejected_before += u64::from(given.fault.as_ref().is_some_and(is_rejected));
            return;
        }
        given.kept = rows.kept.iter().map(|cells| text_of(cells, row)).collect();
        match self.asked {
            Asked::Source(_) => {
                self.new_rows.1 += 1;
                self.give(given);
            }
            Asked::Last(count) => {
                self.last.push_back(given);
                if self.last.len() > count {
                    let before = self.last.pop_front();
                    let is_bad = before.and_then(|before| before.fault);
                    self.rejected_before += u64::from(is_bad.as_ref().is_some_and(is_rejected));
                }
            }
        }
    }

    /// The row with its window and naive forecasts, its carried columns left to the caller.
    fn answerable(
        &mut self,
        rows: &RowsAtHand,
        row: usize,
        (entity, time, place): (&[u8], Option<i64>, Option<i64>),
        fault: Option<Fault>,
    ) -> Answerable {
        let features = self.transform.features();
        let numbers = &rows.x[row * features..(row + 1) * features];
        let mut given = Answerable {
            fault,
            ..Answerable::default()
        };
        let Some((place, time)) = place.zip(time) else {
            // It has no place in the series: another row of its time has it, or it has no time.
            given.fault.get_or_insert_with(|| no_place(time));
            self.pace.enter(entity);
            return given;
        };
        self.pace.step(entity, time);
        let target = rows.targets.as_ref().and_then(|targets| {
            let targets = targets.as_primitive::<Float64Type>();
            let target = targets.is_valid(row).then(|| targets.value(row));
            target.filter(|target| target.is_finite())
        });
        let ahead = self
            .windows
            .as_ref()
            .map_or(0, |(_, s)| i64::from(s.horizon));
        // With the window's last row its target is known; that of a row that is itself predicted is not.
        if let Some(known) = &mut self.known {
            if ahead > 0 {
                known.push(entity, place, target);
            }
            given.naive = known.forecasts(entity, place + ahead);
            if ahead == 0 {
                known.push(entity, place, target);
            }
        }
        let Some((windows, sequence)) = &mut self.windows else {
            given.x.extend_from_slice(numbers);
            return given;
        };
        let good = given.fault.is_none().then_some(numbers);
        let is_whole = windows.step(entity, place, good, &mut given.x);
        if !is_whole && given.fault.is_none() {
            given.fault = Some(incomplete(*sequence));
        }
        given.target_time = self.pace.ahead(*sequence);
        given
    }

    fn end_entity(&mut self) {
        while let Some(given) = self.last.pop_front() {
            self.give(given);
        }
    }

    fn give(&mut self, given: Answerable) {
        self.ready_bytes += self.numbers() * size_of::<f32>();
        self.ready.push_back(given);
    }

    fn batch(&mut self) -> SeriesBatch {
        let numbers = self.numbers();
        let mut batch = SeriesBatch {
            kept: vec![Vec::new(); self.columns.len()],
            ..SeriesBatch::default()
        };
        for mut given in std::mem::take(&mut self.ready) {
            given.x.resize(numbers, 0.0);
            if given.fault.is_some() {
                given.x.fill(0.0);
            }
            batch.x.append(&mut given.x);
            for (cells, cell) in batch.kept.iter_mut().zip(given.kept) {
                cells.push(cell);
            }
            batch
                .bad
                .extend(given.fault.map(|fault| (batch.rows, fault)));
            batch.target_times.push(given.target_time);
            let [last, season] = given.naive;
            batch.last.push(last);
            batch.season.push(season);
            batch.rows += 1;
        }
        self.ready_bytes = 0;
        batch
    }
}

impl Pace {
    fn enter(&mut self, entity: &[u8]) {
        if self.entity != entity {
            self.entity.clear();
            self.entity.extend_from_slice(entity);
            self.rows = 0;
        }
    }

    fn step(&mut self, entity: &[u8], time: i64) {
        self.enter(entity);
        let step = time.saturating_sub(self.time);
        self.rows = match self.rows {
            0 => 1,
            1 => 2,
            rows if step == self.step => rows + 1,
            _ => 2,
        };
        (self.step, self.time) = (step, time);
    }

    /// The time of the row that a window which ends with the last one predicts.
    fn ahead(&self, sequence: Sequence) -> Option<String> {
        if sequence.horizon == 0 {
            return Some(series::shown(self.time));
        }
        let is_even = self.rows >= u64::from(sequence.length.max(2));
        let ahead = self.step.checked_mul(i64::from(sequence.horizon));
        let at = ahead.and_then(|ahead| self.time.checked_add(ahead));
        at.filter(|_| is_even).map(series::shown)
    }
}

fn rejected(json: &str) -> Fault {
    let Reason {
        reason,
        column,
        value,
    } = Reason::from_json(json);
    let of = match column.is_empty() {
        true => String::new(),
        false => format!("column `{column}`: "),
    };
    Fault {
        reason: reason::ROW_REJECTED,
        detail: format!("`{reason}`: {of}`{value}`"),
    }
}

fn is_rejected(fault: &Fault) -> bool {
    fault.reason != reason::INCOMPLETE_WINDOW
}

fn no_place(time: Option<i64>) -> Fault {
    let detail = match time {
        Some(time) => format!(
            "another row of its entity at {} counts",
            series::shown(time)
        ),
        None => "its time cannot be read".to_owned(),
    };
    Fault {
        reason: reason::ROW_REJECTED,
        detail,
    }
}

fn incomplete(sequence: Sequence) -> Fault {
    Fault {
        reason: reason::INCOMPLETE_WINDOW,
        detail: format!(
            "fewer than {} usable rows of its entity follow one another up to it",
            sequence.length
        ),
    }
}

fn text_of(cells: &ArrayRef, row: usize) -> Option<String> {
    let cells = cells.as_string::<i32>();
    cells.is_valid(row).then(|| cells.value(row).to_owned())
}

/// `batch` without the columns `names`.
fn without(batch: &RecordBatch, names: &[String]) -> Result<RecordBatch, Error> {
    let others: Vec<usize> = (0..batch.num_columns())
        .filter(|place| !names.contains(batch.schema().field(*place).name()))
        .collect();
    Ok(batch.project(&others)?)
}
