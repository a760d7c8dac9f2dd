//! Operator that adds features to the rows of all series, one after another.

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayRef, AsArray, FixedSizeBinaryArray, Float64Array, Float64Builder, Int64Array,
        Int64Builder, RecordBatch, StringArray,
    },
    compute::{cast, concat_batches},
    datatypes::{DataType, Float64Type, Int64Type, SchemaRef, UInt8Type, UInt64Type},
};
use datafusion::{
    catalog::streaming::StreamingTable,
    error::{DataFusionError, Result as EngineResult},
    execution::{
        SendableRecordBatchStream, TaskContext,
        memory_pool::{MemoryConsumer, MemoryReservation},
    },
    logical_expr::{Partitioning, SortExpr, ident, lit},
    physical_plan::{stream::RecordBatchStreamAdapter, streaming::PartitionStream},
    prelude::{DataFrame, SessionContext},
};
use feedline_schemas::{
    config::{AmbiguousTime, Gaps, SameTime},
    ids::Origin,
    number,
};
use futures::{TryStreamExt, stream};

use super::{
    clock_changes::ClockChangeCounter,
    features::{ENTITY, RESERVED, Series, TARGET_ONLY, TIME},
    instant,
    long_steps::StepCounter,
    window::{Row, State},
    windowless::WindowlessCounter,
};
use crate::{
    Error,
    operators::passthrough_columns,
    schema::{
        reject_reason::{self, Reason},
        system_columns::{self, column},
    },
};

/// Places that a gap takes: more than any window or naive forecast counts back.
const GAP_PLACES: i64 = 1 << 32;

impl Series {
    /// `rows` with the features and [`REACH`](super::features::REACH), without what they are made of.
    ///
    /// # Errors
    /// Failures of the engine; those of the rows come when they are read.
    pub(crate) fn onto(
        self: &Arc<Self>,
        session: &SessionContext,
        rows: DataFrame,
    ) -> Result<DataFrame, Error> {
        let input = rows.schema().as_arrow().clone();
        let schema = Arc::new(self.schema(&input));
        let newest_first = self.duplicates == SameTime::Last;
        let mut order = vec![ident(ENTITY).sort(true, true), ident(TIME).sort(true, true)];
        order.extend(self.order_of_instant(newest_first));
        order.push(ident(system_columns::ORIGIN).sort(!newest_first, false));
        let sorted = rows.sort(order)?;
        let partition = Sorted {
            frame: sorted,
            schema: Arc::clone(&schema),
            series: Arc::clone(self),
        };
        let table = StreamingTable::try_new(schema, vec![Arc::new(partition)])?;
        let rows = session.read_table(Arc::new(table))?;
        let partitions = session.state().config().target_partitions();
        Ok(rows.repartition(Partitioning::RoundRobinBatch(partitions))?)
    }

    /// Sort keys of the rows of an instant before that of their origin: usable rows come first.
    fn order_of_instant(&self, newest_first: bool) -> Vec<SortExpr> {
        let is_rejected = ident(system_columns::REJECT).is_not_null();
        let asked = self.asked_source;
        let asked = asked.and_then(|asked| Origin::pack(asked, 0, 0));
        let is_asked = asked.map(|first| ident(system_columns::ORIGIN).gt_eq(lit(first.packed())));
        if !self.joins_instants() {
            let mut order = vec![is_rejected.sort(true, false)];
            if let Some(is_asked) = is_asked.filter(|_| self.asked_replace_landed) {
                order.push(is_asked.sort(false, false));
                // Of several new versions the last one is the latest.
                order.push(ident(system_columns::ORIGIN).sort(false, false));
            }
            return order;
        }
        // Rows without a target are usable where rows are predicted; in both cases they come after
        // those with one, and before all others.
        let lacks_target = ident(TARGET_ONLY);
        let is_unusable = is_rejected.and(lacks_target.clone().is_not_true());
        let mut order = vec![is_unusable.sort(true, false)];
        if let Some(is_asked) = is_asked {
            // Rows to predict, those of the last source, need no target, so the past with a target has no
            // precedence over them. Among themselves, those with a target come first.
            let is_past = is_asked.clone().is_not_true();
            order.push(lacks_target.clone().and(is_past).sort(true, false));
            order.push(is_asked.sort(!newest_first, false));
        }
        order.push(lacks_target.sort(true, false));
        order
    }
}

