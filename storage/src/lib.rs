//! Object stores by URL, durable local files, and create-if-absent that resolves unknown outcomes.
//!
//! A [`Store`] is a folder in some store; every path given to it is relative to that folder and
//! `/`-separated. Writes are atomic and durable: an object exists completely or not at all.
//! [`Store::put_new`] creates an object only if it is absent. If the response is lost, it reads
//! back the stored object instead of guessing.

mod attempt;
mod backend;
mod clients;
pub mod clock;
mod error;
mod faults;
mod files;
mod growing;
mod local;
mod object;
#[cfg(feature = "pages")]
pub mod pages;
pub mod private;
mod redacted;
mod retry_after;
mod store;
pub mod tar;
pub mod web;

pub use attempt::{Answer, FailureClass, Lane, ReadFailure, ReadOnce};
pub use error::Error;
pub use faults::{Effect, Faults, Operation, Rule};
pub use files::LocalFiles;
pub use growing::Growing;
pub use store::{Listed, PutNew, Store, StoreOptions};
