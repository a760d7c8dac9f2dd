//! Cause of a request that has failed.

/// Cause of [`Error::Http`](crate::Error::Http): decisions follow from it, never from the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HttpCause {
    /// The server responded with this status.
    Status(u16),
    /// A token endpoint responded with this status and `invalid_grant`, the error code of a grant
    /// that is refused (RFC 6749, section 5.2).
    InvalidGrant(u16),
    /// The circuit of the host is open after failures in a row: no request was sent.
    CircuitOpen,
    /// The client of a store reports that the server refused the credentials, or their absence (401 or 403).
    Denied,
    /// Any other one, such as a broken connection or a limit of this client.
    Other,
}

impl HttpCause {
    /// Status of the response, where there was one.
    #[must_use]
    pub fn status(self) -> Option<u16> {
        match self {
            Self::Status(status) | Self::InvalidGrant(status) => Some(status),
            Self::CircuitOpen | Self::Denied | Self::Other => None,
        }
    }

    /// Returns true if other credentials could help.
    #[must_use]
    pub fn is_denied(self) -> bool {
        matches!(self, Self::Denied | Self::Status(401 | 403))
    }
}
