//! Errors of a build, and the action that each needs.

use std::{collections::BTreeMap, path::Path};

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use feedline_schemas::{Classified, ContractError, ErrorKind, count::counted, manifest::Split};
use tokio::task::JoinError;

use crate::error_chain::one_line;

/// Reason why a build or a check stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration cannot be right for this data.
    #[error("`{key}`: {reason}")]
    Config {
        /// Key path, such as `dataset.target`.
        key: String,
        /// Fault and remedy.
        reason: String,
    },
    /// Something that was to be read is absent, damaged or unfit.
    #[error("cannot use {what}: {reason}; {advice}")]
    Input {
        /// Name or URL of the input.
        what: String,
        /// Fault of the input.
        reason: String,
        /// Remedy.
        advice: String,
    },
    /// Rejected rows exceed the limit of the configuration; nothing was published.
    #[error(
        "{rejected} of {rows} rows were rejected, more than `dataset.max_reject_fraction` = {limit} allows ({}); first: {sample}; \
         they are in `{file}`; {advice}",
        list(by_reason)
    )]
    TooManyRejects {
        /// Rejected rows.
        rejected: u64,
        /// Rows that were left after copies had been dropped.
        rows: u64,
        /// The limit, 0 to 1.
        limit: f64,
        /// Rejected rows by reason.
        by_reason: BTreeMap<String, u64>,
        /// One row and why.
        sample: String,
        /// File that lists all of them.
        file: String,
        /// Advice to the user.
        advice: String,
    },
    /// Data are not as expected; nothing was published.
    #[error(
        "data violate the expectations of `{expectations}` ({}){}; correct the source, edit the expectations, or set \
         `dataset.expect.on_violation = \"warn\"`", what.join("; "), listed(*rows, file.as_deref())
    )]
    Unexpected {
        /// Rows rejected for it.
        rows: u64,
        /// Violated expectations, each with a sample.
        what: Vec<String>,
        /// URL of the expectations file.
        expectations: String,
        /// File that lists the rejected rows, if there are any.
        file: Option<String>,
    },
    /// A split that should hold rows holds none.
    #[error(
        "the {split} split is empty although its fraction is {share}: {total} became {train} train, {validation} validation, \
         {test} test{left_out}; {advice}",
        total = counted(*rows, "row")
    )]
    EmptySplit {
        /// The empty split.
        split: Split,
        /// Share it should have, 0 to 1.
        share: f64,
        /// Rows that were split.
        rows: u64,
        /// Training rows.
        train: u64,
        /// Validation rows.
        validation: u64,
        /// Test rows.
        test: u64,
        /// Number of rows in no split, with the reasons; empty if every row has a split.
        left_out: String,
        /// Remedy.
        advice: String,
    },
    /// Shards do not hold what the documents do; nothing was published.
    #[error(
        "the documents have {documents} {what} and the shards {shards}; nothing was published; this is a defect of \
         feedline, please report it"
    )]
    Lost {
        /// Counted quantity.
        what: String,
        /// Its count in the kept documents.
        documents: u64,
        /// Its count in the shards.
        shards: u64,
    },
    /// A cluster gave another number of rows than landed; nothing was published.
    #[error(
        "the cluster returned {found} rows of the {rows} that landed, before duplicates were dropped; nothing was published; this \
         is a defect of feedline or the cluster: build again, or with `--engine local`"
    )]
    Miscounted {
        /// Rows that landed.
        rows: u64,
        /// Rows that were kept or rejected.
        found: u64,
    },
    /// An export wrote another number of rows than the log or the manifest has; it is not complete.
    #[error(
        "{found} rows were exported of the {rows} that the log or the manifest has; the export is incomplete; this is a defect of \
         feedline, please report it"
    )]
    ExportCount {
        /// Rows of the log or the manifest.
        rows: u64,
        /// Rows written.
        found: u64,
    },
    /// The audit found the same content in two splits; nothing was published.
    #[error(
        "{found} in more than one split ({}); nothing was published; with `dataset.dedup = \"none\"` duplicates are kept, \
         and a split by order, a column or an expression separates them: set `dataset.dedup = \"exact\"`, or split by the hash \
         of rows (`dataset.split.by = \"key\"`), which keeps duplicates together; without duplicates this is a defect of \
         feedline, please report it", samples.join(", "), found = keys_appear(*keys)
    )]
    Leak {
        /// Keys found in more than one split.
        keys: u64,
        /// Some of them, with the splits.
        samples: Vec<String>,
    },
    /// Data on its way could not be kept on the local disk.
    #[error(
        "cannot use scratch file or folder `{path}`; free space there, or name another folder in the variable `TMPDIR` (a worker's with `--scratch`), and build again"
    )]
    Scratch {
        /// The file or folder.
        path: String,
        /// Cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The scratch folder may belong to another user.
    #[error(
        "cannot use scratch folder `{path}`: {reason}; remove it if it is a leftover of yours, or remove the write permission of others (`chmod go-w`), or name another folder in the variable `TMPDIR` (a worker's with `--scratch`)"
    )]
    UntrustedScratch {
        /// Path of the folder.
        path: String,
        /// Reason for not trusting it.
        reason: String,
    },
    /// A process that decodes images could not be had.
    #[error(
        "cannot decode images in a separate process: `{program}` {reason}; give it more memory and address space (`ulimit -v`) and build \
         again, or set `dataset.image.isolate = false` for trusted images"
    )]
    Decoder {
        /// The program.
        program: String,
        /// Fault of the scratch file or folder.
        reason: String,
    },
    /// The query engine has no memory left.
    #[error(
        "the query engine ran out of memory while building the dataset: {reason}; raise `--memory`, or lower `--partitions`"
    )]
    Memory {
        /// Memory requested and memory available.
        reason: String,
    },
    /// The query engine failed.
    #[error("the query engine failed while building the dataset{}", advice(.0))]
    Engine(#[source] DataFusionError),
    /// Columns could not be read or written.
    #[error("cannot convert a column in memory; build again, and report it if it fails again")]
    Arrow(#[from] ArrowError),
    /// A store could not be read or written.
    #[error("cannot read or write the store of the dataset")]
    Storage(#[from] feedline_storage::Error),
    /// A document of ours did not match its schema.
    #[error(transparent)]
    Contract(#[from] ContractError),
}

impl Classified for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Config { .. } => ErrorKind::Config,
            Self::Input { .. }
            | Self::TooManyRejects { .. }
            | Self::Unexpected { .. }
            | Self::EmptySplit { .. }
            | Self::Leak { .. }
            | Self::UntrustedScratch { .. } => ErrorKind::Data,
            Self::Scratch { .. }
            | Self::Decoder { .. }
            | Self::Memory { .. }
            | Self::Miscounted { .. }
            | Self::Engine(_)
            | Self::Arrow(_) => ErrorKind::Retry,
            Self::Lost { .. } | Self::ExportCount { .. } => ErrorKind::Bug,
            Self::Storage(error) => error.kind(),
            Self::Contract(error) => error.kind(),
        }
    }
}

