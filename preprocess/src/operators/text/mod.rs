//! Documents: normalized, filtered by their form, and compared with one another.

pub mod near;
pub(crate) mod quality;
pub(crate) mod redact;
