//! Tracking of a run besides its weights: its record, its metrics for other programs, its page.

pub(crate) mod index;
pub(crate) mod links;
pub(crate) mod memory;
pub(crate) mod page;
pub(crate) mod paths;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod settings_of;
pub(crate) mod status;
pub(crate) mod tensorboard;
pub(crate) mod timestamp;
