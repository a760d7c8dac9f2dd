//! Delivery of batches: a batch, and the passes that give one after another to threads and async tasks.

pub(crate) mod batch;
pub(crate) mod iterator;
pub(crate) mod stream;
