//! Samples of the dataset, from its loaders to the model.

pub(crate) mod images;
pub(crate) mod loaders;
pub(crate) mod mixture;
pub(crate) mod quarantine;
pub(crate) mod samples;
mod shared_rows;
pub(crate) mod task;
pub(crate) mod transform_artefact;
