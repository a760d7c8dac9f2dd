//! The engine on several machines: a scheduler, workers, and the session of a build that hands them its queries.
//!
//! A build plans each query locally, with its own planner and settings. A query that reads only
//! shared files, with functions that can be serialized, goes to the cluster as a physical plan
//! (`planner`); any other runs locally. Its rows are not sent to the build: workers leave them in
//! the shared store (`spool`), so that a worker may be lost at any time, and the build reads them
//! from there. A query that loses data with a worker is rerun (`attempts`). Stores have names that
//! every machine can resolve (`stores`, `crate::engine::store_urls`); functions are serialized with their
//! parameters (`crate::engine::udf_codec`, `codec`).
//!
//! Programs that do not know the secret of a cluster are refused (`secret`). A program that knows it can read and write what
//! is below the roots of the workers (`stores`), and use their memory and disks. Traffic is not encrypted.

mod attempts;
mod codec;
mod nodes;
mod planner;
mod secret;
mod spool;
mod stores;

pub use nodes::{SchedulerOptions, WorkerOptions, scheduler, worker};
pub use planner::Cluster;
pub use secret::{CLUSTER_SECRET, ClusterSecret};
