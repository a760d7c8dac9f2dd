//! Batches of rows of a series, each with the features or the window that a model reads.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch},
    compute::cast,
    datatypes::{DataType, Float64Type, Int64Type, UInt64Type},
};
use datafusion::execution::SendableRecordBatchStream;
use feedline_schemas::{config::Task, ids::Origin, manifest::KeptColumn, report::Warning};
use futures::TryStreamExt;

use super::{
    SeriesBatch,
    asked_rows::AskedRows,
    faults::{has_same_time, incomplete, is_rejected, no_place, rejected},
    local_new_times::LocalNewTimes,
    new_entities::NewEntities,
    pace::{Pace, undated_warning},
    window_cells::{NewestCells, WindowCells},
};
use crate::{
    Error, Fault, Transform, UnusualCells,
    engine::scratch::Scratch,
    operators::{
        passthrough_columns,
        time_series::{self, KnownTargets, NaiveLags, Sequence, Windows},
    },
    predict::passthrough_type::PassthroughType,
    schema::{
        dataset_spec::DatasetSpec,
        system_columns::{self, column},
    },
};

/// Bytes of features that are given at a time, unless one row has more.
const BATCH_BYTES: usize = 32 << 20;

/// Rows that are given at a time, at most.
const BATCH_ROWS: usize = 4096;

/// Rows of a series with their past, one batch after another.
pub struct SeriesRows {
    rows: SendableRecordBatchStream,
    transform: Arc<Transform>,
    asked: AskedRows,
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
    /// Windows that are given, and those without the time of the predicted row.
    forecasts: u64,
    undated: u64,
    /// Rows that may be the last ones of the entity.
    last: VecDeque<PredictedRow>,
    ready: VecDeque<PredictedRow>,
    ready_bytes: usize,
    /// New rows that have landed, and that have come by.
    new_rows: (u64, u64),
    /// Number in the file of the row that each batch of new rows begins with.
    starts: Vec<u64>,
    rejected_before: u64,
    /// Time of the last row of its entity, and the rows of the past there that are rejected since another row counts.
    same_time: (Option<i64>, u64),
    /// New rows that are rejected since another row of their time counts.
    new_same_time: u64,
    /// True if a history may replace the landed rows.
    takes_history: bool,
    local_times: Option<LocalNewTimes>,
    entities: Option<NewEntities>,
    /// Needed columns that no new row has.
    absent: Vec<String>,
    /// Unusual cells of the rows at hand.
    newest: NewestCells,
    _scratch: Scratch,
}

impl std::fmt::Debug for SeriesRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SeriesRows")
            .field("asked", &self.asked)
            .finish_non_exhaustive()
    }
}

/// A row that is given, or may be.
#[derive(Debug, Default)]
struct PredictedRow {
    /// Number of a new row in its file.
    number: u64,
    x: Vec<f32>,
    fault: Option<Fault>,
    kept: Vec<Option<String>>,
    target_time: Option<String>,
    naive: [Option<f64>; 2],
    cells: WindowCells,
}

/// A batch of the plan, and what the transform makes of it.
struct RowsAtHand {
    batch: RecordBatch,
    x: Vec<f32>,
    bad: BTreeMap<usize, Fault>,
    kept: Vec<ArrayRef>,
    targets: Option<ArrayRef>,
    unusual: UnusualCells,
}

impl RowsAtHand {
    /// Target of a row, if it is a finite number.
    fn target(&self, row: usize) -> Option<f64> {
        let targets = self.targets.as_ref()?.as_primitive::<Float64Type>();
        let target = targets.is_valid(row).then(|| targets.value(row));
        target.filter(|target| target.is_finite())
    }
}

/// Rows of the plan by entity and time, with what is known before the first of them is read.
pub(super) struct OpenedRows {
    pub(super) rows: SendableRecordBatchStream,
    pub(super) asked: AskedRows,
    /// Passthrough columns.
    pub(super) columns: Vec<KeptColumn>,
    /// Columns of entity and time.
    pub(super) order: Vec<String>,
    /// New rows that have landed.
    pub(super) new_rows: u64,
    /// Number in the file of the row that each batch of new rows begins with.
    pub(super) starts: Vec<u64>,
    /// Needed columns that no new row has.
    pub(super) absent: Vec<String>,
    /// Counter of entities that only new rows have, if they are counted.
    pub(super) entities: Option<NewEntities>,
    /// True if a history may replace the landed rows.
    pub(super) takes_history: bool,
    pub(super) scratch: Scratch,
}

