//! Models: their layers, their weights, and the engine that computes losses and gradients with them.

pub(crate) mod class_outputs;
pub(crate) mod engine;
pub(crate) mod init;
pub(crate) mod input;
pub(crate) mod interface;
pub mod layers;
pub(crate) mod models;
pub(crate) mod packed_bucket;
pub(crate) mod pytorch_layout;