impl Error {
    pub(crate) fn config(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Config {
            key: key.into(),
            reason: reason.into(),
        }
    }

    pub(crate) fn scratch(
        path: &Path,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Scratch {
            path: path.display().to_string(),
            source: source.into(),
        }
    }

    /// Makes an error for a scratch folder that cannot be claimed.
    pub(crate) fn scratch_base(path: &Path, error: std::io::Error) -> Self {
        if !feedline_storage::private::is_untrusted(&error) {
            return Self::scratch(path, error);
        }
        Self::UntrustedScratch {
            path: path.display().to_string(),
            reason: error.to_string(),
        }
    }

    pub(crate) fn input(
        what: impl Into<String>,
        reason: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self::Input {
            what: what.into(),
            reason: reason.into(),
            advice: advice.into(),
        }
    }
}

/// An error of ours that travelled through the engine comes out as it went in.
impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Self {
        if let Some(ours) = told_of(&error) {
            return ours;
        }
        if let DataFusionError::ResourcesExhausted(reason) = error.find_root() {
            return Self::Memory {
                reason: describe_memory(reason),
            };
        }
        match error {
            DataFusionError::External(inner) => match inner.downcast::<Self>() {
                Ok(ours) => *ours,
                Err(other) => Self::Engine(DataFusionError::External(other)),
            },
            DataFusionError::Context(_, inner)
                if matches!(*inner, DataFusionError::External(_)) =>
            {
                Self::from(*inner)
            }
            other => Self::Engine(other),
        }
    }
}

/// Error of this crate inside an error of the engine, under any number of wrappers.
fn told_of(error: &DataFusionError) -> Option<Error> {
    let inner = match error.find_root() {
        DataFusionError::External(inner) => inner,
        DataFusionError::ArrowError(inner, _) => return large_cells(inner),
        _ => return None,
    };
    match inner.downcast_ref::<Error>() {
        Some(Error::Config { key, reason }) => Some(Error::config(key, reason)),
        Some(Error::Input {
            what,
            reason,
            advice,
        }) => Some(Error::input(what, reason, advice)),
        Some(Error::Arrow(inner)) => large_cells(inner),
        _ => None,
    }
}

/// Error of a batch whose cells are too large; `None` for another one.
fn large_cells(error: &ArrowError) -> Option<Error> {
    matches!(error, ArrowError::OffsetOverflowError(_)).then(|| {
        Error::input(
            "a batch of rows",
            "the cells of a column together have 2 GiB or more",
            "leave out large columns: those of joined sources with `columns` of `dataset.join`, those of a query in `dataset.sql`",
        )
    })
}

/// The `reason` of the query engine, with the setting that makes a join smaller. Its error has the operator in this text alone;
/// where the name changes, the advice is missing, and the error remains.
fn describe_memory(reason: &str) -> String {
    let reason = one_line(reason);
    match reason.contains("HashJoinInput") {
        true => format!(
            "{reason}, for one side of a join (`columns` of `dataset.join` leaves out what is not needed)"
        ),
        false => reason,
    }
}

