//! Errors of the loader as Python exceptions with the same text.

use std::error::Error as _;

use feedline_loader::Error;
use pyo3::{exceptions::PyRuntimeError, prelude::*};

/// The exception for `error`: a class of `feedline.errors`, its message the whole chain of causes.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    of_class(py, class(error), &chain(error))
}

/// An exception of class `name` of `feedline.errors`.
pub(crate) fn of_class(py: Python<'_>, name: &str, text: &str) -> PyErr {
    let made = py
        .import("feedline.errors")
        .and_then(|module| module.getattr(name))
        .and_then(|class| class.call1((text,)));
    match made {
        Ok(value) => PyErr::from_value(value),
        Err(_) => PyRuntimeError::new_err(text.to_owned()),
    }
}

/// Classes go by what a caller does next: mend the arguments, mend the data, ask somebody, report a bug.
fn class(error: &Error) -> &'static str {
    match error {
        Error::Config { .. } => "ConfigError",
        Error::StateMismatch { .. } => "StateMismatchError",
        Error::BatchesHeld { .. } => "BatchesHeldError",
        Error::Forked { .. } => "ForkError",
        Error::Stalled { .. } => "StalledError",
        Error::Storage { .. }
        | Error::Location { .. }
        | Error::Read { .. }
        | Error::Thread { .. } => "ReadError",
        Error::Worker { .. } => "InternalError",
        _ => "DataError",
    }
}

fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