/// Rows in order, with their features.
#[derive(Debug)]
struct Sorted {
    frame: DataFrame,
    schema: SchemaRef,
    series: Arc<Series>,
}

impl PartitionStream for Sorted {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let frame = self.frame.clone();
        let rows = stream::once(async move { frame.execute_stream().await }).try_flatten();
        let held = MemoryConsumer::new("series").register(context.memory_pool());
        let operator = Operator::new(Arc::clone(&self.series), Arc::clone(&self.schema));
        let start = (Box::pin(rows), Some((operator, held)));
        let made = stream::try_unfold(start, |(mut rows, going)| async move {
            let Some((mut operator, held)) = going else {
                return Ok::<_, DataFusionError>(None);
            };
            while let Some(batch) = rows.try_next().await? {
                let made = operator.take(batch)?;
                operator.reserve(&held)?;
                if let Some(made) = made {
                    return Ok(Some((made, (rows, Some((operator, held))))));
                }
            }
            let last = operator.finish()?;
            Ok(last.map(|last| (last, (rows, None))))
        });
        Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            made,
        ))
    }
}

/// Makes features row by row.
pub(super) struct Operator {
    series: Arc<Series>,
    schema: SchemaRef,
    states: Vec<State>,
    /// Entity of the rows that came last.
    entity: Option<Vec<u8>>,
    /// The last row of it: place, time and origin.
    last: Option<(i64, i64, u64)>,
    /// Its place among all rows of the entity, gaps counted.
    number: i64,
    /// Rows whose time may continue in the next batch, where their means are wanted.
    open: Option<RecordBatch>,
    /// Counter of steps from row to row, where something counts rows.
    steps: Option<StepCounter>,
    /// Counter of rows that look back over a day of another length, where spans are of days.
    clock_changes: Option<ClockChangeCounter>,
    /// Counter of entities without a window, where windows are the samples.
    windowless: Option<WindowlessCounter>,
}

impl Operator {
    pub(super) fn new(series: Arc<Series>, schema: SchemaRef) -> Self {
        let features = series.features.iter();
        let counts_rows = series.counts_rows();
        let steps = counts_rows.then(|| StepCounter::new(series.time_zone()));
        Self {
            clock_changes: ClockChangeCounter::of(&series),
            windowless: WindowlessCounter::of(&series),
            states: features
                .map(|feature| feature.state(&series.instant))
                .collect(),
            series,
            schema,
            entity: None,
            last: None,
            number: -1,
            open: None,
            steps,
        }
    }

    /// The rows of the next batch that are ready.
    pub(super) fn take(&mut self, batch: RecordBatch) -> Result<Option<RecordBatch>, Error> {
        if self.series.duplicates != SameTime::Mean {
            return self.features(&batch).map(Some);
        }
        let batch = match self.open.take() {
            Some(open) => concat_batches(&batch.schema(), [&open, &batch])?,
            None => batch,
        };
        let instants = Instants::new(&batch);
        let start = (1..batch.num_rows())
            .rev()
            .find(|row| !instants.are_one(row - 1, *row))
            .unwrap_or(0);
        self.open = Some(batch.slice(start, batch.num_rows() - start));
        if start == 0 {
            return Ok(None);
        }
        let means = averaged(&batch.slice(0, start), &self.series)?;
        self.features(&means).map(Some)
    }

    /// The rows that are left.
    pub(super) fn finish(&mut self) -> Result<Option<RecordBatch>, Error> {
        let last = match self.open.take() {
            Some(open) => {
                let means = averaged(&open, &self.series)?;
                Some(self.features(&means)?)
            }
            None => None,
        };
        if let Some(steps) = &mut self.steps {
            self.series.long_steps.set(steps.finish());
        }
        if let Some(changes) = &mut self.clock_changes {
            self.series.clock_changes.set(changes.finish());
        }
        if let Some(windowless) = &mut self.windowless {
            self.series.windowless.set(windowless.finish());
        }
        Ok(last)
    }

    /// Accounts for what is held between two batches.
    fn reserve(&self, held: &MemoryReservation) -> EngineResult<()> {
        let states: usize = self.states.iter().map(State::bytes).sum();
        let open = self
            .open
            .as_ref()
            .map_or(0, RecordBatch::get_array_memory_size);
        held.try_resize(states + open)
    }

