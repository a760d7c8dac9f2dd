//! Aggregations over the training rows, as streams: nothing here holds rows.

mod short;

use std::sync::Arc;

use datafusion::{
    arrow::{
        array::{ArrayRef, AsArray, Float64Array, RecordBatch, StringArray},
        compute::cast,
        datatypes::{DataType, Float64Type, Int64Type},
    },
    execution::memory_pool::MemoryLimit,
    functions_aggregate::count::count_all,
    logical_expr::{Expr, ident, lit},
    prelude::DataFrame,
};

use crate::{
    Error,
    engine::scalar_function::RowFunction,
    operators::split::ShuffleKey,
    schema::system_columns,
    staging::{Asked, SpilledRows},
    statistics::{
        aggregates::{self, MergingState, Profile},
        quantile::{PREFIX_BYTES, Quantile, Scan, Search, Tally, Wanted},
    },
};

/// Memory that the states of one query may take over all partitions, in bytes; less where the engine has little.
const STATE_BYTES: usize = 256 << 20;
/// Memory that a profile takes at most per partition, in bytes.
const PROFILE_BYTES: usize = 100 << 10;

/// Distinct texts that are counted without the engine at most.
const TEXTS: usize = 1 << 18;

/// The training rows as something to ask.
#[derive(Debug)]
pub(crate) struct Rows {
    frame: DataFrame,
    count: u64,
    partitions: usize,
    state_bytes: usize,
    /// The rows themselves, and threads to look at them.
    pieces: Option<(Arc<SpilledRows>, usize)>,
}

/// Quantiles of a column, in the order they were asked for; `None` when it has no finite value.
#[derive(Clone, Debug)]
pub(crate) struct Quantiles {
    pub(crate) tally: Tally,
    pub(crate) quantiles: Option<Vec<Quantile>>,
}

/// A value and how many rows have it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Counted<T> {
    pub(crate) value: T,
    pub(crate) rows: u64,
}

impl Rows {
    /// The `count` rows of `frame`.
    pub(crate) fn new(frame: DataFrame, count: u64) -> Self {
        let task = frame.task_ctx();
        // States cannot spill, so most of a limited memory is left to what reads the rows.
        let state_bytes = match task.memory_pool().memory_limit() {
            MemoryLimit::Finite(bytes) => STATE_BYTES.min(bytes / 4),
            _ => STATE_BYTES,
        };
        let partitions = task.session_config().target_partitions().max(1);
        Self {
            frame,
            count,
            partitions,
            state_bytes,
            pieces: None,
        }
    }

    /// The same, looked at without the engine where they are there.
    pub(super) fn looked_at(self, pieces: Option<(Arc<SpilledRows>, usize)>) -> Self {
        Self { pieces, ..self }
    }

    /// Number of rows.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// They themselves.
    pub(crate) fn frame(&self) -> DataFrame {
        self.frame.clone()
    }

    /// Cells of the numeric expressions `columns` in at most `rows` rows, those whose content has the least hashes, in that
    /// order; `None` where missing or infinite.
    pub(crate) async fn reference(
        &self,
        columns: Vec<Expr>,
        rows: usize,
    ) -> Result<Vec<Vec<Option<f64>>>, Error> {
        const ORDER: &str = "_order";
        let mut cells = vec![vec![]; columns.len()];
        let named = columns.into_iter().enumerate();
        let mut wanted: Vec<Expr> = named.map(|(i, e)| e.alias(format!("c{i}"))).collect();
        let order = ShuffleKey::of_reference().over(vec![ident(system_columns::HASH)]);
        wanted.push(order.alias(ORDER));
        wanted.push(ident(system_columns::ORIGIN));
        let least = vec![
            ident(ORDER).sort(true, false),
            ident(system_columns::ORIGIN).sort(true, false),
        ];
        let chosen = self.frame.clone().select(wanted)?.sort(least)?;
        for batch in Box::pin(chosen.limit(0, Some(rows))?.collect()).await? {
            for (cells, column) in cells.iter_mut().zip(batch.columns()) {
                let column = column.as_primitive::<Float64Type>().iter();
                cells.extend(column.map(|cell| cell.filter(|x| x.is_finite())));
            }
        }
        Ok(cells)
    }

    /// Type of `column`.
    pub(crate) fn data_type(&self, column: &str) -> Result<DataType, Error> {
        Ok(self
            .frame
            .schema()
            .field_with_unqualified_name(column)?
            .data_type()
            .clone())
    }

    /// The smallest non-null value of the text column `column`.
    pub(crate) async fn sample(&self, column: &str) -> Result<Option<String>, Error> {
        let sorted = self
            .values(ident(column))?
            .sort(vec![ident(VALUE).sort(true, false)])?
            .limit(0, Some(1))?;
        let batches = Box::pin(sorted.collect()).await?;
        Ok(texts(&batches)?.into_iter().next())
    }

