//! Inference input and predictions.

pub(crate) mod image_preparer;
pub(crate) mod joins;
pub(crate) mod passthrough_type;
pub(crate) mod query_types;
pub(crate) mod reader;
pub(crate) mod repeated_times;
pub(crate) mod writer;