    fn features(&mut self, batch: &RecordBatch) -> Result<RecordBatch, Error> {
        let rows = batch.num_rows();
        let entities = column(batch, ENTITY).as_fixed_size_binary();
        let times = column(batch, TIME).as_primitive::<Int64Type>();
        let origins = column(batch, system_columns::ORIGIN).as_primitive::<UInt64Type>();
        let rejects = column(batch, system_columns::REJECT);
        let series = Arc::clone(&self.series);
        let values: Vec<&Float64Array> = (0..series.of.len())
            .map(|place| column(batch, &Series::column_of(place)).as_primitive::<Float64Type>())
            .collect();
        let mut made: Vec<Float64Builder> = series
            .features
            .iter()
            .map(|_| Float64Builder::with_capacity(rows))
            .collect();
        let mut reaches = Int64Builder::with_capacity(rows);
        let mut places = Int64Builder::with_capacity(rows);
        let mut copies = vec![false; rows];
        for (row, copy) in copies.iter_mut().enumerate() {
            let at = times.is_valid(row).then(|| times.value(row));
            let place = match at {
                Some(time) => {
                    let of = || entity_of(&series, batch, row);
                    self.place(entities.value(row), of, time, origins.value(row))?
                }
                None => None,
            };
            let (Some(time), Some(ordinal)) = (at, place) else {
                *copy = at.is_some();
                made.iter_mut().for_each(Float64Builder::append_null);
                reaches.append_null();
                places.append_null();
                continue;
            };
            if let Some(windowless) = &mut self.windowless {
                let of = || entity_of(&series, batch, row);
                windowless.add(entities.value(row), self.number, rejects.is_null(row), of);
            }
            let mut reach: Option<i64> = None;
            for ((feature, state), made) in
                series.features.iter().zip(&mut self.states).zip(&mut made)
            {
                let value = feature.of.and_then(|of| {
                    let values = values[of];
                    values.is_valid(row).then(|| values.value(row))
                });
                let said = state.step(Row {
                    ordinal,
                    time,
                    value: value.filter(|value| !value.is_nan()),
                });
                made.append_option(said.value);
                reach = reach.into_iter().chain(said.reach).min();
            }
            reaches.append_option(reach);
            places.append_value(self.number);
        }
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        for (field, cells) in batch.schema().fields().iter().zip(batch.columns()) {
            match field.name().as_str() {
                name if series.is_of(name) => {}
                system_columns::REJECT => columns.push(marked(cells, &copies, times)),
                _ => columns.push(Arc::clone(cells)),
            }
        }
        columns.extend(
            made.iter_mut()
                .map(|made| Arc::new(made.finish()) as ArrayRef),
        );
        columns.push(Arc::new(reaches.finish()));
        columns.push(Arc::new(places.finish()));
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }

    /// Position of the next row in its series; `None` for a row with the time of the row before.
    fn place(
        &mut self,
        entity: &[u8],
        of: impl Fn() -> String,
        time: i64,
        origin: u64,
    ) -> Result<Option<i64>, Error> {
        if self.entity.as_deref() != Some(entity) {
            self.entity = Some(entity.to_vec());
            self.number = -1;
            if let Some(steps) = &mut self.steps {
                steps.end_entity();
            }
            if let Some(changes) = &mut self.clock_changes {
                changes.end_entity();
            }
            self.begin();
        }
        let ordinal = match self.last {
            Some((_, last, before)) if last == time => {
                // A row to predict is rejected alone, since the dataset is without it.
                let has_asked = self.series.is_asked(before) || self.series.is_asked(origin);
                if self.series.duplicates == SameTime::Error && !has_asked {
                    return Err(same_time(&of(), time, [before, origin], &self.series));
                }
                return Ok(None);
            }
            Some((_, last, before)) if self.is_gap(time, last) => {
                if let Some((_, Gaps::Error)) = self.series.max_gap {
                    let sources = &self.series.sources;
                    return Err(gap(&of(), [last, time], [before, origin], sources));
                }
                self.begin();
                self.number = self.number.saturating_add(GAP_PLACES);
                0
            }
            Some((ordinal, last, _)) => {
                if let Some(steps) = &mut self.steps {
                    steps.add(last, time);
                }
                ordinal + 1
            }
            None => 0,
        };
        if let Some(changes) = &mut self.clock_changes {
            changes.add(time);
        }
        self.number = self.number.saturating_add(1);
        self.last = Some((ordinal, time, origin));
        Ok(Some(ordinal))
    }

