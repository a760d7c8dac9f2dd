//! Landed data to shards: reads sources at a log position, drops copies, splits, fits on the training split only,
//! transforms, and writes shards, the transform artefact and the manifest that names them.
//!
//! The work is a DataFusion plan with functions of our own; the result is byte-equal for any number
//! of partitions and for a build that was killed and rerun. [`build`] is the entry point and
//! appends to an existing dataset, [`refit`] rebuilds it; [`verify`] checks the result.
//!
//! Order of work, driven by `pipeline`: `source` (commit logs, verified; or Parquet files in place)
//! → `schema` (role of each column) → `plan` (one typed frame, made by `operators`: joins, content
//! hash, duplicates dropped, features of time series, split) → `staging` (rows in scratch, by split)
//! → `fit` (takes a [`TrainSplit`], nothing else) → [`Transform`] → `shards` (write, audit, manifest).
//!
//! A dataset is built from a Parquet file and split by a key. Its transform turns new rows into
//! features and back:
//!
//! ```
//! # use std::sync::Arc;
//! # use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
//! use feedline_preprocess::{Transform, build, read_manifest, read_transform};
//! # use feedline_schemas::config::load;
//!
//! # let folder = tempfile::tempdir()?;
//! # let file = folder.path().join("houses.parquet");
//! # let context = feedline_preprocess::Context {
//! #     root: feedline_storage::Store::memory(),
//! #     progress: Arc::new(feedline_schemas::progress::Silent),
//! #     clock: Arc::new(feedline_storage::clock::SystemClock),
//! #     partitions: 1,
//! #     memory_bytes: None,
//! #     store_options: feedline_storage::StoreOptions::default(),
//! #     decoder: None,
//! #     engine: feedline_preprocess::Engine::Local,
//! #     scratch: folder.path().join("scratch"),
//! # };
//! # let numbers = |number: fn(i64) -> i64| Int64Array::from_iter_values((0..300).map(number));
//! # let column = |number| -> ArrayRef { Arc::new(numbers(number)) };
//! # let rows = RecordBatch::try_from_iter([
//! #     ("id", column(|i| i)),
//! #     ("area", column(|i| i % 97)),
//! #     ("price", column(|i| 3 * (i % 97) + 7 * i % 61)),
//! # ])?;
//! # let out = std::fs::File::create(&file)?;
//! # let mut writer = parquet::arrow::ArrowWriter::try_new(out, rows.schema(), None)?;
//! # writer.write(&rows)?;
//! # writer.close()?;
//! # let file = file.display();
//! let text = format!(
//!     "[pipeline]\nname = 'houses'\n[dataset]\nfiles = '{file}'\ntarget = 'price'\n\
//!      drop = ['id']\nsplit = {{ key = ['id'], train = 0.8, validation = 0.1, test = 0.1 }}\n"
//! );
//! let config = load("houses.toml", &text, &[])?.config;
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
//! let report = build(&config, &context).await?;
//! assert_eq!((report.rows_in, report.train + report.validation + report.test), (300, 300));
//! let dataset = context.root.child("dataset");
//! let manifest = read_manifest(&dataset).await?;
//! let transform = Transform::new(read_transform(&dataset, &manifest).await?)?;
//! let area: ArrayRef = Arc::new(Float64Array::from(vec![50.0]));
//! let applied = transform.apply(&RecordBatch::try_from_iter([("area", area)])?)?;
//! let (name, cells) = &transform.invert(&applied.x)[0];
//! assert!(*name == "area" && (cells[0] - 50.0).abs() < 1e-4);
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "cluster")]
pub mod cluster;
mod context;
mod dataset_report;
mod edit;
mod engine;
mod error;
mod error_chain;
mod export;
mod fit;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod operators;
mod pass_progress;
mod pipeline;
mod plan;
mod predict;
mod schema;
mod shards;
mod source;
mod staging;
mod statistics;
mod steps;
mod tokenizer;
mod transform;
mod warnings;

#[cfg(test)]
mod testing;

pub use context::Context;
pub use edit::{EditSource, EditedShards};
pub use engine::Engine;
pub use error::Error;
pub use error_chain::message_with_causes;
pub use export::{ExportRequest, ExportSelection, export};
pub use fit::train_split::TrainSplit;
pub use operators::expectations::{ExpectedInputs, check_expectations, infer_expectations};
pub use operators::text;
pub use operators::time_series::{SeriesCells, reads_time};
pub use pipeline::{
    CheckedDataset, LandedRows, SeriesBatch, SeriesRequest, SeriesRows, build, check,
    check_columns, is_built_by, is_kept_by, refit, series_columns, series_rows,
};
pub use predict::image_preparer::ImagePreparer;
pub use predict::joins::{RowJoins, row_joins};
pub use predict::passthrough_type::PassthroughType;
pub use predict::query_types::query_types;
pub use predict::reader::{
    Fault, Features, JoinedRows, NewRows, NewTexts, PauseRule, RowSource, RowsIn, RowsReading,
    UnusualCells, landed_types, read_unpacked,
};
pub use predict::writer::{Column, RowFormat, RowsOut};
pub use schema::column_roles::MAX_REJECT_FRACTION;
pub use shards::manifest::{has_build, read_manifest, read_profile, read_transform};
pub use shards::passthrough_rows::{PassthroughRow, PassthroughRows};
pub use shards::prune::{PruneRule, prune};
pub use shards::verify::verify;
pub use source::landed_texts::{
    LandedPlace, RejectedRow, all_rejected_rows, landed_texts, rejected_rows,
};
pub use source::version_order::check_version_samples;
pub use steps::knn;
pub use steps::{NumberFormat, capped_in_train, describe_step};
pub use tokenizer::Tokenizer;
pub use tokenizer::text_encoder::{DecodedStream, EncodedText, TextDecoder, TextEncoder};
pub use transform::{Applied, TargetValues, Transform};
pub use warnings::{
    COLUMNS_DROPPED, looks_like_index, looks_like_row_number, warn_of_instants,
    warn_of_windowless_entities,
};