impl SeriesRows {
    pub(super) fn new(
        opened: OpenedRows,
        spec: &DatasetSpec,
        transform: Arc<Transform>,
        sequence: Option<Sequence>,
    ) -> Self {
        let target = spec.target.as_ref();
        // Naive forecasts are of one target.
        let is_number = spec.other_targets.is_empty()
            && target.is_some_and(|target| target.task == Task::Regression);
        let lags = NaiveLags::new(sequence);
        Self {
            rows: opened.rows,
            local_times: LocalNewTimes::of(spec, &opened.columns),
            windows: sequence.map(|sequence| {
                let windows = Windows::new(sequence.of_ends(), transform.features());
                (windows, sequence)
            }),
            transform,
            asked: opened.asked,
            target: target.map(|target| target.column.clone()),
            unknown: spec.apart_targets().map(|t| t.column.clone()).collect(),
            known: is_number.then(|| KnownTargets::new(lags)),
            columns: opened.columns,
            order: opened.order,
            open: None,
            pace: Pace::of(spec, sequence),
            forecasts: 0,
            undated: 0,
            last: VecDeque::new(),
            ready: VecDeque::new(),
            ready_bytes: 0,
            new_rows: (opened.new_rows, 0),
            starts: opened.starts,
            rejected_before: 0,
            same_time: (None, 0),
            new_same_time: 0,
            takes_history: opened.takes_history,
            entities: opened.entities,
            absent: opened.absent,
            newest: NewestCells::new(sequence.map_or(1, |sequence| sequence.length)),
            _scratch: opened.scratch,
        }
    }

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

