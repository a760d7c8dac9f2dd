//! What is told of a run besides its weights.

pub(crate) mod memory;
pub(crate) mod tensorboard;
