//! Inference input and predictions.

pub(crate) mod image_preparer;
pub(crate) mod joins;
pub(crate) mod reader;
pub(crate) mod writer;