    /// Types of the passthrough columns, in their order.
    #[must_use]
    pub fn passthrough_types(&self) -> Vec<PassthroughType> {
        let columns = self.columns.iter();
        columns
            .map(|column| PassthroughType::of(column.r#type))
            .collect()
    }

    /// Warning of new rows with a local time that clocks show twice; final after the last batch.
    #[must_use]
    pub fn repeated_times(&self) -> Option<Warning> {
        let times = self.local_times.as_ref();
        times.and_then(LocalNewTimes::warning)
    }

    /// Warning of entities that only new rows have; final after the last batch.
    #[must_use]
    pub fn unknown_entities(&self) -> Option<Warning> {
        self.entities.as_ref().and_then(NewEntities::warning)
    }

    /// Warning of forecasts without the time of the predicted row; final after the last batch.
    #[must_use]
    pub fn undated_forecasts(&self) -> Option<Warning> {
        let (_, sequence) = self.windows.as_ref()?;
        undated_warning(self.undated, self.forecasts, *sequence)
    }

    /// Columns that the dataset needs and no new row has, of a file whose format does not list its columns.
    #[must_use]
    pub fn absent(&self) -> &[String] {
        &self.absent
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

    /// Rejected rows of the past, without those that new rows replace; final after the last batch.
    #[must_use]
    pub const fn rejected_before(&self) -> u64 {
        self.rejected_before
    }

    /// New rows that are rejected since another row of their entity at their time counts; final after the last batch.
    #[must_use]
    pub const fn new_same_time(&self) -> u64 {
        self.new_same_time
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
                if let Some(entities) = &mut self.entities {
                    entities.close();
                }
                return Ok((!self.ready.is_empty()).then(|| self.batch()));
            };
            let rows = self.at_hand(batch)?;
            self.open = Some((rows, 0));
        }
    }

    fn is_full(&self) -> bool {
        self.ready.len() >= BATCH_ROWS || self.ready_bytes >= BATCH_BYTES
    }

    /// A batch of the plan, transformed.
    fn at_hand(&self, batch: RecordBatch) -> Result<RowsAtHand, Error> {
        // A row whose target is a feature has to have it, as in a build.
        let inputs = without(&batch, &self.unknown)?;
        let applied = self.transform.apply(&inputs)?;
        let bad = applied.bad.into_iter();
        let bad = bad.map(|(row, reason, detail)| (row, Fault::new(reason, detail)));
        let bad: BTreeMap<usize, Fault> = bad.collect();
        let inputs = inputs_of(&inputs, &self.transform)?;
        let unusual = UnusualCells::of(&inputs, &bad, &self.transform, applied.unknown)?;
        let kept = self.columns.iter().map(|kept| {
            let cells = column(&batch, &passthrough_columns::named(kept));
            Ok(cast(cells, &DataType::Utf8)?)
        });
        let target = self.target.as_ref().filter(|_| self.known.is_some());
        let targets = target.map(|target| Arc::clone(column(&batch, target)));
        Ok(RowsAtHand {
            x: applied.x,
            bad,
            kept: kept.collect::<Result<_, Error>>()?,
            targets,
            unusual,
            batch,
        })
    }

    fn look_at(&mut self, rows: &RowsAtHand, row: usize) {
        let batch = &rows.batch;
        let entity = column(batch, time_series::ENTITY).as_fixed_size_binary();
        let entity = entity.value(row);
        let cell = |name| {
            let cells = column(batch, name).as_primitive::<Int64Type>();
            cells.is_valid(row).then(|| cells.value(row))
        };
        let (time, place) = (cell(time_series::TIME), cell(time_series::PLACE));
        let origin = column(batch, system_columns::ORIGIN).as_primitive::<UInt64Type>();
        let origin = Origin::from_packed(origin.value(row));
        let rejects = column(batch, system_columns::REJECT).as_string::<i32>();
        let reject = rejects.is_valid(row).then(|| rejects.value(row));
        let rejected = reject.map(|json| rejected(json, self.takes_history));
        self.enter(entity, time);
        let fault = rejected.or_else(|| rows.bad.get(&row).cloned());
        let mut given = self.predicted_row(rows, row, (entity, time, place), fault);
        let is_asked = match self.asked {
            AskedRows::Source(place) => origin.source() == place,
            AskedRows::Last(_) => place.is_some(),
        };
        if !is_asked {
            self.count_past(given.fault.as_ref(), reject);
            if let Some(entities) = &mut self.entities {
                entities.add_past(entity);
            }
            return;
        }
        self.new_same_time += u64::from(reject.is_some_and(has_same_time));
        given.kept = rows.kept.iter().map(|cells| text_of(cells, row)).collect();
        if given.fault.is_none() {
            given.cells = self.newest.of_window();
        }
        match self.asked {
            AskedRows::Source(_) => self.give_new(given, (entity, place), origin),
            AskedRows::Last(count) => self.hold(given, count),
        }
    }

    /// Moves to a row of `entity` at `time`.
    fn enter(&mut self, entity: &[u8], time: Option<i64>) {
        let is_other = self.pace.entity != entity;
        if is_other {
            self.end_entity();
        }
        if is_other || self.same_time.0 != time {
            self.same_time = (time, 0);
        }
    }

    /// Counts a row of the past that a build rejects for its `fault`, which is that of its `reject` if it
    /// has one.
    fn count_past(&mut self, fault: Option<&Fault>, reject: Option<&str>) {
        let is_counted = fault.is_some_and(is_rejected);
        self.rejected_before += u64::from(is_counted);
        self.same_time.1 += u64::from(reject.is_some_and(has_same_time));
    }

    /// Gives a new row of `entity` with its number in the file. With a `place` in the series, it counts
    /// instead of the landed rows of its time.
    fn give_new(
        &mut self,
        mut given: PredictedRow,
        (entity, place): (&[u8], Option<i64>),
        origin: Origin,
    ) {
        if place.is_some() {
            self.rejected_before -= std::mem::take(&mut self.same_time.1);
        }
        let batch = usize::try_from(origin.sequence().get()).unwrap_or(usize::MAX);
        given.number = self.starts.get(batch).copied().unwrap_or(0) + origin.row();
        if let Some(times) = &mut self.local_times {
            times.note(given.number, &given.kept);
        }
        if let (Some(entities), None) = (&mut self.entities, &given.fault) {
            entities.add_new(entity, &given.kept);
        }
        self.new_rows.1 += 1;
        self.give(given);
    }

    /// Holds the last `count` rows of the entity.
    fn hold(&mut self, given: PredictedRow, count: usize) {
        self.last.push_back(given);
        if self.last.len() > count {
            let before = self.last.pop_front();
            let is_bad = before.and_then(|before| before.fault);
            self.rejected_before += u64::from(is_bad.as_ref().is_some_and(is_rejected));
        }
    }

    /// Naive forecasts for a row whose own `target` is then known, if it is a finite number.
    fn forecast(&mut self, entity: &[u8], place: i64, target: Option<f64>) -> [Option<f64>; 2] {
        let windows = self.windows.as_ref();
        let ahead = windows.map_or(0, |(_, s)| i64::from(s.horizon));
        let Some(known) = &mut self.known else {
            return Default::default();
        };
        // With the window's last row its target is known; that of a row that is itself predicted is not.
        if ahead > 0 {
            known.push(entity, place, target);
        }
        let forecasts = known.forecasts(entity, place + ahead);
        if ahead == 0 {
            known.push(entity, place, target);
        }
        forecasts
    }

    /// The row with its window and naive forecasts, its carried columns left to the caller.
    fn predicted_row(
        &mut self,
        rows: &RowsAtHand,
        row: usize,
        (entity, time, place): (&[u8], Option<i64>, Option<i64>),
        fault: Option<Fault>,
    ) -> PredictedRow {
        let features = self.transform.features();
        let numbers = &rows.x[row * features..(row + 1) * features];
        let mut given = PredictedRow {
            fault,
            ..PredictedRow::default()
        };
        let Some((place, time)) = place.zip(time) else {
            // It has no place in the series: another row of its time has it, or it has no time.
            given.fault.get_or_insert_with(|| no_place(time));
            self.pace.enter(entity);
            return given;
        };
        self.pace.step(entity, time);
        self.newest.step(entity, place, (row, &rows.unusual));
        given.naive = self.forecast(entity, place, rows.target(row));
        let Some((windows, sequence)) = &mut self.windows else {
            given.x.extend_from_slice(numbers);
            return given;
        };
        let good = given.fault.is_none().then_some(numbers);
        let is_whole = windows.step(entity, place, good, &mut given.x);
        if !is_whole && given.fault.is_none() {
            given.fault = Some(incomplete(*sequence));
        }
        given.target_time = self.pace.ahead();
        given
    }

    fn end_entity(&mut self) {
        while let Some(given) = self.last.pop_front() {
            self.give(given);
        }
    }

    fn give(&mut self, given: PredictedRow) {
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
            match given.fault {
                Some(_) => given.x.fill(0.0),
                None => {
                    self.forecasts += 1;
                    self.undated += u64::from(given.target_time.is_none());
                    given.cells.add_to(batch.rows, &mut batch.unusual);
                }
            }
            batch.x.append(&mut given.x);
            for (cells, cell) in batch.kept.iter_mut().zip(given.kept) {
                cells.push(cell);
            }
            batch
                .bad
                .extend(given.fault.map(|fault| (batch.rows, fault)));
            batch.row_numbers.push(given.number);
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

fn text_of(cells: &ArrayRef, row: usize) -> Option<String> {
    let cells = cells.as_string::<i32>();
    cells.is_valid(row).then(|| cells.value(row).to_owned())
}

/// The columns of `batch` that are inputs of `transform`.
fn inputs_of(batch: &RecordBatch, transform: &Transform) -> Result<RecordBatch, Error> {
    let schema = batch.schema();
    let is_input = |name: &str| {
        let mut inputs = transform.artefact().inputs.iter();
        inputs.any(|input| input.name == name)
    };
    let fields = schema.fields().iter().enumerate();
    let inputs = fields.filter(|(_, field)| is_input(field.name()));
    let places: Vec<usize> = inputs.map(|(place, _)| place).collect();
    Ok(batch.project(&places)?)
}

/// `batch` without the columns `names`.
fn without(batch: &RecordBatch, names: &[String]) -> Result<RecordBatch, Error> {
    let others: Vec<usize> = (0..batch.num_columns())
        .filter(|place| !names.contains(batch.schema().field(*place).name()))
        .collect();
    Ok(batch.project(&others)?)
}
