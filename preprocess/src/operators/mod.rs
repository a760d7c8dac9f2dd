//! Steps between landed rows and their split, each in the plan that the engine runs.

pub(crate) mod canonical_text;
pub(crate) mod coerce;
pub(crate) mod content_column;
pub(crate) mod dedup;
pub(crate) mod document;
pub(crate) mod expectations;
pub(crate) mod images;
pub(crate) mod join;
pub(crate) mod missing_filter;
pub(crate) mod number_format;
pub(crate) mod passthrough_columns;
pub(crate) mod row_check;
pub(crate) mod split;
pub mod text;
pub(crate) mod time_series;