    fn is_gap(&self, time: i64, last: i64) -> bool {
        let longest = self.series.max_gap.map(|(longest, _)| longest);
        longest.is_some_and(|longest| time.saturating_sub(last) > longest)
    }

    fn begin(&mut self) {
        self.last = None;
        self.states.iter_mut().for_each(State::restart);
    }
}

/// The entity of a row in brackets, as far as the rows have its columns on their way; else nothing.
fn entity_of(series: &Series, batch: &RecordBatch, row: usize) -> String {
    let cells = series.entity.iter().filter_map(|name| {
        let kept = passthrough_columns::in_plan(name);
        let found = batch.column_by_name(name);
        let cell = found.or_else(|| batch.column_by_name(&kept))?.slice(row, 1);
        // Features are floats, and those of an entity mostly integers that landed.
        let integer = cell.as_primitive_opt::<Float64Type>();
        let integer = integer.filter(|cell| cell.is_valid(0));
        if let Some(integer) = integer.and_then(|cell| number::whole(cell.value(0))) {
            return Some(format!("{name} = `{integer}`"));
        }
        let cell = cast(&cell, &DataType::Utf8).ok()?;
        let cell = cell.as_string_opt::<i32>()?;
        let shown = cell
            .is_valid(0)
            .then(|| format!("{name} = `{}`", cell.value(0)));
        Some(shown.unwrap_or_else(|| format!("{name} = null")))
    });
    match cells.collect::<Vec<_>>().as_slice() {
        [] => String::new(),
        cells => format!(" ({})", cells.join(", ")),
    }
}

fn place_of(origin: u64, sources: &[String]) -> String {
    let origin = Origin::from_packed(origin);
    let (source, sequence, row) = (origin.source(), origin.sequence(), origin.row());
    let name = usize::try_from(source).ok().and_then(|i| sources.get(i));
    let source = name.map_or_else(|| format!("source {source}"), |name| format!("`{name}`"));
    format!("row {row} of batch {sequence} of {source}")
}

fn same_time(of: &str, time: i64, [before, origin]: [u64; 2], series: &Series) -> Error {
    let Series {
        instant, sources, ..
    } = series;
    let found = format!(
        "two rows of one entity{of} are at {} ({} and {})",
        instant::shown(time),
        place_of(before, sources),
        place_of(origin, sources)
    );
    let (what, choice) = (
        "the rows as a series",
        "say which of them counts with `dataset.series.duplicates` (`first`, `last` or `mean`), or name the columns that \
         tell entities apart in `dataset.series.entity`",
    );
    let read_as = match instant.reading() {
        AmbiguousTime::Earlier => "earlier",
        AmbiguousTime::Later => "later",
        AmbiguousTime::Reject => return Error::input(what, found, choice),
    };
    match instant.repeated_clock(time) {
        Some(clock) => {
            let zone = instant.zone.as_deref().unwrap_or_default();
            let found = format!(
                "{found}: clocks in `{zone}` show {clock} twice, an hour apart, and a time without an offset is read as the \
                 {read_as} of the two"
            );
            let advice = format!(
                "land times with an offset, or in UTC; or reject such times with `dataset.series.ambiguous = \"reject\"`; \
                 where the two rows are copies of one reading, {choice}"
            );
            Error::input(what, found, &advice)
        }
        None => Error::input(what, found, choice),
    }
}

fn gap(of: &str, [last, time]: [i64; 2], [before, origin]: [u64; 2], sources: &[String]) -> Error {
    Error::input(
        "the rows as a series",
        format!(
            "nothing landed{of} between {} and {} ({} and {}), which is longer than `dataset.series.max_gap`",
            instant::shown(last),
            instant::shown(time),
            place_of(before, sources),
            place_of(origin, sources)
        ),
        "land what is missing, allow longer gaps, or let series begin anew there with `gaps = \"restart\"`",
    )
}

/// Reasons including those of `copies`, which have the same time as another row.
fn marked(reasons: &ArrayRef, copies: &[bool], times: &Int64Array) -> ArrayRef {
    if !copies.contains(&true) {
        return Arc::clone(reasons);
    }
    let old = reasons.as_string::<i32>();
    let reason = |(row, is_copy): (usize, &bool)| match old.is_valid(row) {
        true => Some(old.value(row).to_owned()),
        false => is_copy.then(|| {
            let reason = Reason {
                reason: reject_reason::SAME_TIME.to_owned(),
                column: String::new(),
                value: instant::shown(times.value(row)),
            };
            reason.to_json()
        }),
    };
    Arc::new(
        copies
            .iter()
            .enumerate()
            .map(reason)
            .collect::<StringArray>(),
    )
}