    /// Profiles of numeric expressions, one query for as many as fit in memory.
    pub(crate) async fn profiles(&self, columns: Vec<Expr>) -> Result<Vec<Profile>, Error> {
        let mut profiles = Vec::with_capacity(columns.len());
        for columns in columns.chunks(self.per_query(PROFILE_BYTES)) {
            let states = vec![Profile::default(); columns.len()];
            if let Some(found) = self.look(columns, states).await? {
                for profile in &found {
                    self.check(profile.tally())?;
                }
                profiles.extend(found);
                continue;
            }
            let states = self
                .aggregate(columns.iter().cloned().map(aggregates::profile).collect())
                .await?;
            for state in states {
                let mut profile = Profile::default();
                profile
                    .merge_bytes(&state)
                    .ok_or_else(|| changed("a profile is unreadable"))?;
                self.check(profile.tally())?;
                profiles.push(profile);
            }
        }
        Ok(profiles)
    }

    /// Quantiles of numeric expressions; all columns advance together, a pass over the rows per round (see
    /// [`crate::statistics::quantile`]).
    pub(crate) async fn quantiles(
        &self,
        columns: Vec<(Expr, Vec<Wanted>)>,
    ) -> Result<Vec<Quantiles>, Error> {
        let short = self.short_quantiles(&columns).await?;
        let unknown = columns.into_iter().zip(&short);
        let mut searches: Vec<(Expr, Search)> = unknown
            .filter(|(_, found)| found.is_none())
            .map(|((column, wanted), _)| (column, Search::new(wanted, self.count)))
            .collect();
        loop {
            let open: Vec<&mut (Expr, Search)> = searches
                .iter_mut()
                .filter(|(_, search)| search.next_scan().is_some())
                .collect();
            if open.is_empty() {
                break;
            }
            self.advance(open).await?;
        }
        let answer = |search: &Search| Quantiles {
            tally: search.tally(),
            quantiles: search.quantiles(),
        };
        let mut others = searches.iter().map(|(_, search)| answer(search));
        let all = short.into_iter().map(|found| match found {
            Some(found) => found,
            None => others.next().expect("each other column has a search"),
        });
        Ok(all.collect())
    }

    /// The rows of each value of a text column, counted without the engine; `None` where only the engine can.
    async fn counted_texts(&self, column: &str) -> Result<Option<Vec<Counted<String>>>, Error> {
        let Some((pieces, threads)) = &self.pieces else {
            return Ok(None);
        };
        let found = pieces.texts(column, TEXTS, *threads).await?;
        let counted = |(value, rows)| Counted { value, rows };
        Ok(found.map(|found| found.into_iter().map(counted).collect()))
    }

    /// The `limit` most frequent values of the text column `column`, by falling count, then by bytes.
    pub(crate) async fn frequent_texts(
        &self,
        column: &str,
        limit: usize,
    ) -> Result<Vec<Counted<String>>, Error> {
        if let Some(mut found) = self.counted_texts(column).await? {
            found.sort_by(|a, b| b.rows.cmp(&a.rows).then_with(|| a.value.cmp(&b.value)));
            found.truncate(limit);
            return Ok(found);
        }
        let batches = self.frequent(self.values(ident(column))?, limit).await?;
        Ok(texts(&batches)?
            .into_iter()
            .zip(counts(&batches))
            .map(|(value, rows)| Counted { value, rows })
            .collect())
    }

    /// Number of missing cells in the text column `column`.
    pub(super) async fn missing_texts(&self, column: &str) -> Result<u64, Error> {
        let missing = self.frame.clone().filter(ident(column).is_null())?;
        Ok(Box::pin(missing.count()).await? as u64)
    }

    /// The most frequent finite value of a numeric expression; the smallest of several.
    ///
    /// The engine groups by value, so memory grows with the number of distinct values.
    pub(crate) async fn most_frequent(&self, column: Expr) -> Result<Option<Counted<f64>>, Error> {
        // NaN is greater than infinity in the engine's order, and the cell function has made it null anyway.
        let finite = ident(VALUE)
            .gt(lit(f64::NEG_INFINITY))
            .and(ident(VALUE).lt(lit(f64::INFINITY)));
        let batches = self
            .frequent(self.values(column)?.filter(finite)?, 1)
            .await?;
        let values: Vec<f64> = batches
            .iter()
            .flat_map(|batch| floats(batch).values().to_vec())
            .collect();
        Ok(values
            .into_iter()
            .zip(counts(&batches))
            .map(|(value, rows)| Counted { value, rows })
            .next())
    }

