//! Optimization: losses, optimizers, the schedule of the learning rate, and averages of weights.

pub(crate) mod average;
pub(crate) mod clip;
pub(crate) mod loss;
pub(crate) mod loss_scale;
pub(crate) mod optimizer;
pub(crate) mod schedule;
