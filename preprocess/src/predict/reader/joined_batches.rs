//! Batches of new rows with the columns that joins add.
//!
//! Rows with a joined column of their own stay as they are. The others are looked up, many batches
//! together, because each lookup reads the joined sources.

use std::collections::VecDeque;

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array},
    compute::{concat_batches, interleave, take_record_batch},
};
use feedline_schemas::report::{PredictedJoin, Warning};

use super::{fault::Fault, new_rows::NewRows, reading::RowsReading};
use crate::{
    Error,
    operators::missing_filter::{MissingFilter, describe_missing},
    predict::joins::{JoinLookup, LookedUp, RowJoins},
    schema::reject_reason,
};

/// Rows of a file that are looked up together, about.
const WINDOW_ROWS: usize = 1 << 18;

/// Bytes of their cells, about.
const WINDOW_BYTES: usize = 128 << 20;

/// Result of the joins of new rows so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JoinedRows {
    /// The joins, in their order.
    pub joins: Vec<PredictedJoin>,
    /// Rows with joined columns of their own, to which nothing was joined.
    pub joined_before: u64,
}

/// Adds the columns of joins to batches.
pub(super) struct JoinedBatches {
    joins: RowJoins,
    /// Name of the file of the rows.
    file: String,
    /// Passthrough columns.
    keep: Vec<String>,
    sparse: Option<MissingFilter>,
    /// Rows that are looked up together: those of a batch where rows must not wait.
    window_rows: usize,
    /// The joined sources, once a row needs them.
    lookup: Option<JoinLookup>,
    /// Batches that are complete.
    ready: VecDeque<NewRows>,
    /// Error behind them.
    failed: Option<Error>,
    found: JoinedRows,
    /// Warnings of the joins, at the end of the rows.
    warnings: Option<Vec<Warning>>,
}

impl JoinedBatches {
    pub(super) fn new(joins: RowJoins, file: String, reading: &RowsReading) -> Self {
        let sources = joins.sources().into_iter();
        let sources = sources.map(|source| PredictedJoin {
            source,
            matched: 0,
            unmatched: 0,
        });
        Self {
            file,
            keep: reading.keep.clone(),
            sparse: reading.max_missing_fraction.map(MissingFilter::new),
            window_rows: match reading.pause {
                Some(_) => 1,
                None => WINDOW_ROWS,
            },
            lookup: None,
            ready: VecDeque::new(),
            failed: None,
            found: JoinedRows {
                joins: sources.collect(),
                joined_before: 0,
            },
            warnings: None,
            joins,
        }
    }

    /// The joins so far; none before a row was joined.
    pub(super) fn found(&self) -> JoinedRows {
        match self.lookup {
            Some(_) => self.found.clone(),
            None => JoinedRows {
                joins: Vec::new(),
                ..self.found.clone()
            },
        }
    }

    /// Warnings of joins in which few rows find a row, or the source has their keys in another
    /// spelling: known at the end of the rows.
    pub(super) fn warnings(&self) -> impl Iterator<Item = Warning> {
        self.warnings.iter().flatten().cloned()
    }

    /// Returns true if the column was added to a row.
    pub(super) fn has_added(&self, name: &str) -> bool {
        self.lookup.is_some() && self.joins.added().iter().any(|added| added.name == name)
    }

    /// The next batch of those that `next` returns. Blocks.
    ///
    /// # Errors
    /// Those of `next`, and of the joins.
    pub(super) fn next_rows(
        &mut self,
        next: impl FnMut() -> Result<Option<NewRows>, Error>,
    ) -> Result<Option<NewRows>, Error> {
        if self.ready.is_empty() {
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            let mut window = self.read_window(next)?;
            if window.is_empty() {
                self.find_warnings()?;
            }
            self.join(&mut window)?;
            self.ready = window.into();
        }
        Ok(self.ready.pop_front())
    }

    /// Finds the warnings of all rows, once.
    fn find_warnings(&mut self) -> Result<(), Error> {
        if self.warnings.is_none()
            && let Some(lookup) = &self.lookup
        {
            self.warnings = Some(lookup.find_warnings(&self.found.joins)?);
        }
        Ok(())
    }

    /// Reads batches until they are a window. An error after the first one is kept for later.
    fn read_window(
        &mut self,
        mut next: impl FnMut() -> Result<Option<NewRows>, Error>,
    ) -> Result<Vec<NewRows>, Error> {
        let mut window = Vec::new();
        let (mut rows, mut bytes) = (0, 0);
        while rows < self.window_rows && bytes < WINDOW_BYTES {
            match next() {
                Ok(Some(batch)) => {
                    rows += batch.inputs.num_rows();
                    bytes += bytes_of(&batch);
                    window.push(batch);
                }
                Ok(None) => break,
                Err(error) if window.is_empty() => return Err(error),
                Err(error) => {
                    self.failed = Some(error);
                    break;
                }
            }
        }
        Ok(window)
    }