    /// One round of each open search, in as few queries as memory allows.
    async fn advance(&self, mut open: Vec<&mut (Expr, Search)>) -> Result<(), Error> {
        while !open.is_empty() {
            let mut specs = Vec::new();
            let mut prefixes = 0;
            for (_, search) in &open {
                let Some(spec) = search.next_scan() else {
                    continue;
                };
                prefixes += spec.prefixes.len();
                if !specs.is_empty() && prefixes > self.per_query(PREFIX_BYTES) {
                    break;
                }
                specs.push(spec);
            }
            let now = open.drain(..specs.len()).collect::<Vec<_>>();
            let columns: Vec<Expr> = now.iter().map(|(column, _)| column.clone()).collect();
            let states = specs.iter().cloned().map(Scan::new).collect();
            if let Some(found) = self.look(&columns, states).await? {
                for ((_, search), scan) in now.into_iter().zip(found) {
                    self.check(scan.tally())?;
                    let absorbed = search.absorb(scan);
                    absorbed.map_err(|inconsistent| changed(&inconsistent.to_string()))?;
                }
                continue;
            }
            let scans = now
                .iter()
                .zip(&specs)
                .map(|((column, _), spec)| aggregates::scan(column.clone(), spec))
                .collect();
            let states = self.aggregate(scans).await?;
            for (((_, search), spec), state) in now.into_iter().zip(specs).zip(states) {
                let mut scan = Scan::new(spec);
                scan.merge_bytes(&state)
                    .ok_or_else(|| changed("a scan is unreadable"))?;
                self.check(scan.tally())?;
                search
                    .absorb(scan)
                    .map_err(|inconsistent| changed(&inconsistent.to_string()))?;
            }
        }
        Ok(())
    }

    /// Shows each column to its state without the engine; `None` where only the engine can.
    async fn look<S: MergingState + Clone>(
        &self,
        columns: &[Expr],
        states: Vec<S>,
    ) -> Result<Option<Vec<S>>, Error> {
        let cells: Option<Vec<_>> = columns.iter().map(aggregates::cell_of).collect();
        let Some(((pieces, threads), cells)) = self.pieces.as_ref().zip(cells) else {
            return Ok(None);
        };
        let asked = cells.into_iter().zip(states);
        let asked = asked.map(|((column, ops), state)| Asked { column, ops, state });
        Ok(Some(pieces.look(asked.collect(), *threads).await?))
    }

    /// Number of states of `bytes` each that fit into one query. A final merge holds one more than
    /// there are partitions.
    pub(super) fn per_query(&self, bytes: usize) -> usize {
        (self.state_bytes / bytes / (self.partitions + 1)).max(1)
    }

    /// Results of binary aggregates over all rows.
    pub(crate) async fn aggregate(&self, expressions: Vec<Expr>) -> Result<Vec<Vec<u8>>, Error> {
        let named = expressions
            .into_iter()
            .enumerate()
            .map(|(i, e)| e.alias(format!("r{i}")))
            .collect();
        let batches = Box::pin(self.frame.clone().aggregate(vec![], named)?.collect()).await?;
        let row = batches
            .iter()
            .find(|batch| batch.num_rows() > 0)
            .ok_or_else(|| changed("an aggregate gave no row"))?;
        let cell = |column: &ArrayRef| column.as_binary::<i32>().value(0).to_vec();
        Ok(row.columns().iter().map(cell).collect())
    }

    /// The non-null values of an expression, as column [`VALUE`].
    pub(crate) fn values(&self, column: Expr) -> Result<DataFrame, Error> {
        Ok(self
            .frame
            .clone()
            .select(vec![column.alias(VALUE)])?
            .filter(ident(VALUE).is_not_null())?)
    }

    async fn frequent(&self, values: DataFrame, limit: usize) -> Result<Vec<RecordBatch>, Error> {
        let counted = values
            .aggregate(vec![ident(VALUE)], vec![count_all().alias(ROWS)])?
            .sort(vec![
                ident(ROWS).sort(false, false),
                ident(VALUE).sort(true, false),
            ])?
            .limit(0, Some(limit))?;
        Ok(Box::pin(counted.collect()).await?)
    }

    fn check(&self, tally: Tally) -> Result<(), Error> {
        let cells = tally.cells();
        if cells == self.count {
            return Ok(());
        }
        Err(changed(&format!(
            "a pass saw {cells} rows, the split has {}",
            self.count
        )))
    }
}

pub(crate) const VALUE: &str = "value";
pub(crate) const ROWS: &str = "rows";

pub(crate) fn texts(batches: &[RecordBatch]) -> Result<Vec<String>, Error> {
    let mut values = Vec::new();
    for batch in batches {
        let text = cast(batch.column(0), &DataType::Utf8)?;
        let text: &StringArray = text.as_string();
        values.extend(text.iter().flatten().map(str::to_owned));
    }
    Ok(values)
}

fn floats(batch: &RecordBatch) -> &Float64Array {
    batch.column(0).as_primitive::<Float64Type>()
}

pub(crate) fn counts(batches: &[RecordBatch]) -> Vec<u64> {
    let count = |batch: &RecordBatch| {
        batch
            .column(1)
            .as_primitive::<Int64Type>()
            .values()
            .to_vec()
    };
    batches
        .iter()
        .flat_map(count)
        .map(|rows| u64::try_from(rows).expect("a count is not negative"))
        .collect()
}

pub(crate) fn changed(what: &str) -> Error {
    Error::input(
        "the training split",
        format!("its rows changed while it was read: {what}"),
        "build again and leave the working folder alone meanwhile",
    )
}

/// The values, and how many rows have each.
pub(super) fn unzip<T>(counted: Vec<Counted<T>>) -> (Vec<T>, Vec<u64>) {
    counted.into_iter().map(|c| (c.value, c.rows)).unzip()
}
