//! Kinds of errors, one set for all crates.

/// Kinds of errors by the next step of the caller.
///
/// The set holds exactly the distinctions that somebody acts on. The program's exit code is 2 for [`Config`](Self::Config), 4
/// for [`Deferred`](Self::Deferred) and 1 for the rest; ranks start again after [`Retry`](Self::Retry) alone; a stopped
/// training ends its record as `interrupted` after [`Cancelled`](Self::Cancelled).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The same call may succeed later: a network, a disk, a machine or another process is at fault, not the input.
    Retry,
    /// The same call may succeed after a time that the error names.
    Deferred,
    /// A signal or the caller stopped the work. Saved work stays.
    Cancelled,
    /// The configuration or the command is wrong. The same call fails again.
    Config,
    /// Data, a dataset, a file of a run or the numbers of a training are wrong. The same call fails again.
    Data,
    /// A defect of feedline.
    Bug,
}

/// Errors that know their kind. Each public error of feedline implements it.
///
/// ```
/// use feedline_schemas::{Classified, ErrorKind, config::load};
///
/// let error = load("empty.toml", "", &[]).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Config);
/// let exit_code = match error.kind() {
///     ErrorKind::Config => 2,
///     ErrorKind::Deferred => 4,
///     _ => 1,
/// };
/// assert_eq!(exit_code, 2);
/// ```
pub trait Classified {
    /// Next step of the caller.
    fn kind(&self) -> ErrorKind;
}

#[cfg(test)]
mod snapshots;
