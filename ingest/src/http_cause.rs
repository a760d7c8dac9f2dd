//! Cause of a request that has failed.

/// Cause of [`Error::Http`](crate::Error::Http): decisions follow from it, never from the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HttpCause {
    /// The server responded with this status.
    Status(u16),
    /// The circuit of the host is open after failures in a row: no request was sent.
    CircuitOpen,
    /// Any other one, such as a broken connection or a limit of this client.
    Other,
}