    /// Looks up the rows of `window` that need it.
    fn join(&mut self, window: &mut [NewRows]) -> Result<(), Error> {
        let asked: Vec<Vec<usize>> = window.iter().map(rows_to_look_up).collect();
        for batch in &*window {
            let is_joined = batch.lookups.iter().flat_map(|lookups| &lookups.is_joined);
            let is_joined = is_joined.enumerate().filter(|(_, is_joined)| **is_joined);
            let usable = is_joined.filter(|(row, _)| !batch.bad.contains_key(row));
            self.found.joined_before += usable.count() as u64;
        }
        if self.lookup.is_none() && asked.iter().any(|asked| !asked.is_empty()) {
            self.lookup = Some(JoinLookup::open(&self.joins, &self.file)?);
        }
        if let Some(keys) = keys_of(window, &asked)? {
            let found = self.look_up(&keys)?;
            let mut first = 0;
            for (batch, asked) in window.iter_mut().zip(&asked) {
                self.add_columns(batch, asked, (&found, first))?;
                first += asked.len();
            }
        }
        for batch in window {
            batch.lookups = None;
            self.reject_sparse(batch);
        }
        Ok(())
    }

    fn look_up(&mut self, keys: &RecordBatch) -> Result<LookedUp, Error> {
        let lookup = self.lookup.as_mut().expect("it is open where rows need it");
        let found = lookup.look_up(keys)?;
        for (join, [matched, unmatched]) in self.found.joins.iter_mut().zip(&found.matches) {
            join.matched += matched;
            join.unmatched += unmatched;
        }
        Ok(found)
    }

    /// Adds the columns of the rows `asked` of a batch, which are those from `first` on that were
    /// `found`.
    fn add_columns(
        &self,
        batch: &mut NewRows,
        asked: &[usize],
        (found, first): (&LookedUp, usize),
    ) -> Result<(), Error> {
        let mut places: Vec<(usize, usize)> =
            (0..batch.inputs.num_rows()).map(|row| (0, row)).collect();
        for (place, row) in asked.iter().enumerate() {
            places[*row] = (1, first + place);
        }
        let schema = batch.inputs.schema();
        let mut inputs: Vec<ArrayRef> = batch.inputs.columns().to_vec();
        for (added, cells) in self.joins.added().iter().zip(&found.columns) {
            if added.is_input() {
                let column = schema.index_of(&added.name)?;
                inputs[column] = interleave(&[&*inputs[column], &**cells], &places)?;
                continue;
            }
            let texts = cells.as_string::<i32>();
            let kept = self.keep.iter().zip(&mut batch.kept);
            for (_, kept) in kept.filter(|(name, _)| **name == added.name) {
                for (place, row) in asked.iter().enumerate() {
                    let cell = first + place;
                    kept[*row] = texts.is_valid(cell).then(|| texts.value(cell).to_owned());
                }
            }
        }
        batch.inputs = RecordBatch::try_new(schema, inputs)?;
        for (place, row) in asked.iter().enumerate() {
            if let Some((reason, detail)) = &found.faults[first + place] {
                reject(batch, *row, reason, detail.clone());
            }
        }
        Ok(())
    }

    /// Rejects rows that lack too many inputs.
    fn reject_sparse(&self, batch: &mut NewRows) {
        let Some(sparse) = &self.sparse else { return };
        let all = batch.inputs.num_columns();
        for row in 0..batch.inputs.num_rows() {
            let columns = batch.inputs.columns().iter();
            let lacking = columns.filter(|column| column.is_null(row)).count();
            if sparse.is_too_many(lacking, all) {
                let detail = describe_missing(lacking, all, "feature");
                reject(batch, row, reject_reason::TOO_MANY_MISSING, detail);
            }
        }
    }
}

/// Rejects a row that is not rejected yet.
fn reject(batch: &mut NewRows, row: usize, reason: &'static str, detail: String) {
    let number = batch.first + row as u64;
    let fault = || Fault::new(reason, detail).at(&format!("row {number}"));
    batch.bad.entry(row).or_insert_with(fault);
}

/// Rows of a batch that are usable so far and have no joined columns.
fn rows_to_look_up(batch: &NewRows) -> Vec<usize> {
    let is_joined = batch.lookups.iter().flat_map(|lookups| &lookups.is_joined);
    let rows = is_joined.enumerate();
    let rows = rows.filter(|(row, is_joined)| !**is_joined && !batch.bad.contains_key(row));
    rows.map(|(row, _)| row).collect()
}

/// Keys and times of the rows `asked` of each batch; `None` without a row.
fn keys_of(window: &[NewRows], asked: &[Vec<usize>]) -> Result<Option<RecordBatch>, Error> {
    let mut keys = Vec::new();
    for (batch, asked) in window.iter().zip(asked) {
        let Some(lookups) = batch.lookups.as_ref().filter(|_| !asked.is_empty()) else {
            continue;
        };
        let rows = asked.iter().map(|row| u32::try_from(*row));
        let rows = rows.collect::<Result<Vec<_>, _>>();
        let rows = UInt32Array::from(rows.expect("a batch has few rows"));
        keys.push(take_record_batch(&lookups.cells, &rows)?);
    }
    match keys.first().map(RecordBatch::schema) {
        Some(schema) => Ok(Some(concat_batches(&schema, &keys)?)),
        None => Ok(None),
    }
}

/// Bytes of the cells of a batch, about.
fn bytes_of(batch: &NewRows) -> usize {
    let lookups = batch.lookups.iter();
    let lookups = lookups.map(|lookups| lookups.cells.get_array_memory_size());
    let kept = batch.kept.iter().flatten().flatten();
    let kept = kept.map(|text| text.len() + size_of::<Option<String>>());
    batch.inputs.get_array_memory_size() + lookups.sum::<usize>() + kept.sum::<usize>()
}