/// Work on another thread that did not end.
impl From<JoinError> for Error {
    fn from(error: JoinError) -> Self {
        Self::Engine(DataFusionError::ExecutionJoin(Box::new(error)))
    }
}

impl From<Error> for DataFusionError {
    fn from(error: Error) -> Self {
        match error {
            Error::Engine(inner) => inner,
            other => Self::External(Box::new(other)),
        }
    }
}

fn listed(rows: u64, file: Option<&str>) -> String {
    match (file, rows) {
        (None, _) | (_, 0) => String::new(),
        (Some(file), 1) => format!("; `{file}` lists 1 row that violates them"),
        (Some(file), _) => format!("; `{file}` lists {rows} rows that violate them"),
    }
}

/// Beginning of a sentence about keys that appear where one may.
pub(crate) fn keys_appear(keys: u64) -> String {
    let verb = if keys == 1 { "appears" } else { "appear" };
    format!("{} {verb}", counted(keys, "key"))
}

fn list(by_reason: &BTreeMap<String, u64>) -> String {
    let parts: Vec<String> = by_reason
        .iter()
        .map(|(reason, rows)| format!("{reason}: {rows}"))
        .collect();
    parts.join(", ")
}

fn advice(error: &DataFusionError) -> &'static str {
    match error.find_root() {
        DataFusionError::IoError(_) => {
            ": free space in the scratch folder, or name another folder in the variable `TMPDIR`"
        }
        _ => "",
    }
}

#[cfg(test)]
mod snapshots;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message_with_causes;

    #[test]
    fn what_is_wrong_with_the_data_is_told_once_however_the_engine_wrapped_it() {
        let ours = || Error::input("the rows", "two are one", "say which counts");
        let expected = ours().to_string();
        let inner = || DataFusionError::from(ours());
        let twice =
            DataFusionError::External(Box::new(DataFusionError::External(Box::new(inner()))));
        let arrow = ArrowError::ExternalError(Box::new(inner()));
        for wrapped in [
            inner(),
            inner().context("sorting"),
            twice,
            DataFusionError::ArrowError(Box::new(arrow), None),
            DataFusionError::Shared(std::sync::Arc::new(inner())),
        ] {
            let found = Error::from(wrapped);
            assert!(matches!(found, Error::Input { .. }), "{found:?}");
            assert_eq!(message_with_causes(&found), expected);
        }
    }

    #[test]
    fn memory_that_ran_out_is_said_in_one_line_with_the_options_that_help() {
        let root = DataFusionError::ResourcesExhausted(
            "Failed to allocate additional 2.0 KB for ExternalSorter[0], of the limit of 64.0 MB"
                .to_owned(),
        );
        let error = root.context("Not enough memory to continue external sort. Consider increasing the memory limit config: 'datafusion.runtime.memory_limit'");
        let error = Error::from(DataFusionError::External(Box::new(error)));
        assert_eq!(
            message_with_causes(&error),
            "the query engine ran out of memory while building the dataset: Failed to allocate additional 2.0 KB for \
             ExternalSorter[0], of the limit of 64.0 MB; raise `--memory`, or lower `--partitions`"
        );
    }

    #[test]
    fn a_join_that_runs_out_of_memory_names_the_setting_that_makes_it_smaller() {
        let reason = "2.0 KB more for HashJoinInput[1], of the limit of 64.0 MB";
        let error = Error::from(DataFusionError::ResourcesExhausted(reason.to_owned()));
        let error = message_with_causes(&error);
        let part = "of 64.0 MB, for one side of a join (`columns` of `dataset.join` leaves out";
        assert!(error.contains(part), "{error}");
    }

    #[test]
    fn cells_that_are_too_large_for_a_batch_name_the_columns_to_leave_out() {
        let overflow = || ArrowError::OffsetOverflowError(2_148_000_000);
        let ours = DataFusionError::from(Error::Arrow(overflow()));
        let engines = DataFusionError::ArrowError(Box::new(overflow()), None);
        for error in [ours, engines] {
            let error = Error::from(error);
            assert!(matches!(error, Error::Input { .. }), "{error:?}");
            let part = "joined sources with `columns` of `dataset.join`";
            assert!(error.to_string().contains(part), "{error}");
        }
        let other = DataFusionError::ArrowError(Box::new(ArrowError::DivideByZero), None);
        assert!(matches!(Error::from(other), Error::Engine(_)));
    }

    #[test]
    fn a_full_scratch_disk_is_told_with_the_variable_that_names_another() {
        let full = || std::io::Error::from(std::io::ErrorKind::StorageFull);
        let ours = Error::scratch(Path::new("/tmp/a"), full());
        let engines = Error::from(DataFusionError::IoError(full()));
        for error in [ours, engines] {
            let error = error.to_string();
            assert!(
                error.contains("name another folder in the variable `TMPDIR`"),
                "{error}"
            );
        }
    }
}
