//! Errors that stop an ingest run.

use feedline_http::{HttpCause, TriedError};
use feedline_readers::invalid_key::InvalidKey;
use feedline_schemas::{Classified, ContractError, ErrorKind, count::counted, ids::Sequence};

/// Text of the innermost cause of an error.
pub(crate) fn innermost_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.last().map(ToString::to_string).unwrap_or_default()
}

/// Text of an error, with that of its cause unless it holds it.
pub(crate) fn describe_with_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let text = error.to_string();
    match error.source().map(ToString::to_string) {
        Some(cause) if !text.contains(&cause) => format!("{text}: {cause}"),
        _ => text,
    }
}

/// Error that stops an ingest run. Committed batches are never undone by an error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration is invalid.
    #[error("`{key}`: {reason}")]
    Config {
        /// Key path. A source names it relative to its `[[source]]` table (such as
        /// `pagination.page_size`); [`crate::ingest`] adds the prefix `source.<index>.`.
        key: String,
        /// The problem and its remedy.
        reason: String,
    },
    /// A request failed for good: not retryable, or out of tries.
    #[error("cannot fetch `{url}`: {what}; {advice}")]
    Http {
        /// URL without secrets.
        url: String,
        /// Cause of the failure.
        cause: HttpCause,
        /// The event.
        what: String,
        /// The remedy.
        advice: String,
    },
    /// A complete body does not match the configuration.
    #[error("cannot use the body of `{url}`: {reason}")]
    Body {
        /// URL without secrets.
        url: String,
        /// The problem and its remedy.
        reason: String,
    },
    /// The API has more records than it gives.
    #[error("incomplete: `{url}` did not return all of its records: {reason}")]
    Incomplete {
        /// URL without secrets.
        url: String,
        /// The number of records, and the remedy.
        reason: String,
    },
    /// Requests of some values of a list failed.
    #[error(
        "source `{source}`: {} of `for_each` failed ({values}), {others}; run the same command again to request them again, and take values that the API does not have out of the list; the first error: {first}",
        counted(*.failed, "value")
    )]
    FailedValues {
        /// Source name.
        r#source: String,
        /// Number of values that failed.
        failed: u64,
        /// The first of them.
        values: String,
        /// The other values.
        others: String,
        /// The first error.
        first: String,
        /// Its kind.
        kind: ErrorKind,
    },
    /// The server asks for a longer wait than `retry.max_wait_s`.
    #[error(
        "source `{source}` is deferred until {}: {reason}; run the same command again after that, it resumes from the last committed page; to send requests at once, run `feedline ingest resume PIPELINE.toml --source {source}` first",
        when(*.until_unix_s)
    )]
    Deferred {
        /// Source name.
        r#source: String,
        /// Time when the source may be requested again, Unix time in seconds.
        until_unix_s: u64,
        /// Wait until then in seconds, independent of later changes of the wall clock.
        wait_s: u64,
        /// The server's message.
        reason: String,
    },
    /// The run was asked to stop.
    #[error(
        "stopped by a signal: run the same command again; a run resumes after the records that have landed"
    )]
    Cancelled,
    /// A file cannot be read or parsed.
    #[error("cannot read file `{url}`: {reason}")]
    File {
        /// URL.
        url: String,
        /// The problem and its remedy.
        reason: String,
    },
    /// Too many records were rejected; the batch that crossed the limit was not committed.
    #[error(
        "source `{source}`: {rejected} of {records} {scope} were rejected, more than `contract.max_reject_fraction` = {max_share} allows; most often for `{reason}`, such as {sample}; correct the source or its contract (`contract.column`, `contract.children`), or raise the limit, and run again: it resumes from the last committed batch; records that earlier batches rejected are read again by `feedline ingest retry-rejects PIPELINE.toml {source}` after a change of the contract, and by `feedline ingest reset PIPELINE.toml {source}`, with all others, after a correction at the source; `--set source.N.contract.max_reject_fraction=1` (N: position of the source in the file, from 0) lets one run pass"
    )]
    TooManyRejects {
        /// Source name.
        r#source: String,
        /// Rejected ones among them.
        rejected: u64,
        /// Records that landed or were rejected; duplicates are neither.
        records: u64,
        /// `records` for those of all reads, `new records` for those of one.
        scope: &'static str,
        /// The limit, 0 to 1.
        max_share: f64,
        /// The most frequent reason.
        reason: String,
        /// A rejected record and why.
        sample: String,
    },
    /// A record violates the contract under `freeze`.
    #[error(
        "source `{source}`: {detail}, and `contract.{key}` is `freeze`; the batch was not committed; correct the source, or choose {}; the record is {record}",
        instead(.key)
    )]
    Frozen {
        /// Source name.
        r#source: String,
        /// Key below `contract`.
        key: String,
        /// Column, types and value.
        detail: String,
        /// The record, shortened.
        record: String,
    },
    /// Another process committed to the same log.
    #[error(
        "source `{source}`: log entry {sequence} was written by another run (`{other_run}`, epoch {other_epoch}) during this one (epoch {epoch}); nothing of this batch was committed; start again, with one run of a source at a time"
    )]
    Fenced {
        /// Source name.
        r#source: String,
        /// The contested position.
        sequence: Sequence,
        /// Run id found there.
        other_run: String,
        /// Epoch found there.
        other_epoch: u64,
        /// Our epoch.
        epoch: u64,
    },
    /// The log was repaired or reset while a run added to it.
    #[error(
        "source `{source}`: entry {before} of the log, which this run continued, was removed or replaced during the run, by a repair or by another run; its entry {sequence} was withdrawn and nothing of the batch was committed; start again, with one program on a source at a time"
    )]
    Replaced {
        /// Source name.
        r#source: String,
        /// The entry that was withdrawn.
        sequence: Sequence,
        /// The entry that is no longer there.
        before: u64,
    },
    /// A source is being run.
    #[error(
        "source `{source}` is in use by `{holder}`, and its log cannot be changed meanwhile; stop that program, then run this command again"
    )]
    Running {
        /// Source name.
        r#source: String,
        /// Holder of its lease.
        holder: String,
    },
    /// A commit log is damaged.
    #[error(
        "the commit log at `{url}` is damaged: {reason}; nothing was changed; `feedline ingest verify` lists all damage; restore the folder from a copy, or run `feedline ingest repair`, which goes back to the last good entry, and then ingest again"
    )]
    Log {
        /// Log folder.
        url: String,
        /// The problem.
        reason: String,
    },
    /// A landed file does not match its log entry.
    #[error(
        "landed file `{url}` is damaged: {reason}; `feedline ingest verify` lists all damage; restore it from a copy, or run `feedline ingest repair`, which goes back to the last good entry, and then ingest again"
    )]
    Landed {
        /// File.
        url: String,
        /// The problem.
        reason: String,
    },
    /// A Delta table does not follow the commit log.
    #[error(
        "the Delta table at `{url}` does not follow the commit log: {reason}; landed rows are not affected"
    )]
    Delta {
        /// Folder of the table, or a landed file that it cannot have.
        url: String,
        /// The problem and its remedy.
        reason: String,
    },
    /// An archive of responses lacks a requested response.
    #[error("cannot replay from `{url}`: {reason}")]
    Archive {
        /// Archive.
        url: String,
        /// The missing part and the remedy.
        reason: String,
    },
    /// A request without a response, as recorded in an archive.
    #[error("{0}")]
    Archived(String),
    /// A batch could not be encoded.
    #[error("cannot encode {what} as Parquet; this is a defect of feedline, please report it")]
    Encode {
        /// Description of the data being written.
        what: String,
        /// Cause.
        #[source]
        cause: parquet::errors::ParquetError,
    },
    /// The object store or disk failed.
    #[error(transparent)]
    Storage(#[from] feedline_storage::Error),
    /// A stored document was refused.
    #[error(transparent)]
    Contract(#[from] ContractError),
}

impl Classified for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Config { .. } => ErrorKind::Config,
            Self::Deferred { .. } => ErrorKind::Deferred,
            Self::Cancelled => ErrorKind::Cancelled,
            Self::Http { .. }
            | Self::Fenced { .. }
            | Self::Replaced { .. }
            | Self::Running { .. } => ErrorKind::Retry,
            Self::Body { .. }
            | Self::Incomplete { .. }
            | Self::File { .. }
            | Self::TooManyRejects { .. }
            | Self::Frozen { .. }
            | Self::Log { .. }
            | Self::Landed { .. }
            | Self::Delta { .. }
            | Self::Archive { .. }
            | Self::Archived(_) => ErrorKind::Data,
            Self::FailedValues { kind, .. } => *kind,
            Self::Encode { .. } => ErrorKind::Bug,
            Self::Storage(error) => error.kind(),
            Self::Contract(error) => error.kind(),
        }
    }
}

