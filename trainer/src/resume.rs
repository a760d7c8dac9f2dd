//! Handling of a run folder by a training that starts.

/// Handling of a run folder that already has checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Start from nothing; refuse a run folder that has checkpoints.
    Fresh,
    /// Resume from the newest checkpoint that can be read, or start when there is none.
    Continue,
    /// As [`Resume::Continue`]; when there is no checkpoint, continue from that of the newest run that differs only in its
    /// length or learning rate.
    Prolong,
}
