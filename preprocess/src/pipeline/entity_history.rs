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

mod asked_rows;
mod faults;
mod file_columns;
mod local_new_times;
mod new_entities;
mod open;
mod pace;
mod series_rows;
mod window_cells;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use feedline_schemas::{
    config::{PipelineConfig, SourceConfig},
    manifest::Manifest,
};
use feedline_storage::Store;

pub use self::series_rows::SeriesRows;
use super::prepare::Build;
use crate::{Context, Error, Fault, Transform, UnusualCells};

/// Rows in a separate landing zone.
#[derive(Clone, Debug)]
pub struct LandedRows {
    /// File that the rows come from, as errors name it.
    pub file: String,
    /// True if the format of the file lists its columns, as that of CSV and of Parquet does.
    pub lists_columns: bool,
    /// Its root.
    pub root: Store,
    /// Source that they landed as.
    pub source: SourceConfig,
    /// Number of the row that each batch begins with, in the file that the rows come from; a batch
    /// without an entry begins at 0.
    pub starts: Vec<u64>,
    /// Names of columns that rejected rows have: one that no landed row has can be passed through, and
    /// is then empty here.
    pub rejected_columns: Vec<String>,
    /// True if no row has landed, so that there are none to read.
    pub is_empty: bool,
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
    /// Number of each new row in its file, from 0; without new rows, 0.
    pub row_numbers: Vec<u64>,
    /// `[rows, numbers]`, row-major, where `numbers` is [`SeriesRows::numbers`]; those of bad rows are 0.
    pub x: Vec<f32>,
    /// Rows that cannot be predicted, by index from 0.
    pub bad: BTreeMap<usize, Fault>,
    /// Cells of [`SeriesRows::kept`], a list for each column.
    pub kept: Vec<Vec<Option<String>>>,
    /// Time of the target row, if the rows of the window follow a rule of the calendar or are equally
    /// spaced; for windows only.
    pub target_times: Vec<Option<String>>,
    /// Last value of the target before it, in its own units; for numbers only.
    pub last: Vec<Option<f64>>,
    /// Latest known value of the target whole seasons before.
    pub season: Vec<Option<f64>>,
    /// Unusual cells of usable rows. A window has those of all of its rows: it is listed once for each missing
    /// cell of a column.
    pub unusual: UnusualCells,
}

/// Columns whose cells rows of the series need, with those of `keep`. A cell of another column that
/// is not of its type need not reject its row.
///
/// # Errors
/// [`Error::Config`] for a pipeline that does not fit what has landed; failures of the store.
pub async fn series_columns(
    config: &PipelineConfig,
    keep: &[String],
    context: &Context,
) -> Result<BTreeSet<String>, Error> {
    let build = Box::pin(Build::prepare(config, context)).await?;
    Ok(build.needed_columns(keep))
}

/// Opens the rows of `request` for the dataset of `manifest`, with the past of their entities.
///
/// # Errors
/// [`Error::Config`] for a pipeline whose dataset is no series, or is not the one that `manifest` was built by; [`Error::Input`]
/// for a file without a needed column, if its format lists them, and for new rows whose columns are of other types than those
/// that landed; failures of the store, the scratch folder and the engine.
pub async fn series_rows(
    config: &PipelineConfig,
    manifest: &Manifest,
    transform: Arc<Transform>,
    request: SeriesRequest,
    context: &Context,
) -> Result<SeriesRows, Error> {
    // Boxed, as what it awaits: the futures of plans are large.
    Box::pin(open::open_rows(
        config, manifest, transform, request, context,
    ))
    .await
}