impl Error {
    /// Adds the place of the record that a contract stopped a run at.
    pub(crate) fn at(mut self, place: Option<String>) -> Self {
        if let (Self::Frozen { detail, .. }, Some(place)) = (&mut self, place) {
            *detail = format!("{place}: {detail}");
        }
        self
    }

    /// Status of the response that it is about, where there was one.
    pub(crate) fn status(&self) -> Option<u16> {
        self.failed_request()?.1.status()
    }

    pub(crate) fn config(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Config {
            key: key.into(),
            reason: reason.into(),
        }
    }

    /// Puts `prefix` in front of the key of a configuration error.
    pub(crate) fn under(self, prefix: &str) -> Self {
        match self {
            Self::Config { key, reason } => Self::Config {
                key: format!("{prefix}.{key}"),
                reason,
            },
            other => other,
        }
    }
}

/// Alternatives to `freeze` for a key of the contract.
fn instead(key: &str) -> &'static str {
    // The rule of a column has the key at its end.
    match key.rsplit('.').next().unwrap_or(key) {
        "types" => "`quarantine_row`, `null_value` or `widen`",
        "columns" => "`evolve`, `quarantine_row` or `null_value`",
        "nulls" => "`warn` or `quarantine_row`",
        _ => "`warn`",
    }
}

