//! Sources -> landing zone: immutable Parquet files and one append-only commit log per source.
//!
//! [`ingest`] runs the sources of a pipeline, some at a time. Pages of a source are gathered into batches; a batch is
//! landed by writing its files first and then one log entry that names them together with the position to go on from.
//! So data and position move in one atomic step, and a run that dies at any instant is continued without a record lost
//! or doubled: batches are a pure function of the pages, and files are a pure function of the batch.

mod archive;
mod batch;
mod blocking;
mod cell;
mod children;
mod commit_log;
mod context;
mod contract;
mod dedup;
pub mod demo;
mod error;
mod fetch;
mod file_bytes;
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
mod json;
mod known;
mod landed_file;
mod ledger;
mod meter;
mod pagination;
mod parquet_rows;
mod picture_rows;
mod raw;
#[cfg(test)]
mod recorded;
mod repair;
mod report;
mod rest;
mod retry;
mod rows;
mod run;
mod schedule;
mod settings;
mod source;
mod standing;
mod text_rows;
mod validators;
mod value;
mod watermark;

pub use self::{
    commit_log::{Landed, landed},
    context::{Context, Secrets},
    error::{Error, ErrorKind},
    hosts::Hosts,
    meter::{Cause, LogTotals, Meter, Meters, Reading},
    repair::repair,
    rest::{Suggestion, suggest},
    run::{ingest, replay::replay, status, stopped},
    schedule::{Board, Scheduler, Served},
    standing::standing,
};
