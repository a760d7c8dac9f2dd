//! Documents: which of them say nearly the same.

pub mod near;
