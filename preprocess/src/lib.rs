//! Landed data to shards: reads sources at a log position, drops copies, splits, fits on the training split only,
//! transforms, and writes shards, the transform artefact and the manifest that names them.
//!
//! The work is a DataFusion plan with functions of our own; the result is byte-equal for any number
//! of partitions and for a build that was killed and rerun. [`build`] is the entry point and
//! appends to an existing dataset, [`refit`] rebuilds it; [`verify`] checks the result.
//!
//! Order of work: `landing` (commit logs, verified; or `files` in place) → `join` (columns of other
//! sources) → `columns` (role of each column) → `plan` (one typed frame with content hash,
//! duplicates dropped, features of `series`, split) → `fit` (takes a [`TrainSplit`], nothing else)
//! → [`Transform`] → `shard` → audit → `manifest`.

mod audit;
mod build;
mod card;
mod classes;
#[cfg(feature = "cluster")]
pub mod cluster;
mod columns;
mod conflicts;
mod content;
mod context;
mod copies;
mod document;
mod edit;
mod engine;
mod error;
mod exact_sum;
mod expect;
mod files;
mod fit;
mod functions;
mod image_preparer;
mod images;
mod join;
mod kept;
mod kept_rows;
pub mod knn;
mod landed_texts;
mod landing;
mod leakage;
mod manifest;
mod meter;
mod near_dup;
mod newest;
mod payload;
mod plain;
mod plan;
mod pool;
mod profile;
mod quantile;
mod range;
mod rejects;
mod rows_in;
mod rows_out;
mod runs;
mod scalar;
mod scan;
mod scratch;
mod seen;
mod series;
mod shard;
mod shared;
mod signs;
mod sparse;
mod split;
mod sql;
mod stage;
pub mod text;
mod text_encoder;
mod tokens;
mod told;
mod transform;
#[cfg(feature = "cluster")]
mod travel;
mod typing;
mod verify;
mod warnings;

#[cfg(test)]
mod testing;

pub use build::{
    CheckedDataset, LandedRows, SeriesBatch, SeriesRequest, SeriesRows, build, check,
    check_columns, is_built_by, refit, series_rows,
};
pub use context::Context;
pub use edit::{EditSource, EditedShards};
pub use engine::Engine;
pub use error::Error;
pub use expect::infer_expectations;
pub use image_preparer::ImagePreparer;
pub use kept_rows::{KeptRow, KeptRows};
pub use landed_texts::{LandedPlace, RejectedRow, all_rejected_rows, landed_texts, rejected_rows};
pub use manifest::{read_manifest, read_profile, read_transform};
pub use plan::TrainSplit;
pub use rows_in::{
    CsvReading, Fault, Features, NewRows, NewTexts, RowFormat, RowSource, RowsIn, RowsReading,
    UnusualCells, landed_types, read_unpacked,
};
pub use rows_out::{Column, RowsOut};
pub use text_encoder::{EncodedText, TextEncoder};
pub use tokens::Tokenizer;
pub use told::told;
pub use transform::{Applied, TargetValues, Transform};
pub use verify::verify;