/// Formats a timestamp for messages.
pub(crate) fn when(unix_s: u64) -> String {
    i64::try_from(unix_s)
        .ok()
        .and_then(|s| jiff::Timestamp::from_second(s).ok())
        .map_or_else(|| format!("Unix time {unix_s}"), |time| time.to_string())
}

impl From<feedline_http::Error> for Error {
    fn from(error: feedline_http::Error) -> Self {
        use feedline_http::Error as Request;

        match error {
            Request::Config { key, reason } => Self::Config { key, reason },
            Request::Http {
                url,
                cause,
                what,
                advice,
            } => Self::Http {
                url,
                cause,
                what,
                advice,
            },
            Request::Body { url, reason } => Self::Body { url, reason },
            Request::Deferred {
                r#source,
                until_unix_s,
                wait_s,
                reason,
            } => Self::Deferred {
                r#source,
                until_unix_s,
                wait_s,
                reason,
            },
            Request::Cancelled => Self::Cancelled,
        }
    }
}

impl TriedError for Error {
    fn failed_request(&self) -> Option<(&str, HttpCause)> {
        match self {
            Self::Http { url, cause, .. } => Some((url, *cause)),
            Self::Body { url, .. } => Some((url, HttpCause::Other)),
            _ => None,
        }
    }

    fn with_tries(mut self, tries: &str) -> Self {
        if let Self::Http { what: reason, .. }
        | Self::Body { reason, .. }
        | Self::Incomplete { reason, .. } = &mut self
        {
            reason.push_str(tries);
        }
        self
    }
}

impl From<InvalidKey> for Error {
    fn from(error: InvalidKey) -> Self {
        Self::config(error.key, error.reason)
    }
}

#[cfg(test)]
mod snapshots;
