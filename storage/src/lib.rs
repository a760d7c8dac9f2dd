//! Object stores by URL, durable local files, and create-if-absent that resolves unknown outcomes.
//!
//! A [`Store`] is a folder in some store; every path given to it is relative to that folder and
//! `/`-separated. Writes are atomic and durable: an object exists completely or not at all.
//! [`Store::put_new`] creates an object only if it is absent. If the response is lost, it reads
//! back the stored object instead of guessing.
//!
//! A store in memory works like every other one, and needs no folder:
//!
//! ```
//! use feedline_storage::Store;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let store = Store::memory();
//! store.put("raw/a.json", "{}".into()).await?;
//! store.put("raw/b.json", "[]".into()).await?;
//! assert_eq!(store.get("raw/a.json").await?, "{}");
//! let raw = store.child("raw");
//! let paths: Vec<String> = raw.list("").await?.into_iter().map(|found| found.path).collect();
//! assert_eq!(paths, ["a.json", "b.json"]);
//! assert_eq!(raw.get_opt("c.json").await?, None);
//! # Ok::<(), feedline_storage::Error>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Two writers of one object agree about the winner:
//!
//! ```
//! use feedline_storage::{PutNew, Store};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let store = Store::memory();
//! assert_eq!(store.put_new("log/0", "run 7".into()).await?, PutNew::Created);
//! assert_eq!(store.put_new("log/0", "run 8".into()).await?, PutNew::Taken("run 7".into()));
//! // The same bytes again are the same write.
//! assert_eq!(store.put_new("log/0", "run 7".into()).await?, PutNew::Created);
//! // A swap replaces an object only if it still holds the expected bytes.
//! assert!(store.swap("lease", None, "run 7".into()).await?);
//! assert!(!store.swap("lease", Some("run 6".into()), "run 8".into()).await?);
//! assert_eq!(store.get("lease").await?, "run 7");
//! # Ok::<(), feedline_storage::Error>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Credentials of a bucket are passed in, since only the program reads the environment. Opening
//! a store sends no request:
//!
//! ```
//! use feedline_storage::{Error, Store, StoreOptions};
//!
//! let vars = [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "secret")];
//! let vars = vars.map(|(name, value)| (name.to_owned(), value.to_owned()));
//! let options = StoreOptions { vars: vars.into(), ..StoreOptions::default() };
//! let store = Store::open("s3://my-bucket/trades", &options)?;
//! assert_eq!(store.child("landing").url(), "s3://my-bucket/trades/landing");
//! assert!(store.local_path().is_none());
//! assert!(matches!(Store::open("ftp://host/trades", &options), Err(Error::Location { .. })));
//! # Ok::<(), feedline_storage::Error>(())
//! ```

mod attempt;
mod backend;
mod clients;
mod error;
mod faults;
mod files;
mod folder_walk;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod growing;
mod local;
mod location;
pub mod log;
mod object;
#[cfg(feature = "pages")]
pub mod pages;
pub mod private;
mod sent_secrets;
mod store;
mod store_options;
pub mod tar;
#[cfg(test)]
mod web_tests;

pub use feedline_http::{backoff, clock};

pub use attempt::{Answer, FailureClass, Lane, ReadFailure, ReadOnce};
pub use backend::{Listed, NameRange};
pub use error::Error;
pub use faults::{Effect, Faults, Operation, Rule};
pub use files::LocalFiles;
pub use folder_walk::{FolderListing, SkipReason, SkippedEntry};
pub use growing::Growing;
pub use store::{PutNew, Store};
pub use store_options::StoreOptions;
