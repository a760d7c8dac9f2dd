//! Sources -> landing zone: immutable Parquet files and one append-only commit log per source.
//!
//! [`ingest`] runs the sources of a pipeline, some at a time. Pages of a source are gathered into
//! batches; a batch is landed by writing its files first, then one log entry that names them and
//! the position to resume from. So data and position move in one atomic step. A run that dies at
//! any instant resumes without a lost or doubled record: batches are a pure function of the pages,
//! and files are a pure function of the batch.

mod amend;
mod archive;
mod batch;
mod blocking;
mod cell;
mod check;
mod children;
mod commit_log;
mod context;
mod contract;
mod csv_dialect;
mod dedup;
pub mod demo;
mod download;
mod error;
mod failures;
mod fetch;
mod file_bytes;
mod file_change;
mod file_format;
mod file_list;
mod files;
mod flatten;
mod frontier;
mod glob;
mod hosts;
mod html;
mod http;
mod idx_rows;
mod image_rows;
mod image_signature;
mod infer;
mod json;
mod known;
mod landed_file;
mod landing_files;
mod ledger;
mod meter;
mod notices;
mod pagination;
mod parquet_limits;
mod parquet_rows;
mod plain_secrets;
mod preview;
mod raw;
#[cfg(test)]
mod recorded;
mod repair;
mod report;
mod rest;
mod resume;
mod retry;
mod rows;
mod run;
mod sample;
mod schedule;
mod server_time;
mod setting_changes;
mod settings;
mod source;
mod standing;
mod supersede;
mod text_rows;
mod validators;
mod value;
mod verify;
mod warnings;
mod watermark;

pub use self::{
    amend::{Reread, delete, reread, reset, retry_rejects},
    check::check,
    commit_log::{Landed, landed},
    context::{Context, Secrets},
    error::Error,
    hosts::Hosts,
    meter::{Cause, LogTotals, Meter, Meters, Reading},
    preview::{ColumnPreview, SourcePreview, preview},
    repair::repair,
    rest::{Suggestion, suggest},
    resume::resume,
    run::{IngestEnd, ingest, ingest_all, replay::replay, status, stopped},
    schedule::{Board, Scheduler, Served},
    standing::standing,
    text_rows::{BadText, text_documents},
    verify::verify,
};