/// Finds rows of one entity at one time.
struct Instants<'a> {
    entities: &'a FixedSizeBinaryArray,
    times: &'a Int64Array,
}

impl<'a> Instants<'a> {
    fn new(batch: &'a RecordBatch) -> Self {
        Self {
            entities: column(batch, ENTITY).as_fixed_size_binary(),
            times: column(batch, TIME).as_primitive(),
        }
    }

    fn are_one(&self, a: usize, b: usize) -> bool {
        let times = self.times;
        times.is_valid(a)
            && times.is_valid(b)
            && times.value(a) == times.value(b)
            && self.entities.value(a) == self.entities.value(b)
    }
}

/// First row, and the one past the last, of each instant with several rows.
fn shared_instants(batch: &RecordBatch) -> Vec<(usize, usize)> {
    let instants = Instants::new(batch);
    let mut groups: Vec<(usize, usize)> = Vec::new();
    for row in 0..batch.num_rows() {
        match groups.last_mut() {
            Some((_, end)) if instants.are_one(row - 1, row) => *end = row + 1,
            _ => groups.push((row, row + 1)),
        }
    }
    groups.retain(|(start, end)| end - start > 1);
    groups
}

/// The numbers of the first row of each instant become the means of all its rows; where the data name splits, of those that are
/// in its split, so that no split gets numbers of another.
fn averaged(batch: &RecordBatch, series: &Series) -> Result<RecordBatch, Error> {
    let groups = shared_instants(batch);
    if groups.is_empty() {
        return Ok(batch.clone());
    }
    let (schema, rejects) = (batch.schema(), column(batch, system_columns::REJECT));
    let splits = series
        .has_splits
        .then(|| column(batch, system_columns::SPLIT).as_primitive::<UInt8Type>());
    let target_only = batch.column_by_name(TARGET_ONLY);
    let target_only = target_only.and_then(|cells| cells.as_boolean_opt());
    let lacks_target = |row: usize| target_only.is_some_and(|cells| cells.value(row));
    let is_beside = |first: usize, row: usize| {
        splits.is_none_or(|splits| splits.value(first) == splits.value(row))
    };
    let columns = schema.fields().iter().zip(batch.columns());
    let columns = columns.map(|(field, cells)| {
        // What is kept stays as it landed.
        if *cells.data_type() != DataType::Float64 || passthrough_columns::is_reserved(field.name())
        {
            return Arc::clone(cells);
        }
        let of_series = field.name().starts_with(RESERVED);
        let is_target = series.targets.contains(field.name());
        let cells = cells.as_primitive::<Float64Type>();
        let mut means: Vec<Option<f64>> = cells.iter().collect();
        for (start, end) in &groups {
            // A reading counts even if its row cannot be used, and so does a row that lacks only its target; other cells of
            // rejected rows do not.
            let is_usable = |row: usize| match lacks_target(row) {
                true => !is_target,
                false => rejects.is_null(row),
            };
            let counts = |row: &usize| is_beside(*start, *row) && (of_series || is_usable(*row));
            let readings: Vec<_> = (*start..*end)
                .filter(counts)
                .map(|row| means[row])
                .collect();
            if !readings.is_empty() {
                means[*start] = mean(&readings);
            }
        }
        Arc::new(Float64Array::from(means)) as ArrayRef
    });
    Ok(RecordBatch::try_new(batch.schema(), columns.collect())?)
}

#[expect(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
fn mean(cells: &[Option<f64>]) -> Option<f64> {
    let there: Vec<f64> = cells.iter().flatten().copied().collect();
    // Each is divided first, so that large ones do not overflow.
    let count = there.len() as f64;
    let mean = match there.as_slice() {
        [] => return None,
        [first, rest @ ..] if rest.iter().all(|value| value.to_bits() == first.to_bits()) => *first,
        all => {
            let sum: f64 = all.iter().sum();
            if sum.is_finite() {
                sum / count
            } else {
                all.iter().map(|value| value / count).sum()
            }
        }
    };
    (!mean.is_nan()).then_some(mean)
}
