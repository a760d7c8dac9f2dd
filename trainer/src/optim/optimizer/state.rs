//! State of an optimizer: flat buckets by name.

/// One kind of state of all parameters, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StateBucket {
    /// Name, such as `first_moment`.
    pub(crate) name: String,
    /// Values; 0 before the first step.
    pub(crate) values: Vec<f32>,
}

/// Name and length of each bucket of state, in the optimizer's order.
pub(crate) type StateLayout = Vec<(String, usize)>;
