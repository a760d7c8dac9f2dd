//! Reference rows of a step that fills from neighbours, and the rows after such a step.
//!
//! The reference is chosen by a hash of the rows' content, so that neither partitions nor order
//! decide. The filled value depends on several columns, so no query over one column can compute it:
//! where a later step is fitted, the rows are written to the scratch folder once after all steps so
//! far, and read from there.

use std::sync::Arc;

use datafusion::{
    arrow::{
        array::{ArrayRef, Float64Array, RecordBatch},
        datatypes::SchemaRef,
    },
    execution::{SendableRecordBatchStream, object_store::ObjectStoreUrl},
};
use feedline_schemas::{
    config::Knn,
    transform::{FittedNeighbours, FittedStep},
};
use futures::TryStreamExt;
use tokio::task::JoinSet;

use super::{
    aggregate::Rows,
    progress::{Fit, STEP},
};
use crate::{
    Error, TrainSplit,
    engine::scratch::ScratchFile,
    source::parquet_scan::{ParquetFiles, ScanFile},
    steps::columns,
    transform::{Numbers, is_joint},
};

/// Most cells of the reference: the artefact holds them.
const MOST_CELLS: usize = 5_000_000;
/// One column's deviation is so many times another's when distances are those of one column.
const UNEQUAL: f64 = 100.0;

impl Fit {
    pub(crate) async fn neighbours(
        &self,
        names: &[String],
        knn: &Knn,
        indicator: bool,
        train: &TrainSplit,
    ) -> Result<FittedStep, Error> {
        let wanted = knn.reference_rows.get() as usize;
        let rows = wanted.min(usize::try_from(train.rows()).unwrap_or(usize::MAX));
        let cells = rows.saturating_mul(names.len());
        if cells > MOST_CELLS {
            let reason = format!(
                "{rows} reference rows of {} columns are {cells} cells, more than {MOST_CELLS}: lower `reference_rows`, or \
                 name fewer `columns`",
                names.len()
            );
            return Err(Error::config(STEP, reason));
        }
        let profiles = self.profiles(names).await?;
        let mut deviations = Vec::new();
        let mut columns = Vec::with_capacity(names.len());
        for (name, profile) in names.iter().zip(profiles) {
            let summary = profile
                .summary()
                .ok_or_else(|| self.nothing_to_fit("impute", name))?;
            deviations.extend(Some(summary.deviation).filter(|deviation| *deviation > 0.0));
            columns.push(FittedNeighbours {
                name: name.clone(),
                mean: summary.mean,
                missing: profile.tally().missing,
                indicator,
                reference: Vec::new(),
            });
        }
        let least = deviations.iter().copied().fold(f64::INFINITY, f64::min);
        if deviations
            .iter()
            .any(|deviation| deviation / least > UNEQUAL)
        {
            tracing::warn!(
                "columns of very different deviations tell what is near; put a `standardize` or `robust` step before `knn`"
            );
        }
        let cells = names.iter().map(|name| self.cell(name)).collect();
        let reference = self.rows.reference(cells, rows).await?;
        for (column, cells) in columns.iter_mut().zip(reference) {
            column.reference = cells;
        }
        Ok(FittedStep::Knn {
            neighbours: knn.neighbours.get(),
            weights: knn.weights,
            columns,
        })
    }

    /// Puts the steps so far behind the rows, where one of them looks at more than a cell.
    pub(super) async fn settle(&mut self, train: &TrainSplit) -> Result<(), Error> {
        let steps = self.open_steps();
        if !steps.iter().any(is_joint) {
            return Ok(());
        }
        let names = numeric_columns(steps);
        let numbers = Numbers::of(&names, steps).map_err(|reason| Error::config(STEP, reason))?;
        let after = Arc::new(After { names, numbers });
        let frame = self.rows.frame();
        let (state, _) = frame.clone().into_parts();
        let schema = Arc::new(frame.schema().as_arrow().clone());
        let mut tasks = JoinSet::new();
        let partitions = frame.execute_stream_partitioned().await?;
        for (partition, stream) in partitions.into_iter().enumerate() {
            let name = format!("settled-{}-{partition}.parquet", self.steps.len());
            let file = ScratchFile::new(train.folder().join(name), SchemaRef::clone(&schema));
            tasks.spawn(written(Arc::clone(&after), stream, file));
        }
        let mut files = Vec::new();
        while let Some(done) = tasks.join_next().await {
            files.extend(done??);
        }
        let table = ParquetFiles {
            store: ObjectStoreUrl::local_filesystem(),
            schema,
            files,
        };
        let session = datafusion::prelude::SessionContext::new_with_state(state);
        self.rows = Rows::new(session.read_table(Arc::new(table))?, self.rows.count());
        self.settled = self.steps.len();
        Ok(())
    }
}

/// Numeric columns that `steps` change, each once.
fn numeric_columns(steps: &[FittedStep]) -> Vec<String> {
    let is_numeric = |step: &&FittedStep| !matches!(step, FittedStep::Categories { .. });
    let changed = steps.iter().filter(is_numeric).flat_map(columns);
    let mut names: Vec<String> = Vec::new();
    for name in changed.map(|column| column.name()) {
        if names.iter().all(|known| known != name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// Rows after steps.
struct After {
    names: Vec<String>,
    numbers: Numbers,
}

impl After {
    fn of(&self, batch: &RecordBatch) -> Result<RecordBatch, Error> {
        let mut columns: Vec<ArrayRef> = batch.columns().to_vec();
        for (name, cells) in self.names.iter().zip(self.numbers.columns(batch)?) {
            let cells = cells.into_iter().map(|x| (!x.is_nan()).then_some(x + 0.0));
            let place = batch.schema().index_of(name)?;
            columns[place] = Arc::new(cells.collect::<Float64Array>());
        }
        Ok(RecordBatch::try_new(batch.schema(), columns)?)
    }
}

/// Writes the rows of a partition after the steps.
async fn written(
    after: Arc<After>,
    mut stream: SendableRecordBatchStream,
    mut file: ScratchFile,
) -> Result<Option<ScanFile>, Error> {
    while let Some(batch) = stream.try_next().await? {
        let after = Arc::clone(&after);
        // Distances keep a processor busy for long.
        let work = tokio::task::spawn_blocking(move || after.of(&batch));
        file.write(&work.await??)?;
    }
    file.finish()
}
