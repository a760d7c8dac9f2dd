//! Bytes of files and bodies -> records: CSV, NDJSON, JSON, XML, Parquet, Arrow IPC, idx, plain text,
//! images, and tar and zip archives of them, each plain, gzip or Zstandard.
//!
//! Ingest and `predict` read through this crate, so that a file has the same records in both.
//! [`rows::Rows`] is one reader; [`rows::open::open`] chooses it by the [`rows::Layout`] of a file. A
//! flaw in one record is a [`record::Record::Bad`] in its place, with its place and reason; only a
//! flaw behind which nothing can be read is an error. Decisions that a reader makes by itself, such
//! as the delimiter of a file, go to [`notices::Notices`], and so does the [`remedy::Remedy`] of an
//! error.
//!
//! Readers block: they run on threads for blocking work.

mod archive;
mod arrow_rows;
pub mod calendar_time;
pub mod cell;
pub mod charset;
pub mod csv_dialect;
mod declared_type;
pub mod file_bytes;
pub mod file_format;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod glob;
mod idx_rows;
mod image_rows;
pub mod image_signature;
pub mod invalid_key;
pub mod json;
mod likely_encoding;
pub mod line_ends;
pub mod notices;
mod parquet_limits;
mod parquet_rows;
pub mod record;
mod record_batches;
pub mod remedy;
pub mod rows;
pub mod skipped_rows;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text_rows;
pub mod value;
pub mod value_view;
pub mod xml;
