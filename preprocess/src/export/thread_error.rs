//! Error of work on another thread that did not end.

use datafusion::error::DataFusionError;
use tokio::task::JoinError;

use crate::Error;

/// A thread that panicked or was stopped, as an error of the engine.
pub(super) fn joined(error: JoinError) -> Error {
    Error::Engine(DataFusionError::ExecutionJoin(Box::new(error)))
}
