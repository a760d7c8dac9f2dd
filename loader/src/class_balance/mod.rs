//! Balanced classes: the classes of blocks, counted when a source is opened, and the rows of a block by class.
//!
//! The order of the samples that follows from the counts is [`order::balance`](crate::order::balance)'s.

pub(crate) mod class_counts;
pub(crate) mod rows_by_class;
