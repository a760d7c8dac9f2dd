//! Failures of a device's driver.

use feedline_schemas::{Classified, ErrorKind};
use thiserror::Error;

/// A device, or its driver, failed. The device's context is lost with most of these; a new process can have another.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("cannot {doing}: {reason}")]
pub struct DeviceFault {
    doing: &'static str,
    reason: String,
}

impl Classified for DeviceFault {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Retry
    }
}

impl DeviceFault {
    /// A fault: what could not be done, and what the driver said.
    #[must_use]
    pub fn new(doing: &'static str, reason: impl Into<String>) -> Self {
        Self {
            doing,
            reason: reason.into(),
        }
    }
}
