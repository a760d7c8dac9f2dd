//! Sources -> landing zone: immutable Parquet files and one append-only commit log per source.
//!
//! [`ingest`] runs the sources of a pipeline, some at a time. Pages of a source are gathered into
//! batches; a batch is landed by writing its files first, then one log entry that names them and
//! the position to resume from. So data and position move in one atomic step. A run that dies at
//! any instant resumes without a lost or doubled record: batches are a pure function of the pages,
//! and files are a pure function of the batch.
//!
//! A file lands, and its log says so. A second run lands nothing twice:
//!
//! ```
//! use feedline_ingest::{ingest, landed, status};
//! use feedline_schemas::{config::load, ids::Name};
//!
//! # #[derive(Debug)]
//! # struct NoSecrets;
//! # impl feedline_ingest::Secrets for NoSecrets {
//! #     fn resolve(&self, _: &feedline_schemas::config::SecretRef) -> Result<String, String> {
//! #         Err("there are no secrets".to_owned())
//! #     }
//! # }
//! # let context = feedline_ingest::Context {
//! #     root: feedline_storage::Store::memory(),
//! #     store_options: feedline_storage::StoreOptions::default(),
//! #     progress: std::sync::Arc::new(feedline_schemas::progress::Silent),
//! #     clock: std::sync::Arc::new(feedline_storage::clock::SystemClock),
//! #     secrets: std::sync::Arc::new(NoSecrets),
//! #     hosts: std::sync::Arc::default(),
//! #     metrics: std::sync::Arc::default(),
//! #     formatted_dates: std::sync::Arc::default(),
//! #     is_trial: false,
//! #     run_id: "run".to_owned(),
//! #     delta: false,
//! #     cancel: tokio::sync::watch::channel(false).1,
//! # };
//! # let folder = tempfile::tempdir()?;
//! # let file = folder.path().join("trades.csv");
//! # let url = file.display();
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! std::fs::write(&file, "id,price\n1,9.5\n2,8.25\n")?;
//! let text = format!(
//!     "[pipeline]\nname = 'p'\n[[source]]\nname = 'trades'\ntype = 'files'\nurl = '{url}'\n"
//! );
//! let config = load("p.toml", &text, &[])?.config;
//! for _ in 0..2 {
//!     let report = ingest(&config, None, &context).await?;
//!     assert_eq!((report.rows, report.rejected), (2, 0));
//! }
//! assert_eq!(status(&config, &context.root).await?.sources[0].status, "complete");
//! let log = landed(&context.root, &Name::new("trades")?).await?.ok_or("nothing landed")?;
//! let names: Vec<&str> = log.schema.columns.iter().map(|column| column.name.as_str()).collect();
//! assert_eq!(names, ["id", "price"]);
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod amend;
mod backfill;
mod batch;
mod batch_counts;
mod blocking;
mod check;
mod children;
mod column_warnings;
mod commit_log;
mod context;
mod contract;
mod csv_header;
mod dedup;
mod delta;
mod demo;
mod download;
mod due_times;
mod entry_counts;
mod error;
mod failures;
mod fetch;
mod file_change;
mod file_copies;
mod file_list;
mod file_marks;
mod files;
mod flatten;
mod formatted_dates;
mod frontier;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod held_warnings;
mod html;
mod infer;
mod initial_columns;
mod landed_file;
mod landed_rejects;
mod landed_time;
mod landing_files;
mod landing_folder;
mod log_chain;
mod log_entries;
mod log_snapshots;
mod metrics;
mod pagination;
mod param;
mod plain_secrets;
mod preview;
mod query_files;
mod raw;
mod record_places;
#[cfg(test)]
mod recorded_tests;
mod repair;
mod report;
mod request_settings;
mod rest;
mod resume;
mod run;
mod run_warnings;
mod sample;
mod schedule;
mod setting_changes;
mod settings;
mod source;
mod source_table;
mod source_type;
mod status;
mod supersede;
mod superseded_files;
#[cfg(test)]
mod testing;
mod uncertain_end;
mod validators;
mod verify;
mod warnings;
mod watermark;

pub use feedline_http::{Hosts, HttpCause, Secrets, meter::Cause};

pub use self::{
    amend::{Reread, TARGET_BYTES, compact, delete, reread, reset, retry_rejects, rewind},
    check::{check, check_scheduled},
    commit_log::{Landed, landed},
    context::Context,
    delta::delta,
    due_times::warn_of_past_schedule,
    error::Error,
    formatted_dates::FormattedDates,
    infer::{LargeIntegers, NumberEvidence, SeparatorSamples, is_about_types},
    initial_columns::land_columns,
    landed_rejects::{LandedReject, landed_rejects},
    metrics::{LogTotals, MetricsSnapshot, PipelineMetrics, SourceMetrics},
    plain_secrets::warn_of_plain_secrets,
    preview::{ColumnPreview, SourcePreview, preview, refused_columns},
    query_files::read_queries,
    repair::repair,
    rest::{Suggestion, suggest},
    resume::resume,
    run::{IngestEnd, READ_REJECTS, ingest, ingest_all, replay::replay},
    schedule::{ScheduleStatus, Scheduler, ServedSource},
    status::{mask_message, mask_secrets, status, status_with_lag},
    verify::verify,
};
