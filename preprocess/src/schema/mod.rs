//! Columns of the landed rows and their roles: the configuration resolved against what has landed.

pub(crate) mod column_roles;
pub(crate) mod dataset_spec;
pub(crate) mod landed_cells;
pub(crate) mod landed_columns;
pub(crate) mod no_feature;
pub(crate) mod reject_reason;
pub(crate) mod system_columns;
