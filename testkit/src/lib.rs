//! Fixtures that the tests, benches and examples of several crates share.
//!
//! A dev-dependency only. Without features it needs no crate at all, so that the tests of `schemas`
//! wait for nothing.

#![expect(
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    reason = "a failed test is the only outcome of an error"
)]

pub mod arguments;
#[cfg(feature = "datasets")]
mod dataset_files;
pub mod error_texts;
#[cfg(feature = "datasets")]
pub mod foreign_formats;
pub mod free_port;
pub mod fuzz_replay;
pub mod image_corpus;
pub mod jpeg;
#[cfg(feature = "datasets")]
pub mod learnable_dataset;
#[cfg(feature = "datasets")]
pub mod numbered_dataset;
#[cfg(feature = "server")]
pub mod object_server;
pub mod png;
pub mod snapshot_file;
