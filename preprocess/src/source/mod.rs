//! Rows of a dataset before any step: landed sources, Parquet files in place, SQL queries.

pub(crate) mod landed_log;
pub(crate) mod landed_scan;
pub(crate) mod landed_texts;
pub(crate) mod landing_zone;
pub(crate) mod latest_version;
pub(crate) mod parquet_in_place;
pub(crate) mod parquet_scan;
pub(crate) mod sql;
pub(crate) mod superseded_files;
pub(crate) mod version_notation;
pub(crate) mod version_order;
