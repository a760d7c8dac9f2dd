//! Messages of ranks to the launcher: lines of JSON on their standard output.

use std::fmt;

use feedline_schemas::{Classified as _, ErrorKind, report::TrainReport};
use feedline_trainer::{Error, Whereabouts};
use serde::{Deserialize, Serialize};

use crate::exit;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RankMessage {
    /// A heartbeat with the position of the rank.
    Heartbeat(Whereabouts),
    /// It has finished. All ranks have the report.
    Done(Box<TrainReport>),
    /// It has failed.
    Failed(ReportedFailure),
}

/// Failure of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReportedFailure {
    /// The chain of causes.
    pub(super) message: String,
    /// Exit code.
    pub(super) code: u8,
    /// True if it stopped on request.
    pub(super) interrupted: bool,
    /// True if the message ends with the checkpoint to resume from.
    pub(super) names_checkpoint: bool,
    /// True if a restart may help.
    pub(super) may_pass: bool,
    /// The rank at fault and its fault, if that is another one.
    pub(super) other: Option<(usize, String)>,
}

impl ReportedFailure {
    pub(super) fn new(error: &anyhow::Error) -> Self {
        let trained = error.downcast_ref::<Error>();
        let code = exit::code_of(error);
        Self {
            message: format!("{error:#}"),
            code,
            interrupted: trained.is_some_and(|e| e.kind() == ErrorKind::Cancelled),
            names_checkpoint: matches!(trained, Some(Error::Interrupted { .. })),
            may_pass: trained.map_or(code == 1, Error::may_pass),
            other: match trained {
                Some(Error::Rank { rank, reason, .. }) => Some((*rank, reason.clone())),
                _ => None,
            },
        }
    }
}

/// Failure reported by a rank, as the launcher's own error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RankError {
    pub(super) message: String,
    pub(crate) code: u8,
}

impl fmt::Display for RankError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for RankError {}
