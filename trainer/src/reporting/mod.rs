//! Reports of runs besides their weights: records, metrics, speed, pages.

pub(crate) mod index;
pub(crate) mod links;
pub(crate) mod memory;
pub(crate) mod metrics_log;
pub(crate) mod page;
pub(crate) mod paths;
pub(crate) mod performance;
pub(crate) mod rank_speeds;
pub(crate) mod record;
pub(crate) mod report;
pub mod runs;
pub(crate) mod settings_of;
pub(crate) mod status;
pub(crate) mod step_times;
pub(crate) mod tensorboard;
pub(crate) mod timestamp;
